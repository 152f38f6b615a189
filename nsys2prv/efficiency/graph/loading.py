"""Times in which a host loads data: it is in no CUDA or MPI call for long, and then it first copies to the device.

The rule is that of the finding `data-loading`, without its device: how long the host takes, not what the device loses.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.graph.chunk_moments import OpenIntervals
from nsys2prv.efficiency.intervals import Numbers

LEAST_NS = 1_000_000
"""Shortest time that counts: a batch that is ready is copied within some 100 us."""
LEAST_BYTES = 16 << 10
"""Smallest copy after it: smaller ones are flags and parameters, and no batch."""

_MOST_OPEN = 100_000
"""Pauses that are carried on while it is not known what was launched next: some threads launch nothing."""

SCHEMA = {"row": pl.Int64, "begin": pl.Int64, "end": pl.Int64}
"""Times of loading: row of the thread, ns."""


class LoadingTimes:
    """Finds them, chunk by chunk."""

    def __init__(self) -> None:
        self._free_since = pl.DataFrame(schema={"row": pl.Int64, "until": pl.Int64})
        self._open = pl.DataFrame(schema=SCHEMA)
        self._found: list[pl.DataFrame] = []

    def update(self, hosts: OpenIntervals, calls: Numbers, launched: pl.DataFrame) -> None:
        """Add a chunk.

        Parameters
        ----------
        hosts, calls
            Intervals of host threads, and the places of the CUDA and MPI calls that start in the chunk.
        launched
            What starts on devices: `row` and `launched`, thread and time of the launch, and `is_batch`: it is a copy to a
            device and large enough.
        """
        started = pl.DataFrame({"row": hosts.row[calls], "begin": hosts.begin[calls], "until": hosts.until[calls]})
        before = self._free_since.select("row", "until", begin="until").select(started.columns)
        # The end of all calls before each of a thread.
        ordered = pl.concat([before, started]).sort("row", "begin", "until", maintain_order=True)
        ended = ordered.with_columns(since=pl.col("until").cum_max().shift(1).over("row"))
        self._free_since = ended.group_by("row", maintain_order=True).agg(pl.col("until").max())
        pauses = ended.filter(pl.col("begin") - pl.col("since") >= LEAST_NS).select("row", begin="since", end="begin")
        self._open = pl.concat([self._open, pauses])
        if self._open.is_empty():
            return
        first = launched.drop_nulls().sort("launched", "is_batch")
        followed = self._open.sort("end").join_asof(
            first, left_on="end", right_on="launched", by="row", strategy="forward", check_sortedness=False
        )
        self._found.append(followed.filter("is_batch").select(list(SCHEMA)))
        self._open = followed.filter(pl.col("is_batch").is_null()).select(list(SCHEMA)).tail(_MOST_OPEN)

    def finish(self) -> pl.DataFrame:
        """All times of loading: columns of SCHEMA."""
        return pl.concat([pl.DataFrame(schema=SCHEMA), *self._found])
