"""The vocabulary of a trace: event types, their values, states and message tags. No number is written anywhere else.

The numbers are those of Extrae and of BSC's existing tools, so that their views work on these traces. A new kind of event
is a line in EVENT_TYPES; the .pcf, the views, the documentation and the checks follow from it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from nsys2prv.vocabulary import mpi_calls, nccl_names

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
    renamed
        Labels of the texts found, all of them over all reports together; None: a text is its label.
    """

    name: str
    fixed: Mapping[str, int] = field(default_factory=dict)
    first: int = 1
    renamed: Callable[[Iterable[str]], Mapping[str, str]] | None = None


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
    lanes
        Of ranges that may overlap on one row: number of the first type beside it, for those that would cut others off. Of a
        series: beside its first member, with `LANES_OF_A_MEMBER` numbers for each.
    families
        Number of the type whose values group the values of this one, on the same lines; 0 for none.
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
    lanes: int = 0
    families: int = 0

    @property
    def is_series(self) -> bool:
        return self.step > 0

    def member(self, index: int) -> int:
        """Number of member `index` (0, 1, ...) of a series."""
        if index < self.members:
            return self.number + index * self.step
        return self.overflow + index - self.members

    def index(self, number: int) -> int:
        """Which member of a series has a number; 0 of a type that is no series."""
        if not self.is_series:
            return 0
        index, rest = divmod(number - self.number, self.step)
        return index if rest == 0 and index < self.members else self.members + number - self.overflow

    def beside(self, number: int, lane: int) -> int:
        """Number of lane `lane` (0: the type itself) of the type, or member of a series, with a number."""
        return self.lanes + self.index(number) * LANES_OF_A_MEMBER + lane - 1 if lane else number

    def covers(self, number: int) -> bool:
        """Whether a number in a trace belongs here: it is that of the type, of a member, or of a lane."""
        members = self.members + _MOST_OVERFLOWING if self.is_series else 1
        if self.lanes and self.lanes <= number < self.lanes + members * LANES_OF_A_MEMBER:
            return True
        if not self.is_series:
            return number == self.number
        index, rest = divmod(number - self.number, self.step)
        return (0 <= index < self.members and rest == 0) or 0 <= number - self.overflow < _MOST_OVERFLOWING


LANES_OF_A_MEMBER = 1_000
"""Numbers that are kept for types beside one, where its ranges overlap."""
_MOST_OVERFLOWING = 100_000
"""Numbers that are kept for members of a series beyond the first ones."""

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

MEMORY_KINDS: dict[int, str] = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device static",
    6: "Managed static",
    7: "Unknown",
}
"""Label of each kind of memory of nsys."""
MIGRATION_CAUSES: dict[int, str] = {
    0: "Unknown",
    1: "Prefetch by the user",
    2: "Page fault",
    3: "Speculative prefetch",
    4: "Eviction",
    5: "Access counters",
}
"""Label of each `migrationCause` of nsys."""
FAULT_ACCESSES: dict[int, str] = {
    0: "Unknown access",
    1: "Read",
    2: "Write",
    3: "Atomic",
    4: "Prefetch",
}
"""Label of each `faultAccessType` of nsys."""
MEMORY_OPERATIONS: dict[int, str] = {0: "Allocation", 1: "Deallocation"}
"""Label of each `memoryOperationType` of nsys."""
POOL_OPERATIONS: dict[int, str] = {0: "Unknown", 1: "Pool created", 2: "Pool destroyed", 3: "Pool trimmed"}
"""Label of each `operationType` of memory pools."""
POOL_TYPES: dict[int, str] = {0: "Unknown", 1: "Local", 2: "Imported"}
"""Label of each `poolType` of nsys."""

SYNC_DEVICE = "Device or context synchronize"
SYNC_STREAM = "Stream synchronize"
SYNC_EVENT = "Event synchronize"
SYNC_WAIT_EVENT = "Stream waits for event"
SYNC_EVENT_QUERY = "Event query"
SYNC_STREAM_QUERY = "Stream query"
SYNC_OTHER = "In another call"
_SYNCHRONIZATIONS = (
    SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT, SYNC_WAIT_EVENT, SYNC_EVENT_QUERY, SYNC_STREAM_QUERY, SYNC_OTHER,
)  # fmt: skip

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


def _numbered(labels: Mapping[int, str]) -> dict[str, int]:
    """Values for nsys' numbers: plus one, so that 0 stays the end."""
    return {label: number + 1 for number, label in labels.items()}


THREAD_STATES: dict[int, str] = {
    0: "Unknown",
    1: "Running",
    2: "Interruptible",
    3: "Uninterruptible",
    4: "Stopped",
    5: "Terminated",
    6: "Unscheduled",
    7: "Waiting",
    8: "OS runtime",
    9: "Initialized",
    10: "Transition",
}
"""Label of each `threadState` of nsys; exports before ENUM tables have the same numbers."""

_PTHREAD_CALLS = (
    "exit create join detach rwlock_wrlock rwlock_rdlock rwlock_unlock mutex_lock mutex_unlock cond_signal cond_broadcast"
    " cond_wait barrier_wait"
)
"""Calls that have a number in Extrae's traces, from 1 on."""

# Everything that a timeline of CUDA shows at once: calls, memory operations, kernels and their families, graphs.
CUDA_VALUES = ValueSet("cuda", _MEMORY_OPERATIONS, first=max(_MEMORY_OPERATIONS.values()) + 1)
MPI_VALUES = ValueSet("mpi", mpi_calls.NUMBERS, first=mpi_calls.FIRST_FREE_NUMBER)
NVTX_VALUES = ValueSet("nvtx")
NCCL_VALUES = ValueSet("nccl regions")
OS_VALUES = ValueSet("os runtime")
PTHREAD_VALUES = ValueSet(
    "pthread", {f"pthread_{call}": number for number, call in enumerate(_PTHREAD_CALLS.split(), start=1)}, first=14
)
IO_VALUES = ValueSet("input and output", {"read": 1, "write": 2}, first=3)
FILE_ACCESS_VALUES = ValueSet("file accesses")
FILE_NAME_VALUES = ValueSet("file names")
# nsys' threadState plus one, so that 0 stays the end.
THREAD_STATE_VALUES = ValueSet(
    "thread states", {label: state + 1 for state, label in THREAD_STATES.items()}, first=max(THREAD_STATES) + 2
)
THREAD_BLOCK_VALUES = ValueSet("reasons of blocking")
FUNCTION_VALUES = ValueSet("functions of call chains")
MODULE_VALUES = ValueSet("modules of call chains")
OPENMP_VALUES = ValueSet("openmp")
MATH_LIBRARY_VALUES = ValueSet("math libraries")
# BSC's views expect nsys' eventKind plus one, so that 0 stays the end.
OPENACC_VALUES = ValueSet("openacc", {label: kind + 1 for kind, label in OPENACC_KINDS.items()}, first=max(OPENACC_KINDS) + 2)
OPENACC_NAME_VALUES = ValueSet("openacc names")
OPENACC_FUNCTION_VALUES = ValueSet("openacc functions")
MEMORY_KIND_VALUES = ValueSet("memory kinds", _numbered(MEMORY_KINDS), first=20)
MIGRATION_CAUSE_VALUES = ValueSet("migration causes", _numbered(MIGRATION_CAUSES), first=20)
FAULT_ACCESS_VALUES = ValueSet("page fault accesses", _numbered(FAULT_ACCESSES), first=20)
FAULT_PLACE_VALUES = ValueSet("page fault instructions")
FAULT_MODULE_VALUES = ValueSet("page fault modules")
FAULT_FILE_VALUES = ValueSet("page fault source files")
DEVICE_MEMORY_OPERATION_VALUES = ValueSet("device memory operations", _numbered(MEMORY_OPERATIONS), first=10)
DEVICE_MEMORY_NAME_VALUES = ValueSet("device memory names")
POOL_OPERATION_VALUES = ValueSet("memory pool operations", _numbered(POOL_OPERATIONS), first=20)
POOL_TYPE_VALUES = ValueSet("memory pool types", _numbered(POOL_TYPES), first=20)
SYNCHRONIZATION_VALUES = ValueSet(
    "synchronization", {label: number for number, label in enumerate(_SYNCHRONIZATIONS, start=1)}, first=20
)
GRAPH_CONSTRUCTION_VALUES = ValueSet("graph construction")
OVERHEAD_VALUES = ValueSet("overhead")
COMMUNICATOR_VALUES = ValueSet("mpi communicators")
NCCL_COMMUNICATOR_VALUES = ValueSet("nccl communicators", renamed=nccl_names.communicator_labels)
NCCL_REDUCTION_VALUES = ValueSet(
    "nccl reductions",
    {label: number + 1 for number, label in enumerate(nccl_names.REDUCTIONS)},
    first=len(nccl_names.REDUCTIONS) + 1,
)
NVTX_CATEGORY_VALUES = ValueSet("nvtx categories")
NVTX_TEXT_VALUES = ValueSet("nvtx texts")

# Samples and call chains: Extrae's numbers for functions and callers by depth; the others are free there.
MOST_FRAMES = 20
"""Frames of a call chain that a trace has, from the innermost on."""
SAMPLED_FUNCTION = 30000000
SAMPLED_MODULE = 30000200
CPU_SAMPLE = 30000300
SAMPLED_CYCLES = 30000301
CALLER = 70000000

# Extrae's numbers, but for the last three.
IO_CALL = 40000004
IO_SIZE = 40000011
EXECUTING_CPU = 40000033
FILE_NAME = 40000059
FILE_ACCESS = 40000060
OFF_CPU = 40000061
BLOCK_REASON = 40000062

# Extrae's numbers below 60000070.
OPENMP_PARALLEL = 60000001
OPENMP_WORKSHARE = 60000002
OPENMP_SYNC_REGION = 60000005
OPENMP_MUTEX_WAIT = 60000009
OPENMP_TASK_CREATE = 60000021
OPENMP_TASK = 60000023
OPENMP_TASK_ID = 60000028
OPENMP_CRITICAL_SECTION = 60000050
OPENMP_MASTER = 60000056
OPENMP_THREAD = 60000070
OPENMP_SYNC_REGION_WAIT = 60000071
OPENMP_REDUCTION = 60000072
OPENMP_TASK_SCHEDULE = 60000073
OPENMP_CANCEL = 60000074
OPENMP_MUTEX_RELEASED = 60000075
OPENMP_LOCK_INIT = 60000076
OPENMP_LOCK_DESTROY = 60000077
OPENMP_DISPATCH = 60000078
OPENMP_FLUSH = 60000079
OPENMP_PARALLEL_ID = 60000080
PTHREAD_CALL = 61000000

CUBLAS_CALL = 67000000
CUDNN_CALL = 67000001
AUTOGRAD_FORWARD, AUTOGRAD_BACKWARD = "forward", "backward"
AUTOGRAD_DIRECTION_VALUES = ValueSet("autograd directions", {AUTOGRAD_FORWARD: 1, AUTOGRAD_BACKWARD: 2}, first=3)
AUTOGRAD_SIZE_VALUES = ValueSet("autograd sizes")

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
GRAPH_CONSTRUCTION = 63000009
KERNEL_FAMILY = 63000010
GRAPH_ID = 63000100
GRAPH_EXEC_ID = 63000101
GRAPH_NODE_ID = 63000102
GRAPH_ORIGINAL_ID = 63000103
GRAPH_ORIGINAL_NODE_ID = 63000104
SYNCHRONIZATION = 63000700
SYNC_STREAM_ID = 63000701
SYNC_CONTEXT_ID = 63000702
CUDA_EVENT_ID = 63000703
CUDA_EVENT_RECORD = 63000710
DEVICE_MEMORY = 63000300
DEVICE_MEMORY_TOTAL = 63000320
DEVICE_MEMORY_OPERATION = 63000321
DEVICE_MEMORY_ALLOCATED = 63000322
DEVICE_MEMORY_FREED = 63000323
DEVICE_MEMORY_ADDRESS = 63000324
DEVICE_MEMORY_NAME = 63000325
POOL_OPERATION = 63000330
POOL_TYPE = 63000331
POOL_SIZE = 63000332
POOL_USED = 63000333
POOL_THRESHOLD = 63000334
GPU_PAGE_FAULT = 63000400
GPU_PAGE_FAULT_COUNT = 63000401
CPU_PAGE_FAULT = 63000402
FAULT_MODULE = 63000403
FAULT_FILE = 63000404
FAULT_LINE = 63000405
VIRTUAL_ADDRESS = 63000406
MIGRATION_CAUSE = 63000407
SOURCE_MEMORY = 63000500
DESTINATION_MEMORY = 63000501
SOURCE_DEVICE = 63000502
DESTINATION_DEVICE = 63000503
THROUGHPUT = 63000504
MEMSET_VALUE = 63000505
COPY_COUNT = 63000506
GREEN_CONTEXT = 63000510
CUDA_OVERHEAD = 63000600
PROFILER_OVERHEAD = 63000601

OS_CALL = 65000000

OPENACC_OTHER = 66000000
OPENACC_DATA = 66000001
OPENACC_LAUNCH = 66000002
OPENACC_OTHER_NAME, OPENACC_DATA_NAME, OPENACC_LAUNCH_NAME = range(66100000, 66100003)
OPENACC_NAME = {OPENACC_OTHER: OPENACC_OTHER_NAME, OPENACC_DATA: OPENACC_DATA_NAME, OPENACC_LAUNCH: OPENACC_LAUNCH_NAME}
OPENACC_OTHER_FUNCTION, OPENACC_DATA_FUNCTION, OPENACC_LAUNCH_FUNCTION = range(66200000, 66200003)
OPENACC_FUNCTION = {
    OPENACC_OTHER: OPENACC_OTHER_FUNCTION,
    OPENACC_DATA: OPENACC_DATA_FUNCTION,
    OPENACC_LAUNCH: OPENACC_LAUNCH_FUNCTION,
}
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
NCCL_SIZE, NCCL_REDUCTION, NCCL_ROOT, NCCL_COMMUNICATOR, NCCL_RANKS, NCCL_RANK, NCCL_PEER = range(9501, 9508)
NCCL_CALL_OF_KERNEL = 9508
NVTX_CATEGORY = 9510
NVTX_INTEGER = 9511
NVTX_REAL = 9512
NVTX_INTEGER_FIELD = 9520
NVTX_REAL_FIELD = 9540
NVTX_TEXT_FIELD = 9560
REAL_DIGITS = 6
"""Paraver takes integers only: real numbers are written as millionths."""
NVTX_PUSHPOP = 9600

# Beside the ranges of the host: what they are called there plus "on the GPU".
NVTX_RANGE_ON_GPU = 9006
NCCL_REGION_ON_GPU = 9590
NVTX_PUSHPOP_ON_GPU = 9650
AUTOGRAD_SEQUENCE = 9610
AUTOGRAD_DIRECTION = 9611
AUTOGRAD_OPERATION = 9612
AUTOGRAD_SIZES = 9613

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
TAG_NCCL_MESSAGE = 55004

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
    EventType(KERNEL, "CUDA kernel", _I, CUDA_VALUES, families=KERNEL_FAMILY),
    EventType(NCCL_KERNEL, "NCCL kernel", _I, CUDA_VALUES, families=KERNEL_FAMILY),
    EventType(GRAPH_EXECUTION, "CUDA Graphs Exec name", _I, CUDA_VALUES),
    EventType(KERNEL_FAMILY, "CUDA kernel family", _A, CUDA_VALUES),
    EventType(GRAPH_CONSTRUCTION, "CUDA graph construction", _I, GRAPH_CONSTRUCTION_VALUES),
    EventType(GRAPH_ID, "CUDA Graphs ID", _A, unit="id"),
    EventType(GRAPH_EXEC_ID, "CUDA Graphs Exec ID", _A, unit="id"),
    EventType(GRAPH_NODE_ID, "Graph Node ID", _A, unit="id"),
    EventType(GRAPH_ORIGINAL_ID, "CUDA Graphs ID of the original", _A, unit="id"),
    EventType(GRAPH_ORIGINAL_NODE_ID, "Graph Node ID of the original", _A, unit="id"),
    # Waits of unknown threads, and page faults, lie on a row of the device and may overlap there: they take lanes.
    EventType(SYNCHRONIZATION, "CUDA synchronization", _I, SYNCHRONIZATION_VALUES, lanes=637000001),
    EventType(SYNC_STREAM_ID, "CUDA synchronization stream", _A, unit="stream id"),
    EventType(SYNC_CONTEXT_ID, "CUDA synchronization context", _A, unit="context id"),
    EventType(CUDA_EVENT_ID, "CUDA synchronization event", _A, unit="event id"),
    EventType(CUDA_EVENT_RECORD, "CUDA event record", _M, unit="event id"),
    EventType(DEVICE_MEMORY, "GPU memory in use: {}", _S, gradient=7, unit="bytes", step=1, members=20, overflow=633000001),
    EventType(DEVICE_MEMORY_TOTAL, "GPU memory in use", _A, gradient=7, unit="bytes"),
    EventType(DEVICE_MEMORY_OPERATION, "GPU memory operation", _A, DEVICE_MEMORY_OPERATION_VALUES),
    EventType(DEVICE_MEMORY_ALLOCATED, "GPU memory allocated", _A, unit="bytes"),
    EventType(DEVICE_MEMORY_FREED, "GPU memory freed", _A, unit="bytes"),
    EventType(DEVICE_MEMORY_ADDRESS, "GPU memory address", _A, unit="address"),
    EventType(DEVICE_MEMORY_NAME, "GPU memory name", _A, DEVICE_MEMORY_NAME_VALUES),
    EventType(POOL_OPERATION, "GPU memory pool operation", _M, POOL_OPERATION_VALUES),
    EventType(POOL_TYPE, "GPU memory pool type", _A, POOL_TYPE_VALUES),
    EventType(POOL_SIZE, "GPU memory pool size", _A, unit="bytes"),
    EventType(POOL_USED, "GPU memory pool in use", _A, unit="bytes"),
    EventType(POOL_THRESHOLD, "GPU memory pool release threshold", _A, unit="bytes"),
    EventType(GPU_PAGE_FAULT, "GPU page faults", _I, FAULT_ACCESS_VALUES, lanes=634000001),
    EventType(GPU_PAGE_FAULT_COUNT, "GPU page faults number", _A, unit="faults"),
    EventType(CPU_PAGE_FAULT, "CPU page fault of unified memory", _M, FAULT_PLACE_VALUES),
    EventType(FAULT_MODULE, "CPU page fault module", _A, FAULT_MODULE_VALUES),
    EventType(FAULT_FILE, "CPU page fault source file", _A, FAULT_FILE_VALUES),
    EventType(FAULT_LINE, "CPU page fault source line", _A, unit="line"),
    EventType(VIRTUAL_ADDRESS, "Unified memory address", _A, unit="address"),
    EventType(MIGRATION_CAUSE, "Unified memory migration cause", _A, MIGRATION_CAUSE_VALUES),
    EventType(SOURCE_MEMORY, "Memcopy source memory", _A, MEMORY_KIND_VALUES),
    EventType(DESTINATION_MEMORY, "Memcopy destination memory", _A, MEMORY_KIND_VALUES),
    EventType(SOURCE_DEVICE, "Memcopy source device", _A, unit="CUDA device of the process + 1"),
    EventType(DESTINATION_DEVICE, "Memcopy destination device", _A, unit="CUDA device of the process + 1"),
    EventType(THROUGHPUT, "Memcopy throughput", _A, unit="bytes/s"),
    EventType(MEMSET_VALUE, "Memset value", _A, unit="value"),
    EventType(COPY_COUNT, "Memcopy number of copies", _A, unit="copies"),
    EventType(GREEN_CONTEXT, "CUDA green context", _A, unit="id"),
    EventType(CUDA_OVERHEAD, "CUDA overhead", _I, OVERHEAD_VALUES),
    EventType(PROFILER_OVERHEAD, "Profiler overhead", _I, OVERHEAD_VALUES),
    EventType(OS_CALL, "OS runtime call", _I, OS_VALUES),
    EventType(PTHREAD_CALL, "pthread call", _I, PTHREAD_VALUES),
    EventType(IO_CALL, "I/O call", _I, IO_VALUES),
    EventType(FILE_ACCESS, "File access", _I, FILE_ACCESS_VALUES),
    EventType(FILE_NAME, "File name", _A, FILE_NAME_VALUES),
    EventType(IO_SIZE, "I/O size", _A, unit="bytes"),
    EventType(EXECUTING_CPU, "Executing CPU", _I, unit="CPU of the node + 1"),
    EventType(OFF_CPU, "Off CPU, thread state", _I, THREAD_STATE_VALUES),
    EventType(BLOCK_REASON, "Off CPU, reason", _A, THREAD_BLOCK_VALUES),
    EventType(CPU_SAMPLE, "CPU sample, thread state", _M, THREAD_STATE_VALUES),
    EventType(SAMPLED_CYCLES, "CPU sample, cycles", _A, unit="cycles"),
    *(
        EventType(SAMPLED_FUNCTION + depth, f"Sampled functions (depth {depth})", _A, FUNCTION_VALUES)
        for depth in range(MOST_FRAMES)
    ),
    *(EventType(SAMPLED_MODULE + depth, f"Sampled modules (depth {depth})", _A, MODULE_VALUES) for depth in range(MOST_FRAMES)),
    EventType(CALLER, "Caller at level 0", _I, FUNCTION_VALUES),
    *(EventType(CALLER + depth, f"Caller at level {depth}", _A, FUNCTION_VALUES) for depth in range(1, MOST_FRAMES)),
    EventType(OPENMP_THREAD, "OpenMP thread", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_PARALLEL, "OpenMP parallel region", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_WORKSHARE, "OpenMP worksharing", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_SYNC_REGION, "OpenMP synchronization region", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_SYNC_REGION_WAIT, "OpenMP wait in synchronization region", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_TASK, "OpenMP task", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_TASK_CREATE, "OpenMP task creation", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_TASK_SCHEDULE, "OpenMP task scheduling", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_MASTER, "OpenMP master region", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_REDUCTION, "OpenMP reduction", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_CANCEL, "OpenMP cancellation", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_MUTEX_WAIT, "OpenMP wait for lock", _I, OPENMP_VALUES, gradient=3),
    EventType(OPENMP_MUTEX_RELEASED, "OpenMP lock released", _I, OPENMP_VALUES, gradient=3),
    EventType(OPENMP_CRITICAL_SECTION, "OpenMP critical section", _I, OPENMP_VALUES, gradient=3),
    EventType(OPENMP_LOCK_INIT, "OpenMP lock created", _I, OPENMP_VALUES, gradient=3),
    EventType(OPENMP_LOCK_DESTROY, "OpenMP lock destroyed", _I, OPENMP_VALUES, gradient=3),
    EventType(OPENMP_DISPATCH, "OpenMP dispatch", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_FLUSH, "OpenMP flush", _I, OPENMP_VALUES, gradient=2),
    EventType(OPENMP_PARALLEL_ID, "OpenMP parallel region id", _A, gradient=2, unit="id"),
    EventType(OPENMP_TASK_ID, "OpenMP task id", _A, gradient=2, unit="id"),
    EventType(CUBLAS_CALL, "cuBLAS call", _I, MATH_LIBRARY_VALUES),
    EventType(CUDNN_CALL, "cuDNN call", _I, MATH_LIBRARY_VALUES),
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
    EventType(NVTX_RANGE, "NVTX startend ranges", _I, NVTX_VALUES, lanes=90040001),
    EventType(NVTX_MARK, "NVTX marks", _M, NVTX_VALUES),
    EventType(GPU_METRIC, "{}", _S, gradient=7, unit="percent, Hz or bytes/s", step=1, members=100, overflow=94000100),
    EventType(NCCL_REGION, "NCCL regions", _I, NCCL_VALUES),
    EventType(NCCL_SIZE, "NCCL message size", _A, unit="bytes"),
    EventType(NCCL_REDUCTION, "NCCL reduction operation", _A, NCCL_REDUCTION_VALUES),
    EventType(NCCL_ROOT, "NCCL root", _A, unit="rank in the communicator + 1"),
    EventType(NCCL_COMMUNICATOR, "NCCL communicator", _A, NCCL_COMMUNICATOR_VALUES),
    EventType(NCCL_RANKS, "NCCL ranks of the communicator", _A, unit="ranks"),
    EventType(NCCL_RANK, "NCCL rank in the communicator", _A, unit="rank in the communicator + 1"),
    EventType(NCCL_PEER, "NCCL peer", _A, unit="rank in the communicator + 1"),
    EventType(NCCL_CALL_OF_KERNEL, "NCCL call that launched the kernel", _I, NCCL_VALUES),
    EventType(NVTX_CATEGORY, "NVTX category", _A, NVTX_CATEGORY_VALUES),
    EventType(NVTX_INTEGER, "NVTX payload", _A, unit="the program's own"),
    EventType(NVTX_REAL, "NVTX payload, real", _A, unit="millionths", precision=REAL_DIGITS),
    EventType(NVTX_INTEGER_FIELD, "NVTX payload {}", _A, unit="the program's own", step=1, members=20, overflow=95200000),
    EventType(
        NVTX_REAL_FIELD,
        "NVTX payload {}, real",
        _A,
        unit="millionths",
        precision=REAL_DIGITS,
        step=1,
        members=20,
        overflow=95400000,
    ),
    EventType(NVTX_TEXT_FIELD, "NVTX payload {}, text", _A, NVTX_TEXT_VALUES, step=1, members=20, overflow=95600000),
    EventType(NVTX_PUSHPOP, "NVTX pushpop ranges {} domain", _I, NVTX_VALUES, step=100, members=1_000, overflow=96100000),
    EventType(UCX_SUBMIT, "UCX submission", _I, UCX_VALUES, gradient=1),
    # Requests are in flight side by side.
    EventType(UCX_PROGRESS, "UCX progress", _I, UCX_VALUES, gradient=1, lanes=UCX_PROGRESS_FURTHER_LANES),
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
    EventType(NVTX_RANGE_ON_GPU, "NVTX startend ranges on the GPU", _I, NVTX_VALUES, lanes=90060001),
    EventType(NCCL_REGION_ON_GPU, "NCCL regions on the GPU", _I, NCCL_VALUES, lanes=95900001),
    EventType(
        NVTX_PUSHPOP_ON_GPU,
        "NVTX pushpop ranges on the GPU {} domain",
        _I,
        NVTX_VALUES,
        step=100,
        members=1_000,
        overflow=96500000,
        lanes=970000001,
    ),
    # A value of 0 would be an end.
    EventType(AUTOGRAD_SEQUENCE, "Autograd sequence", _A, unit="sequence id + 1"),
    EventType(AUTOGRAD_DIRECTION, "Autograd direction", _A, AUTOGRAD_DIRECTION_VALUES),
    EventType(AUTOGRAD_OPERATION, "Autograd operation", _A, unit="id"),
    EventType(AUTOGRAD_SIZES, "Autograd sizes", _A, AUTOGRAD_SIZE_VALUES),
)

TYPES: dict[int, EventType] = {event_type.number: event_type for event_type in EVENT_TYPES}


def type_of(number: int) -> EventType | None:
    """The line of EVENT_TYPES that a number in a trace belongs to; None when it is not one of ours."""
    if number in TYPES:
        return TYPES[number]
    return next((event_type for event_type in EVENT_TYPES if event_type.covers(number)), None)


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
