"""What the engine records of a simulated run, in true time, ns."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.simulated_run.actions import Communicator
from support.simulated_run.later import Later

KERNEL, NCCL_KERNEL, COPY, MEMSET, GRAPH = "kernel", "nccl", "copy", "memset", "graph"
"""Kinds of operations."""
LAUNCHED, STREAM, EVENT = "launched", "stream", "event"
"""What let an operation start: its launch, the operation before it on its stream, or one whose event its stream waited for."""


@dataclass
class HostCall:
    """A call of a host thread. `kind` is cuda, os, mpi-collective, mpi-message or mpi-wait."""

    rank: int
    thread: int
    kind: str
    name: str
    start: int
    end: Later = field(default_factory=Later)
    correlation: int = 0
    communicator: Communicator | None = None
    size: int | None = None
    partner: int | None = None
    tag: int | None = None
    requests: tuple[int, ...] = ()


@dataclass(eq=False)
class Operation:
    """Work on a stream."""

    rank: int
    stream: int
    kind: str
    name: str
    ns: int
    call: HostCall
    grid: int = 1
    size: int = 0
    copy_kind: int = 0
    pageable: bool = False
    graph: int = 0
    migrations: int = 0
    migration_ns: int = 0
    allowed: Later = field(default_factory=Later)
    start: Later = field(default_factory=Later)
    end: Later = field(default_factory=Later)
    before: tuple[Operation, ...] = ()
    cause: str = LAUNCHED
    awaited: Operation | None = None
    meeting: Meeting | None = None


@dataclass(eq=False)
class Meeting:
    """A collective: its members by their ranks, when each arrived, and the time that its data take to move."""

    communicator: Communicator
    transfer: int
    arrived: dict[int, int] = field(default_factory=dict)
    done: Later = field(default_factory=Later)

    @property
    def last(self) -> tuple[int, int]:
        """Time and rank of the last member."""
        return max((time, rank) for rank, time in self.arrived.items())


@dataclass
class Wait:
    """A row of SYNCHRONIZATION: its call, what it waited for by the names of CUPTI's ids, and the record of its event."""

    call: HostCall
    kind: int
    stream: int | None = None
    event: int | None = None
    record: int | None = None


@dataclass
class EventRecord:
    """A record of an event, by its number (`eventSyncId`); `operations` must end for it to be reached."""

    number: int
    event: int
    stream: int
    call: HostCall
    operations: tuple[Operation, ...]


@dataclass
class Range:
    """An NVTX range, of a domain other than the default one where it has a communicator."""

    rank: int
    thread: int
    name: str
    start: int
    end: Later = field(default_factory=Later)
    communicator: Communicator | None = None
    size: int = 0
    peer: int | None = None
