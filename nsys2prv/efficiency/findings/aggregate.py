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


def over_parts(occurrences: pl.DataFrame, sums: Sequence[str], length: int) -> pl.DataFrame:
    """Occurrences in pieces, one for each part of the run that they reach over.

    Parameters
    ----------
    occurrences
        Columns of `OccurrenceSums.add`, with `part` in the key: that of the first time.
    sums
        Columns that count for the first piece alone; the cost is shared out by time.
    length
        Of the run, ns.

    Returns
    -------
    The same columns, and `whole_cost` of the occurrence. Few occurrences are longer than a part, so that there are few pieces.
    """
    last = part_of(pl.col("end") - 1, length)
    whole = (
        occurrences.lazy()
        .with_columns(pl.col("part", "begin", "end", "cost", *sums).cast(pl.Int64))
        .with_columns(whole_cost="cost", is_long=last > pl.col("part"))
        .collect(engine="in-memory")
    )
    is_long = whole["is_long"]
    if not is_long.any():
        return whole.drop("is_long")
    numbered = whole.drop("is_long").with_row_index("occurrence")
    pieces = _pieces(numbered.filter(is_long), sums, length)
    return pl.concat([numbered.filter(~is_long), pieces.select(numbered.columns)]).sort("occurrence").drop("occurrence")


def _pieces(occurrences: pl.DataFrame, sums: Sequence[str], length: int) -> pl.DataFrame:
    """Occurrences that reach over several parts, in pieces."""
    last = part_of(pl.col("end") - 1, length)
    split = occurrences.with_columns(first="part", part=pl.int_ranges("part", last + 1)).explode("part")
    run = max(length, 1)
    # The first time of a part, as `part_of` has it.
    begin, end = (-((run * -part) // PARTS) for part in (pl.col("part"), pl.col("part") + 1))
    inside = (pl.min_horizontal("end", end) - pl.max_horizontal("begin", begin)).clip(lower_bound=0)
    is_first = pl.col("part") == pl.col("first")
    later = (
        pl.when(is_first).then(0).otherwise(pl.col("cost") * inside // (pl.col("end") - pl.col("begin")).clip(lower_bound=1))
    )
    split = split.with_columns(later=later)
    first = pl.col("cost") - pl.col("later").sum().over("occurrence")
    return split.with_columns(
        *(pl.when(is_first).then(pl.col(name)).otherwise(0).alias(name) for name in sums),
        cost=pl.when(is_first).then(first).otherwise("later"),
    )


class OccurrenceSums:
    """Occurrences by key: sums, the first begin and last end, and the most costly occurrence.

    Parameters
    ----------
    key, sums
        Columns of the occurrences that `add` takes. The others are `begin`, `end` and `cost` (ns), `row` (of the trace) and
        `thread` (a place in `SweepContext.callers`), NONE for none; all are whole numbers. With `whole_cost` they are pieces of
        occurrences (`over_parts`).
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
        sources = {**_TOP, "top_cost": "whole_cost"} if "whole_cost" in occurrences.columns else _TOP
        columns += [pl.col(source).alias(name) for name, source in sources.items()]
        self._merging.add(self._merged(occurrences.lazy().select(column.cast(pl.Int64) for column in columns)))

    def frame(self) -> pl.DataFrame:
        """Columns: the key, the sums, `begin`, `end`, and of the most costly occurrence `top_` cost, begin, end, row, thread;
        sorted by the key."""
        return self._merging.rows.sort(self._key)

    def _merged(self, frame: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
        # Of several with the same cost the first counts, so that the result does not depend on the chunks.
        tops = pl.col(list(_TOP)).get(pl.col("top_cost").arg_max())
        sums = pl.col(self._sums).sum()
        ordered = frame.lazy().sort("top_begin", maintain_order=True)
        merged = ordered.group_by(self._key).agg(sums, pl.col("begin").min(), pl.col("end").max(), tops)
        return merged.select(self._columns).collect(engine="in-memory")
