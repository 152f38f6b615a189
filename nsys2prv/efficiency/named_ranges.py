"""NVTX ranges that a user chooses by name: NAME or NAME@DOMAIN."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from nsys2prv.efficiency.run_events import RANGES, RunEvents, base_types
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.name_rules import fits
from nsys2prv.vocabulary.wording import did_you_mean_any, short

_DOMAIN = re.compile(r"NVTX pushpop ranges (.*) domain")
_SCHEMA = {"number": pl.Int32, "base": pl.Int32, "value": pl.Int64, "text": pl.String, "domain": pl.String}


def range_texts(events: RunEvents) -> pl.DataFrame:
    """Texts of NVTX ranges: columns `number` (event type), `base` (the event type that it is a lane of), `value`, `text`, and
    `domain` (null: the default one)."""
    rows = [
        (number, base, value, text, match[1] if (match := _DOMAIN.fullmatch(events.types[number].label)) else None)
        for number, base in base_types(list(events.types), RANGES).items()
        for value, text in (events.types[number].values or {}).items()
        if value
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def named_ranges(events: RunEvents, requested: Sequence[str]) -> pl.DataFrame:
    """Ranges chosen by name: columns `number` (event type), `value`, `slot` (0, 1, ... for each text and domain), `region` (the
    text) and `domain`.

    Parameters
    ----------
    requested
        NAME or NAME@DOMAIN each; `*` and `?` match anything. A name with an @ in it also matches a range of exactly that name.

    Raises
    ------
    UsageError
        When no range has a name that is requested; the pattern `*` may fit none.
    """
    ranges = range_texts(events)
    called = ranges.select(_is_called(name).alias(name) for name in dict.fromkeys(requested))
    for name in called.columns:
        if name != "*" and not called[name].any():
            names = ranges["text"].unique().sort()
            raise UsageError(f"no NVTX range is called {short(name)}{did_you_mean_any(name, names, 'inspect --nvtx')}")
    matches = ranges.filter(pl.any_horizontal(pl.lit(value=False), *called)).with_row_index("slot")
    first = pl.col("slot").min().over("text", "domain")
    return matches.select("number", "value", "domain", slot=first.rank("dense").cast(pl.Int64) - 1, region="text")


def _is_called(requested: str) -> pl.Expr:
    name, at, of_domain = requested.rpartition("@")
    is_called = fits(pl.col("text"), requested)
    if at:
        is_called |= fits(pl.col("text"), name) & fits(pl.col("domain").fill_null("default"), of_domain)
    return is_called
