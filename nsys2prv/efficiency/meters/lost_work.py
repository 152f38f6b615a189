"""Work that was launched and is not in the report.

nsys loses work of devices where its buffers are full or the recording ends too early, and work can be left out when a report is
exported. Where calls launch what nobody recorded, a device that seems to be idle may be busy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
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
        names = context.events.types.get(event_types.CUDA_CALL)
        # These launch nothing on devices.
        self._of_host = [value for value, name in ((names.values if names else None) or {}).items() if "HostFunc" in name]
        self._longest = 0
        """Longest time from a launch to its work, ns."""
        shape = len(context.events.rows.tasks), _PARTS
        self._calls, self._launched = (np.zeros(shape, dtype=np.int64) for _ in range(2))

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk."""
        calls = chunk.started[ON_HOSTS.name]
        number = calls["number"].to_numpy()
        is_call = number == event_types.CUDA_CALL
        value = calls["value"].to_numpy()
        is_launch = is_call & (self._context.category(number, value) == LAUNCH) & ~np.isin(value, self._of_host)
        self._count(self._calls, calls.filter(pl.Series(is_launch)).select("row", time="start"))
        work = chunk.started[ON_DEVICES.name].filter(pl.col("number").is_in(KERNEL_TYPES)).select("row", "start")
        launches = chunk.launches.filter(pl.col("time") >= 0)
        self._longest = max(self._longest, int((launches["to_time"] - launches["time"]).max() or 0))
        self._count(self._launched, launches.join(work, left_on=["to_row", "to_time"], right_on=["row", "start"], how="semi"))

    def _count(self, counts: Numbers, calls: pl.DataFrame) -> None:
        """Add calls (`row`, `time`) to the counts of their tasks and parts of the window."""
        part = np.clip(calls["time"].to_numpy() * _PARTS // max(self._context.events.length, 1), 0, _PARTS - 1)
        np.add.at(counts, (self._context.events.rows.task[calls["row"].to_numpy()], part), 1)

    @property
    def is_most(self) -> bool:
        """Whether most of what was launched is not recorded."""
        return bool(self._calls.sum() >= FEWEST_CALLS + CALLS_OF_WORK * self._launched.sum())

    @property
    def at_start(self) -> int:
        """Calls that launch before the first launch of work of their task that is recorded; a few are not counted."""
        return self._lost(self._part < self._first[:, None])

    @property
    def between(self) -> int:
        """The same between the first and the last such launch, where none of their part of the window is recorded, and of tasks
        without recorded work."""
        return self._lost((self._part >= self._first[:, None]) & (self._part <= self._last[:, None]))

    @property
    def at_end(self) -> int:
        """The same after the last such launch. What is launched just before the end may run after it, and is not lost."""
        length = max(self._context.events.length, 1)
        until = max(length - self._longest, 0) * _PARTS // length
        return self._lost((self._part > self._last[:, None]) & (self._part < until))

    @property
    def _part(self) -> Numbers:
        part: Numbers = np.arange(_PARTS)[None, :]
        return part

    @property
    def _first(self) -> Numbers:
        """The first part of each task in which work was launched that is recorded; without such work all parts are between."""
        first: Numbers = np.argmax(self._launched > 0, axis=1)
        return first

    @property
    def _last(self) -> Numbers:
        """The last such part."""
        last: Numbers = _PARTS - 1 - np.argmax(self._launched[:, ::-1] > 0, axis=1)
        return last

    def _lost(self, parts: npt.NDArray[np.bool_]) -> int:
        lost = int(self._calls[parts & (self._launched == 0)].sum())
        return lost if lost >= FEWEST_CALLS else 0

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
        where = {"before the first": self.at_start, "beside": self.between, "after the last": self.at_end}
        return [
            f"{lost:,} calls launch {place} work that is recorded: what they launched is lost"
            for place, lost in where.items()
            if lost
        ]
