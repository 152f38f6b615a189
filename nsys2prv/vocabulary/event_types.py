"""Event types: what they are, and those that several packages use; states and message tags.

The numbers are those of Extrae and of BSC's existing tools, so that their views work on these traces. A type that neither has
gets a number that no `events.h` of Extrae contains (5.1), the internal ones included. Types that only one source uses are
declared in its module; `nsys2prv.sources.registry` lists them all."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nsys2prv.vocabulary import call_names, nccl_names

END_LABEL = "End"
"""Label of value 0 of every interval type."""

LARGEST_LABELLED_NUMBER = 2**31 - 1
"""Paraver loses labels of types and values above this (it still shows the numbers)."""

LANES_OF_A_MEMBER = 1_000
"""Numbers that are kept for types beside one, where its ranges overlap."""
_MOST_OVERFLOWING = 100_000
"""Numbers that are kept for members of a series beyond the first ones."""


class Role(enum.Enum):
    """What the events of a type are."""

    INTERVAL = "interval"  # a start with a value, an end with 0; may nest
    ATTRIBUTE = "attribute"  # further facts about an interval, on the same lines
    MARK = "mark"  # a point in time with a value
    SAMPLE = "sample"  # a counter read from time to time


@dataclass(frozen=True)
class ValueSet:
    """Where the values of one or more types come from."""

    name: str  # types that are shown together share a value set, so that their values never overlap
    fixed: Mapping[str, int] = field(default_factory=dict)  # labels with a number that never changes
    first: int = 1  # names found in reports are numbered from here up, without holes
    # Labels of the texts found, all of them over all reports together; None: a text is its label.
    renamed: Callable[[Iterable[str]], Mapping[str, str]] | None = None


def numbered(labels: Mapping[int, str]) -> dict[str, int]:
    """Values for nsys' numbers: plus one, so that 0 stays the end."""
    return {label: number + 1 for number, label in labels.items()}


class EventType(int):
    """One event type, or a series of them (per NVTX domain, per GPU metric, ...): its number in the trace, and its facts."""

    number: int  # the number alone; of a series, that of the first member
    label: str  # in the .pcf; of a series, a pattern with ``{}`` for the member's name
    role: Role  # what its events are
    values: ValueSet | None = None  # where labels of values come from; None for plain numbers
    gradient: int = 0  # colour gradient in the .pcf (Paraver's first column of an EVENT_TYPE line)
    unit: str = ""  # unit of plain numbers, for documentation
    # step, members: of a series: distance between the numbers of two members, and how many fit before `overflow`
    step: int = 0
    members: int = 0
    overflow: int = 0  # of a series: number of member `members`, with a step of 1 from there
    # Decimal places of plain numbers: the trace has them multiplied by 10 to the power of this, and Paraver divides.
    precision: int = 0
    # Of ranges that may overlap on one row: number of the first type beside it, for those that would cut others off. Of a
    # series: beside its first member, with `LANES_OF_A_MEMBER` numbers for each.
    lanes: int = 0
    # Number in traces of versions that used one of Extrae's (0: none). `sources.registry.renumbered` recognises it.
    former: int = 0

    def __new__(cls, number: int, label: str, role: Role, values: ValueSet | None = None, **facts: str | int) -> EventType:
        event_type = super().__new__(cls, number)
        vars(event_type).update(number=number, label=label, role=role, values=values, **facts)
        return event_type

    def __getnewargs__(self) -> tuple[int, str, Role]:  # type: ignore[override]
        return int(self), self.label, self.role

    @property
    def is_series(self) -> bool:
        return self.step > 0

    def member(self, index: int) -> int:
        """Number of member `index` (0, 1, ...) of a series."""
        if index < self.members:
            return self + index * self.step
        return self.overflow + index - self.members

    def index(self, number: int) -> int:
        """Which member of a series has a number; 0 of a type that is no series."""
        if not self.is_series:
            return 0
        index, remainder = divmod(number - self, self.step)
        return index if remainder == 0 and index < self.members else self.members + number - self.overflow

    def beside(self, number: int, lane: int) -> int:
        """Number of lane `lane` (0: the type itself) of the type, or member of a series, with a number."""
        return self.lanes + self.index(number) * LANES_OF_A_MEMBER + lane - 1 if lane else number

    def covers(self, number: int) -> bool:
        """Whether a number in a trace belongs here: it is that of the type, of a member, or of a lane."""
        members = self.members + _MOST_OVERFLOWING if self.is_series else 1
        if self.lanes and self.lanes <= number < self.lanes + members * LANES_OF_A_MEMBER:
            return True
        index = self.index(number)
        return 0 <= index < members and self.member(index) == number if self.is_series else number == self


_KINDS_OF_COPIES = (
    "Host-to-Device, Device-to-Host, Host-to-Array, Array-to-Host, Array-to-Array, Array-to-Device, Device-to-Array, "
    "Device-to-Device, Host-to-Host, Peer-to-Peer, Unified Host-to-Device, Unified Device-to-Host, Unified Device-to-Device"
)
COPY_KINDS = {number: f"CUDA memcpy {kind}" for number, kind in enumerate(_KINDS_OF_COPIES.split(", "), start=1)}
"""Label of each `copyKind` of nsys."""
MEMSET_LABEL = "CUDA memset"
OTHER_COPY_LABEL = "CUDA memcpy other"

_MEMORY_OPERATIONS = (
    *(COPY_KINDS[kind] for kind in (8, 2, 1)),
    MEMSET_LABEL,
    *(COPY_KINDS[kind] for kind in (10, 9, 11, 12, 13, 3, 4, 5, 6, 7)),
    OTHER_COPY_LABEL,
)
"""Labels of values 3, 4, ... in traces."""

CUDA_VALUES = ValueSet("cuda", {label: value for value, label in enumerate(_MEMORY_OPERATIONS, start=3)}, first=18)
"""Everything that a timeline of CUDA shows at once: calls, memory operations, kernels and their families, graphs."""
CUDA_CALL = EventType(63000000, "CUDA library call", Role.INTERVAL, CUDA_VALUES)
MEMORY_OPERATION = EventType(63000001, "CUDA memcpy kernel", Role.INTERVAL, CUDA_VALUES)
MEMORY_SIZE = EventType(63000002, "Memcopy size", Role.ATTRIBUTE, unit="bytes")
KERNEL = EventType(63000006, "CUDA kernel", Role.INTERVAL, CUDA_VALUES)
NCCL_KERNEL = EventType(63000007, "NCCL kernel", Role.INTERVAL, CUDA_VALUES)
GRAPH_EXECUTION = EventType(63000008, "CUDA Graphs Exec name", Role.INTERVAL, CUDA_VALUES)
KERNEL_TYPES = (KERNEL, GRAPH_EXECUTION, NCCL_KERNEL)
"""What computes on a device: kernels, graphs, kernels of NCCL."""
KERNEL_FAMILY = EventType(63000121, "CUDA kernel family", Role.ATTRIBUTE, CUDA_VALUES, former=63000010)
FAMILIES: dict[int, EventType] = {KERNEL: KERNEL_FAMILY, NCCL_KERNEL: KERNEL_FAMILY}
"""Type whose values group those of a type, on the same lines."""
CORRELATION_ID = EventType(9200, "Correlation ID", Role.ATTRIBUTE, unit="id")

_KINDS_OF_MEMORY = "Pageable, Pinned, Device, Array, Managed, Device static, Managed static, Unknown"
MEMORY_KINDS = dict(enumerate(_KINDS_OF_MEMORY.split(", ")))
"""Label of each kind of memory of nsys."""
_MEMORY_KIND_VALUES = ValueSet("memory kinds", numbered(MEMORY_KINDS), first=20)
SOURCE_MEMORY = EventType(63000500, "Memcopy source memory", Role.ATTRIBUTE, _MEMORY_KIND_VALUES)
DESTINATION_MEMORY = EventType(63000501, "Memcopy destination memory", Role.ATTRIBUTE, _MEMORY_KIND_VALUES)

_MPI_VALUES = ValueSet("mpi", call_names.NUMBERS, first=len(call_names.NUMBERS) + 1)
MPI_POINT_TO_POINT = EventType(50000001, "MPI Point-to-point", Role.INTERVAL, _MPI_VALUES, gradient=1)
MPI_COLLECTIVE = EventType(50000002, "MPI Collective Comm", Role.INTERVAL, _MPI_VALUES, gradient=1)
MPI_OTHER = EventType(50000003, "MPI Other", Role.INTERVAL, _MPI_VALUES, gradient=1)
MPI_ONE_SIDED = EventType(50000004, "MPI One-sided", Role.INTERVAL, _MPI_VALUES, gradient=1)
MPI_IO = EventType(50000005, "MPI I/O", Role.INTERVAL, _MPI_VALUES, gradient=1)
MPI_TYPES = {
    "point_to_point": MPI_POINT_TO_POINT,
    "collective": MPI_COLLECTIVE,
    "other": MPI_OTHER,
    "one_sided": MPI_ONE_SIDED,
    "io": MPI_IO,
}
"""Event type of each kind of MPI call (`call_names`)."""
MPI_SEND_SIZE = EventType(50100001, "Send Size in MPI Global OP", Role.ATTRIBUTE, gradient=1, unit="bytes")
MPI_RECV_SIZE = EventType(50100002, "Recv Size in MPI Global OP", Role.ATTRIBUTE, gradient=1, unit="bytes")
MPI_ROOT = EventType(50100003, "Root in MPI Global OP", Role.ATTRIBUTE, gradient=1, unit="rank + 1")
MPI_COMM_WORLD, MPI_COMM_SELF = "MPI_COMM_WORLD", "MPI_COMM_SELF of rank {}"
UNKNOWN_COMMUNICATOR = "unknown communicator"
# Dimemas takes communicator 1 for that of all tasks.
_MPI_COMMUNICATORS = ValueSet("mpi communicators", {MPI_COMM_WORLD: 1}, first=2)
MPI_COMMUNICATOR = EventType(50100004, "Communicator in MPI Global OP", Role.ATTRIBUTE, _MPI_COMMUNICATORS, gradient=1)
MPI_MESSAGE_SIZE = EventType(50100011, "MPI message size", Role.ATTRIBUTE, gradient=1, unit="bytes")
MPI_PARTNER = EventType(50100012, "MPI message partner", Role.ATTRIBUTE, gradient=1, unit="rank in the communicator + 1")
MPI_TAG = EventType(50100013, "MPI message tag", Role.ATTRIBUTE, gradient=1, unit="tag")

NVTX_VALUES = ValueSet("nvtx")
# Ranges that overlap freely would cut each other off on one type: each goes to the first lane that is free.
NVTX_RANGE = EventType(9004, "NVTX startend ranges", Role.INTERVAL, NVTX_VALUES, lanes=90040001)
NVTX_MARK = EventType(9005, "NVTX marks", Role.MARK, NVTX_VALUES)
NVTX_PUSHPOP = EventType(
    9600, "NVTX pushpop ranges {} domain", Role.INTERVAL, NVTX_VALUES, step=100, members=1_000, overflow=96100000
)

NCCL_VALUES = ValueSet("nccl regions")
NCCL_REGION = EventType(9500, "NCCL regions", Role.INTERVAL, NCCL_VALUES)
NCCL_SIZE = EventType(9501, "NCCL message size", Role.ATTRIBUTE, unit="bytes")
_REDUCTIONS = numbered(dict(enumerate(nccl_names.REDUCTIONS)))
NCCL_REDUCTION = EventType(
    9502, "NCCL reduction operation", Role.ATTRIBUTE, ValueSet("nccl reductions", _REDUCTIONS, first=len(_REDUCTIONS) + 1)
)
NCCL_ROOT = EventType(9503, "NCCL root", Role.ATTRIBUTE, unit="rank in the communicator + 1")
NCCL_COMMUNICATOR = EventType(
    9504, "NCCL communicator", Role.ATTRIBUTE, ValueSet("nccl communicators", renamed=nccl_names.communicator_labels)
)
NCCL_RANKS = EventType(9505, "NCCL ranks of the communicator", Role.ATTRIBUTE, unit="ranks")
NCCL_RANK = EventType(9506, "NCCL rank in the communicator", Role.ATTRIBUTE, unit="rank in the communicator + 1")
NCCL_PEER = EventType(9507, "NCCL peer", Role.ATTRIBUTE, unit="rank in the communicator + 1")
NCCL_SEQUENCE = EventType(9509, "NCCL sequence number", Role.ATTRIBUTE, unit="number among its kind in the communicator + 1")
NCCL_CALL_OF_KERNEL = EventType(9508, "NCCL call that launched the kernel", Role.INTERVAL, NCCL_VALUES)

# Those that have a number in Extrae's traces.
_PTHREAD_CALLS = (
    "exit create join detach rwlock_wrlock rwlock_rdlock rwlock_unlock mutex_lock mutex_unlock cond_signal cond_broadcast"
    " cond_wait barrier_wait"
)
_PTHREAD = {f"pthread_{call}": number for number, call in enumerate(_PTHREAD_CALLS.split(), start=1)}
OS_CALL = EventType(65100000, "OS runtime call", Role.INTERVAL, ValueSet("os runtime"), former=65000000)
PTHREAD_CALL = EventType(61000000, "pthread call", Role.INTERVAL, ValueSet("pthread", _PTHREAD, first=14))
IO_CALL = EventType(40000004, "I/O call", Role.INTERVAL, ValueSet("input and output", {"read": 1, "write": 2}, first=3))

_THREAD_STATES = (
    "Unknown, Running, Interruptible, Uninterruptible, Stopped, Terminated, Unscheduled, Waiting, OS runtime, Initialized, "
    "Transition"
)
THREAD_STATES = dict(enumerate(_THREAD_STATES.split(", ")))
"""Label of each `threadState` of nsys; exports before ENUM tables have the same numbers."""

THREAD_STATE_VALUES = ValueSet("thread states", numbered(THREAD_STATES), first=max(THREAD_STATES) + 2)
EXECUTING_CPU = EventType(40000033, "Executing CPU", Role.INTERVAL, unit="CPU of the node + 1")
OFF_CPU = EventType(40000161, "Off CPU, thread state", Role.INTERVAL, THREAD_STATE_VALUES, former=40000061)

GPU_METRIC = EventType(
    9400, "{}", Role.SAMPLE, gradient=7, unit="percent, Hz or bytes/s", step=1, members=100, overflow=94000100
)

_CRITICAL_PATH_PARTS = (
    "kernel, graph, copy, collective whose members are not known, transfer of a collective, launch latency, "
    "synchronization latency, stream order, event wait, wait for a late rank, message, wake-up of a thread, full launch queue, "
    "before the path, after the path, host: launching, host: synchronizing, host: copying, host: allocating, "
    "host: other CUDA calls, host: MPI, host: OS, host: in no call, host: creating the context"
)
CRITICAL_PATH_PARTS = tuple(_CRITICAL_PATH_PARTS.split(", "))
"""What the critical path can be in; their values are 1, 2, ..."""
CRITICAL_PATH = EventType(
    63000800, "Critical path", Role.INTERVAL, ValueSet("critical path", numbered(dict(enumerate(CRITICAL_PATH_PARTS))))
)

TAG_KERNEL_LAUNCH = 55001
TAG_MEMORY_LAUNCH = 55002
TAG_NCCL_MESSAGE = 55004
TAG_NCCL_NETWORK = 55005
TAG_CRITICAL_PATH = 55006
"""Tags of messages that are not of MPI, which have the tags that the program gave them."""


class State(NamedTuple):
    """One Paraver state: number, label, colour (red, green, blue) in the .pcf."""

    number: int
    label: str
    colour: tuple[int, int, int]


IDLE, RUNNING = 0, 1
STATE_WAITING_MESSAGE, STATE_BLOCKING_SEND, STATE_SYNCHRONIZATION, STATE_TEST, STATE_WAIT = 3, 4, 5, 6, 8
STATE_BLOCKED, STATE_IMMEDIATE_SEND, STATE_IMMEDIATE_RECEIVE, STATE_IO, STATE_GROUP = 9, 10, 11, 12, 13
STATE_OTHERS, STATE_SEND_RECEIVE, STATE_MEMORY_TRANSFER, STATE_REMOTE_MEMORY = 15, 16, 17, 20
STATE_ALLOCATING, STATE_FREEING, STATE_CONFIGURING = 30, 31, 32

STATES: tuple[State, ...] = (
    State(IDLE, "Idle", (117, 195, 255)),
    State(RUNNING, "Running", (0, 0, 255)),
    State(STATE_WAITING_MESSAGE, "Waiting a message", (255, 0, 0)),
    State(STATE_BLOCKING_SEND, "Blocking Send", (255, 0, 174)),
    State(STATE_SYNCHRONIZATION, "Synchronization", (179, 0, 0)),
    State(STATE_TEST, "Test/Probe", (0, 255, 0)),
    State(STATE_WAIT, "Wait/WaitAll", (235, 0, 0)),
    State(STATE_BLOCKED, "Blocked", (0, 162, 0)),
    State(STATE_IMMEDIATE_SEND, "Immediate Send", (255, 0, 255)),
    State(STATE_IMMEDIATE_RECEIVE, "Immediate Receive", (100, 100, 177)),
    State(STATE_IO, "I/O", (172, 174, 41)),
    State(STATE_GROUP, "Group Communication", (255, 144, 26)),
    State(STATE_OTHERS, "Others", (2, 255, 177)),
    State(STATE_SEND_RECEIVE, "Send Receive", (192, 224, 0)),
    State(STATE_MEMORY_TRANSFER, "Memory transfer", (255, 255, 0)),
    State(STATE_REMOTE_MEMORY, "Remote memory access", (189, 168, 100)),
    State(STATE_ALLOCATING, "Allocating memory", (64, 192, 192)),
    State(STATE_FREEING, "Freeing memory", (0, 128, 128)),
    State(STATE_CONFIGURING, "Configuring accelerator", (160, 110, 230)),
)
