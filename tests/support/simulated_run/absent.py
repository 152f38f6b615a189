"""The truth about compute-absent time: of each device, what every ns without a compute kernel was spent for."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from support.simulated_run.records import COPY, GRAPH, KERNEL, MEMSET, NCCL_KERNEL, HostCall, Operation
from support.simulated_run.truth import SimulatedRun

_ACTIVITIES = (
    ("os", "polling", "poll"),
    ("os", "locked", "cond_wait"),
    ("os", "io", "read"),
    ("os", "os", ""),
    ("mpi", "mpi", ""),
    ("cuda", "synchronization", "Synchronize|WaitEvent"),
    ("cuda", "memory", "Memcpy|Memset"),
    ("cuda", "allocation", "Malloc|Free"),
    ("cuda", "launch", "Launch"),
    ("cuda", "other_cuda", ""),
)
"""Kind of a call, what it counts as, and what its name contains; the first that fits."""

Piece = tuple[int, int, str]
"""Start, end, and part."""


def absent_parts(run: SimulatedRun) -> list[Counter[str]]:
    """Of the device of each rank: time by part, ns."""
    operations = run.recorded.operations
    first_work = min(operation.start.time for operation in operations)
    last_work = max(operation.end.time for operation in operations)
    found = []
    for rank in range(run.cluster.ranks):
        parts: Counter[str] = Counter()
        for begin, end, part in _pieces(run, rank, first_work, last_work):
            if end > begin:
                parts[part] += end - begin
        found.append(parts)
    return found


def _pieces(run: SimulatedRun, rank: int, first_work: int, last_work: int) -> Iterator[Piece]:
    compute = [operation for operation in run.operations_of(rank) if operation.kind in (KERNEL, GRAPH)]
    calls: dict[int, list[HostCall]] = {}
    for call in run.recorded.calls:
        if call.rank == rank:
            calls.setdefault(call.thread, []).append(call)
    begin, window_end = run.window
    for kernel in compute:
        end = kernel.start.time
        if end > begin:
            ready = min(max(first_work, begin), end)
            launched = min(max(_issued(kernel.call), ready), end)
            yield begin, ready, "start_up"
            for start, stop, running in _running(run.operations_of(rank), ready, launched):
                yield from _kinds(running, start, stop) if running else _starved(calls[kernel.call.thread], start, stop)
            yield from _waits(kernel, launched)
        begin = max(begin, kernel.end.time)
    operations = run.operations_of(rank)
    for start, stop, running in _running(operations, begin, max(begin, last_work)):
        following = min((one for one in operations if one.start.time >= stop), key=lambda one: one.start.time, default=None)
        if running:
            yield from _kinds(running, start, stop)
        elif following is None:
            yield start, stop, "starved_ended"
        else:
            launched = min(max(_issued(following.call), start), stop)
            yield from _starved(calls[following.call.thread], start, launched)
            yield launched, stop, "queued"
    yield max(begin, last_work), window_end, "shut_down"


def _issued(call: HostCall) -> int:
    """When what a call starts could have begun: a launch is not done before its call ends."""
    return call.end.time if _activity(call) == "launch" else call.start


def _running(operations: list[Operation], begin: int, end: int) -> Iterator[tuple[int, int, Operation | None]]:
    """What runs beside no kernel at each time: NCCL kernels before others, of several the one that ends last."""
    met = [
        one for one in operations if one.kind in (NCCL_KERNEL, COPY, MEMSET) and one.start.time < end and one.end.time > begin
    ]
    inner = {time for one in met for time in (one.start.time, one.end.time) if begin < time < end}
    for start, stop in pairwise(sorted({begin, end, *inner})):
        running = [one for one in met if one.start.time <= start < one.end.time]
        nccl = [one for one in running if one.kind == NCCL_KERNEL]
        yield start, stop, max(nccl or running, key=lambda one: one.end.time, default=None)


def _starved(calls: list[HostCall], begin: int, end: int) -> Iterator[Piece]:
    """What a thread did: its calls are in order, and one at a time."""
    for call in calls:
        if call.end.time > begin and call.start < end:
            start = max(call.start, begin)
            yield begin, start, "starved_host"
            begin = min(call.end.time, end)
            yield start, begin, f"starved_{_activity(call)}"
    yield begin, end, "starved_host"


def _activity(call: HostCall) -> str:
    return next(
        activity for kind, activity, pattern in _ACTIVITIES if call.kind.startswith(kind) and re.search(pattern, call.name)
    )


def _waits(kernel: Operation, launched: int) -> Iterator[Piece]:
    """From the launch of a kernel to its start: back over the operations that had to end first."""
    until, operation = kernel.start.time, kernel
    while until > launched:
        awaited = max(operation.before, key=lambda one: one.end.time, default=None)
        if awaited is None or awaited.end.time <= launched:
            yield launched, until, "queued"
            return
        yield awaited.end.time, until, "queued"
        until, operation = awaited.start.time, awaited
        yield from _kinds(awaited, max(until, launched), awaited.end.time)


def _kinds(awaited: Operation, begin: int, end: int) -> Iterator[Piece]:
    if awaited.kind == NCCL_KERNEL:
        assert awaited.meeting is not None
        last = min(max(awaited.meeting.last[0], begin), end)
        yield begin, last, "late_rank"
        yield last, end, "transfer"
    else:
        yield begin, end, "copy" if awaited.kind in (COPY, MEMSET) else "other_kernel"
