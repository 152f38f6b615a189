"""What happened in a run, as the measurement needs it: rows, names, and collections of intervals on the common axis.

`event_input` makes `RunEvents` of reports: rows have their names in the trace, events their numbers there, and times are ns
from the start of the trace."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.sources.cuda import api_calls, device_memory, kernels, synchronization, unified_memory
from nsys2prv.sources.cuda.memory_operations import MIGRATION_CAUSE
from nsys2prv.sources.host import call_chains, cpu_samples
from nsys2prv.sources.registry import type_of
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.time_axis import ClockError
from nsys2prv.vocabulary import event_types, row_names
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS

HOST, STREAM, OTHER = "host", "stream", "other"
"""Kinds of rows: host threads, CUDA streams, and what belongs to GPUs or nodes as a whole."""


class Device(NamedTuple):
    """A physical GPU: its node, its number there, and how both are written together."""

    node: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.node}:D{self.number}"


@dataclass(frozen=True)
class TaskRows:
    """One task: name, node, and the names of its rows in the order of the trace.

    `report` is the number of the report that it is from, and `clock` how well its times are known, at times of the trace. None:
    the task is of no report, or it is not known. `flags` say how streams were created (`Identity.stream_flags`)."""

    name: str
    node: str
    rows: tuple[str, ...]
    report: int | None = None
    clock: ClockError | None = None
    flags: tuple[int, ...] = ()

    @property
    def rank(self) -> int | None:
        """The rank in its name; None where it has none."""
        return row_names.rank_of_process(self.name)

    @property
    def is_node(self) -> bool:
        """Whether it holds what belongs to a node and to no process."""
        return self.name == row_names.node_task_name(self.node)


class GpuSize(NamedTuple):
    """Multiprocessors of a GPU, what one of them holds (blocks, warps, registers and bytes of shared memory), and the major
    compute capability; 0: unknown."""

    multiprocessors: int = 0
    blocks: int = 0
    warps: int = 0
    registers: int = 0
    shared_memory: int = 0
    generation: int = 0


class RunRows:
    """All rows of a run, of `tasks` in the order of the trace. Of each row there are its `kind`, the index of its `task`, that
    of its `device` (-1: none), and the `flag` of its stream (0: unknown).

    `devices` are physical GPUs with rows of processes, in the order of nodes and numbers; GPUs with samples that no process of
    the run uses are not counted (`sampled_only`)."""

    def __init__(self, tasks: Sequence[TaskRows]) -> None:
        self.tasks = tuple(tasks)
        self.names = tuple(name for task in tasks for name in task.rows)
        of_rows = [(task, _kind(task, name)) for task in tasks for name in task.rows]
        self.kind = np.array([kind for _, (kind, _) in of_rows], dtype=str)
        order = {node: place for place, node in enumerate(dict.fromkeys(task.node for task in tasks))}
        used = {device for task, (_, device) in of_rows if device is not None and not task.is_node}
        sampled = {device for _, (_, device) in of_rows if device is not None}
        self.devices = tuple(sorted(used, key=lambda device: (order.get(device.node, len(order)), device.node, device.number)))
        self.sampled_only = tuple(sorted(sampled - used, key=lambda device: (device.node, device.number)))
        index: dict[Device | None, int] = {device: place for place, device in enumerate(self.devices)}
        self.device: Numbers = np.array([index.get(device, -1) for _, (_, device) in of_rows], dtype=np.int64)
        self.flag: Numbers = np.array([flag for task in tasks for flag in task.flags], dtype=np.int64)
        self.task: Numbers = np.repeat(np.arange(len(tasks)), [len(task.rows) for task in tasks])

    def located(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame with a column `row`, with the columns `task` and `device` (-1: none) of each row."""
        row = frame["row"].to_numpy()
        return frame.with_columns(task=pl.Series(self.task[row]), device=pl.Series(self.device[row]))

    @cached_property
    def first_of_stream(self) -> Numbers:
        """For each row the first one of its stream; see `row_names.first_rows_of_streams`."""
        return np.array(row_names.first_rows_of_streams(task.rows for task in self.tasks), dtype=np.int64)

    @cached_property
    def devices_of_task(self) -> Mapping[int, tuple[int, ...]]:
        """Devices on which each task has streams; a task without streams, which uses no GPU, is missing."""
        return self._on_streams(self.task, self.device)

    @cached_property
    def tasks_of_device(self) -> Mapping[int, tuple[int, ...]]:
        """Tasks that have streams on each device."""
        return self._on_streams(self.device, self.task)

    def _on_streams(self, keys: Numbers, values: Numbers) -> Mapping[int, tuple[int, ...]]:
        is_stream = self.kind == STREAM
        pairs = sorted(set(zip(keys[is_stream].tolist(), values[is_stream].tolist(), strict=True)))
        return {key: tuple(value for _, value in group) for key, group in itertools.groupby(pairs, lambda pair: pair[0])}


def _kind(task: TaskRows, name: str) -> tuple[str, Device | None]:
    if stream := row_names.parse_stream_name(name):
        return STREAM, Device(task.node, stream.device)
    if (device := row_names.device_of_metrics(name)) is not None:
        return OTHER, Device(task.node, device)
    return (OTHER if task.is_node else HOST), None


@dataclass(frozen=True)
class Collection:
    """Intervals, samples, or marks, of some event types; `name` is that in `RunEvents.collections`.

    `types` are event types (of a series, the first); their lanes belong to them. Columns are `start`, `end` (`samples` have
    none), `row`, `number`, `value`; `attributes`, with the event types that fill them, the first that is there; and `computed`
    ones (Float32), made of those of several event types, which are named by their numbers. `narrow` need fewer bytes than
    Int64, as numbers of names do. It is read only when what waits for what is requested if it is `optional`."""

    name: str
    types: tuple[int, ...]
    attributes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    samples: bool = False
    optional: bool = False
    narrow: Mapping[str, type[pl.DataType]] = field(default_factory=dict)
    computed: Mapping[str, pl.Expr] = field(default_factory=dict)

    @property
    def columns(self) -> frozenset[str]:
        """Columns of placed events that the attributes come from."""
        columns = {str(number) for numbers in self.attributes.values() for number in numbers}
        return frozenset(columns.union(*(column.meta.root_names() for column in self.computed.values())))

    @property
    def schema(self) -> dict[str, type[pl.DataType]]:
        """Columns with their types."""
        return {
            **dict.fromkeys(("start",) if self.samples else ("start", "end"), pl.Int64),
            "row": pl.Int32,
            "number": pl.Int32,
            "value": pl.Int64,
            **dict.fromkeys(self.attributes, pl.Int64),
            **dict.fromkeys(self.computed, pl.Float32),
            **self.narrow,
        }


def _size(number: int) -> pl.Expr:
    # In floating point: a hostile report has numbers whose product does not fit into any integer.
    return pl.col(str(number)).cast(pl.Float32)


LAUNCH_SIZES = {
    "blocks": _size(kernels.GRID_X) * _size(kernels.GRID_Y) * _size(kernels.GRID_Z),
    "threads": _size(kernels.BLOCK_X) * _size(kernels.BLOCK_Y) * _size(kernels.BLOCK_Z),
    "registers": _size(kernels.REGISTERS),
    "shared_memory": _size(kernels.STATIC_SHARED_MEMORY) + _size(kernels.DYNAMIC_SHARED_MEMORY),
}
"""How a kernel is launched: blocks of the grid, threads of a block, registers of a thread, bytes of a block; null: unknown."""
ON_DEVICES = Collection(
    "device",
    (event_types.KERNEL, event_types.NCCL_KERNEL, event_types.MEMORY_OPERATION, event_types.GRAPH_EXECUTION),
    {
        "size": (event_types.MEMORY_SIZE,),
        "source": (event_types.SOURCE_MEMORY,),
        "destination": (event_types.DESTINATION_MEMORY,),
        "family": (event_types.KERNEL_FAMILY,),
        "migration": (MIGRATION_CAUSE,),
    },
    computed=LAUNCH_SIZES,
    narrow={"value": pl.Int32, **dict.fromkeys(("source", "destination", "family", "migration"), pl.Int16)},
)
NCCL_CALLS = Collection(
    "nccl",
    (event_types.NCCL_CALL_OF_KERNEL,),
    {"size": (event_types.NCCL_SIZE,), "communicator": (event_types.NCCL_COMMUNICATOR,), "ranks": (event_types.NCCL_RANKS,)},
)
HOST_CALLS = (event_types.CUDA_CALL, *event_types.MPI_TYPES.values())
"""Calls that count for the host tree."""
OS_TYPES = (event_types.OS_CALL, event_types.PTHREAD_CALL, event_types.IO_CALL)
ON_HOSTS = Collection(
    "host",
    (*HOST_CALLS, *OS_TYPES),
    {"size": (event_types.MPI_MESSAGE_SIZE, event_types.MPI_SEND_SIZE)},
    narrow={"value": pl.Int32},
)
NCCL_REGIONS = Collection("nccl_regions", (event_types.NCCL_REGION,))
"""Calls of NCCL on host threads, from its NVTX ranges."""
RANGES = Collection("ranges", (event_types.NVTX_PUSHPOP, event_types.NVTX_RANGE))
SAMPLES = Collection("samples", (event_types.GPU_METRIC,), samples=True)
MEMORY_CHANGES = Collection(
    "memory",
    (device_memory.DEVICE_MEMORY,),
    {"allocated": (device_memory.DEVICE_MEMORY_ALLOCATED,), "freed": (device_memory.DEVICE_MEMORY_FREED,)},
    samples=True,
)
"""Allocations and frees of GPU memory, bytes, and how much of the kind (`number`) the process has afterwards (`value`)."""
PAGE_FAULTS = Collection("page_faults", (unified_memory.GPU_PAGE_FAULT,))
"""Times in which page faults of a GPU are handled."""
OFF_CPU_TIMES = Collection("off_cpu", (event_types.OFF_CPU,))
"""Times of threads off their CPU."""
FUNCTION_SAMPLES = Collection(
    "function_samples",
    (cpu_samples.CPU_SAMPLE,),
    {"function": (call_chains.SAMPLED_FUNCTION,), "module": (call_chains.SAMPLED_MODULE,)},
    samples=True,
)
"""CPU samples of threads: the innermost function and its module (null: no call chain was recorded)."""
WAITS = Collection(
    "waits",
    (synchronization.SYNCHRONIZATION,),
    {
        "stream": (synchronization.SYNC_STREAM_ID,),
        "context": (synchronization.SYNC_CONTEXT_ID,),
        "event": (synchronization.CUDA_EVENT_ID,),
        "sync": (synchronization.EVENT_SYNC_ID,),
        "device": (synchronization.SYNC_DEVICE_ID,),
    },
    optional=True,
)
"""Waits of CUDA on the threads that called (on rows of GPUs where the call is not known): what kind (`value`), and ids: of the
stream and the context, of the CUDA event and of the record of it, and of the device + 1, as the process counts devices."""
RECORDS = Collection(
    "records",
    (synchronization.CUDA_EVENT_RECORD,),
    {"sync": (synchronization.RECORD_SYNC_ID,), "since_call": (synchronization.SINCE_RECORD_CALL,)},
    samples=True,
    optional=True,
)
"""Records of CUDA events (`value`) on their streams: `sync`, the number of the record, and how long ago the host called, ns
(null: the call is not known)."""
PROFILER_SETUP = Collection("profiler_setup", (api_calls.PROFILER_OVERHEAD,))
"""What the profiler sets up, and writes out, on threads of the program."""
MPI_COLLECTIVES = Collection(
    "mpi_collectives",
    (event_types.MPI_COLLECTIVE,),
    {"communicator": (event_types.MPI_COMMUNICATOR,), "root": (event_types.MPI_ROOT,)},
    optional=True,
)
"""Collective calls of MPI: the communicator (a value of MPI_COMMUNICATOR; null: not known), and the root (its rank + 1)."""
COLLECTIONS = (
    *(ON_DEVICES, NCCL_CALLS, NCCL_REGIONS, ON_HOSTS, RANGES, SAMPLES, MEMORY_CHANGES, PAGE_FAULTS, OFF_CPU_TIMES),
    *(FUNCTION_SAMPLES, WAITS, RECORDS, PROFILER_SETUP, MPI_COLLECTIVES),
)

LAUNCH_SCHEMA = {"time": pl.Int64, "row": pl.Int32, "to_time": pl.Int64, "to_row": pl.Int32}
"""Lines from API calls (row and start of the call) to what they start on a stream."""

MESSAGE_SCHEMA = {
    "time": pl.Int64,
    "row": pl.Int32,
    "to_begin": pl.Int64,
    "to_time": pl.Int64,
    "to_row": pl.Int32,
    "size": pl.Int64,
}
"""Point-to-point messages of MPI: row and start of the call that sends (or starts a persistent request), start of the call that
receives, end of the call that completes the receive, its row, and bytes."""


def base_types(numbers: Sequence[int], collection: Collection) -> dict[int, int]:
    """For each number that belongs to a collection: the event type it is a member or a lane of."""
    types = {number: type_of(number) for number in numbers}
    return {number: base.number for number, base in types.items() if base is not None and base.number in collection.types}


@dataclass
class RunEvents:
    """What happened in a run. All events of a stream are on its first row (`RunRows.first_of_stream`), where they may overlap.

    `inputs`, `title`: what the user named, and a title for headings.
    `begin`, `length`: start of the selected time on the axis of all reports, and its length E, ns.
    `offset`: start of the selected time, ns from the start of the trace. Times of collections, launches and clocks count from
        the start of the trace; `MeasuredRun` has them from the start of the selected time.
    `types`: names of event types and values.
    `collections`: sorted by `start`, by the name of the collection; those without rows are missing.
    `launches`: LAUNCH_SCHEMA, sorted by `to_time`; None: there are none.
    `messages`: MESSAGE_SCHEMA, sorted by `to_time`; None: there are none, or they were not requested.
    `ranks_of_run`: number of ranks of the run as far as it is known, those that are not read included; 0: not known.
    `began`: start of the recording, in UTC (ISO 8601); None: not known.
    `clocks`, `report_clocks`: `clocks`, and `alignment` of each report, in OUT.json: how clocks were placed and are known.
    `recorders`, `gpus`, `gpu_sizes`: versions of nsys, models of the GPUs of its hosts, how large these are; empty: not known.
    `recorded`: when the first recording began and the last one stopped, ns from the start of the trace: what was open then has
        begun before, or ends later.
    `stops`: when recordings stopped, likewise: where ranges that nobody ended do so.
    `pauses`: when nothing was recorded between them, likewise.
    `failed_calls`, `failed_launches`: calls of CUDA that failed so that work is missing, and all that launch and failed, as far
    as they are looked for.
    `warnings`, `left_out`: what is odd; reports that could not be read."""

    inputs: tuple[str, ...]
    title: str
    rows: RunRows
    begin: int
    length: int
    types: Mapping[int, UsedType]
    collections: dict[str, ExternalSort]
    launches: ExternalSort | None
    messages: ExternalSort | None = None
    offset: int = 0
    ranks_of_run: int = 0
    began: str | None = None
    clocks: list[dict[str, Any]] = field(default_factory=list)
    report_clocks: list[dict[str, Any]] = field(default_factory=list)
    recorders: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    gpu_sizes: frozenset[GpuSize] = frozenset()
    recorded: tuple[int, int] = (0, LONGEST_SESSION_NS)
    stops: frozenset[int] = frozenset()
    pauses: tuple[tuple[int, int], ...] = ()
    failed_calls: int = 0
    failed_launches: int = 0
    warnings: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def missing_ranks(self) -> int:
        """Number of ranks of the run that are not read: they are not in the reports, or were not selected."""
        ranks = {task.rank for task in self.rows.tasks if task.rank is not None}
        return max(self.ranks_of_run - len(ranks), 0)

    @property
    def has_all_ranks(self) -> bool:
        """Whether it is known that all ranks of the run are read."""
        return self.ranks_of_run > 0 and self.missing_ranks == 0

    def names(self, number: int) -> Mapping[int, str]:
        """Names of the values of an event type; none of one that is not in the run."""
        return (self.types[number].values if number in self.types else None) or {}

    def named(self, numbers: pl.Series | int, values: pl.Series) -> pl.Series:
        """Names of values of event types, or of one of them; null without a number (null or 0) or a value."""
        pairs = pl.DataFrame({"value": values.cast(pl.Int64)}).with_columns(number=pl.lit(numbers).cast(pl.Int64))
        labels = [(number, *name) for number in pairs["number"].unique().to_list() for name in self.names(number).items()]
        names = pl.DataFrame(labels, schema={"number": pl.Int64, "value": pl.Int64, "label": pl.String}, orient="row")
        joined = pairs.join(names, on=["number", "value"], how="left", maintain_order="left")
        plain = pl.when(pl.col("number") > 0).then(pl.format("value {}", "value"))
        return joined.select(pl.coalesce("label", plain)).to_series()

    def names_of(self, values: pl.DataFrame, **numbers: int) -> list[pl.Series]:
        """Names of the values in some columns, by the event types of these."""
        return [self.named(int(number), values[column]).alias(column) for column, number in numbers.items()]
