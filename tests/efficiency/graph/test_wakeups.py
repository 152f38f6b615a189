"""Which thread woke another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.report_builder import ReportBuilder
from support.run_events import events_of

from nsys2prv.efficiency.graph.host_waits import LONGEST_WAKE_UP, wake_ups
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.run_events import RunEvents

US = 1000
FIRST, SECOND = "python3 tid 1000", "tid 1001"


def woken(events: RunEvents) -> list[tuple[object, ...]]:
    """Row, start and end of each wait, in us, with row and start of what ended it."""
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
    ],
)
def test_a_wait_ends_soon_after_the_call_that_ended_it(tmp_path: Path, waiting: str, ending: str) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, 5 * US)
    report.os_call(waiting, 10 * US, 120 * US, tid=1001)
    report.os_call(ending, 40 * US, 42 * US)  # too early
    report.os_call(ending, 100 * US, 102 * US)
    report.os_call("write", 112 * US, 114 * US)
    events = events_of(tmp_path, report)
    pairs = woken(events)
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
    report.os_call("poll", 0, US)
    report.os_call("pthread_cond_wait", 10 * US, 120 * US, tid=1001)
    report.os_call(ending, start * US, end * US, tid=tid, pid=pid)
    events = events_of(tmp_path, report)
    pairs = woken(events)
    assert not pairs


def test_a_broadcast_wakes_all_and_the_latest_signal_counts(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, US)
    for tid in (1001, 1002):
        report.os_call("pthread_cond_wait", 10 * US, (tid - 900) * US, tid=tid)
    report.os_call("pthread_cond_broadcast", 80 * US, 82 * US)
    report.os_call("pthread_cond_broadcast", 90 * US, 92 * US)
    events = events_of(tmp_path, report)
    assert woken(events) == [(SECOND, 10, 101, FIRST, 90), ("tid 1002", 10, 102, FIRST, 90)]


def test_the_last_at_a_barrier_wakes_the_others(tmp_path: Path) -> None:
    report = ReportBuilder()
    for tid, start in ((1000, 0), (1001, 30), (1002, 60)):
        report.os_call("pthread_barrier_wait", start * US, 65 * US, tid=tid)
    events = events_of(tmp_path, report)
    assert woken(events) == [(FIRST, 0, 65, "tid 1002", 60), (SECOND, 30, 65, "tid 1002", 60)]


def test_a_signal_may_last_longer_than_the_wait(tmp_path: Path) -> None:
    report = ReportBuilder()
    for turn in range(30):
        at = 200 * turn
        report.os_call("pthread_cond_wait", at * US, (at + 120) * US, tid=1001)
        report.os_call("pthread_cond_signal", (at + 100) * US, (at + 105 + turn) * US)
        report.os_call("write", (at + 140) * US, (at + 141) * US)
    events = events_of(tmp_path, report)
    assert [(start, at) for _, start, _, _, at in woken(events)] == [(200 * turn, 200 * turn + 100) for turn in range(30)]
    assert LONGEST_WAKE_UP == 50 * US


@pytest.mark.parametrize("sleeps", ["epoll_wait", "poll", "usleep", "pthread_cond_wait"])
def test_a_thread_that_was_asleep_itself_is_not_the_cause(tmp_path: Path, sleeps: str) -> None:
    report = ReportBuilder()
    report.os_call("poll", 0, 5 * US, tid=1002)
    # The helper sleeps from before the wait until shortly before its end; then it signals.
    report.os_call(sleeps, 10 * US, 90 * US, tid=1001)
    report.os_call("sem_wait", 50 * US, 120 * US)
    for time in range(20, 80, 2):
        report.os_call("write", time * US, (time + 1) * US, tid=1002)
    report.os_call("sem_post", 100 * US, 102 * US, tid=1001)
    # Here it is awake when the wait begins, and here soon after that: it may have waited for the thread that waits.
    for begin, sleeping in ((250, 240), (450, 460)):
        report.os_call(sleeps, (begin - 50) * US, sleeping * US, tid=1001)
        report.os_call("sem_wait", begin * US, (begin + 70) * US)
        report.os_call("sem_post", (begin + 50) * US, (begin + 52) * US, tid=1001)
    events = events_of(tmp_path, report)
    pairs = woken(events)
    assert [pair for pair in pairs if pair[0] == FIRST] == [
        (FIRST, 250, 320, SECOND, 300),
        (FIRST, 450, 520, SECOND, 500),
    ]
