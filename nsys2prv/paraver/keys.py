"""Several columns as one number, which is sorted and compared faster."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_LARGEST = 2**62


def one_number(frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """One number for each row of a frame, equal where some columns of integers are."""
    numbers = pl.lit(0, pl.Int64)
    size = 1
    for name in columns:
        column = frame[name]
        lowest, highest = column.min() or 0, column.max() or 0
        assert isinstance(lowest, int) and isinstance(highest, int)  # noqa: PT018
        span = highest - lowest + 1
        size *= span
        if size > _LARGEST:
            return frame.select(pl.struct(columns).rank("dense")).to_series()
        numbers = numbers * span + (pl.col(name) - lowest)
    return frame.select(numbers.alias("key")).to_series()
