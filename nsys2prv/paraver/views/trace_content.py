"""The content of a trace as views need it: event types that occur, labels of their values, rows, and the rows of each GPU."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nsys2prv.paraver.label_files import PcfLabels
from nsys2prv.paraver.trace_files import Header
from nsys2prv.paraver.trace_reader import Trace
from nsys2prv.sources.registry import type_of
from nsys2prv.timeline.records import RowRanges
from nsys2prv.vocabulary import event_types, row_names
from nsys2prv.vocabulary.printable import ACTING

Rows = npt.NDArray[np.bool_]
"""Whether each row of a trace is shown."""
_OF_TOOLS = re.compile(r"[\[(]NSys|CUPTI |cuda-EvtHandlr|cuda[0-9a-f]{8}")
"""Names of threads that nsys and the driver start in the program: views leave them out."""
_UNQUOTED = re.compile(f'["*{ACTING}]')


@dataclass(frozen=True)
class Occurring:
    """What occurs in a trace, and where: rows of each event type, as `timeline/records.py` counts them, and rows that
    send messages to other ranks (none: there are no such messages)."""

    rows: Mapping[int, RowRanges]
    senders: RowRanges


@dataclass(frozen=True)
class TypeInTrace:
    """An event type with its labels by value (None: plain numbers), as this trace has it; `quoted`: its label as a filter of
    a view names it."""

    number: int
    label: str
    values: Mapping[int, str] | None
    quoted: str


@dataclass(frozen=True)
class Value:
    """A value of an event type with its label, plain and as a filter of a view names it."""

    number: int
    label: str
    quoted: str


@dataclass(frozen=True)
class Selection:
    """Rows that a window shows: whether each task is shown, and whether each row of a task is that does not show all rows, by
    index of the task."""

    tasks: tuple[bool, ...]
    threads: Mapping[int, tuple[bool, ...]]


@dataclass(frozen=True)
class Devices:
    """The GPUs that are the rows of one file of a view.

    Attributes
    ----------
    name
        Part of the name of the file: "" (one file shows all GPUs), "d0", "node01_d0".
    title
        The same in the title of the view.
    level
        Object level whose rows are GPUs: task, or appl for a GPU that several tasks share.
    tasks
        All rows of the tasks that use these GPUs; None: all rows.
    threads
        Numbers (1, 2, ... over all tasks) of the streams and metrics of this GPU; None: its tasks use no other GPU.
    """

    name: str
    title: str
    level: str
    tasks: Selection | None
    threads: tuple[int, ...] | None = None


@dataclass(frozen=True)
class _Row:
    task: int
    thread: int
    node: int
    device: int | None
    is_stream: bool
    is_host: bool
    is_of_tool: bool


@dataclass(frozen=True)
class TraceContent:
    """The content of a trace: header, event types that occur by number, all labels of the .pcf, and names of the .row (empty
    where there is none). Messages between ranks count as messages, those from a call to what it launches do not."""

    header: Header
    types: Mapping[int, TypeInTrace]
    labelled: PcfLabels
    thread_names: tuple[str, ...]
    node_names: tuple[str, ...]
    occurring: Occurring

    @classmethod
    def of(cls, trace: Trace, occurring: Occurring) -> TraceContent:
        """Content of an open trace, with the event types that occur."""
        labels = trace.labels.types
        times = Counter(type_label.label for type_label in labels.values())
        types = {}
        for number in sorted(occurring.rows):
            label = labels[number].label if number in labels else ""
            values = labels[number].values if number in labels else None
            types[number] = TypeInTrace(number, label, values, _quoted(label, times[label] == 1))
        threads, nodes = trace.names.get("THREAD", ()), trace.names.get("NODE", ())
        return cls(trace.header, types, trace.labels, threads, nodes, occurring)

    @property
    def has_messages(self) -> bool:
        """Whether there are messages between ranks."""
        return bool(self.occurring.senders)

    def members(self, event_type: event_types.EventType) -> list[TypeInTrace]:
        """The event types of the trace that belong to one of nsys2prv: itself, members of a series, lanes; by number.

        A trace of another tool may have it under another number: its label identifies it then."""
        members = self._by_type.get(event_type.number, [])
        if not members and not event_type.is_series:
            members = [member for member in self.types.values() if member.label == event_type.label]
        return members

    @cached_property
    def _by_type(self) -> dict[int, list[TypeInTrace]]:
        by_type: dict[int, list[TypeInTrace]] = {}
        for number, member in self.types.items():
            event_type = type_of(number)
            if event_type is not None:
                by_type.setdefault(event_type.number, []).append(member)
        return by_type

    def value(self, number: int, label: str) -> Value:
        """A value for the filter of a view."""
        return Value(number, label, _quoted(label, self._value_numbers.get(label) == {number}))

    @cached_property
    def _value_numbers(self) -> dict[str, set[int]]:
        """Values by label, over all event types."""
        numbers: dict[str, set[int]] = {}
        for type_label in self.labelled.types.values():
            for value, label in (type_label.values or {}).items():
                numbers.setdefault(label, set()).add(value)
        return numbers

    @cached_property
    def _rows(self) -> list[_Row]:
        rows = []
        for index, task in enumerate(self.header.tasks):
            for thread in range(task.threads):
                place = task.first_row + thread
                name = self.thread_names[place] if place < len(self.thread_names) else ""
                stream = row_names.parse_stream_name(name)
                device = stream.device if stream else row_names.device_of_metrics(name)
                is_of_tool = _OF_TOOLS.match(name) is not None
                is_host = device is None and not is_of_tool and not row_names.is_component(name)
                rows.append(_Row(index, thread, task.node - 1, device, stream is not None, is_host, is_of_tool))
        return rows

    def rows_of_kind(self, kind: str | None) -> Rows:
        """Which rows are of a kind, one of ROWS; where none is, and for None, all but threads of nsys and the driver."""
        return self._kinds.get(kind or "", self._kinds[""])

    @cached_property
    def _kinds(self) -> Mapping[str, Rows]:
        """The rows of each kind that has some."""
        with_gpu = {row.task for row in self._rows if row.is_stream}
        kinds = {
            "streams": [row.is_stream for row in self._rows],
            # GPUs as a whole.
            "metrics": [row.device is not None and not row.is_stream for row in self._rows],
            # Host threads of tasks that use GPUs, or of all where no row is a stream.
            "hosts": [row.is_host and (not with_gpu or row.task in with_gpu) for row in self._rows],
            # Rows that do something, unlike those of counters.
            "hosts_and_streams": [row.is_host or row.is_stream for row in self._rows],
            "": [not row.is_of_tool for row in self._rows],
        }
        return {kind: np.array(rows, dtype=bool) for kind, rows in kinds.items() if any(rows) or not kind}

    def rows_with(self, types: Iterable[TypeInTrace], *, messages: bool = False) -> Rows:
        """Which rows show any of these types, or send messages."""
        shown = np.zeros(self.header.rows, dtype=bool)
        ranges = [self.occurring.rows[member.number] for member in types] + ([self.occurring.senders] if messages else [])
        for first, last in itertools.chain.from_iterable(ranges):
            shown[first : last + 1] = True
        return shown

    def selection(self, rows: Rows) -> Selection | None:
        """Some rows as a window selects them; None: all rows."""
        if rows.all():
            return None
        by_task = [tuple(rows[task.first_row : task.first_row + task.threads].tolist()) for task in self.header.tasks]
        return Selection(
            tuple(any(shown) for shown in by_task),
            # Tables of Paraver show the threads of a task that is not selected, unless they are left out one by one.
            {task: shown for task, shown in enumerate(by_task) if not all(shown)},
        )

    @cached_property
    def devices(self) -> list[Devices]:
        """GPUs as rows: one file for all where each task uses one GPU alone.

        Where a task uses several GPUs: a file for each device number, with a row for each task. Where tasks share a GPU: a file
        for each GPU, with one row, so that what overlaps on it counts once."""
        users: dict[tuple[int, int], set[int]] = {}
        for row in self._rows:
            if row.is_stream and row.device is not None:
                users.setdefault((row.node, row.device), set()).add(row.task)
        if any(len(tasks) > 1 for tasks in users.values()):
            return [self._of_shared_gpu(node, device, tasks) for (node, device), tasks in sorted(users.items())]
        with_gpu = [task for tasks in users.values() for task in tasks]
        if len(with_gpu) == len(set(with_gpu)):
            return [Devices("", "", "task", self._tasks(with_gpu))]
        by_number: dict[int, set[int]] = {}
        for (_, device), tasks in users.items():
            by_number.setdefault(device, set()).update(tasks)
        return [
            Devices(f"d{device}", f"D{device}", "task", self._tasks(tasks), self._threads(device, tasks))
            for device, tasks in sorted(by_number.items())
        ]

    def _of_shared_gpu(self, node: int, device: int, tasks: set[int]) -> Devices:
        threads = self._threads(device, {row.task for row in self._rows if row.node == node})
        name = self.node_names[node] if node < len(self.node_names) else f"node{node + 1}"
        return Devices(f"{name}_d{device}", f"{name} D{device}", "appl", self._tasks(tasks), threads)

    def _threads(self, device: int, tasks: set[int]) -> tuple[int, ...]:
        """Numbers of the rows of a device in some tasks."""
        rows = (row for row in self._rows if row.device == device and row.task in tasks)
        return tuple(self.header.tasks[row.task].first_row + row.thread + 1 for row in rows)

    def _tasks(self, tasks: Iterable[int]) -> Selection | None:
        """All rows of some tasks; None when these are all tasks, or none."""
        tasks = set(tasks)
        shown = tuple(task in tasks for task in range(len(self.header.tasks)))
        return Selection(shown, {}) if any(shown) and not all(shown) else None


def _quoted(label: str, is_unique: bool) -> str:
    """A label in quotes; "Unknown", for which Paraver takes the number, where it is not unique or Paraver can't read it."""
    return f'"{label}"' if label and is_unique and not _UNQUOTED.search(label) else '"Unknown"'
