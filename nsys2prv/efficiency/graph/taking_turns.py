"""Threads of a process that take turns: one launches work while another one waits for it, as in the backward pass of training.

Where calls of the OS were not recorded, nothing says who woke a thread. Threads that launch on the same stream don't work at
the same time: one that was in no call for long, or did nothing before, while another one was, waited for the last call of that.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.chunk_moments import ChunkMoments, Former, Mask
from nsys2prv.efficiency.graph.moment_files import END, NOT_FOUND, START
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution.merging import Sums

LEAST_PAUSE = 100_000
"""ns in which a thread is in no call before it can have waited for another one: between launches it takes less."""


class TakingTurns:
    """Finds what threads waited for, chunk by chunk.

    Parameters
    ----------
    rows
        Number of rows.
    """

    def __init__(self, rows: int) -> None:
        self._stream: Numbers = np.full(rows, NOT_FOUND, dtype=np.int64)
        self._launches = Sums({"thread": pl.Int64, "stream": pl.Int64, "count": pl.Int64}, ["thread", "stream"])
        self._last_call = Former(rows)

    def note(self, launches: pl.DataFrame) -> None:
        """Note on which streams threads launch: columns `thread` (null: not known) and `stream`, in any order."""
        self._launches.add(launches.drop_nulls().cast(pl.Int64).with_columns(count=pl.lit(1, pl.Int64)))
        # The one that each launches on most: collectives and copies have separate streams.
        most = self._launches.rows.sort("count", "stream").group_by("thread", maintain_order=True).last()
        self._stream[most["thread"].to_numpy()] = most["stream"].to_numpy()

    def wakers(
        self, moments: ChunkMoments, on_hosts: Numbers, before: Numbers, pause: Numbers, is_call: Mask, is_free: Mask
    ) -> Numbers:
        """The ends of calls of other threads that starts of calls waited for; NOT_FOUND: none.

        Parameters
        ----------
        on_hosts
            Places of the moments of host threads.
        before, pause
            Of each of these, the moment before on its thread, and the time since then.
        is_call, is_free
            Whether it belongs to a CUDA or MPI call, and whether the thread was in no call before it.
        """
        stream = self._stream[moments.row[on_hosts]]
        part = np.flatnonzero(stream != NOT_FOUND)
        side = moments.side[on_hosts[part]]
        last = self._last_call.of(stream[part], moments.first + on_hosts[part], (side == END) & is_call[part])
        waited = (side == START) & is_call[part] & is_free[part] & (pause[part] >= LEAST_PAUSE)
        waited &= last > before[part]
        found: Numbers = np.full(len(on_hosts), NOT_FOUND, dtype=np.int64)
        found[part[waited]] = last[waited]
        return found
