"""What operations waited for by events that were not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.event_program import Program, stream
from support.run_events import events_of

from nsys2prv.efficiency.graph.cuda_waits import event_edges
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.run_events import RunEvents

US = 1000


def inferred(events: RunEvents) -> list[tuple[str, int, str, int, int]]:
    """Row and start of operations, and row, start and end of what they waited for, us."""
    edges = event_edges(MeasuredRun(events))
    assert edges.on_hosts.is_empty()
    rows = edges.on_streams.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
    names = events.rows.names
    return [(names[row], start // US, names[other], begin // US, end // US) for row, start, other, begin, end in rows]


def program(*, start: int = 504, other_end: int = 300) -> Program:
    """Stream 13 waits for stream 7, and stream 20 has work as well; times in us."""
    made = Program(with_records=False)
    made.launch(20, 10 * US, other_end * US)
    made.launch(7, 20 * US, 500 * US)
    made.record(5, 7)
    made.launch(7, 510 * US, 900 * US)
    made.launch(13, 30 * US, 40 * US)
    made.wait(13, 5)
    made.launch(13, start * US, (start + 10) * US)
    made.launch(13, (start + 40) * US, (start + 50) * US)
    return made


def test_an_operation_that_starts_right_after_the_last_one_before_the_record_call_waited_for_it(tmp_path: Path) -> None:
    events = events_of(tmp_path, program().report)
    assert inferred(events) == [(stream(13), 504, stream(7), 20, 500)]


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
    events = events_of(tmp_path, made.report)
    assert not inferred(events)


def test_without_a_record_call_of_the_thread_nothing_is_said(tmp_path: Path) -> None:
    made = Program(with_records=False)
    made.launch(7, 20 * US, 500 * US)
    made.wait(13, 5)
    made.launch(13, 504 * US, 510 * US)
    events = events_of(tmp_path, made.report)
    assert not inferred(events)


def test_recorded_events_are_not_inferred(tmp_path: Path) -> None:
    made = Program()
    made.launch(7, 20 * US, 500 * US)
    made.record(5, 7, 501 * US)
    made.wait(13, 6)
    made.launch(13, 504 * US, 510 * US)
    events = events_of(tmp_path, made.report)
    assert not inferred(events)


def test_so_it_is_in_a_loop(tmp_path: Path) -> None:
    made = Program(with_records=False)
    expected = []
    for turn in range(30):
        at = 1000 * turn
        made.now = max(made.now, at * US)
        made.launch(7, (at + 20) * US, (at + 500) * US)
        made.record(5, 7)
        made.launch(7, (at + 510) * US, (at + 900) * US)
        made.wait(13, 5)
        made.launch(13, (at + 501 + turn % 10) * US, (at + 600) * US)
        expected.append((stream(13), at + 501 + turn % 10, stream(7), at + 20, at + 500))
    events = events_of(tmp_path, made.report)
    assert inferred(events) == expected
