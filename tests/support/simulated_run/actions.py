"""What a host thread of a simulated rank does, one action after the other. Times are ns, sizes bytes."""

from dataclasses import dataclass

COMPUTE, NCCL, COPIES = 7, 20, 24
"""Streams of a rank: its kernels, its collectives, its copies."""
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


@dataclass(frozen=True)
class Communicator:
    """Ranks that communicate."""

    identifier: int
    ranks: tuple[int, ...]
    bandwidth: float = 100.0
    latency: int = 12_000


@dataclass(frozen=True)
class Compute:
    """The thread computes."""

    ns: int


@dataclass(frozen=True)
class Launch:
    """A kernel: its name, its length on the device, its grid."""

    name: str
    ns: int
    stream: int = COMPUTE
    grid: int = 1024
    call_ns: int = 0
    migrations: int = 0
    migration_ns: int = 0


@dataclass(frozen=True)
class LaunchGraph:
    """A CUDA graph that is recorded as a whole."""

    ns: int
    stream: int = COMPUTE
    graph: int = 1


@dataclass(frozen=True)
class Copy:
    """A copy: `kind` is HOST_TO_DEVICE or DEVICE_TO_HOST. The call waits for it where it is synchronous or pageable."""

    size: int
    ns: int
    kind: int
    stream: int = COMPUTE
    synchronous: bool = False
    pageable: bool = False


@dataclass(frozen=True)
class Clear:
    """A memset."""

    size: int
    ns: int
    stream: int = COMPUTE


@dataclass(frozen=True)
class Record:
    """cudaEventRecord."""

    event: int
    stream: int


@dataclass(frozen=True)
class StreamWait:
    """cudaStreamWaitEvent: what comes on the stream waits for the latest record of the event."""

    event: int
    stream: int


@dataclass(frozen=True)
class SynchronizeEvent:
    """cudaEventSynchronize."""

    event: int


@dataclass(frozen=True)
class SynchronizeStream:
    """cudaStreamSynchronize."""

    stream: int = COMPUTE


@dataclass(frozen=True)
class Allocate:
    """cudaMalloc."""

    ns: int


@dataclass(frozen=True)
class Free:
    """cudaFree, which waits for all work of the device."""

    ns: int


@dataclass(frozen=True)
class Collective:
    """A collective of NCCL, or a send and its receive in a communicator of two."""

    communicator: Communicator
    operation: str
    size: int
    stream: int = NCCL


@dataclass(frozen=True)
class MpiCollective:
    """A collective of MPI."""

    name: str
    communicator: Communicator
    size: int = 8


@dataclass(frozen=True)
class MpiMessage:
    """MPI_Send, MPI_Recv, MPI_Isend or MPI_Irecv; the latter two have a number that MpiWaitAll names."""

    name: str
    partner: int
    size: int
    tag: int = 0
    request: int | None = None


@dataclass(frozen=True)
class MpiWaitAll:
    """MPI_Waitall."""

    requests: tuple[int, ...]


@dataclass(frozen=True)
class SystemCall:
    """A call of the operating system that takes some time: poll or read, while data are loaded."""

    name: str
    ns: int


@dataclass(frozen=True)
class Signal:
    """pthread_cond_signal: wakes the thread of the rank that waits for the condition."""

    condition: str


@dataclass(frozen=True)
class WaitForSignal:
    """pthread_cond_wait; a signal that was sent before counts."""

    condition: str


@dataclass(frozen=True)
class Push:
    """Start of an NVTX range."""

    name: str


@dataclass(frozen=True)
class Pop:
    """End of the innermost NVTX range."""


Action = (
    Compute | Launch | LaunchGraph | Copy | Clear | Record | StreamWait | SynchronizeEvent | SynchronizeStream
    | Allocate | Free | Collective | MpiCollective | MpiMessage | MpiWaitAll | SystemCall | Signal
    | WaitForSignal | Push | Pop
)  # fmt: skip

Programs = list[dict[int, list[Action]]]
"""Of each rank: the actions of its threads, by their numbers; 0 is the main thread."""
