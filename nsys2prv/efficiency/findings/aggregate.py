"""Sums over occurrences by device and part of the run; of each key the most costly occurrence, as a place to look at."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys2prv.execution.merging import Merging

PARTS = 100
"""Parts of equal length that the run is cut into, to see whether something recurs and where it costs most."""
NONE = -1
"""No row, or no thread."""

_TOP = {"top_cost": "cost", "top_begin": "begin", "top_end": "end", "top_row": "row", "top_thread": "thread"}
_PENDING_ROWS = 20_000


def part_of(begin: pl.Expr, length: int) -> pl.Expr:
    """The part of the run, 0 to below PARTS, that holds a time; `length` is that of the run, ns."""
    return (begin * PARTS // max(length, 1)).clip(0, PARTS - 1)


class OccurrenceSums:
    """Occurrences by key: sums, the first begin and last end, and the most costly occurrence.

    Parameters
    ----------
    key, sums
        Columns of the occurrences that `add` takes. The others are `begin`, `end` and `cost` (ns), `row` (of the trace) and
        `thread` (a place in `SweepContext.callers`), NONE for none; all are whole numbers.
    """

    def __init__(self, key: Sequence[str], sums: Sequence[str]) -> None:
        self._key = list(key)
        self._sums = list(sums)
        self._columns = [*key, *sums, "begin", "end", *_TOP]
        empty = pl.DataFrame(schema=dict.fromkeys(self._columns, pl.Int64))
        self._merging = Merging(self._merged, empty, _PENDING_ROWS)

    def add(self, occurrences: pl.DataFrame) -> None:
        """Add the occurrences of a time chunk."""
        if occurrences.is_empty():
            return
        columns = [pl.col(name) for name in (*self._key, *self._sums, "begin", "end")]
        columns += [pl.col(source).alias(name) for name, source in _TOP.items()]
        self._merging.add(self._merged(occurrences.select(column.cast(pl.Int64) for column in columns)))

    def frame(self) -> pl.DataFrame:
        """Columns: the key, the sums, `begin`, `end`, and of the most costly occurrence `top_` cost, begin, end, row, thread;
        sorted by the key."""
        return self._merging.rows.sort(self._key)

    def _merged(self, frame: pl.DataFrame) -> pl.DataFrame:
        # Of several with the same cost the first counts, so that the result does not depend on the chunks.
        is_top = pl.col("top_cost") == pl.col("top_cost").max()
        first = pl.col("top_begin").filter(is_top).arg_min()
        tops = [pl.col(name).filter(is_top).get(first) for name in _TOP]
        sums = pl.col(self._sums).sum()
        merged = frame.group_by(self._key).agg(sums, pl.col("begin").min(), pl.col("end").max(), *tops)
        return merged.select(self._columns)
