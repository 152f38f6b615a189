"""Work in this process, in others, and on a Dask cluster: the same results in the same order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsys2prv import errors
from nsys2prv.errors import UsageError, WorkerDied
from nsys2prv.execution.workers import DaskCluster, LocalWorkers, Workers, workers


def _square(number: int) -> int:
    time.sleep(0.002 * (number % 3))
    return number * number


def _fails_at_five(number: int) -> int:
    if number == 5:
        raise errors.DamagedReport("five.sqlite", "cut off")
    return number


def _die_once(argument: tuple[int, str]) -> int:
    number, mark = argument
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture(scope="module", params=["in this process", "2 workers", "dask"])
def some_workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    if request.param == "dask":
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            client = distributed.Client(cluster)
            yield DaskCluster(client)
            client.close()
        return
    with workers(0 if request.param == "in this process" else 2) as made:
        yield made


def test_results_come_in_order(some_workers: Workers) -> None:
    assert list(some_workers.map(_square, range(40))) == [number * number for number in range(40)]


def test_an_error_comes_in_its_place_with_its_class_and_sentence(some_workers: Workers) -> None:
    made = some_workers.map(_fails_at_five, range(8))

    assert [next(made) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(errors.DamagedReport, match=r"five\.sqlite: the export is damaged or incomplete \(cut off\)"):
        next(made)


def test_items_may_be_none(some_workers: Workers) -> None:
    assert list(some_workers.map(_square, [])) == []


def test_a_worker_that_dies_costs_a_retry(tmp_path: Path) -> None:
    with workers(2) as made:
        assert list(made.map(_die_once, [(number, str(tmp_path / "died")) for number in range(8)])) == list(range(8))
    assert (tmp_path / "died").exists()


def test_work_that_kills_every_worker_ends_with_a_sentence() -> None:
    with workers(2) as made, pytest.raises(WorkerDied, match="died 3 times"):
        list(made.map(_die, range(3)))


def test_workers_and_a_cluster_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"), workers(2, "tcp://127.0.0.1:1"):
        pass


@pytest.mark.parametrize(
    "error",
    [
        errors.ReportNotFound("a"),
        errors.MissingColumn("a", "T", ["x"], ["y"]),
        errors.SameReportTwice("a", "b", "why"),
        errors.TooManyRows(70_000, 65_535),
        errors.DiskFull("a"),
        errors.OutputError.not_writable("a", "why"),
        WorkerDied(3),
    ],
)
def test_errors_travel(error: errors.Nsys2prvError) -> None:
    travelled = pickle.loads(pickle.dumps(error))

    assert type(travelled) is type(error)
    assert str(travelled) == str(error)
    assert travelled.exit_code == error.exit_code


def test_all_workers_start_before_there_is_work_for_all_of_them() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    with workers(2) as some:
        some.prepare(_square)
        started = {child.pid for child in multiprocessing.active_children()} - before
        assert len(started) == min(2, os.cpu_count() or 1)
        assert list(some.map(_square, [3])) == [9]


def _started(before: set[int | None]) -> list[multiprocessing.process.BaseProcess]:
    return [child for child in multiprocessing.active_children() if child.pid not in before]


def _end_within(seconds: float, processes: list[multiprocessing.process.BaseProcess]) -> bool:
    # Not `join`: a thread of the workers waits for them too, and one of the two does not learn that they ended.
    until = time.monotonic() + seconds
    while any(process.is_alive() for process in processes) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(process.is_alive() for process in processes)


def test_workers_without_further_work_end_while_other_work_goes_on() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    with workers(2) as some:
        assert list(some.map(_square, range(8))) == [number * number for number in range(8)]
        processes = _started(before)
        some.finish()
        assert processes
        assert _end_within(20, processes)


def test_workers_that_are_about_to_end_are_killed_with_the_others() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    some = LocalWorkers(2)
    next(some.map(time.sleep, [0, 600, 600]))
    processes = _started(before)

    some.finish()
    assert any(process.is_alive() for process in processes)
    some.kill()

    assert _end_within(2, processes)
    some.close()
