"""What a host thread of a simulated rank does, one action after the other. Times are ns, sizes bytes."""

from typing import NamedTuple

COMPUTE, NCCL, COPIES = 7, 20, 24
"""Streams of a rank: its kernels, its collectives, its copies."""
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class Communicator(NamedTuple):
    """Ranks that communicate."""

    identifier: int
    ranks: tuple[int, ...]
    bandwidth: float = 100.0
    latency: int = 12_000


class Compute(NamedTuple):
    """The thread computes."""

    ns: int


class Launch(NamedTuple):
    """A kernel: its name, its length on the device, its grid."""

    name: str
    ns: int
    stream: int = COMPUTE
    grid: int = 1024
    call_ns: int = 0
    migrations: int = 0
    migration_ns: int = 0


class LaunchGraph(NamedTuple):
    """A CUDA graph that is recorded as a whole."""

    ns: int
    stream: int = COMPUTE
    graph: int = 1


class Copy(NamedTuple):
    """A copy: `kind` is HOST_TO_DEVICE or DEVICE_TO_HOST. The call waits for it where it is synchronous or pageable."""

    size: int
    ns: int
    kind: int
    stream: int = COMPUTE
    synchronous: bool = False
    pageable: bool = False


class Clear(NamedTuple):
    """A memset."""

    size: int
    ns: int
    stream: int = COMPUTE


class Record(NamedTuple):
    """cudaEventRecord."""

    event: int
    stream: int


class StreamWait(NamedTuple):
    """cudaStreamWaitEvent: what comes on the stream waits for the latest record of the event."""

    event: int
    stream: int


class SynchronizeEvent(NamedTuple):
    """cudaEventSynchronize."""

    event: int


class SynchronizeStream(NamedTuple):
    """cudaStreamSynchronize."""

    stream: int = COMPUTE


class Allocate(NamedTuple):
    """cudaMalloc."""

    ns: int


class Free(NamedTuple):
    """cudaFree, which waits for all work of the device."""

    ns: int


class Collective(NamedTuple):
    """A collective of NCCL, or a send and its receive in a communicator of two."""

    communicator: Communicator
    operation: str
    size: int
    stream: int = NCCL


class MpiCollective(NamedTuple):
    """A collective of MPI."""

    name: str
    communicator: Communicator
    size: int = 8


class MpiMessage(NamedTuple):
    """MPI_Send, MPI_Recv, MPI_Isend or MPI_Irecv; the latter two have a number that MpiWaitAll names."""

    name: str
    partner: int
    size: int
    tag: int = 0
    request: int | None = None


class MpiWaitAll(NamedTuple):
    """MPI_Waitall."""

    requests: tuple[int, ...]


class SystemCall(NamedTuple):
    """A call of the operating system that takes some time: poll or read, while data are loaded."""

    name: str
    ns: int


class Signal(NamedTuple):
    """pthread_cond_signal: wakes the thread of the rank that waits for the condition."""

    condition: str


class WaitForSignal(NamedTuple):
    """pthread_cond_wait; a signal that was sent before counts."""

    condition: str


class Push(NamedTuple):
    """Start of an NVTX range."""

    name: str


class Pop(NamedTuple):
    """End of the innermost NVTX range."""


Action = (
    Compute | Launch | LaunchGraph | Copy | Clear | Record | StreamWait | SynchronizeEvent | SynchronizeStream
    | Allocate | Free | Collective | MpiCollective | MpiMessage | MpiWaitAll | SystemCall | Signal
    | WaitForSignal | Push | Pop
)  # fmt: skip

Programs = list[dict[int, list[Action]]]
"""Of each rank: the actions of its threads, by their numbers; 0 is the main thread."""
