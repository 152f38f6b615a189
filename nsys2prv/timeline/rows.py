"""Rows of the timeline: nodes, tasks, and in these host threads, CUDA streams, GPUs and parts of nodes."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.errors import TooManyRows
from nsys2prv.exports import Identity
from nsys2prv.exports.columns import pid_of, process_of, tid_of
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline.survey import Survey
from nsys2prv.vocabulary import row_names
from nsys2prv.vocabulary.limits import MOST_ROWS_OF_REPORT
from nsys2prv.vocabulary.printable import on_one_line

UNKNOWN_HOST = "host"


@dataclass(frozen=True)
class Node:
    """One host: name, number of CPUs, and how many of them events are on; at least 1 each."""

    name: str
    cpus: int
    cpus_with_events: int = 1


@dataclass(frozen=True)
class Thread:
    """One row: name in the .row file, and what it is ("thread", "stream", "gpu", "component").

    `given_names` are those that the program gave with NVTX to the stream, its context and its device: tools know streams by
    the names of their rows, which leave no place for others. `flag` is how the stream was created (`Identity.stream_flag`)."""

    name: str
    kind: str
    given_names: str = ""
    flag: int = 0


@dataclass(frozen=True)
class Task:
    """One process, or what belongs to a node and to no process (without report and pid)."""

    name: str  # in the .row file: rank, host and pid can be read from it
    node: int
    rank: int | None
    report: int | None
    pid: int | None
    threads: tuple[Thread, ...]


@dataclass(frozen=True)
class Rows:
    """All rows of a trace in the order of the file."""

    # nodes, tasks: hosts, and processes on them
    nodes: tuple[Node, ...]
    tasks: tuple[Task, ...]
    # Columns `row` (0, 1, ...), `task`, `thread` (both 1, 2, ... as in the file), `kind`.
    table: pl.DataFrame
    # For each report and kind of row: the key columns, for streams also `lane`, and `row`. A key without a row was not
    # selected.
    keys: dict[tuple[int, RowKind], pl.DataFrame]
    # For each report: (globalPid, deviceId) to the number of the device on its node.
    devices: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)
    has_cpus: bool = True  # whether nodes have their CPUs

    def first_cpu(self, host: str) -> int | None:
        """Number of a host's first CPU: they are counted over all nodes, from 1. None when nodes have none."""
        return self._first_cpus.get(host or UNKNOWN_HOST)

    @cached_property
    def _first_cpus(self) -> dict[str, int]:
        if not self.has_cpus:
            return {}
        before = itertools.accumulate((node.cpus for node in self.nodes), initial=1)
        return {node.name: first for node, first in zip(self.nodes, before, strict=False)}

    @cached_property
    def first_of_stream(self) -> npt.NDArray[np.int64]:
        """For each row the first one of its stream; see `row_names.first_rows_of_streams`."""
        names = ([thread.name for thread in task.threads] for task in self.tasks)
        return np.array(row_names.first_rows_of_streams(names), dtype=np.int64)

    def rank(self, row: int) -> int | None:
        """Rank of the task that a row belongs to."""
        return self.tasks[int(self.table["task"][row]) - 1].rank


class _Process(NamedTuple):
    rank: int | None
    host: str
    pid: int
    report: int
    global_pid: int


def arrange(identities: Sequence[Identity], surveys: Sequence[Sequence[Survey]], ranks: frozenset[int] | None = None) -> Rows:
    """Arrange the rows of all reports; `ranks` are those to keep, None: all. Rows of nodes are kept with a rank of the node."""
    keys = [_keys_by_kind(of_report) for of_report in surveys]
    for of_report in keys:
        if (rows := sum(map(len, of_report.values()))) > MOST_ROWS_OF_REPORT:
            raise TooManyRows(rows, MOST_ROWS_OF_REPORT, len(of_report[RowKind.STREAM]))
    processes = [process for process in _processes(identities, keys) if ranks is None or process.rank in ranks]
    hosts = list(dict.fromkeys(process.host for process in processes))
    sampled = {
        (_host(identities[report]), identities[report].metric_gpu_key(gpu & _GPU), report, gpu)
        for report, kinds in enumerate(keys)
        for (gpu,) in kinds[RowKind.GPU].iter_rows()
    }
    components = {
        (_host(identities[report]), component, report)
        for report, kinds in enumerate(keys)
        for (component,) in kinds[RowKind.COMPONENT].iter_rows()
    }
    if ranks is None:
        hosts += sorted({*(entry[0] for entry in sampled), *(entry[0] for entry in components)}.difference(hosts))
    present = set(hosts)
    numbers = _device_numbers(identities, keys, sampled)
    builder = _Builder(hosts, identities, keys, numbers)
    for process in processes:
        builder.add_process(process)
    builder.add_sampled_gpus({entry for entry in sampled if entry[0] in present})
    builder.add_components({entry for entry in components if entry[0] in present})
    return builder.finish([max((survey.cpus for survey in of_report), default=0) for of_report in surveys])


_GPU_BITS = 8
_GPU = 2**_GPU_BITS - 1
"""Bits of the key of a sampled GPU that are its index; those above are an instance of it."""

_OF_DEVICES = (RowKind.STREAM, RowKind.DEVICE)
"""Rows that name a process and a device."""

LANE = "lane"
"""Of a stream with events that overlap: which of its rows."""


def key_columns(kind: RowKind) -> dict[str, type[pl.DataType]]:
    """Columns of `Rows.keys` that name a row of a kind, with their types."""
    return {**kind.key_schema, LANE: pl.Int64} if kind is RowKind.STREAM else kind.key_schema


def _keys_by_kind(surveys: Sequence[Survey]) -> dict[RowKind, pl.DataFrame]:
    keys = {}
    for kind in RowKind:
        frames = [survey.row_keys for survey in surveys if survey.source.row is kind]
        keys[kind] = pl.concat([pl.DataFrame(schema=kind.key_schema), *frames]).unique().sort(kind.key)
    lanes = [survey.lanes.drop("first_lane") for survey in surveys if survey.lanes is not None]
    streams = keys[RowKind.STREAM].with_columns(lanes=pl.lit(1, pl.Int64))
    key = list(RowKind.STREAM.key)
    keys[RowKind.STREAM] = pl.concat([streams, *lanes]).group_by(key).agg(pl.col("lanes").max()).sort(key)
    return keys


def _host(identity: Identity) -> str:
    return identity.host or UNKNOWN_HOST


def _processes(identities: Sequence[Identity], keys: Sequence[dict[RowKind, pl.DataFrame]]) -> list[_Process]:
    """Processes that have events, in the order of tasks: by rank, those without one after the others."""
    processes = []
    for report, (identity, kinds) in enumerate(zip(identities, keys, strict=True)):
        # The launcher's rank is that of the recorded program, not of each process that it starts: of several it is that
        # with work on GPUs, where the others read data for it.
        on_devices = {process_of(pid) for kind in _OF_DEVICES for pid in kinds[kind]["globalPid"]}
        global_pids = sorted(on_devices | {process_of(tid) for tid in kinds[RowKind.THREAD]["globalTid"]})
        ranked = global_pids if len(global_pids) == 1 else sorted(on_devices)
        from_launcher = {ranked[0]: identity.launch_rank} if not identity.ranks and len(ranked) == 1 else {}
        for global_pid in global_pids:
            rank = identity.ranks.get(global_pid, from_launcher.get(global_pid))
            processes.append(_Process(rank, _host(identity), pid_of(global_pid), report, global_pid))
    return sorted(processes, key=lambda process: (process.rank is None, process.rank or 0, process[1:]))


def _device_numbers(
    identities: Sequence[Identity], keys: Sequence[dict[RowKind, pl.DataFrame]], sampled: set[tuple[str, str, int, int]]
) -> dict[tuple[str, str], int]:
    """Number of each physical GPU on its node, by host and key of the GPU.

    nsys' own index where no two GPUs of the node have the same one; else they are numbered in the order of bus location."""
    wished: dict[str, dict[str, tuple[int, str]]] = {}
    sampled_by: dict[int, dict[str, int]] = {}
    for _, gpu_key, report, index in sorted(sampled):
        sampled_by.setdefault(report, {})[gpu_key] = index & _GPU
    for report, identity in enumerate(identities):
        by_key = {gpu.key: gpu for gpu in reversed(identity.gpus)}
        used = pl.concat(keys[report][kind].select("globalPid", "deviceId") for kind in _OF_DEVICES).unique()
        gpu_keys = {identity.gpu_key(pid, device): device for pid, device in used.iter_rows()}
        gpu_keys |= sampled_by.get(report, {})
        for key, index in gpu_keys.items():
            gpu = by_key.get(key)
            wished.setdefault(_host(identity), {}).setdefault(key, (gpu.id if gpu else index, gpu.bus if gpu else ""))
    numbers: dict[tuple[str, str], int] = {}
    for host, gpus in wished.items():
        # A slice (MIG) of a GPU has the place on the bus for a key; other reports may have the uuid of the GPU there.
        at_place = {bus.lower(): key for key, (_, bus) in sorted(gpus.items()) if key != bus.lower()}
        key_of_gpu = {key: at_place.get(key, key) for key in gpus}
        ordered = sorted(set(key_of_gpu.values()), key=lambda key: (gpus[key][1].lower(), gpus[key][0], key))
        indices = [gpus[key][0] for key in ordered]
        unique = len(set(indices)) == len(indices)
        numbers_of_host = {key: gpus[key][0] if unique else place for place, key in enumerate(ordered)}
        numbers |= {(host, key): numbers_of_host[key_of_gpu[key]] for key in gpus}
    return numbers


_Row = tuple[Thread, list[tuple[int, RowKind, tuple[Any, ...]]]]
"""A row, and what is on it: report, kind and key."""


class _Builder:
    """Collects tasks and their rows in the order of the file."""

    def __init__(
        self,
        hosts: list[str],
        identities: Sequence[Identity],
        keys: Sequence[dict[RowKind, pl.DataFrame]],
        numbers: dict[tuple[str, str], int],
    ) -> None:
        self._node = {host: index for index, host in enumerate(hosts)}
        self._identities = identities
        self._numbers = numbers
        self._tasks: list[tuple[Task, list[_Row]]] = []
        self._user_of_gpu: dict[tuple[str, int], int] = {}
        self._node_tasks: dict[str, int] = {}
        self._devices: dict[int, dict[tuple[int, int], int]] = {}
        self._names = [dict(identity.threads.iter_rows()) for identity in identities]
        self._keys: defaultdict[tuple[int, RowKind, int], list[tuple[Any, ...]]] = defaultdict(list)
        for report, kinds in enumerate(keys):
            for kind in (RowKind.THREAD, *_OF_DEVICES):
                for key in kinds[kind].iter_rows():
                    self._keys[report, kind, process_of(key[0])].append(key)

    def add_process(self, process: _Process) -> None:
        report, host, identity = process.report, process.host, self._identities[process.report]
        tids, streams, of_devices = (
            self._keys[report, kind, process.global_pid] for kind in (RowKind.THREAD, RowKind.STREAM, RowKind.DEVICE)
        )
        rows: list[_Row] = []
        for (tid,) in sorted(tids, key=lambda key: (tid_of(key[0]) != process.pid, key)):
            name = row_names.thread_name(self._names[report].get(tid, ""), tid_of(tid))
            rows.append((Thread(name, "thread"), [(report, RowKind.THREAD, (tid,))]))
        gpu_keys = {key[1]: identity.gpu_key(process.global_pid, key[1]) for key in (*streams, *of_devices)}
        devices = {device: self._numbers[host, key] for device, key in gpu_keys.items()}
        for *key, lanes in sorted(streams, key=lambda key: (devices[key[1]], key[2], key[3])):
            name = row_names.stream_name(devices[key[1]], key[3], host)
            flag = identity.stream_flag(process.pid, *key[2:])
            thread = Thread(name, "stream", _given_names(identity, process.pid, *key[1:]), flag)
            rows += [(thread, [(report, RowKind.STREAM, (*key, lane))]) for lane in range(lanes)]
        for of_device in sorted(of_devices, key=lambda key: (devices[key[1]], key)):
            _put(rows, _metrics_of(devices[of_device[1]]), report, RowKind.DEVICE, of_device)
        for device, number in devices.items():
            self._devices.setdefault(report, {})[process.global_pid, device] = number
            self._user_of_gpu.setdefault((host, number), len(self._tasks))
        rank = process.rank
        name = row_names.process_name(rank, host, process.pid, identity.processes.get(process.global_pid, ""))
        self._tasks.append((Task(name, self._node[host], rank, report, process.pid, ()), rows))

    def add_sampled_gpus(self, sampled: set[tuple[str, str, int, int]]) -> None:
        # Several that share a GPU in one report are its instances; one alone is the GPU.
        of_gpu = Counter((report, gpu & _GPU) for *_, report, gpu in sampled)
        by_device: dict[tuple[int, int, int, str, int | None], tuple[int, int]] = {}
        for host, key, report, gpu in sorted(sampled):
            instance = gpu >> _GPU_BITS if of_gpu[report, gpu & _GPU] > 1 else None
            place = self._node[host], self._numbers[host, key], instance or 0, host, instance
            # A GPU that two reports sampled is one row with the samples of the first.
            by_device.setdefault(place, (report, gpu))
        for (_, number, _, host, instance), (report, gpu) in sorted(by_device.items(), key=lambda entry: entry[0][:3]):
            task = self._user_of_gpu.get((host, number))
            rows = self._rows_of_node(host) if task is None else self._tasks[task][1]
            _put(rows, _metrics_of(number, instance), report, RowKind.GPU, (gpu,))

    def add_components(self, components: set[tuple[str, str, int]]) -> None:
        first_report: dict[tuple[str, str], int] = {}
        for host, component, report in sorted(components, key=lambda entry: (self._node[entry[0]], *entry[1:])):
            # As for GPUs: what two reports sampled has one row.
            first_report.setdefault((host, component), report)
        for (host, component), report in first_report.items():
            thread = Thread(on_one_line(component) or "unnamed component", "component")
            _put(self._rows_of_node(host), thread, report, RowKind.COMPONENT, (component,))

    def _rows_of_node(self, host: str) -> list[_Row]:
        """Rows of the task of what belongs to a node and to no process, made when it is needed."""
        if host not in self._node_tasks:
            self._node_tasks[host] = len(self._tasks)
            self._tasks.append((Task(row_names.node_task_name(host), self._node[host], None, None, None, ()), []))
        return self._tasks[self._node_tasks[host]][1]

    def finish(self, cpus: Sequence[int]) -> Rows:
        """All rows; `cpus` is the number of CPUs that the events of each report are on."""
        entries: list[tuple[int, int, int, str]] = []
        keys: dict[tuple[int, RowKind], list[tuple[Any, ...]]] = {}
        for task, (_, rows) in enumerate(self._tasks, start=1):
            for thread, (row, on_row) in enumerate(rows, start=1):
                for report, kind, key in on_row:
                    keys.setdefault((report, kind), []).append((*key, len(entries)))
                entries.append((len(entries), task, thread, row.kind))
        schema = {"row": pl.Int64, "task": pl.Int64, "thread": pl.Int64, "kind": pl.String}
        return Rows(
            self._nodes(cpus),
            tuple(replace(task, threads=tuple(thread for thread, _ in rows)) for task, rows in self._tasks),
            pl.DataFrame(entries, schema=schema, orient="row"),
            {
                (report, kind): pl.DataFrame(of_kind, schema={**key_columns(kind), "row": pl.Int64}, orient="row")
                for (report, kind), of_kind in keys.items()
            },
            self._devices,
        )

    def _nodes(self, cpus_of_events: Sequence[int]) -> tuple[Node, ...]:
        cpus = dict.fromkeys(self._node, 1)
        with_events = dict(cpus)
        for identity, of_events in zip(self._identities, cpus_of_events, strict=True):
            host = _host(identity)
            if host in cpus:
                cpus[host] = max(cpus[host], identity.cpus, of_events)
                with_events[host] = max(with_events[host], of_events)
        return tuple(Node(host, cpus[host], with_events[host]) for host in self._node)


def _put(rows: list[_Row], thread: Thread, report: int, kind: RowKind, key: tuple[Any, ...]) -> None:
    """Put a key on a row of a task: an existing one, or a new one."""
    on_row = next((on_row for row, on_row in rows if row == thread), None)
    if on_row is None:
        on_row = []
        rows.append((thread, on_row))
    on_row.append((report, kind, key))


def _metrics_of(device: int, instance: int | None = None) -> Thread:
    """The row of what belongs to a device as a whole, or to an instance of it (MIG)."""
    return Thread(row_names.metrics_name(device, instance), "gpu")


def _given_names(identity: Identity, pid: int, device: int, context: int, stream: int) -> str:
    """What the program calls a stream, its context and its device."""
    keys = {"device": (device,), "context": (pid, device, context), "stream": (pid, device, context, stream)}
    names = {what: on_one_line(identity.cuda_names.get(key, "")) for what, key in keys.items()}
    return ", ".join(f"{what} {name}" for what, name in names.items() if name)
