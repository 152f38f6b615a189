"""Several columns as one number, which is sorted and compared faster; and the different numbers of a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

_LARGEST = 2**62
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xFF51AFD7ED558CCD, 0xD6E8FEB86659FD93)
"""Each spreads numbers over the slots of a table in another way."""
_TABLES = ((12, _MULTIPLIERS[0]), *((16, multiplier) for multiplier in _MULTIPLIERS))
"""Bits of the number of a slot. For most columns a table is enough that stays in the fastest cache."""
FEW_KEYS = 1 << 16
"""Smaller numbers are sorted by their digits, which takes a tenth of the time."""
_MOST_IN_SLOTS = 1000
"""Of more different numbers, some two are in one slot whatever the multiplier is."""


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


def one_key(columns: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """The same for columns of numpy, of which at least one has rows."""
    key = columns[0]
    size = 1
    for place, column in enumerate(columns):
        lowest = int(column.min())
        span = int(column.max()) - lowest + 1
        size *= span
        if size > _LARGEST:
            frame = pl.DataFrame({str(number): each for number, each in enumerate(columns)})
            return frame.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64)).to_series().to_numpy()
        key = key * span + (column - lowest) if place else column - lowest
    return key


@dataclass(frozen=True)
class Distinct:
    """The different numbers of a column, in their order; the place among them of each row; and how many rows have each."""

    numbers: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]

    def which(self, is_chosen: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
        """For each of the different numbers whether a condition holds for it."""
        return np.array([is_chosen(number) for number in self.numbers.tolist()], dtype=bool)


def distinct(column: npt.NDArray[np.int64]) -> Distinct:
    """The different numbers of a column, without sorting it where there are few of them."""
    if not len(column):
        return Distinct(column, column, column)
    for bits, multiplier in _TABLES:
        slot = (column.view(np.uint64) * np.uint64(multiplier) >> np.uint64(64 - bits)).view(np.int64)
        in_slot = np.empty(1 << bits, np.int64)
        in_slot[slot] = column
        rows = np.bincount(slot, minlength=1 << bits)
        used = np.flatnonzero(rows)
        if np.array_equal(in_slot.take(slot), column):
            used = used[np.argsort(in_slot[used])]
            place_of_slot = np.empty(1 << bits, np.int64)
            place_of_slot[used] = np.arange(len(used))
            return Distinct(in_slot[used], place_of_slot.take(slot), rows[used])
        if len(used) > _MOST_IN_SLOTS:
            break
    numbers, place, count = np.unique(column, return_inverse=True, return_counts=True)
    return Distinct(numbers, place, count)


def order_of_keys(key: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A stable order of rows by a key that counts from 0."""
    order: npt.NDArray[np.int64] = np.argsort(key.astype(np.uint16) if key.max(initial=0) < FEW_KEYS else key, kind="stable")
    return order
