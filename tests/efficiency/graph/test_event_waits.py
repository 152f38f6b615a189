"""What waits for what by CUDA events."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from support.event_program import Program, stream
from support.report_builder import ReportBuilder
from support.run_events import events_of

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.cuda_waits import event_edges
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.run.options import ReadOptions

Edges = set[tuple[str, int, str, int, int]]


def followed(events: RunEvents) -> tuple[Edges, Edges]:
    """Pairs on streams and of hosts: row and start of what waits; row, start and end of what it waits for."""
    edges, names = event_edges(MeasuredRun(events)), events.rows.names

    def named(pairs: pl.DataFrame) -> Edges:
        rows = pairs.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
        return {(names[row], start, names[awaited], *times) for row, start, awaited, *times in rows}

    return named(edges.on_streams), named(edges.on_hosts)


@pytest.mark.parametrize("with_numbers", [True, False])
@pytest.mark.parametrize("with_device_times", [True, False])
def test_an_operation_waits_for_what_was_launched_before_the_record(
    tmp_path: Path, with_numbers: bool, with_device_times: bool
) -> None:
    program = Program(with_numbers=with_numbers, with_device_times=with_device_times)
    program.launch(7, 100, 500)
    program.record(5, 7, 501)
    program.launch(7, 510, 900)
    program.launch(13, 60, 80)
    program.wait(13, 5)
    program.launch(13, 520, 530)
    program.launch(13, 540, 550)
    events = events_of(tmp_path, program.report)
    on_streams, on_hosts = followed(events)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500)}
    assert not on_hosts


def test_an_event_that_is_recorded_again_stands_for_its_record_before_the_wait(tmp_path: Path) -> None:
    program = Program(with_numbers=False)
    program.launch(7, 100, 500)
    program.record(5, 7, 501)
    program.wait(13, 5)
    program.launch(7, 510, 900)
    program.record(5, 7, 901)
    program.launch(13, 520, 530)
    program.wait(13, 5)
    program.launch(13, 910, 920)
    events = events_of(tmp_path, program.report)
    on_streams, _ = followed(events)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500), (stream(13), 910, stream(7), 510, 900)}


def test_the_number_of_the_record_counts_before_the_order_of_calls(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500)
    program.record(5, 7, 501)
    program.launch(7, 510, 900)
    program.record(5, 7, 901)
    program.wait(13, 5, number=101)
    program.launch(13, 520, 530)
    # Of a record that is not there.
    program.wait(13, 5, number=77)
    program.launch(13, 950, 960)
    events = events_of(tmp_path, program.report)
    on_streams, _ = followed(events)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500)}


def test_waits_are_followed_over_streams_without_work_of_their_own(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500)
    program.record(5, 7, 501)
    program.launch(20, 90, 95)
    program.wait(20, 5)
    program.record(6, 20, 502)
    program.wait(13, 6)
    program.launch(13, 520, 530)
    events = events_of(tmp_path, program.report)
    on_streams, _ = followed(events)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500), (stream(13), 520, stream(20), 90, 95)}


def test_host_threads_wait_for_events(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500)
    program.record(5, 7, 501)
    program.launch(7, 510, 900)
    program.synchronize(5, until=503)
    events = events_of(tmp_path, program.report)
    on_streams, on_hosts = followed(events)
    assert not on_streams
    assert on_hosts == {("python3 tid 1000", 40, stream(7), 100, 500)}


def test_events_of_other_processes_are_other_events(tmp_path: Path) -> None:
    programs = [Program(pid=pid, with_numbers=False) for pid in (1000, 1001)]
    for place, program in enumerate(programs):
        program.launch(7, 100 + place, 500 + place)
        program.record(5, 7, 501 + place)
        program.wait(13, 5)
        program.launch(13, 520 + place, 530)
    events = events_of(tmp_path, *(program.report for program in programs))
    on_streams, _ = followed(events)
    assert on_streams == {(stream(13), 520, stream(7), 100, 500), (stream(13), 521, stream(7), 101, 501)}


def test_what_cannot_be_followed_is_left_out(tmp_path: Path) -> None:
    program = Program()
    program.record(4, 7, 15)
    program.launch(7, 100, 500)
    program.record(5, 7, 501)
    program.wait(13, 4)
    program.launch(13, 90, 95)
    program.wait(13, 9)  # never recorded
    program.launch(13, 120, 130)
    program.wait(13, 5)
    program.launch(13, 300, 310)  # starts before what it should have waited for ends
    program.wait(99, 5)  # nothing runs on this stream
    program.wait(13, 5)  # and nothing here any more
    program.launch(7, 510, 900)
    events = events_of(tmp_path, program.report)
    on_streams, on_hosts = followed(events)
    assert not on_streams | on_hosts


def test_without_records_nothing_is_said(tmp_path: Path) -> None:
    program = Program()
    program.launch(7, 100, 500)
    program.wait(13, 5)
    program.launch(13, 520, 530)
    events = events_of(tmp_path, program.report)
    assert followed(events) == (set(), set())


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
    events = events_of(tmp_path, report)
    on_streams, _ = followed(events)
    assert on_streams == {
        (stream(13, 2), 500, stream(7, 2), 90, 490),
        (stream(13, 5), 1501, stream(7, 5), 1090, 1490),
    }


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


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_are_followed(tmp_path: Path, seed: int) -> None:
    program, edges = random_program(seed, 150)
    assert len(edges) > 15
    path = program.report.write(tmp_path / "report.sqlite")
    on_streams, _ = followed(read_events([path], ReadOptions(), tmp_path / "read", with_dependencies=True))
    assert on_streams <= edges
    # What an awaited operation itself waited for need not be there again.
    assert edges <= reachable(on_streams, program.operations)
