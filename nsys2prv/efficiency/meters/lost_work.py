"""Work that was launched and is not in the report.

nsys loses work of devices where its buffers are full or the recording ends too early, and work can be left out when a report is
exported. Where calls launch what nobody recorded, a device that seems to be idle may be busy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES, ON_HOSTS
from nsys2prv.efficiency.sweep import KERNEL_TYPES, LAUNCH, SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types

FEWEST_CALLS = 10
"""Calls that launch something unrecorded: fewer may have failed, or launched functions of the host."""
CALLS_OF_WORK = 4
"""Calls that launch for each recorded kernel or graph from which on most of the work is not recorded. Usual is 1, or 2 where
calls of the driver inside those of the runtime are recorded too."""
_PARTS = 1_000
"""Of the window, in which calls and work are counted."""


class LostWork:
    """Counts launches and what they launched; it is updated with each chunk, in the order of time."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._calls, self._launched = (np.zeros(_PARTS, dtype=np.int64) for _ in range(2))

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk."""
        calls = chunk.started[ON_HOSTS.name]
        number = calls["number"].to_numpy()
        is_call = number == event_types.CUDA_CALL
        is_launch = is_call & (self._context.category(number, calls["value"].to_numpy()) == LAUNCH)
        np.add.at(self._calls, self._part(calls["start"].to_numpy()[is_launch]), 1)
        work = chunk.started[ON_DEVICES.name].filter(pl.col("number").is_in(KERNEL_TYPES)).select("row", "start")
        launches = chunk.launches.filter(pl.col("time") >= 0)
        found = launches.join(work, left_on=["to_row", "to_time"], right_on=["row", "start"], how="semi")
        np.add.at(self._launched, self._part(found["time"].to_numpy()), 1)

    def _part(self, moment: Numbers) -> Numbers:
        part: Numbers = np.clip(moment * _PARTS // max(self._context.events.length, 1), 0, _PARTS - 1)
        return part

    @property
    def is_most(self) -> bool:
        """Whether most of what was launched is not recorded."""
        return bool(self._calls.sum() >= FEWEST_CALLS + CALLS_OF_WORK * self._launched.sum())

    @property
    def at_end(self) -> int:
        """Calls that launch after the last launch of work that is recorded; few are not counted."""
        last = np.flatnonzero(self._launched)
        after = int(self._calls[last[-1] + 1 :].sum()) if len(last) else 0
        return after if after >= FEWEST_CALLS else 0

    @property
    def reason(self) -> str | None:
        """Why it is not known when devices are idle; None: it is."""
        if not self.is_most:
            return None
        return f"of most launches no work is recorded: {self._calls.sum():,} calls, {self._launched.sum():,} kernels and graphs"

    @property
    def warnings(self) -> Sequence[str]:
        """What is lost."""
        if self.reason is not None:
            return [f"{self.reason}; it is not known when devices are idle"]
        if self.at_end:
            return [f"{self.at_end:,} calls launch after the last work that is recorded: what they launched is lost"]
        return []
