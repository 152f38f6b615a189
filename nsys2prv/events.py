"""The vocabulary of a trace: event types, their values, states and message tags. No number is written anywhere else.

The numbers are those of Extrae and of BSC's existing tools, so that their views work on these traces. A new kind of event
is a line in EVENT_TYPES; the .pcf, the views, the documentation and the checks follow from it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from nsys2prv import mpi_calls

END_LABEL = "End"
"""Label of value 0 of every interval type."""

LARGEST_LABELLED_NUMBER = 2**31 - 1
"""Paraver loses labels of types and values above this (it still shows the numbers)."""


class Role(enum.Enum):
    """What the events of a type are."""

    INTERVAL = "interval"  # a begin with a value, an end with 0; may nest
    ATTRIBUTE = "attribute"  # further facts about an interval, on the same lines
    MARK = "mark"  # a point in time with a value
    SAMPLE = "sample"  # a counter read from time to time


@dataclass(frozen=True)
class ValueSet:
    """Where the values of one or more types come from.

    Attributes
    ----------
    name
        Types that are shown together share a value set, so that their values never overlap.
    fixed
        Labels with a number that never changes.
    first
        Names found in reports are numbered from here up, without holes.
    """

    name: str
    fixed: Mapping[str, int] = field(default_factory=dict)
    first: int = 1


@dataclass(frozen=True)
class EventType:
    """One event type, or a series of them (one per NVTX domain, per GPU metric, ...).

    Attributes
    ----------
    number
        Number in the trace; of a series, the number of its first member.
    label
        Label in the .pcf; of a series, a pattern with ``{}`` for the member's name.
    role
        What its events are.
    gradient
        Colour gradient in the .pcf (Paraver's first column of an EVENT_TYPE line).
    values
        Where labels of values come from; None for plain numbers.
    unit
        Unit of plain numbers, for documentation.
    step, members
        Of a series: distance between the numbers of two members, and how many fit before `overflow`.
    overflow
        Of a series: number of member `members`, with a step of 1 from there.
    precision
        Decimal places of plain numbers: they stand in the trace multiplied by 10 to the power of this, and Paraver divides.
    """

    number: int
    label: str
    role: Role
    values: ValueSet | None = None
    gradient: int = 0
    unit: str = ""
    step: int = 0
    members: int = 0
    overflow: int = 0
    precision: int = 0

    @property
    def is_series(self) -> bool:
        return self.step > 0

    def member(self, index: int) -> int:
        """Number of member `index` (0, 1, ...) of a series."""
        if index < self.members:
            return self.number + index * self.step
        return self.overflow + index - self.members


COPY_KINDS: dict[int, str] = {
    1: "CUDA memcpy Host-to-Device",
    2: "CUDA memcpy Device-to-Host",
    3: "CUDA memcpy Host-to-Array",
    4: "CUDA memcpy Array-to-Host",
    5: "CUDA memcpy Array-to-Array",
    6: "CUDA memcpy Array-to-Device",
    7: "CUDA memcpy Device-to-Array",
    8: "CUDA memcpy Device-to-Device",
    9: "CUDA memcpy Host-to-Host",
    10: "CUDA memcpy Peer-to-Peer",
    11: "CUDA memcpy Unified Host-to-Device",
    12: "CUDA memcpy Unified Device-to-Host",
    13: "CUDA memcpy Unified Device-to-Device",
}
"""Label of each `copyKind` of nsys."""
MEMSET_LABEL = "CUDA memset"
OTHER_COPY_LABEL = "CUDA memcpy other"

_MEMORY_OPERATIONS = {
    "CUDA memcpy Device-to-Device": 3,
    "CUDA memcpy Device-to-Host": 4,
    "CUDA memcpy Host-to-Device": 5,
    MEMSET_LABEL: 6,
    "CUDA memcpy Peer-to-Peer": 7,
    "CUDA memcpy Host-to-Host": 8,
    "CUDA memcpy Unified Host-to-Device": 9,
    "CUDA memcpy Unified Device-to-Host": 10,
    "CUDA memcpy Unified Device-to-Device": 11,
    "CUDA memcpy Host-to-Array": 12,
    "CUDA memcpy Array-to-Host": 13,
    "CUDA memcpy Array-to-Array": 14,
    "CUDA memcpy Array-to-Device": 15,
    "CUDA memcpy Device-to-Array": 16,
    OTHER_COPY_LABEL: 17,
}

OPENACC_KINDS: dict[int, str] = {
    1: "Device init",
    2: "Device shutdown",
    3: "Runtime shutdown",
    4: "Enqueue launch",
    5: "Enqueue upload",
    6: "Enqueue download",
    7: "Wait",
    8: "Implicit wait",
    9: "Compute construct",
    10: "Update",
    11: "Enter data",
    12: "Exit data",
    13: "Create",
    14: "Delete",
    15: "Alloc",
    16: "Free",
}
"""Label of each `eventKind` of nsys' OpenACC tables."""

# Everything that a timeline of CUDA shows at once: calls, memory operations, kernels, graphs.
CUDA_VALUES = ValueSet("cuda", _MEMORY_OPERATIONS, first=max(_MEMORY_OPERATIONS.values()) + 1)
MPI_VALUES = ValueSet("mpi", mpi_calls.NUMBERS, first=mpi_calls.FIRST_FREE_NUMBER)
NVTX_VALUES = ValueSet("nvtx")
NCCL_VALUES = ValueSet("nccl regions")
OS_VALUES = ValueSet("os runtime")
# BSC's views expect nsys' eventKind plus one, so that 0 stays the end.
OPENACC_VALUES = ValueSet("openacc", {label: kind + 1 for kind, label in OPENACC_KINDS.items()}, first=max(OPENACC_KINDS) + 2)
OPENACC_NAME_VALUES = ValueSet("openacc names")
OPENACC_FUNCTION_VALUES = ValueSet("openacc functions")
COMMUNICATOR_VALUES = ValueSet("mpi communicators")

MPI_POINT_TO_POINT = 50000001
MPI_COLLECTIVE = 50000002
MPI_OTHER = 50000003
MPI_ONE_SIDED = 50000004
MPI_IO = 50000005
MPI_TYPES = {
    "point_to_point": MPI_POINT_TO_POINT,
    "collective": MPI_COLLECTIVE,
    "other": MPI_OTHER,
    "one_sided": MPI_ONE_SIDED,
    "io": MPI_IO,
}
"""Event type of each kind of MPI call; the kinds are those of `mpi_calls.kind`."""
MPI_SEND_SIZE = 50100001
MPI_RECV_SIZE = 50100002
MPI_ROOT = 50100003
MPI_COMMUNICATOR = 50100004
MPI_MESSAGE_SIZE = 50100011
MPI_PARTNER = 50100012
MPI_TAG = 50100013

CUDA_CALL = 63000000
MEMORY_OPERATION = 63000001
MEMORY_SIZE = 63000002
KERNEL = 63000006
NCCL_KERNEL = 63000007
GRAPH_EXECUTION = 63000008
GRAPH_ID = 63000100
GRAPH_EXEC_ID = 63000101
GRAPH_NODE_ID = 63000102

OS_CALL = 65000000

OPENACC_OTHER = 66000000
OPENACC_DATA = 66000001
OPENACC_LAUNCH = 66000002
OPENACC_NAME = {OPENACC_OTHER: 66100000, OPENACC_DATA: 66100001, OPENACC_LAUNCH: 66100002}
OPENACC_FUNCTION = {OPENACC_OTHER: 66200000, OPENACC_DATA: 66200001, OPENACC_LAUNCH: 66200002}
OPENACC_BYTES = 66300001

NVTX_RANGE = 9004
NVTX_MARK = 9005
GRID_X, GRID_Y, GRID_Z, BLOCK_X, BLOCK_Y, BLOCK_Z = range(9101, 9107)
STATIC_SHARED_MEMORY = 9107
DYNAMIC_SHARED_MEMORY = 9108
LOCAL_MEMORY = 9109
REGISTERS = 9110
CORRELATION_ID = 9200
GPU_METRIC = 9400
NCCL_REGION = 9500
NVTX_PUSHPOP = 9600

# Libraries of communication other than MPI, beside MPI's numbers.
UCX_SUBMIT, UCX_PROGRESS, UCX_OTHER = 51000001, 51000002, 51000003
UCX_PROGRESS_FURTHER_LANES = 51001000
UCX_SIZE, UCX_TAG, UCX_PEER = 51100001, 51100002, 51100003
NVSHMEM_CALL = 52000001
UCX_VALUES = ValueSet("ucx")
NVSHMEM_VALUES = ValueSet("nvshmem")

# What is sampled on a node and not on a GPU.
NETWORK_METRIC = 9300
IB_CONGESTION = 9390
IB_SOURCE_LID, IB_DESTINATION_LID, IB_SERVICE_LEVEL, IB_OPERATION = 9391, 9392, 9393, 9394
IB_SOURCE_QP, IB_DESTINATION_QP, IB_INGRESS_PORT = 9395, 9396, 9397
CPU_METRIC, CPU_REAL_METRIC = 94200000, 94300000
SYSTEM_METRIC = 94400000
PLUGIN_METRIC, PLUGIN_REAL_METRIC, PLUGIN_TEXT = 94500000, 94600000, 94700000
GPU_CONTEXT, GPU_CONTEXT_SWITCH = 63000200, 63000201
_IN_A_SERIES = 50_000
REAL_PRECISION = 3
"""Decimal places of sampled numbers that are not whole."""
CONGESTION_VALUES = ValueSet("switch congestion")
PLUGIN_TEXT_VALUES = ValueSet("texts of plugins")
GPU_CONTEXT_VALUES = ValueSet("gpu contexts")
GPU_CONTEXT_SWITCH_VALUES = ValueSet("gpu context switches")

TAG_KERNEL_LAUNCH = 55001
TAG_MEMORY_LAUNCH = 55002
TAG_DEPENDENCY = 55003

_I, _A, _M, _S = Role.INTERVAL, Role.ATTRIBUTE, Role.MARK, Role.SAMPLE

EVENT_TYPES: tuple[EventType, ...] = (
    EventType(MPI_POINT_TO_POINT, "MPI Point-to-point", _I, MPI_VALUES, gradient=1),
    EventType(MPI_COLLECTIVE, "MPI Collective Comm", _I, MPI_VALUES, gradient=1),
    EventType(MPI_OTHER, "MPI Other", _I, MPI_VALUES, gradient=1),
    EventType(MPI_ONE_SIDED, "MPI One-sided", _I, MPI_VALUES, gradient=1),
    EventType(MPI_IO, "MPI I/O", _I, MPI_VALUES, gradient=1),
    EventType(MPI_SEND_SIZE, "Send Size in MPI Global OP", _A, gradient=1, unit="bytes"),
    EventType(MPI_RECV_SIZE, "Recv Size in MPI Global OP", _A, gradient=1, unit="bytes"),
    EventType(MPI_ROOT, "Root in MPI Global OP", _A, gradient=1, unit="rank + 1"),
    EventType(MPI_COMMUNICATOR, "Communicator in MPI Global OP", _A, COMMUNICATOR_VALUES, gradient=1),
    EventType(MPI_MESSAGE_SIZE, "MPI message size", _A, gradient=1, unit="bytes"),
    EventType(MPI_PARTNER, "MPI message partner", _A, gradient=1, unit="rank in the communicator + 1"),
    EventType(MPI_TAG, "MPI message tag", _A, gradient=1, unit="tag"),
    EventType(CUDA_CALL, "CUDA library call", _I, CUDA_VALUES),
    EventType(MEMORY_OPERATION, "CUDA memcpy kernel", _I, CUDA_VALUES),
    EventType(MEMORY_SIZE, "Memcopy size", _A, unit="bytes"),
    EventType(KERNEL, "CUDA kernel", _I, CUDA_VALUES),
    EventType(NCCL_KERNEL, "NCCL kernel", _I, CUDA_VALUES),
    EventType(GRAPH_EXECUTION, "CUDA Graphs Exec name", _I, CUDA_VALUES),
    EventType(GRAPH_ID, "CUDA Graphs ID", _A, unit="id"),
    EventType(GRAPH_EXEC_ID, "CUDA Graphs Exec ID", _A, unit="id"),
    EventType(GRAPH_NODE_ID, "Graph Node ID", _A, unit="id"),
    EventType(OS_CALL, "OS runtime call", _I, OS_VALUES),
    EventType(OPENACC_OTHER, "OpenACC other constructs", _I, OPENACC_VALUES),
    EventType(OPENACC_DATA, "OpenACC data constructs", _I, OPENACC_VALUES),
    EventType(OPENACC_LAUNCH, "OpenACC launch constructs", _I, OPENACC_VALUES),
    EventType(OPENACC_NAME[OPENACC_OTHER], "OpenACC name of other constructs", _A, OPENACC_NAME_VALUES),
    EventType(OPENACC_NAME[OPENACC_DATA], "OpenACC name of data constructs", _A, OPENACC_NAME_VALUES),
    EventType(OPENACC_NAME[OPENACC_LAUNCH], "OpenACC name of launch constructs", _A, OPENACC_NAME_VALUES),
    EventType(OPENACC_FUNCTION[OPENACC_OTHER], "OpenACC function of other constructs", _A, OPENACC_FUNCTION_VALUES),
    EventType(OPENACC_FUNCTION[OPENACC_DATA], "OpenACC function of data constructs", _A, OPENACC_FUNCTION_VALUES),
    EventType(OPENACC_FUNCTION[OPENACC_LAUNCH], "OpenACC function of launch constructs", _A, OPENACC_FUNCTION_VALUES),
    EventType(OPENACC_BYTES, "OpenACC data size", _A, unit="bytes"),
    EventType(GRID_X, "Kernel GrdX", _A, unit="blocks"),
    EventType(GRID_Y, "Kernel GrdY", _A, unit="blocks"),
    EventType(GRID_Z, "Kernel GrdZ", _A, unit="blocks"),
    EventType(BLOCK_X, "Kernel BlkX", _A, unit="threads"),
    EventType(BLOCK_Y, "Kernel BlkY", _A, unit="threads"),
    EventType(BLOCK_Z, "Kernel BlkZ", _A, unit="threads"),
    EventType(STATIC_SHARED_MEMORY, "Kernel Static Shared Memory", _A, unit="bytes"),
    EventType(DYNAMIC_SHARED_MEMORY, "Kernel Dynamic Shared Memory", _A, unit="bytes"),
    EventType(LOCAL_MEMORY, "Kernel Local memory reserved for kernel", _A, unit="bytes"),
    EventType(REGISTERS, "Kernel Registers/Thread", _A, unit="registers"),
    EventType(CORRELATION_ID, "Correlation ID", _A, unit="id"),
    # Ranges that overlap freely would cut each other off on one type: each goes to the first lane that is free.
    EventType(NVTX_RANGE, "NVTX startend ranges{}", _I, NVTX_VALUES, step=1, members=1, overflow=90040001),
    EventType(NVTX_MARK, "NVTX marks", _M, NVTX_VALUES),
    EventType(GPU_METRIC, "{}", _S, gradient=7, unit="percent, Hz or bytes/s", step=1, members=100, overflow=94000100),
    EventType(NCCL_REGION, "NCCL regions", _I, NCCL_VALUES),
    EventType(NVTX_PUSHPOP, "NVTX pushpop ranges {} domain", _I, NVTX_VALUES, step=100, members=1_000, overflow=96100000),
    EventType(UCX_SUBMIT, "UCX submission", _I, UCX_VALUES, gradient=1),
    # Requests are in flight side by side.
    EventType(UCX_PROGRESS, "UCX progress{}", _I, UCX_VALUES, 1, step=1, members=1, overflow=UCX_PROGRESS_FURTHER_LANES),
    EventType(UCX_OTHER, "UCX call", _I, UCX_VALUES, gradient=1),
    EventType(UCX_SIZE, "UCX message size", _A, gradient=1, unit="bytes"),
    EventType(UCX_TAG, "UCX message tag", _A, gradient=1, unit="tag"),
    EventType(UCX_PEER, "UCX peer worker", _A, gradient=1, unit="id"),
    EventType(NVSHMEM_CALL, "NVSHMEM call", _I, NVSHMEM_VALUES, gradient=1),
    EventType(NETWORK_METRIC, "{}", _S, gradient=7, unit="as its label says", step=1, members=80, overflow=93000100),
    EventType(IB_CONGESTION, "InfiniBand switch congestion", _M, CONGESTION_VALUES),
    EventType(IB_SOURCE_LID, "Congested packet source LID", _M, unit="LID"),
    EventType(IB_DESTINATION_LID, "Congested packet destination LID", _M, unit="LID"),
    EventType(IB_SERVICE_LEVEL, "Congested packet service level", _M, unit="level"),
    EventType(IB_OPERATION, "Congested packet operation code", _M, unit="code"),
    EventType(IB_SOURCE_QP, "Congested packet source queue pair", _M, unit="queue pair"),
    EventType(IB_DESTINATION_QP, "Congested packet destination queue pair", _M, unit="queue pair"),
    EventType(IB_INGRESS_PORT, "Congested packet ingress port", _M, unit="port"),
    EventType(CPU_METRIC, "{}", _S, None, 7, "events per second", 1, _IN_A_SERIES, CPU_METRIC + _IN_A_SERIES),
    EventType(
        CPU_REAL_METRIC, "{}", _S, None, 7, "as its label says", 1, _IN_A_SERIES, CPU_REAL_METRIC + _IN_A_SERIES, REAL_PRECISION
    ),
    EventType(SYSTEM_METRIC, "{}", _S, None, 7, "as the report has it", 1, _IN_A_SERIES, SYSTEM_METRIC + _IN_A_SERIES),
    EventType(PLUGIN_METRIC, "{}", _S, None, 7, "as the plugin has it", 1, _IN_A_SERIES, PLUGIN_METRIC + _IN_A_SERIES),
    EventType(
        PLUGIN_REAL_METRIC,
        "{}",
        _S,
        None,
        7,
        "as the plugin has it",
        1,
        _IN_A_SERIES,
        PLUGIN_REAL_METRIC + _IN_A_SERIES,
        REAL_PRECISION,
    ),
    EventType(PLUGIN_TEXT, "{}", _S, PLUGIN_TEXT_VALUES, step=1, members=_IN_A_SERIES, overflow=PLUGIN_TEXT + _IN_A_SERIES),
    EventType(GPU_CONTEXT, "GPU context that runs", _S, GPU_CONTEXT_VALUES),
    EventType(GPU_CONTEXT_SWITCH, "GPU context switch", _M, GPU_CONTEXT_SWITCH_VALUES),
)

TYPES: dict[int, EventType] = {event_type.number: event_type for event_type in EVENT_TYPES}


def type_of(number: int) -> EventType | None:
    """The line of EVENT_TYPES that a number in a trace belongs to; None when it is not one of ours."""
    if number in TYPES:
        return TYPES[number]
    for series in (event_type for event_type in EVENT_TYPES if event_type.is_series):
        index, rest = divmod(number - series.number, series.step)
        if (0 <= index < series.members and rest == 0) or series.overflow <= number < series.overflow + 100_000:
            return series
    return None


@dataclass(frozen=True)
class State:
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
