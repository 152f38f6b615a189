"""Whether times of devices fit those of their hosts.

nsys converts times of a GPU to those of its host, and sometimes wrongly: in a real report of a training all work is 325 ms
late. But nothing starts before its call, and no synchronization ends before the work that it waits for. Where times contradict
that, nothing that compares a device with its host is known: what the host did in a gap, or who waited for whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.event_waits import LogicalStreams
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import WAITS
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.sources.cuda.synchronization import SYNC_DEVICE, SYNC_STREAM, SYNCHRONIZATION
from nsys2prv.vocabulary.wording import time

SMALLEST_ERROR = 1_000_000
"""ns: an error that is smaller changes no finding."""
FEWEST_CONTRADICTIONS = 3
"""Operations whose times contradict those of their host: fewer may be odd times."""
_MOST_KEPT = 100_000
"""Synchronizations that are kept for work that starts later."""

_NOTHING = np.iinfo(np.int64).max
_SYNC_SCHEMA = {"key": pl.Int64, "begin": pl.Int64, "until": pl.Int64}


class DeviceClocks:
    """Finds devices whose times contradict those of their hosts; it is updated with each chunk, in the order of time."""

    def __init__(self, context: SweepContext) -> None:
        self._rows = context.events.rows
        self._streams = LogicalStreams(self._rows)
        names = context.events.types.get(SYNCHRONIZATION)
        values = {name: value for value, name in ((names.values if names else None) or {}).items()}
        self._of_stream, self._of_device = values.get(SYNC_STREAM, -1), values.get(SYNC_DEVICE, -1)
        # Synchronizations of whole devices say nothing of a task that has several.
        self._alone = [task for task, devices in self._rows.devices_of_task.items() if len(devices) == 1]
        self._syncs = pl.DataFrame(schema=_SYNC_SCHEMA)
        devices = len(self._rows.devices)
        self._least: Numbers = np.full(devices, _NOTHING, dtype=np.int64)
        self._launched, self._early, self._late = (np.zeros(devices, dtype=np.int64) for _ in range(3))

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk."""
        # Of calls before the window it is not known when they began.
        launches = chunk.launches.filter(pl.col("time") >= 0)
        row = launches["to_row"].to_numpy()
        device = self._rows.device[row]
        latency = (launches["to_time"] - launches["time"]).to_numpy()
        np.minimum.at(self._least, device, latency)
        np.add.at(self._launched, device, 1)
        np.add.at(self._early, device, latency <= -SMALLEST_ERROR)
        # Most devices are found to be in time with the first chunk: then there is nothing more to do.
        may_be_late = self._least >= SMALLEST_ERROR
        if not may_be_late.any():
            return
        self._keep_synchronizations(chunk)
        chosen = may_be_late[device]
        asked = pl.DataFrame({"device": device[chosen]}).hstack(launches.filter(pl.Series(chosen)).select("time", "to_time"))
        for key in (self._key_of_task(self._rows.task[row[chosen]]), self._streams.of_row[row[chosen]]):
            # The first synchronization that was called after the launch waits for the work.
            found = (
                asked.with_columns(key=pl.Series(key))
                .sort("time")
                .join_asof(
                    self._syncs.sort("begin"), left_on="time", right_on="begin", by="key", strategy="forward",
                    check_sortedness=False,
                )
                .filter(pl.col("until") + SMALLEST_ERROR <= pl.col("to_time"))
            )  # fmt: skip
            np.add.at(self._late, found["device"].to_numpy(), 1)

    def _key_of_task(self, task: Numbers) -> Numbers:
        """What stands for all streams of a task, beside the numbers of streams."""
        key: Numbers = -2 - task
        return key

    def _keep_synchronizations(self, chunk: TimeChunk) -> None:
        waits = self._rows.located(chunk.started[WAITS.name])
        waits = waits.with_columns(device=chunk.started[WAITS.name]["device"] - 1)
        self._streams.note_devices(waits.select("task", "device").unique().iter_rows())
        of_streams = waits.filter(pl.col("value") == self._of_stream)
        of_tasks = waits.filter((pl.col("value") == self._of_device) & pl.col("task").is_in(self._alone))
        new = [
            of_streams.select(self._streams.find(of_streams).alias("key"), "start", "end").drop_nulls("key"),
            of_tasks.select(pl.Series("key", self._key_of_task(of_tasks["task"].to_numpy())), "start", "end"),
        ]
        renamed = (one.rename({"start": "begin", "end": "until"}).cast(_SYNC_SCHEMA) for one in new)  # type: ignore[arg-type]
        self._syncs = pl.concat([self._syncs, *renamed]).tail(_MOST_KEPT)

    @property
    def contradictions(self) -> Mapping[int, str]:
        """Devices whose times contradict those of their hosts, and how."""
        found = {}
        for device in range(len(self._least)):
            early, late, least = int(self._early[device]), int(self._late[device]), int(self._least[device])
            if early >= FEWEST_CONTRADICTIONS and 2 * early >= self._launched[device]:
                found[device] = f"most work starts before it was launched, by up to {time(-least)}"
            elif least >= SMALLEST_ERROR and late >= FEWEST_CONTRADICTIONS:
                found[device] = (
                    f"nothing starts sooner than {time(least)} after its launch, but synchronizations end before the work that "
                    "they wait for begins"
                )
        return {
            device: f"times of {self._rows.devices[device].name} contradict those of its host: {how}"
            for device, how in found.items()
        }

    @property
    def warnings(self) -> Sequence[str]:
        """What is not known because of them."""
        return [
            f"{text}; what compares both is not known: causes of gaps and of compute-absent time, the critical path"
            for text in self.contradictions.values()
        ]
