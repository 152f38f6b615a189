"""Which stream an id names: rows of the run by task, device and stream id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.run_events import STREAM, RunRows
from nsys2prv.vocabulary import row_names

NONE = -1


class LogicalStreams:
    """The streams of a run, numbered. Rows of a task with one name are one stream.

    These are the lanes of a stream whose events overlap, and streams of several contexts (green ones as well) with the same id
    on one device, which names of rows do not tell apart: work of such contexts is taken to run in one order.

    A process counts the devices that it sees, and the names of rows have those of the node. They are the same where all devices
    that a task waits for (`note_devices`) have rows of it; else its devices are in the same order.

    Attributes
    ----------
    of_row
        Stream of each row; NONE: it is no row of a stream.
    of_tasks
        Streams of each task: task, other.
    """

    def __init__(self, rows: RunRows) -> None:
        numbers: dict[tuple[int, str], int] = {}
        self.of_row: npt.NDArray[np.int64] = np.full(len(rows.names), NONE, dtype=np.int64)
        self._named: dict[tuple[int, int, int], int] = {}
        devices: defaultdict[int, set[int]] = defaultdict(set)
        for row in np.flatnonzero(rows.of_kind(STREAM)).tolist():
            task, name = int(rows.task[row]), rows.names[row]
            self.of_row[row] = numbers.setdefault((task, name), len(numbers))
            if (parsed := row_names.parse_stream_name(name)) is not None:
                self._named.setdefault((task, parsed.device, parsed.stream), int(self.of_row[row]))
                devices[task].add(parsed.device)
        self._devices = {task: sorted(of_task) for task, of_task in devices.items()}
        pairs = [(task, stream) for (task, _), stream in numbers.items()]
        self.of_tasks = pl.DataFrame(pairs, schema={"task": pl.Int64, "other": pl.Int64}, orient="row")
        self._noted: defaultdict[int, set[int]] = defaultdict(set)

    def note_devices(self, tasks_and_devices: Iterable[tuple[int, int | None]]) -> None:
        """Note which devices tasks wait for, as their processes count them."""
        for task, device in tasks_and_devices:
            if device is not None:
                self._noted[task].add(device)

    def find(self, waits: pl.DataFrame) -> pl.Series:
        """Stream that each wait names by `task`, `device` (as the process counts; null: not known) and `stream`; null: none is
        known."""
        asked = waits.select("task", "device", "stream")
        distinct = asked.unique()
        found = [self._stream(*of_wait) for of_wait in distinct.iter_rows()]
        known = distinct.with_columns(found=pl.Series(found, dtype=pl.Int64))
        return asked.join(known, on=asked.columns, how="left", nulls_equal=True, maintain_order="left")["found"]

    def _stream(self, task: int, device: int | None, stream: int | None) -> int | None:
        if stream is None or (number := self._number(task, device)) is None:
            return None
        return self._named.get((task, number, stream))

    def _number(self, task: int, device: int | None) -> int | None:
        """Number on its node of a device as a process counts."""
        devices = self._devices.get(task, [])
        if len(devices) == 1:
            return devices[0]
        if device is None:
            return None
        if self._noted[task].issubset(devices):
            return device if device in devices else None
        return devices[device] if 0 <= device < len(devices) else None
