"""NVTX ranges that a user chooses by name: NAME or NAME@DOMAIN."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from nsys2prv.efficiency.run_events import RANGES, RunEvents, base_types
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.name_rules import fits
from nsys2prv.vocabulary.wording import did_you_mean_any, short

_EVERY = "*"
_DOMAIN = re.compile(r"NVTX pushpop ranges (.*) domain")
_NAME_SCHEMA = {"number": pl.Int32, "value": pl.Int64, "text": pl.String, "domain": pl.String}


class NamedRanges:
    """Ranges chosen by name.

    Parameters
    ----------
    events
        The run.
    requested
        NAME or NAME@DOMAIN each; `*` and `?` match anything. A name with an @ in it also matches a range of exactly that name.

    Attributes
    ----------
    names
        Text and domain of the ranges chosen; their places are the slots.
    slots
        Columns `number` (event type), `value`, `slot`.

    Raises
    ------
    UsageError
        When no range has a name that is requested; the pattern `*` may fit none.
    """

    def __init__(self, events: RunEvents, requested: Sequence[str]) -> None:
        rows: list[tuple[int, int, str, str | None]] = []
        for number, names in events.types.items():
            if not base_types([number], RANGES):
                continue
            match = _DOMAIN.fullmatch(names.label)
            domain = match[1] if match else None
            rows += [(number, value, text, domain) for value, text in (names.values or {}).items() if value]
        ranges = pl.DataFrame(rows, schema=_NAME_SCHEMA, orient="row")
        called = {name: ranges.select(_is_called(name)).to_series() for name in requested}
        for name in requested:
            if name != _EVERY and not called[name].any():
                names = ranges["text"].unique().sort()
                raise UsageError(f"no NVTX range is called {short(name)}{did_you_mean_any(name, names, 'inspect --nvtx')}")
        matches = ranges.filter(pl.any_horizontal(*called.values()))
        self.names = list(dict.fromkeys(matches.select("text", "domain").iter_rows()))
        slots = {name: slot for slot, name in enumerate(self.names)}
        of_matches = [slots[name] for name in matches.select("text", "domain").iter_rows()]
        self.slots = matches.select("number", "value", slot=pl.Series(of_matches, dtype=pl.Int64))


def _is_called(requested: str) -> pl.Expr:
    name, at, of_domain = requested.rpartition("@")
    is_called = fits(pl.col("text"), requested)
    if at:
        is_called |= fits(pl.col("text"), name) & fits(pl.col("domain").fill_null("default"), of_domain)
    return is_called
