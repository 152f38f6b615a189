"""Programs of ranks are executed in virtual time."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from support.simulated_run import actions
from support.simulated_run.actions import Action, Communicator, Programs
from support.simulated_run.later import Later, when_known
from support.simulated_run.machine import Machine
from support.simulated_run.records import (
    COPY,
    EVENT,
    GRAPH,
    KERNEL,
    MEMSET,
    NCCL_KERNEL,
    STREAM,
    EventRecord,
    HostCall,
    Meeting,
    Operation,
    Range,
    Wait,
)

_SYNC_EVENT, _SYNC_STREAM_WAIT, _SYNC_STREAM = 1, 2, 3
"""Kinds of rows of SYNCHRONIZATION."""
_NCCL_KERNELS = {
    "AllReduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "AllGather": "ncclDevKernel_AllGather_RING_LL",
    "ReduceScatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "Broadcast": "ncclDevKernel_Broadcast_RING_LL",
    "Send": "ncclDevKernel_SendRecv",
    "Recv": "ncclDevKernel_SendRecv",
}
_NCCL_ARGUMENTS = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"
_NCCL_RANGE_BEFORE, _NCCL_RANGE_AFTER = 1_000, 250
_CALL_COST = {GRAPH: "graph_call", COPY: "copy_call", MEMSET: "copy_call"}
_OF_STREAM = {"cudaMemcpyAsync_v3020", "cudaMemsetAsync_v3020"}


@dataclass
class _Stream:
    """A stream: all its operations, and what the next one has to wait for: an operation, why, and for how long after it."""

    operations: list[Operation] = field(default_factory=list)
    before: list[tuple[Operation, str, int]] = field(default_factory=list)


@dataclass
class _Thread:
    rank: int
    number: int
    program: Sequence[Action]
    next: int = 0
    ranges: list[Range] = field(default_factory=list)


@dataclass
class _Message:
    """A posted send or receive: when, and when it is complete."""

    posted: int
    done: Later = field(default_factory=Later)


@dataclass
class Recorded:
    """All that happened, in true time, ns."""

    calls: list[HostCall] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    records: list[EventRecord] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)


class Engine:
    """Executes programs."""

    def __init__(self, programs: Programs, machine: Machine, seed: int) -> None:
        self.machine, self.seed = machine, seed
        self.recorded = Recorded()
        self._due: list[tuple[int, int, _Thread]] = []
        self._steps = 0
        self._threads = [
            _Thread(rank, number, program) for rank, threads in enumerate(programs) for number, program in threads.items()
        ]
        self._streams: defaultdict[tuple[int, int], _Stream] = defaultdict(_Stream)
        self._events: dict[tuple[int, int], EventRecord] = {}
        self._meetings: dict[tuple[int, int, str], Meeting] = {}
        self._turns: defaultdict[tuple[int, int, str], int] = defaultdict(int)
        self._posted: defaultdict[tuple[int, int, int, bool], list[_Message]] = defaultdict(list)
        self._requests: dict[tuple[int, int], _Message] = {}
        self._signals: defaultdict[tuple[int, str], list[Later]] = defaultdict(list)
        self._sleeping: defaultdict[tuple[int, str], list[Later]] = defaultdict(list)
        self._correlations: defaultdict[int, int] = defaultdict(int)
        self._does: dict[type, Callable[[_Thread, Any, int], Later]] = {
            actions.Compute: lambda _, action, now: Later(now + action.ns),
            actions.Launch: self._launch,
            actions.LaunchGraph: self._launch_graph,
            actions.Copy: self._copy,
            actions.Clear: self._clear,
            actions.Record: self._record,
            actions.StreamWait: self._stream_wait,
            actions.SynchronizeEvent: self._synchronize_event,
            actions.SynchronizeStream: self._synchronize_stream,
            actions.Allocate: self._allocate,
            actions.Free: self._free,
            actions.Collective: self._collective,
            actions.MpiCollective: self._mpi_collective,
            actions.MpiMessage: self._mpi_message,
            actions.MpiWaitAll: self._mpi_wait_all,
            actions.SystemCall: self._system_call,
            actions.Signal: self._signal,
            actions.WaitForSignal: self._wait_for_signal,
            actions.Push: self._push,
            actions.Pop: self._pop,
        }

    def run(self) -> Recorded:
        """Execute all programs to their ends."""
        for thread in self._threads:
            self._proceed(thread, Later(0))
        while self._due:
            now, _, thread = heapq.heappop(self._due)
            action = thread.program[thread.next]
            thread.next += 1
            end = self._does[type(action)](thread, action, now)
            end.then(partial(self._proceed, thread, end))
        stuck = [thread for thread in self._threads if thread.next < len(thread.program)]
        stuck_work = [operation for operation in self.recorded.operations if not operation.end.is_known]
        if stuck or stuck_work:
            waiting = [f"rank {one.rank} thread {one.number}: {one.program[one.next - 1]}" for one in stuck]
            raise RuntimeError(f"programs wait for each other: {waiting or stuck_work[:3]}")
        return self.recorded

    def _proceed(self, thread: _Thread, time: Later) -> None:
        if thread.next < len(thread.program):
            self._steps += 1
            heapq.heappush(self._due, (time.time, self._steps, thread))

    # -- streams --------------------------------------------------------------------------------------------------------

    def _call(self, thread: _Thread, name: str, start: int, *, kind: str = "cuda") -> HostCall:
        call = HostCall(thread.rank, thread.number, kind, name, start)
        if kind == "cuda":
            self._correlations[thread.rank] += 1
            call.correlation = self._correlations[thread.rank]
        self.recorded.calls.append(call)
        return call

    def _enqueue(self, operation: Operation, least: int, delay: int) -> None:
        """Put work on its stream."""
        machine, call = self.machine, operation.call
        stream = self._streams[operation.rank, operation.stream]
        full = machine.queue is not None and len(stream.operations) >= machine.queue
        older = [stream.operations[-(machine.queue or 1)].start] if full else []
        before, stream.before = stream.before, [(operation, STREAM, machine.between)]
        operation.before = tuple(awaited for awaited, _, _ in before)
        stream.operations.append(operation)
        self.recorded.operations.append(operation)

        def called() -> None:
            blocked = max((time.time for time in older), default=0)
            begin = call.start + delay
            operation.allowed.set(max(begin, blocked) + machine.launch_latency)
            if not self._waits_for_its_work(operation):
                call.end.set(max(begin + least, blocked + machine.wake if full else 0))

        def ready() -> None:
            start = operation.allowed.time
            for awaited, cause, later in before:
                if awaited.end.time + later > start:
                    start, operation.cause, operation.awaited = awaited.end.time + later, cause, awaited
            operation.start.set(start)
            if operation.meeting is None:
                operation.end.set(start + operation.ns)
            else:
                self._arrive(operation.meeting, operation.rank, start, operation.end)

        when_known(older, called)
        when_known([operation.allowed, *(awaited.end for awaited, _, _ in before)], ready)

    def _waits_for_its_work(self, operation: Operation) -> bool:
        return operation.kind == COPY and (operation.pageable or operation.call.name not in _OF_STREAM)

    def _submit(self, thread: _Thread, action: Any, now: int, kind: str, name: str, call: str, **details: Any) -> Operation:
        of_host = self._call(thread, call, now)
        operation = Operation(thread.rank, action.stream, kind, name, getattr(action, "ns", 0), of_host, **details)
        least = _CALL_COST.get(kind, "launch_call")
        self._enqueue(operation, getattr(self.machine, least), getattr(action, "call_ns", 0))
        return operation

    def _launch(self, thread: _Thread, action: actions.Launch, now: int) -> Later:
        operation = self._submit(
            thread, action, now, KERNEL, action.name, "cudaLaunchKernel_v7000",
            grid=action.grid, migrations=action.migrations, migration_ns=action.migration_ns,
        )  # fmt: skip
        return operation.call.end

    def _launch_graph(self, thread: _Thread, action: actions.LaunchGraph, now: int) -> Later:
        return self._submit(thread, action, now, GRAPH, "graph", "cudaGraphLaunch_v10000", graph=action.graph).call.end

    def _copy(self, thread: _Thread, action: actions.Copy, now: int) -> Later:
        name = "cudaMemcpy_v3020" if action.synchronous else "cudaMemcpyAsync_v3020"
        operation = self._submit(
            thread, action, now, COPY, "copy", name, size=action.size, copy_kind=action.kind, pageable=action.pageable
        )
        if self._waits_for_its_work(operation):
            operation.end.then(lambda: operation.call.end.set(operation.end.time + self.machine.wake))
        return operation.call.end

    def _clear(self, thread: _Thread, action: actions.Clear, now: int) -> Later:
        return self._submit(thread, action, now, MEMSET, "memset", "cudaMemsetAsync_v3020", size=action.size).call.end

    def _record(self, thread: _Thread, action: actions.Record, now: int) -> Later:
        call = self._call(thread, "cudaEventRecord_v3020", now)
        operations = tuple(operation for operation, _, _ in self._streams[thread.rank, action.stream].before)
        record = EventRecord(len(self.recorded.records) + 1, action.event, action.stream, call, operations)
        self._events[thread.rank, action.event] = record
        self.recorded.records.append(record)
        call.end.set(now + self.machine.call)
        return call.end

    def _stream_wait(self, thread: _Thread, action: actions.StreamWait, now: int) -> Later:
        call = self._call(thread, "cudaStreamWaitEvent_v3020", now)
        record = self._events[thread.rank, action.event]
        stream = self._streams[thread.rank, action.stream]
        stream.before.extend((operation, EVENT, self.machine.event_latency) for operation in record.operations)
        self.recorded.waits.append(Wait(call, _SYNC_STREAM_WAIT, action.stream, action.event, record.number))
        call.end.set(now + self.machine.call)
        return call.end

    # -- synchronization ------------------------------------------------------------------------------------------------

    def _wait_for(self, call: HostCall, operations: Sequence[Operation], then: int = 0) -> Later:
        """The call ends after some operations, and takes `then` ns more."""
        ends = [operation.end for operation in operations]

        def ended() -> None:
            last = max((end.time + self.machine.wake for end in ends), default=0)
            call.end.set(max(call.start + self.machine.call, last) + then)

        when_known(ends, ended)
        return call.end

    def _all_last(self, rank: int) -> list[Operation]:
        of_rank = [stream for (owner, _), stream in self._streams.items() if owner == rank]
        return [operation for stream in of_rank for operation, _, _ in stream.before]

    def _synchronize_event(self, thread: _Thread, action: actions.SynchronizeEvent, now: int) -> Later:
        call = self._call(thread, "cudaEventSynchronize_v3020", now)
        record = self._events[thread.rank, action.event]
        self.recorded.waits.append(Wait(call, _SYNC_EVENT, None, action.event, record.number))
        return self._wait_for(call, record.operations)

    def _synchronize_stream(self, thread: _Thread, action: actions.SynchronizeStream, now: int) -> Later:
        call = self._call(thread, "cudaStreamSynchronize_v3020", now)
        self.recorded.waits.append(Wait(call, _SYNC_STREAM, action.stream))
        return self._wait_for(call, [operation for operation, _, _ in self._streams[thread.rank, action.stream].before])

    def _allocate(self, thread: _Thread, action: actions.Allocate, now: int) -> Later:
        call = self._call(thread, "cudaMalloc_v3020", now)
        call.end.set(now + action.ns)
        return call.end

    def _free(self, thread: _Thread, action: actions.Free, now: int) -> Later:
        return self._wait_for(self._call(thread, "cudaFree_v3020", now), self._all_last(thread.rank), action.ns)

    # -- communication --------------------------------------------------------------------------------------------------

    def _meeting(self, communicator: Communicator, rank: int, kind: str, size: int) -> Meeting:
        """The collective of a communicator that is the next one of its kind for a rank."""
        turn = self._turns[communicator.identifier, rank, kind]
        self._turns[communicator.identifier, rank, kind] += 1
        key = (communicator.identifier, turn, kind)
        if key not in self._meetings:
            random = np.random.default_rng([self.seed, communicator.identifier % (1 << 32), turn])
            varied = float(np.exp(0.02 * random.standard_normal()))
            moved = (communicator.latency + size / communicator.bandwidth) * varied * self.machine.transfer_factor
            self._meetings[key] = Meeting(communicator, round(moved))
        return self._meetings[key]

    def _arrive(self, meeting: Meeting, rank: int, time: int, end: Later) -> None:
        """A member has arrived; its end becomes known with the last one."""
        meeting.arrived[rank] = time
        place = meeting.communicator.ranks.index(rank)
        spread = round(min(1.0, self.machine.transfer_factor) * self.machine.end_spread)
        after = meeting.transfer + (place * 7 + meeting.transfer) % (spread + 1)
        meeting.done.then(lambda: end.set(meeting.done.time + after))
        if len(meeting.arrived) == len(meeting.communicator.ranks):
            meeting.done.set(max(meeting.arrived.values()))

    def _collective(self, thread: _Thread, action: actions.Collective, now: int) -> Later:
        communicator, kind = action.communicator, action.operation
        pair = kind in ("Send", "Recv")
        around = Range(thread.rank, thread.number, f"nccl{kind}", now, communicator=communicator, size=action.size)
        if pair:
            around.peer = next(place for place, rank in enumerate(communicator.ranks) if rank != thread.rank)
        self.recorded.ranges.append(around)
        meeting = self._meeting(communicator, thread.rank, "pair" if pair else kind, action.size)
        operation = self._submit(
            thread, action, now + _NCCL_RANGE_BEFORE, NCCL_KERNEL, _NCCL_KERNELS[kind] + _NCCL_ARGUMENTS, "cuLaunchKernelEx",
            size=action.size, grid=24, meeting=meeting,
        )  # fmt: skip
        operation.call.end.then(lambda: around.end.set(operation.call.end.time + _NCCL_RANGE_AFTER))
        return around.end

    def _mpi_collective(self, thread: _Thread, action: actions.MpiCollective, now: int) -> Later:
        call = self._call(thread, action.name, now, kind="mpi-collective")
        call.communicator, call.size = action.communicator, action.size
        meeting = self._meeting(action.communicator, thread.rank, "MPI", action.size)
        self._arrive(meeting, thread.rank, now + self.machine.call, call.end)
        return call.end

    def _mpi_message(self, thread: _Thread, action: actions.MpiMessage, now: int) -> Later:
        machine, rank = self.machine, thread.rank
        call = self._call(thread, action.name, now, kind="mpi-message")
        call.size, call.partner, call.tag = action.size, action.partner, action.tag
        call.requests = () if action.request is None else (action.request,)
        sends = action.name.lower().endswith("send")
        source, target = (rank, action.partner) if sends else (action.partner, rank)
        own, partner = _Message(now), self._posted[source, target, action.tag, not sends]
        if partner:
            other = partner.pop(0)
            send, receive = (own, other) if sends else (other, own)
            moved = round((machine.message_latency + action.size / machine.message_bandwidth) * machine.transfer_factor)
            eager = action.size <= machine.eager
            receive.done.set(max(send.posted + moved, receive.posted) if eager else max(send.posted, receive.posted) + moved)
            if not send.done.is_known:
                send.done.set(receive.done.time)
        else:
            self._posted[source, target, action.tag, sends].append(own)
            if sends and action.size <= machine.eager:
                own.done.set(now)
        if action.request is None:
            own.done.then(lambda: call.end.set(max(now + machine.call, own.done.time + machine.wake)))
        else:
            self._requests[rank, action.request] = own
            call.end.set(now + machine.call)
        return call.end

    def _mpi_wait_all(self, thread: _Thread, action: actions.MpiWaitAll, now: int) -> Later:
        call = self._call(thread, "MPI_Waitall", now, kind="mpi-wait")
        call.requests = action.requests
        done = [self._requests.pop((thread.rank, request)).done for request in action.requests]

        def arrived() -> None:
            call.end.set(max(now + self.machine.call, max(time.time for time in done) + self.machine.wake))

        when_known(done, arrived)
        return call.end

    # -- threads --------------------------------------------------------------------------------------------------------

    def _system_call(self, thread: _Thread, action: actions.SystemCall, now: int) -> Later:
        call = self._call(thread, action.name, now, kind="os")
        call.end.set(now + action.ns)
        return call.end

    def _signal(self, thread: _Thread, action: actions.Signal, now: int) -> Later:
        call = self._call(thread, "pthread_cond_signal", now, kind="os")
        call.end.set(now + self.machine.call)
        key = (thread.rank, action.condition)
        if self._sleeping[key]:
            self._sleeping[key].pop(0).set(now)
        else:
            self._signals[key].append(Later(now))
        return call.end

    def _wait_for_signal(self, thread: _Thread, action: actions.WaitForSignal, now: int) -> Later:
        call = self._call(thread, "pthread_cond_wait", now, kind="os")
        key = (thread.rank, action.condition)
        if self._signals[key]:
            signal = self._signals[key].pop(0)
        else:
            signal = Later()
            self._sleeping[key].append(signal)
        signal.then(lambda: call.end.set(max(now + self.machine.call, signal.time + self.machine.thread_wake)))
        return call.end

    def _push(self, thread: _Thread, action: actions.Push, now: int) -> Later:
        thread.ranges.append(Range(thread.rank, thread.number, action.name, now))
        self.recorded.ranges.append(thread.ranges[-1])
        return Later(now)

    def _pop(self, thread: _Thread, _action: actions.Pop, now: int) -> Later:
        thread.ranges.pop().end.set(now)
        return Later(now)


def execute(programs: Programs, machine: Machine, seed: int) -> Recorded:
    """Execute programs; the same programs, machine and seed give the same times."""
    return Engine(programs, machine, seed).run()
