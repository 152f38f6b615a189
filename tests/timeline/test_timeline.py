"""Properties of what the timeline is built from: sort in bounded memory, lanes, states, windows, the axis."""

import pickle
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsys2prv.clocks.sync_points import place_sessions, report_clocks
from nsys2prv.execution import external_sort
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.exports import Identity
from nsys2prv.paraver.record_text import RecordText
from nsys2prv.sources.lanes import Lanes
from nsys2prv.timeline import states
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, RecordKind
from nsys2prv.timeline.time_axis import TimeSelection
from nsys2prv.trace.write import TraceStore
from nsys2prv.vocabulary import event_types

spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 25)).map(lambda one: (one[0], one[1], one[1] + one[2])),
    max_size=40,
)


def test_what_ends_where_a_window_begins_is_open_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "RUN_ROWS", 2)
    ordered = ExternalSort(["start"], tmp_path / "runs", until="end")
    for start, end in ((0, 10), (2, 5), (10, 20), (12, 15)):
        ordered.add(pl.DataFrame({"start": [start], "end": [end]}))
    ordered.finish()
    assert pl.concat(ordered.load(external_sort.Window(None, 10), 10)).rows() == [(0, 10)]


@given(ranges=spans, cuts=st.sets(st.integers(0, 60), max_size=4))
def test_no_two_ranges_of_a_lane_overlap_and_there_are_as_few_lanes_as_can_be(
    ranges: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    frame = pl.DataFrame(ranges, schema={"globalTid": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row").sort("start")
    lanes = Lanes("globalTid")
    edges = [-1, *sorted(cuts), 100]
    pieces = [lanes(frame.filter(pl.col("start").is_between(a + 1, b))) for a, b in pairwise(edges)]
    laned = pl.concat(pieces)
    assert laned.equals(Lanes("globalTid")(frame))
    # What has no length takes its lane for a moment all the same.
    used = laned.with_columns(end=pl.max_horizontal("end", pl.col("start") + 1)).sort("globalTid", "lane", "start")
    former = pl.col("end").shift(1).over("globalTid", "lane")
    assert used.filter(former > pl.col("start")).is_empty()
    for (row,), of_row in used.group_by("globalTid"):
        running = [
            sum(start <= moment < end for start, end in of_row.select("start", "end").iter_rows()) for moment in of_row["start"]
        ]
        assert of_row["lane"].max() == max(running) - 1, row


def test_a_range_without_an_end_keeps_its_lane() -> None:
    lanes = Lanes("globalTid")
    first = lanes(pl.DataFrame({"globalTid": [1], "start": [0], "end": [None]}, schema_overrides={"end": pl.Int64}))
    second = lanes(pl.DataFrame({"globalTid": [1, 1], "start": [5, 9], "end": [7, 11]}))
    assert [*first["lane"], *second["lane"]] == [0, 1, 1]


def _sweep(folder: Path, intervals: list[tuple[int, int, int, int]], kinds: list[str], windows: TimeSelection) -> pl.DataFrame:
    frame = pl.DataFrame(intervals, schema=dict.fromkeys(("row", "start", "end", "state"), pl.Int64), orient="row")
    edges = ExternalSort(["start"], folder)
    edges.add(states.edges(frame))
    rows = pl.DataFrame({"row": range(len(kinds)), "kind": kinds})
    return pl.concat(list(states.sweep(edges, rows, windows))).sort("row", "start")


# Each call ends where the next begins, and windows begin.
@example(ranges=[(0, time, 5, event_types.STATE_IO) for time in range(0, 50, 5)], window_rows=5)
@given(
    ranges=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(0, 50),
            st.integers(0, 20),
            st.sampled_from(
                [event_types.STATE_SYNCHRONIZATION, event_types.STATE_BLOCKED, event_types.STATE_IO, event_types.STATE_OTHERS]
            ),
        ),
        max_size=30,
    ),
    window_rows=st.sampled_from([5, 1000]),
)
def test_at_any_time_the_state_is_the_first_in_priority_of_what_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: list[tuple[int, int, int, int]], window_rows: int
) -> None:
    intervals = [(row, start, start + length, state) for row, start, length, state in ranges]
    with monkeypatch.context() as patch:
        for name, limit in (("RUN_ROWS", 2 * window_rows), ("WINDOW_ROWS", window_rows), ("_KEPT_ROWS", 0), ("_BATCH_ROWS", 2)):
            patch.setattr(external_sort, name, limit)
        swept = _sweep(tmp_path, intervals, ["thread", "thread"], TimeSelection((0,), (80,)))
    priority = [event_types.STATE_SYNCHRONIZATION, event_types.STATE_OTHERS, event_types.STATE_IO, event_types.STATE_BLOCKED]
    for row in (0, 1):
        drawn = np.full(80, -1)
        for start, end, state in swept.filter(pl.col("row") == row).select("start", "end", "state").iter_rows():
            assert (drawn[start:end] == -1).all()
            drawn[start:end] = state
        expected = np.full(80, event_types.RUNNING)
        for state in reversed(priority):
            for of_row, start, end, of_state in intervals:
                if of_row == row and of_state == state:
                    expected[start:end] = state
        assert drawn.tolist() == expected.tolist()
        # Neighbours differ: what stays the same is one state.
        of_row = swept.filter(pl.col("row") == row)["state"]
        assert (of_row != of_row.shift(1)).drop_nulls().all()


def test_sampled_gpus_have_no_state_and_streams_idle(tmp_path: Path) -> None:
    swept = _sweep(tmp_path, [(1, 10, 20, event_types.RUNNING)], ["thread", "stream", "gpu"], TimeSelection((0,), (30,)))
    assert swept.drop("cpu").rows() == [
        (0, 0, 30, event_types.RUNNING), (1, 0, 10, event_types.IDLE), (1, 10, 20, event_types.RUNNING),
        (1, 20, 30, event_types.IDLE),
    ]  # fmt: skip


@given(intervals=spans, stretches=st.lists(st.tuples(st.integers(0, 80), st.integers(1, 15)), min_size=1, max_size=4))
def test_clipping_keeps_what_lies_inside_the_windows_and_nothing_else(
    intervals: list[tuple[int, int, int]], stretches: list[tuple[int, int]]
) -> None:
    windows = TimeSelection.union(pl.DataFrame({"start": [b for b, _ in stretches], "end": [b + n for b, n in stretches]}))
    assert all(end < begin for end, begin in zip(windows.ends, windows.starts[1:], strict=False))
    frame = pl.DataFrame(intervals, schema={"row": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row").with_row_index(
        "i"
    )
    clipped = windows.clip(frame, shift=False)
    kept = np.zeros((len(intervals), 110), dtype=bool)
    inside = np.zeros(110, dtype=bool)
    for begin, end in zip(windows.starts, windows.ends, strict=True):
        inside[begin:end] = True
    for index, start, end in clipped.select("i", "start", "end").iter_rows():
        assert not kept[index, start:end].any()
        kept[index, start:end] = True
    for index, (_, start, end) in enumerate(intervals):
        whole = np.zeros(110, dtype=bool)
        whole[start:end] = True
        assert (kept[index] == (whole & inside)).all()
        if start == end:
            at_an_edge = any(begin <= start <= end_ for begin, end_ in zip(windows.starts, windows.ends, strict=True))
            assert (clipped["i"] == index).sum() == at_an_edge
    assert windows.hold(frame["start"]).to_list() == [
        any(begin <= start <= end for begin, end in zip(windows.starts, windows.ends, strict=True)) for _, start, _ in intervals
    ]


def _lines(encoded: Sequence[EncodedRecords]) -> list[str]:
    return [line for one in encoded for line in bytes(one.content).decode().splitlines()]


def _place(line: str) -> list[str]:
    """Kind, row and time of a line."""
    return line.split(":")[:6]


# Each range ends where the next begins, and windows begin.
@example(ranges=[(0, time, 10) for time in range(0, 200, 10)], marks=[], limits=(6, 5, 2), cut=1)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.sampled_from([0, 1, 5, 40, 200])), max_size=40),
    marks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=20),
    limits=st.sampled_from([(1000, 1000, 1000), (10, 12, 4), (3, 6, 1)]),
    cut=st.integers(0, 8),
)
def test_the_merge_of_windows_gives_the_lines_of_all_events_sorted_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranges: list[tuple[int, int, int]],
    marks: list[tuple[int, int]],
    limits: tuple[int, int, int],
    cut: int,
) -> None:
    rows = pl.DataFrame({"row": [0, 1, 2], "task": [1, 1, 2], "thread": [1, 2, 1]})
    intervals = pl.DataFrame(
        [(row, start, start + length, 9600, 1 + index, index % 3 or None) for index, (row, start, length) in enumerate(ranges)],
        schema=dict.fromkeys(("row", "start", "end", "number", "value", "9200"), pl.Int64),
        orient="row",
    )
    points = pl.DataFrame(
        [(row, start, 9005, 1 + index) for index, (row, start) in enumerate(marks)],
        schema=dict.fromkeys(("row", "start", "number", "value"), pl.Int64),
        orient="row",
    )
    with monkeypatch.context() as patch:
        for name, limit in zip(("RUN_ROWS", "WINDOW_ROWS", "_BATCH_ROWS"), limits, strict=True):
            patch.setattr(external_sort, name, limit)
        patch.setattr(external_sort, "_KEPT_ROWS", limits[0] // 2)
        activity = TraceStore(tmp_path / "activity")
        for name, kind, frame in (("ranges", RecordKind.INTERVALS, intervals), ("marks", RecordKind.POINTS, points)):
            activity.add_collection(name, kind)
            part = activity.sorts[name].part()
            for start in range(0, frame.height, 4):
                part.add(frame.slice(start, 4))
            activity.sorts[name].absorb(part)
        windows = activity.windows()
        encode = RecordText(rows).encode
        # As other processes get it: each makes some of the windows by itself.
        elsewhere = pickle.loads(pickle.dumps(activity))
        apart = [list(elsewhere.merge(some, encode)) for some in (windows[cut:], windows[:cut])]
        merged = list(activity.merge(windows, encode))
    batches = [
        RecordBatch(RecordKind.INTERVALS, intervals, intervals),
        RecordBatch(RecordKind.POINTS, points.sort("start", "row")),
    ]
    whole, together = _lines([encode(batches)]) if ranges or marks else [], _lines(merged)
    assert together == _lines([*apart[1], *apart[0]])
    assert [*map(_place, together)] == [*map(_place, whole)]
    # Which of equal lines comes first is up to the order in which their runs are read.
    assert sorted(together) == sorted(whole)
    assert not list(tmp_path.glob("activity/**/*.arrow"))


def _identity(host: str, utc: int | None, monotonic: int | None = None) -> Identity:
    return Identity(host, "", None, utc, monotonic, 0, {}, {}, {}, "", None, pl.DataFrame(), ())


def test_reports_of_one_host_are_tied_by_its_monotonic_clock() -> None:
    placed = place_sessions(
        # UTC stepped by 5 between the two reports of host a.
        [_identity("a", 1000, 50), _identity("a", 1105, 150), _identity("b", 1020)],
        [(0, 10), (0, 10), (-10, 10)],
    )
    assert [(one.method, one.offset) for one in placed] == [("utc", 0), ("monotonic", 100), ("utc", 20)]


def test_a_report_without_a_begin_of_its_session_starts_with_the_others() -> None:
    placed = place_sessions([_identity("a", 1000), _identity("", None)], [(5, 10), (700, 900)])
    assert [(one.method, one.offset) for one in placed] == [("utc", -5), ("none", -700)]


def test_reports_of_one_host_share_its_clock() -> None:
    identities = [
        _identity("a", 1000), _identity("a", 1100),
        _identity("b", 1000, 50), _identity("b", 1100, 150), _identity("b", 1200),
        _identity("c", 1000), _identity("c", None),
        _identity("d", None),
        _identity("", 1000), _identity("", 1100),
    ]  # fmt: skip
    clocks = report_clocks(identities, place_sessions(identities, [(0, 10)] * len(identities)))
    assert [(clock.name, clock.of_report) for clock in clocks] == [
        ("a", 100_000), ("a", 100_000),
        ("b", 0), ("b", 0), ("b", 100_000),
        ("c", 0), ("c (report 2)", 0),
        ("d", 0),
        ("host (report 1)", 0), ("host (report 2)", 0),
    ]  # fmt: skip
