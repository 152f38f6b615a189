"""Work on threads: the same results in the same order, and errors that end it."""

from __future__ import annotations

import pickle
import random
import threading
import time
from pathlib import Path

import polars as pl
import pytest

from nsys2prv.execution import external_sort, output_files
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.threads import Stop, map_ahead, run_all


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
    monkeypatch.setattr(output_files, "_leaving", threading.Event())
    monkeypatch.setattr(output_files, "_folders", set())
    with output_files.temporary_folder(tmp_path, "OUT") as folder:
        collected = ExternalSort(["time"], folder / "runs")
        collected.add(pl.DataFrame({"time": [1]}))
        output_files.remove_temporary()
        with pytest.raises(SystemExit):
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
    collected.finish(on_disk=True)
    together = pl.concat(frames)
    assert pl.concat(collected.windows(keep=True)).equals(together.sort(together.columns))
    again = pickle.loads(pickle.dumps(collected))
    assert pl.concat(again.windows(keep=True)).equals(together.sort(together.columns))


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
    collected.finish(on_disk=True)
    elsewhere: ExternalSort = pickle.loads(pickle.dumps(collected))
    window = external_sort.Window(value, None)
    later, still_open = elsewhere.load(window), elsewhere.load_open(value)

    elsewhere.drop_ended(10_000)
    assert len(list(tmp_path.rglob("*.arrow"))) == 40
    collected.drop_ended(value)

    for one in (elsewhere, collected):
        assert [frame.to_dict(as_series=False) for frame in one.load(window)] == [
            frame.to_dict(as_series=False) for frame in later
        ]
        assert [frame.to_dict(as_series=False) for frame in one.load_open(value)] == [
            frame.to_dict(as_series=False) for frame in still_open
        ]
    needed = sum(
        begin + 10 > value or begin + 14 >= value or (begin % 40 == 0 and begin + 100 >= value) for begin in range(0, 400, 10)
    )
    assert len(list(tmp_path.rglob("*.arrow"))) == needed
