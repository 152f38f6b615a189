"""When devices are launch-starved while NCCL kernels run on them: the next kernel could run beside the collective, and is not
launched. Where the launching thread waits for the device, or moves memory, it may wait for the collective: that does not count.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.sweep import LAUNCH, NO_CALL, OS, OTHER_CUDA, SweepContext

_PARTS = [parts.PART_OF_ACTIVITY[activity] for activity in (LAUNCH, OTHER_CUDA, OS, NO_CALL)]
_WHILE_NCCL = (1, 3)
"""Places in `absent_tables.WHILE`."""
_MOST = 1_000_000
_SCHEMA = dict.fromkeys(("device", "row", "begin", "end"), pl.Int64)


class StarvedBesideNccl:
    """Collects these stretches."""

    def __init__(self, context: SweepContext) -> None:
        self._callers = context.callers
        self._found = [pl.DataFrame(schema=_SCHEMA)]
        self._count = 0

    def add(self, pieces: pl.DataFrame, thread: Numbers) -> None:
        """Pieces of stretches without computation: `stretch`, `device`, `begin`, `end`, `part`, `value`; and of each stretch
        the launching thread, a place in `SweepContext.callers`."""
        chosen = pieces.filter(pl.col("part").is_in(_PARTS) & pl.col("value").is_in(_WHILE_NCCL))
        row = self._callers[thread[chosen["stretch"].to_numpy()]]
        found = chosen.select("device", pl.Series("row", row, dtype=pl.Int64), "begin", "end").sort("device", "begin")
        # A stretch is in pieces by what the thread did.
        is_new = (pl.col("begin") != pl.col("end").shift()) | (pl.col("device") != pl.col("device").shift())
        merged = (
            found.group_by(is_new.fill_null(value=True).cum_sum().alias("run"), maintain_order=True)
            .agg(pl.col("device", "row", "begin").first(), pl.col("end").last())
            .select(list(_SCHEMA))
        )
        self._count += merged.height
        self._found = [*self._found, merged] if self._count <= _MOST else [pl.DataFrame(schema=_SCHEMA)]

    @property
    def stretches(self) -> pl.DataFrame | None:
        """`device`, `row` of the launching thread, `begin`, `end` (ns), in any order; None: they are too many."""
        return pl.concat(self._found) if self._count <= _MOST else None
