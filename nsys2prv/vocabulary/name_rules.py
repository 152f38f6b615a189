"""Regular expressions, of users and of rules about names.

All are those of Rust, by way of polars: the time that they take grows with the text alone, whatever the pattern is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import polars as pl

from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.wording import short

_WILDCARDS = re.compile(r"(\*+|\?)")
_MOST_WILDCARDS = 2_000
"""An expression that is made of them needs some hundred bytes for each."""


def first_match(text: pl.Expr, rules: Iterable[tuple[str, int | str]], default: int | str | None) -> pl.Expr:
    """Value of the first rule that a text matches.

    Parameters
    ----------
    text
        Texts.
    rules
        Regular expressions, looked for anywhere in the text, and their values: all numbers or all texts.
    default
        Value where no rule matches, and of null; None for null.

    Examples
    --------
    >>> names = pl.Series(["sgemm_nn", "gelu", None])
    >>> pl.select(first_match(pl.lit(names), (("gemm", 1), ("nn", 2)), 0)).to_series().to_list()
    [1, 0, 0]
    """
    # Side by side: nested, a hundred rules would be a hundred levels.
    matches = [pl.when(text.str.contains(pattern)).then(_value(value)) for pattern, value in rules]
    return pl.coalesce(*matches, _value(default))


def fits(text: pl.Expr, pattern: str) -> pl.Expr:
    """Whether a text is equal to a pattern, or its wildcards match it: * any text, ? one character.

    Raises
    ------
    UsageError
        When the pattern has too many wildcards.

    Examples
    --------
    >>> names = pl.Series(["step 1", "step [2]", "step *", None])
    >>> pl.select(fits(pl.lit(names), "step [?]")).to_series().to_list()
    [False, True, False, None]
    """
    pieces = _WILDCARDS.split(pattern)
    if len(pieces) == 1:
        return text == pattern
    if len(pieces) > 2 * _MOST_WILDCARDS:
        raise UsageError(f"{short(pattern)}: a name has at most {_MOST_WILDCARDS:,} wildcards * and ?")
    # Every second piece is a wildcard.
    pieces[::2] = map(pl.escape_regex, pieces[::2])
    pieces[1::2] = [".*" if piece.startswith("*") else "." for piece in pieces[1::2]]
    return (text == pattern) | text.str.contains(f"(?s)^{''.join(pieces)}$")


def count_groups(pattern: str) -> int:
    r"""Number of groups of a regular expression; ValueError with the reason when it is none.

    >>> count_groups(r"rank(\d+)")
    1
    """
    try:
        return len(pl.Series([""]).str.extract_groups(pattern).struct.fields)
    except pl.exceptions.PolarsError as error:
        # Before the reason there is a picture of the pattern.
        _, _, why = str(error).rpartition("error: ")
        raise ValueError(f"no regular expression of Rust ({why})") from error


def first_group(texts: Sequence[str], pattern: str) -> list[str | None]:
    r"""What the first group of a regular expression matches in each text, None where nothing does.

    >>> first_group(["run/rank3", "run"], r"rank(\d+)")
    ['3', None]
    """
    return pl.Series(texts, dtype=pl.String).str.extract(pattern, 1).to_list()


def _value(value: int | str | None) -> pl.Expr:
    return pl.lit(value, pl.Int64) if isinstance(value, int) else pl.lit(value)
