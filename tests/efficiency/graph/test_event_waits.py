"""What waits for what by CUDA events."""

import itertools
import random
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from support import rest
from support.measured import US, events_of
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.graph.cuda_waits import event_edges
from nsys2prv.efficiency.graph.host_waits import LONGEST_WAKE_UP, wake_ups
from nsys2prv.efficiency.measured_run import MeasuredRun

NO_ID = 4294967295


def stream(number: int, device: int = 0) -> str:
    """Name of the row of a stream."""
    return f"CUDA-D{device}.S{number}-node01"


class Program:
    """What a process does, call by call: each call takes 2 ns, every 10 ns."""

    def __init__(
        self, *, pid: int = 1000, with_records: bool = True, with_numbers: bool = True, with_device_times: bool = True
    ) -> None:
        # Time 0 of the trace is that of the first call.
        self.report = ReportBuilder(schema="3.25.0", pid=pid, rank=pid % 1000).gpu(0)
        self.pid = pid
        self.now = 0
        self.with_records = with_records
        self.with_numbers, self.with_device_times = with_numbers, with_device_times
        self.number = 100
        self.numbers: dict[int, int] = {}
        self.operations: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.report.api_call("cudaFree_v3020", 0, 2, pid=pid)

    def launch(self, stream: int, start: int, end: int) -> "Program":
        """Launch a kernel on a stream; it runs from `start` to `end`."""
        self.now += 10
        self.operations[stream].append((start, end))
        self.report.kernel("k", start, end, stream=stream, launch=(self.now, self.now + 2), pid=self.pid)
        return self

    def record(self, event: int, stream: int, time: int | None = None) -> "Program":
        """Record an event on a stream, which the device reaches at `time`."""
        self.now += 10
        if not self.with_records:
            self.report.api_call("cudaEventRecord_v3020", self.now, self.now + 2, pid=self.pid)
            return self
        self.number += 1
        self.numbers[event] = self.number
        call = self.report.api_call("cudaEventRecord_v3020", self.now, self.now + 2, pid=self.pid)
        number = self.number if self.with_numbers else None
        self.report.event_record(
            event, stream=stream, correlation=call, sync=number, time=time if self.with_device_times else None, pid=self.pid
        )
        return self

    def wait(self, stream: int, event: int, number: int | None = None) -> "Program":
        """Let a stream wait for an event; `number` is that of the record, by default the last one."""
        return self._wait("cudaStreamWaitEvent_v3020", stream, event, number, 1)

    def synchronize(self, event: int, until: int) -> "Program":
        """Wait for an event until a time."""
        return self._wait("cudaEventSynchronize_v3020", NO_ID, event, None, until - self.now - 10)

    def _wait(self, name: str, stream: int, event: int, number: int | None, length: int) -> "Program":
        self.now += 10
        call = self.report.api_call(name, self.now, self.now + length + 1, pid=self.pid)
        sync = (number or self.numbers.get(event, 0)) if self.with_numbers else None
        self.report.synchronization(
            self.now, self.now + length, correlation=call, stream=stream, event=event, sync=sync, pid=self.pid
        )
        self.now += length
        return self


Edges = set[tuple[str, int, str, int, int]]


def followed(folder: Path, *reports: ReportBuilder) -> tuple[Edges, Edges]:
    """Pairs on streams and of hosts: row and start of what waits; row, start and end of what it waits for."""
    events = events_of(folder, *reports)
    edges, names = event_edges(MeasuredRun(events)), events.rows.names

    def named(pairs: pl.DataFrame) -> Edges:
        rows = pairs.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
        return {(names[row], start, names[awaited], *times) for row, start, awaited, *times in rows}

    return named(edges.on_streams), named(edges.on_hosts)


def test_an_operation_waits_for_what_was_launched_before_the_record(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500).record(5, 7, 501).launch(7, 510, 900).launch(13, 60, 80).wait(13, 5).launch(13, 520, 530)
    program.launch(13, 540, 550)
    on_streams, on_hosts = followed(tmp_path, program.report)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500)}
    assert not on_hosts


def test_the_number_of_the_record_counts_before_the_order_of_calls(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500).record(5, 7, 501).launch(7, 510, 900).record(5, 7, 901).wait(13, 5, number=101)
    program.launch(13, 520, 530)
    # Of a record that is not there.
    program.wait(13, 5, number=77).launch(13, 950, 960)
    on_streams, _ = followed(tmp_path, program.report)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500)}


def test_host_threads_wait_for_events(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500).record(5, 7, 501).launch(7, 510, 900).synchronize(5, until=503)
    on_streams, on_hosts = followed(tmp_path, program.report)
    assert not on_streams
    assert on_hosts == {("python3 tid 1000", 40, stream(7), 100, 500)}


def test_events_of_other_processes_are_other_events(tmp_path: Path) -> None:
    programs = [Program(pid=pid, with_numbers=False) for pid in (1000, 1001)]
    for place, program in enumerate(programs):
        program.launch(7, 100 + place, 500 + place).record(5, 7, 501 + place).wait(13, 5).launch(13, 520 + place, 530)
    on_streams, _ = followed(tmp_path, *(program.report for program in programs))
    assert on_streams == {(stream(13), 520, stream(7), 100, 500), (stream(13), 521, stream(7), 101, 501)}


def test_what_cannot_be_followed_is_left_out(tmp_path: Path) -> None:
    program = Program()
    program.record(4, 7, 15).launch(7, 100, 500).record(5, 7, 501).wait(13, 4).launch(13, 90, 95)
    program.wait(13, 9)  # never recorded
    program.launch(13, 120, 130).wait(13, 5)
    program.launch(13, 300, 310)  # starts before what it should have waited for ends
    program.wait(99, 5)  # nothing runs on this stream
    program.wait(13, 5)  # and nothing here any more
    program.launch(7, 510, 900)
    on_streams, on_hosts = followed(tmp_path, program.report)
    assert not on_streams | on_hosts


def test_streams_of_several_devices_are_those_that_the_process_counts(tmp_path: Path) -> None:
    report = ReportBuilder(schema="3.25.0")
    # CUDA_VISIBLE_DEVICES=2,5
    report.gpu(2, cuda=0).gpu(5, cuda=1)
    for device in (0, 1):
        at = 1000 * device
        report.kernel("k", at + 100, at + 500, device=device, context=device + 1, launch=(at + 10, at + 12))
        call = report.api_call("cudaEventRecord_v3020", at + 20, at + 22)
        report.event_record(5, time=at + 501, device=device, context=device + 1, correlation=call)
        call = report.api_call("cudaStreamWaitEvent_v3020", at + 30, at + 32)
        report.synchronization(at + 30, at + 31, stream=13, device=device, context=device + 1, event=5, correlation=call)
        for other in (0, 1):
            times = at + 510 + other, at + 520
            report.kernel("l", *times, device=other, context=other + 1, stream=13, launch=(at + 40 + other, at + 42))
    on_streams, _ = followed(tmp_path, report)
    assert on_streams == {(stream(13, 2), 500, stream(7, 2), 90, 490), (stream(13, 5), 1501, stream(7, 5), 1090, 1490)}


def random_program(seed: int, steps: int) -> tuple[Program, Edges]:
    """A program with what its operations wait for, of each other stream the last operation."""
    choose = random.Random(seed)
    program = Program(with_numbers=bool(seed % 2), with_device_times=bool(seed // 2 % 2))
    streams, events = (7, 13, 14, 15), (1, 2, 3)
    free: dict[int, int] = defaultdict(int)
    last: dict[int, tuple[int, int]] = {}
    pending: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
    recorded: dict[int, set[tuple[int, int, int]]] = {}
    reached: dict[int, int] = {}
    edges: Edges = set()
    for _ in range(steps):
        on, event = choose.choice(streams), choose.choice(events)
        what = choose.choice(("launch", "launch", "record", "wait"))
        ready = max([free[on], program.now + 15, *(end for *_, end in pending[on])])
        if what == "launch":
            start = ready + choose.randrange(3)
            end = start + choose.randrange(1, 80)
            program.launch(on, start, end)
            ends: dict[int, tuple[int, int]] = {}
            for awaited, begin, until in pending.pop(on, set()):
                if awaited != on:
                    ends[awaited] = max(ends.get(awaited, (-1, -1)), (begin, until))
            edges |= {(stream(on), start, stream(awaited), *times) for awaited, times in ends.items()}
            last[on], free[on] = (start, end), end
        elif what == "record":
            program.record(event, on, ready)
            free[on] = ready
            recorded[event] = pending[on] | ({(on, *last[on])} if on in last else set())
            reached[event] = ready
        elif event in recorded:
            program.wait(on, event)
            pending[on] |= recorded[event]
            free[on] = max(free[on], reached[event])
    return program, edges


def reachable(edges: Edges, operations: dict[int, list[tuple[int, int]]]) -> Edges:
    """All pairs of operations of which one waits for the other, by some edges and the order in streams."""
    ends = {(stream(on), *times) for on, of_stream in operations.items() for times in of_stream}
    before: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for row, start, awaited, *times in edges:
        before[row, start].add((awaited, times[0]))
    for on, of_stream in operations.items():
        for (former, _), (later, _) in itertools.pairwise(of_stream):
            before[stream(on), later].add((stream(on), former))
    found: Edges = set()
    for row, start, _ in ends:
        reached: set[tuple[str, int]] = set()
        new = {(row, start)}
        while new:
            reached |= new
            new = {former for one in new for former in before[one]} - reached
        found |= {(row, start, *one) for one in ends if one[:2] in reached}
    return found


@pytest.mark.parametrize("seed", [0, *rest(*range(1, 4))])
def test_random_programs_are_followed(tmp_path: Path, seed: int) -> None:
    program, edges = random_program(seed, 150)
    assert len(edges) > 15
    on_streams, _ = followed(tmp_path, program.report)
    assert on_streams <= edges
    # What an awaited operation itself waited for need not be there again.
    assert edges <= reachable(on_streams, program.operations)


# -- what operations waited for by events that were not recorded -----------------------------------------


def inferred(folder: Path, program: Program) -> list[tuple[str, int, str, int, int]]:
    """Row and start of operations, and row, start and end of what they waited for, us."""
    events = events_of(folder, program.report)
    edges = event_edges(MeasuredRun(events))
    assert edges.on_hosts.is_empty()
    rows = edges.on_streams.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
    names = events.rows.names
    return [(names[row], start // US, names[other], begin // US, end // US) for row, start, other, begin, end in rows]


def program(*, start: int = 504, other_end: int = 300) -> "Program":
    """Stream 13 waits for stream 7, and stream 20 has work as well; times in us."""
    made = Program(with_records=False)
    made.launch(20, 10 * US, other_end * US).launch(7, 20 * US, 500 * US).record(5, 7).launch(7, 510 * US, 900 * US)
    made.launch(13, 30 * US, 40 * US).wait(13, 5).launch(13, start * US, (start + 10) * US)
    made.launch(13, (start + 40) * US, (start + 50) * US)
    return made


def test_an_operation_that_starts_right_after_the_last_one_before_the_record_call_waited_for_it(tmp_path: Path) -> None:
    assert inferred(tmp_path, program()) == [(stream(13), 504, stream(7), 20, 500)]


@pytest.mark.parametrize(
    "made",
    [
        program(other_end=498),  # two may be the one
        program(start=520),  # something else held it
        program(start=495),  # it began before
        program(start=45),  # it was not held
    ],
)
def test_where_times_leave_no_or_several_answers_nothing_is_said(tmp_path: Path, made: Program) -> None:
    assert not inferred(tmp_path, made)


def test_without_a_record_call_of_the_thread_nothing_is_said(tmp_path: Path) -> None:
    made = Program(with_records=False)
    made.launch(7, 20 * US, 500 * US).wait(13, 5).launch(13, 504 * US, 510 * US)
    assert not inferred(tmp_path, made)


def test_recorded_events_are_not_inferred(tmp_path: Path) -> None:
    made = Program()
    made.launch(7, 20 * US, 500 * US).record(5, 7, 501 * US).wait(13, 6).launch(13, 504 * US, 510 * US)
    assert not inferred(tmp_path, made)


def test_so_it_is_in_a_loop(tmp_path: Path) -> None:
    made = Program(with_records=False)
    expected = []
    for turn in range(30):
        at = 1000 * turn
        made.now = max(made.now, at * US)
        made.launch(7, (at + 20) * US, (at + 500) * US).record(5, 7).launch(7, (at + 510) * US, (at + 900) * US)
        made.wait(13, 5).launch(13, (at + 501 + turn % 10) * US, (at + 600) * US)
        expected.append((stream(13), at + 501 + turn % 10, stream(7), at + 20, at + 500))
    assert inferred(tmp_path, made) == expected


# -- which thread woke another one -----------------------------------------------------------------------


FIRST, SECOND = "python3 tid 1000", "tid 1001"


def woken(folder: Path, report: ReportBuilder) -> list[tuple[object, ...]]:
    """Row, start and end of each wait, in us, with row and start of what ended it."""
    events = events_of(folder, report)
    names = events.rows.names
    pairs = wake_ups(MeasuredRun(events)).rows()
    return sorted((names[row], a // US, b // US, names[by], c // US) for row, a, b, by, c in pairs)


@pytest.mark.parametrize(
    ("waiting", "ending"),
    [
        ("pthread_cond_wait", "pthread_cond_signal"),
        ("pthread_cond_timedwait", "pthread_cond_broadcast"),
        ("sem_wait", "sem_post"),
        ("pthread_mutex_lock", "pthread_mutex_unlock"),
        ("pthread_mutex_lock", "pthread_cond_wait"),
        ("pthread_rwlock_wrlock", "pthread_rwlock_unlock"),
        ("pthread_join", "pthread_exit"),
        ("epoll_wait", "writev"),
    ],
)
def test_a_wait_ends_soon_after_the_call_that_ended_it(tmp_path: Path, waiting: str, ending: str) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, 5 * US).os_call(waiting, 10 * US, 120 * US, tid=1001)
    report.os_call(ending, 40 * US, 42 * US)  # too early
    report.os_call(ending, 100 * US, 102 * US).os_call("read", 112 * US, 114 * US)
    pairs = woken(tmp_path, report)
    assert (SECOND, 10, 120, FIRST, 100) in pairs
    assert len([pair for pair in pairs if pair[0] == SECOND]) == 1


@pytest.mark.parametrize(
    ("ending", "start", "end", "tid", "pid"),
    [
        ("sem_post", 100, 102, 1000, 1000),  # of another kind
        ("pthread_cond_signal", 5, 8, 1000, 1000),  # before the wait
        ("pthread_cond_signal", 121, 122, 1000, 1000),  # after it
        ("pthread_cond_signal", 60, 69, 1000, 1000),  # too long before its end
        ("pthread_cond_signal", 100, 102, 1001, 1000),  # its own
        ("pthread_cond_signal", 100, 102, 2000, 2000),  # of another process
    ],
)
def test_other_calls_do_not_end_it(tmp_path: Path, ending: str, start: int, end: int, tid: int, pid: int) -> None:
    report = ReportBuilder()
    report.process(2000, "other")
    report.os_call("poll", 0, US).os_call("pthread_cond_wait", 10 * US, 120 * US, tid=1001)
    report.os_call(ending, start * US, end * US, tid=tid, pid=pid)
    assert not woken(tmp_path, report)


def test_a_broadcast_wakes_all_and_the_latest_signal_counts(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, US)
    for tid in (1001, 1002):
        report.os_call("pthread_cond_wait", 10 * US, (tid - 900) * US, tid=tid)
    report.os_call("pthread_cond_broadcast", 80 * US, 82 * US).os_call("pthread_cond_broadcast", 90 * US, 92 * US)
    # Those that take their mutex later were woken as well, but not what ends long after that.
    for tid, end in ((1003, 1500), (1004, 2500)):
        report.os_call("pthread_cond_wait", 10 * US, end * US, tid=tid)
    ends = {SECOND: 101, "tid 1002": 102, "tid 1003": 1500}
    assert woken(tmp_path, report) == [(row, 10, end, FIRST, 90) for row, end in ends.items()]


@pytest.mark.parametrize(("begin", "is_woken"), [(10, True), (2000, False)])
def test_a_signal_ends_a_long_wait_later(tmp_path: Path, begin: int, is_woken: bool) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, US).os_call("pthread_cond_wait", begin * US, 3000 * US, tid=1001)
    report.os_call("pthread_cond_signal", 2840 * US, 2850 * US)
    assert woken(tmp_path, report) == [(SECOND, begin, 3000, FIRST, 2840)] * is_woken


def test_the_last_at_a_barrier_wakes_the_others(tmp_path: Path) -> None:
    report = ReportBuilder()
    for tid, start in ((1000, 0), (1001, 30), (1002, 60)):
        report.os_call("pthread_barrier_wait", start * US, 65 * US, tid=tid)
    assert woken(tmp_path, report) == [(FIRST, 0, 65, "tid 1002", 60), (SECOND, 30, 65, "tid 1002", 60)]


def test_a_signal_may_last_longer_than_the_wait(tmp_path: Path) -> None:
    report = ReportBuilder()
    for turn in range(30):
        at = 200 * turn
        report.os_call("pthread_cond_wait", at * US, (at + 120) * US, tid=1001)
        report.os_call("pthread_cond_signal", (at + 100) * US, (at + 105 + turn) * US)
        report.os_call("write", (at + 140) * US, (at + 141) * US)
    assert [(start, at) for _, start, _, _, at in woken(tmp_path, report)] == [
        (200 * turn, 200 * turn + 100) for turn in range(30)
    ]
    assert LONGEST_WAKE_UP == 50 * US


@pytest.mark.parametrize("sleeps", ["epoll_wait", "poll", "usleep", "pthread_cond_wait"])
def test_a_thread_that_was_asleep_itself_is_not_the_cause(tmp_path: Path, sleeps: str) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, 5 * US, tid=1002)
    # The helper sleeps from before the wait until shortly before its end; then it signals.
    report.os_call(sleeps, 10 * US, 90 * US, tid=1001).os_call("sem_wait", 50 * US, 120 * US)
    for time in range(20, 80, 2):
        report.os_call("read", time * US, (time + 1) * US, tid=1002)
    report.os_call("sem_post", 100 * US, 102 * US, tid=1001)
    # Here it is awake when the wait begins, and here soon after that: it may have waited for the thread that waits.
    for begin, sleeping in ((250, 240), (450, 460)):
        report.os_call(sleeps, (begin - 50) * US, sleeping * US, tid=1001)
        report.os_call("sem_wait", begin * US, (begin + 70) * US)
        report.os_call("sem_post", (begin + 50) * US, (begin + 52) * US, tid=1001)
    pairs = woken(tmp_path, report)
    assert [pair for pair in pairs if pair[0] == FIRST] == [(FIRST, 250, 320, SECOND, 300), (FIRST, 450, 520, SECOND, 500)]
    # What let it go on while it was waited for is a request, unless it knows how long it sleeps.
    assert (pairs[-1] == (SECOND, 400, 460, FIRST, 450)) == (sleeps != "usleep")
