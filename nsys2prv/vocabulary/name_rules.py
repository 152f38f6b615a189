"""Rules about names: regular expressions, of which the first that matches counts."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl


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


def _value(value: int | str | None) -> pl.Expr:
    return pl.lit(value, pl.Int64) if isinstance(value, int) else pl.lit(value)
