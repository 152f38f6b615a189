"""Work on threads: the same results in the same order, and errors that end it."""

import io
import pickle
import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.execution import external_sort, output_files, process, progress
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.process import Stop, map_ahead, run_all
from nsys2prv.execution.progress import progress_bar
from nsys2prv.execution.row_order import Merging, distinct, in_content_order, in_turns


@pytest.mark.parametrize("cores", ["1", "2"])
def test_results_come_in_the_order_of_the_work_whatever_ends_first(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", cores)

    def piece(number: int, stop: Stop) -> int:
        time.sleep(0.01 * (3 - number % 4))
        stop.check()
        return number

    assert run_all([lambda stop, number=number: piece(number, stop) for number in range(12)]) == list(range(12))  # type: ignore[misc]


def test_the_first_error_ends_the_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "2")
    ended = threading.Event()

    def endless(stop: Stop) -> None:
        try:
            while True:
                stop.check()
                time.sleep(0.001)
        finally:
            ended.set()

    def failing(stop: Stop) -> None:
        raise ValueError("the second piece")

    with pytest.raises(ValueError, match="the second piece"):
        run_all([endless, failing])
    assert ended.is_set()


@pytest.mark.parametrize("cores", ["1", "2"])
def test_items_are_made_ahead_in_order_and_an_error_comes_in_its_place(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", cores)

    def invert(number: int) -> float:
        return 1 / (5 - number)

    made = map_ahead(invert, range(10))
    assert [next(made) for _ in range(5)] == [1 / 5, 1 / 4, 1 / 3, 1 / 2, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(made)


def test_many_runs_are_joined_and_give_the_same_rows_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RUN_ROWS", 100), ("WINDOW_ROWS", 700), ("_BATCH_ROWS", 30), ("_MOST_RUNS", 8), ("_JOINED_RUNS", 3)):
        monkeypatch.setattr(external_sort, name, value)
    numbers = random.Random(3)
    collected = ExternalSort(["time"], tmp_path)
    frames = []
    for index in range(70):
        # Times repeat, within a frame and between frames; the values get wider from frame to frame.
        times = [numbers.randrange(500) for _ in range(110)]
        frames.append(
            pl.DataFrame(
                {"time": times, "value": [index**5 + place for place in range(110)], "name": [f"name {index}"] * 110},
                schema_overrides={"value": pl.Int64},
            )
        )
        collected.add(frames[-1])
    found = list(collected.windows())
    assert pl.concat(found).equals(pl.concat(frames).sort("time", "value", "name"))
    assert len(found) > 5
    assert not list(tmp_path.rglob("*.arrow"))


def test_runs_in_use_are_few_however_many_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "RUN_ROWS", 10)
    collected = ExternalSort(["time"], tmp_path)
    for index in range(400):
        part = collected.part()
        part.add(pl.DataFrame({"time": list(range(index, index + 10))}))
        collected.absorb(part)
    collected.finish()
    assert len(list(tmp_path.rglob("*.arrow"))) <= external_sort._MOST_RUNS
    assert collected.rows == 4000


def test_a_thread_that_still_works_makes_nothing_anew_of_what_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_cleanups", [])
    with output_files.temporary_folder(tmp_path, "OUT") as folder:
        collected = ExternalSort(["time"], folder / "runs")
        collected.add(pl.DataFrame({"time": [1]}))
        process.clean_up()
        with pytest.raises(FileNotFoundError):
            collected.spill()
    assert not list(tmp_path.iterdir())


def test_columns_that_are_equal_in_all_rows_of_a_run_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "RUN_ROWS", 3)
    collected = ExternalSort(["time"], tmp_path)
    frames = [
        pl.DataFrame(
            {"time": times, "process": [process] * 3, "nothing": [None] * 3, "some": [None, 7, 7], "name": ["a", "a", None]},
            schema={**dict.fromkeys(("time", "process", "nothing", "some"), pl.Int64), "name": pl.String},
        )
        for times, process in (([5, 5, 5], 2**60), ([1, 3, 9], 4), ([8, 2, 6], -1))
    ]
    for frame in frames:
        collected.add(frame)
    collected.finish()
    together = pl.concat(frames)
    again: ExternalSort = pickle.loads(pickle.dumps(collected))
    assert pl.concat(again.windows()).equals(together.sort(together.columns))
    assert pl.concat(collected.windows()).equals(together.sort(together.columns))


def test_what_is_pickled_has_its_rows_on_the_disk(tmp_path: Path) -> None:
    collected = ExternalSort(["time"], tmp_path)
    collected.add(pl.DataFrame({"time": [3, 1, 2]}))
    again: ExternalSort = pickle.loads(pickle.dumps(collected))
    assert [frame["time"].to_list() for frame in again.windows()] == [[1, 2, 3]]
    assert list(tmp_path.iterdir())
    assert [frame["time"].to_list() for frame in collected.windows()] == [[1, 2, 3]]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [0, 130, 131, 250, 10_000])
def test_what_is_over_leaves_the_disk_and_later_windows_stay_whole(
    value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "RUN_ROWS", 10)
    monkeypatch.setattr(external_sort, "_BATCH_ROWS", 3)
    collected = ExternalSort(["start"], tmp_path, until="end")
    for begin in range(0, 400, 10):
        # One in four runs has an interval that lasts for long.
        ends = [start + (100 if begin % 40 == 0 and start == begin else 5) for start in range(begin, begin + 10)]
        collected.add(pl.DataFrame({"start": list(range(begin, begin + 10)), "end": ends}))
    collected.finish()
    elsewhere: ExternalSort = pickle.loads(pickle.dumps(collected))
    window = external_sort.Window(value, None)
    later, still_open = elsewhere.load(window), elsewhere.load(external_sort.Window(None, value), value)

    elsewhere.drop_before(10_000)
    assert len(list(tmp_path.rglob("*.arrow"))) == 40
    collected.drop_before(value)

    for one in (elsewhere, collected):
        assert [frame.to_dict(as_series=False) for frame in one.load(window)] == [
            frame.to_dict(as_series=False) for frame in later
        ]
        assert [frame.to_dict(as_series=False) for frame in one.load(external_sort.Window(None, value), value)] == [
            frame.to_dict(as_series=False) for frame in still_open
        ]
    needed = sum(
        begin + 10 > value or begin + 14 >= value or (begin % 40 == 0 and begin + 100 >= value) for begin in range(0, 400, 10)
    )
    assert len(list(tmp_path.rglob("*.arrow"))) == needed


# -- different numbers of a column, against the plain way to find them -----------------------------------
numbers = st.one_of(st.integers(-3, 70_000), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(numbers, max_size=40))
def test_different_numbers_are_in_order_and_each_row_has_its_own(values: list[int]) -> None:
    column = np.array(values, dtype=np.int64)
    found = distinct(column)
    assert found.numbers.tolist() == sorted(set(values))
    assert found.numbers[found.place].tolist() == values
    assert found.rows.tolist() == [values.count(number) for number in sorted(set(values))]


@pytest.mark.parametrize("different", [3, 900, 5_000, 200_000])
def test_few_and_many_different_numbers_are_found(different: int) -> None:
    column = (np.arange(300_000) * 7_919 % different) << 16
    found = distinct(column)
    assert found.numbers.tolist() == [number << 16 for number in range(different)]
    assert np.array_equal(found.numbers[found.place], column)
    assert int(found.rows.sum()) == len(column)


# -- frames that are merged now and then are merged as if all came at once -------------------------------
SCHEMA = {"key": pl.Int64, "count": pl.Int64}
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=6)


def added(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("key").agg(pl.col("count").sum())


@given(st.lists(ROWS, max_size=12), st.integers(0, 20))
def test_sums_are_those_of_all_rows(frames: list[list[tuple[int, int]]], pending: int) -> None:
    few = Merging(added, pl.DataFrame(schema=SCHEMA), pending)
    for rows in frames:
        few.add(pl.DataFrame(rows, schema=SCHEMA, orient="row"))
    of_all = pl.DataFrame([row for rows in frames for row in rows], schema=SCHEMA, orient="row")
    assert few.rows.sort("key").equals(added(of_all).sort("key"))


def test_rows_are_merged_a_few_times_however_many_frames_come() -> None:
    merged: list[int] = []

    def distinct(rows: pl.DataFrame) -> pl.DataFrame:
        merged.append(rows.height)
        return rows.unique(maintain_order=True)

    few = Merging(distinct, pl.DataFrame(schema={"key": pl.Int64}), 10)
    for number in range(2000):
        few.add(pl.DataFrame({"key": [number]}))
    assert few.rows["key"].to_list() == list(range(2000))
    assert sum(merged) < 5 * 2000


# -- rows in an order that depends on what is in them ----------------------------------------------------
EVENTS = {"start": pl.Int64, "what": pl.String}


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc") | st.none())),
    sizes=st.lists(st.integers(0, 4), max_size=20),
)
def test_what_starts_together_comes_in_one_piece_and_in_one_order(rows: list[tuple[int, str | None]], sizes: list[int]) -> None:
    ordered = pl.DataFrame(sorted(rows, key=lambda row: row[0]), schema=EVENTS, orient="row")
    pieces, first = [], 0
    for size in [*sizes, len(rows)]:
        pieces.append(ordered[first : first + size])
        first += size
    found = list(in_turns(iter(pieces), "start"))
    assert pl.concat([ordered.clear(), *found]).equals(in_content_order(ordered, ["start"]))
    starts = [piece["start"].unique().to_list() for piece in found]
    assert sum(map(len, starts)) == ordered["start"].n_unique()
    assert all(starts)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def wait_for(self, text: str) -> bool:
        """Whether a text comes within the time in which a stopped program is noticed."""
        until = time.monotonic() + 30
        while text not in self.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        return text in self.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress, "_DELAY", 0.01)
    found = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))
    return found


def test_a_bar_is_shown_before_anything_is_done(terminal: Terminal) -> None:
    with progress_bar("surveying", "table", 5):
        assert terminal.wait_for("surveying:   0%")
        assert terminal.wait_for("0.00/5.00")


def test_a_step_without_a_unit_shows_its_time(terminal: Terminal) -> None:
    with progress_bar("planning"):
        assert terminal.wait_for("planning: 00:00")


def test_the_total_of_a_bar_may_change(terminal: Terminal) -> None:
    with progress_bar("surveying", "table", 0) as bar:
        bar.total = 4
        bar.update(2)
        assert terminal.wait_for("2.00/4.00")


@pytest.mark.parametrize("shown", [None, False], ids=["no terminal", "not wanted"])
def test_nothing_is_shown(shown: bool | None, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    if shown is None:
        monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    with progress_bar("surveying", "table", 5, shown=shown) as bar:
        bar.total = 6
        bar.update(2)
        time.sleep(0.05)
    assert not terminal.getvalue()
