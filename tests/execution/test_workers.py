"""Work in this process, in others, and on a Dask cluster: the same results in the same order."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nsys2prv import errors
from nsys2prv.errors import UsageError, WorkerDied
from nsys2prv.execution import workers as execution
from nsys2prv.execution.workers import DaskCluster, LocalWorkers, Workers, workers


def _square(number: int) -> int:
    time.sleep(0.002 * (number % 3))
    return number * number


def _fails_at_five(number: int) -> int:
    if number == 5:
        raise errors.DamagedReport("five.sqlite", "cut off")
    return number


def _end(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.5)


@pytest.fixture(scope="module", params=["in this process", "2 workers", "dask"])
def pool(request: pytest.FixtureRequest) -> Iterator[Workers]:
    if request.param == "dask":
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            client = distributed.Client(cluster)
            yield DaskCluster(client)
            client.close()
        return
    with workers(0 if request.param == "in this process" else 2) as pool:
        yield pool


def test_results_come_in_order(pool: Workers) -> None:
    assert list(pool.map(_square, range(40))) == [number * number for number in range(40)]


def test_an_error_comes_in_its_place_with_its_class_and_sentence(pool: Workers) -> None:
    made = pool.map(_fails_at_five, range(8))
    assert [next(made) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(errors.DamagedReport, match=r"five\.sqlite: the export is damaged or incomplete \(cut off\)"):
        next(made)


def test_items_may_be_none(pool: Workers) -> None:
    assert list(pool.map(_square, [])) == []


@pytest.mark.parametrize(("number", "why"), [(signal.SIGKILL, "worker died"), (signal.SIGSTOP, "no sign of life")])
def test_a_worker_that_dies_or_is_silent_ends_the_work_with_a_sentence(
    number: signal.Signals, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_LOOKS_AT_STOPPED", 3)
    before = _children()
    with pytest.raises(WorkerDied, match=why), workers(2) as pool:
        list(pool.map(_end, [number] * 3))
    assert _end_within(30, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_of_all_processes_ends_the_first_one_which_ends_its_workers(number: signal.Signals) -> None:
    with workers(1) as pool:
        assert list(pool.map(_end, [number])) == [None]


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["scheduler", "worker"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_a_cluster_that_dies_or_is_silent_ends_the_work_in_time(
    who: str, number: signal.Signals, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    programs = [
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", file, "--no-dashboard", "--port", "0"],
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--no-dashboard", "--no-nanny"],
    ]
    with ExitStack() as stack:
        running = [stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL)) for command in programs]
        for process in running:
            stack.callback(process.kill)
        while not file.exists():
            time.sleep(0.1)
        with workers(scheduler=str(file)) as pool:
            submitted = pool.submit(time.sleep, 600)
            running[who == "worker"].send_signal(number)
            began = time.monotonic()
            with pytest.raises(WorkerDied):
                pool.gather(submitted)
        assert time.monotonic() - began < 60
        assert "Traceback" not in capfd.readouterr().err


def test_workers_and_a_cluster_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"), workers(2, "tcp://127.0.0.1:1"):
        pass


@pytest.mark.parametrize(
    "error",
    [
        errors.ReportNotFound("a", "why"),
        errors.MissingColumn("a", "T", ["x"], ["y"]),
        errors.SameReportTwice("a", "b", "why"),
        errors.TooManyRows(70_000, 65_535),
        errors.DiskFull("a"),
        errors.OutputError.not_writable("a", "why"),
        WorkerDied(),
    ],
)
def test_errors_travel(error: errors.Nsys2prvError) -> None:
    travelled = pickle.loads(pickle.dumps(error))
    assert type(travelled) is type(error)
    assert str(travelled) == str(error)
    assert travelled.exit_code == error.exit_code


def _children() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


def _end_within(seconds: float, before: set[int | None]) -> bool:
    """Whether all processes end that were started since."""
    until = time.monotonic() + seconds
    while _children() - before and time.monotonic() < until:
        time.sleep(0.01)
    return not _children() - before


@pytest.mark.parametrize("seconds", [0, 600])
def test_workers_end_when_they_are_closed_also_during_work(seconds: float) -> None:
    before = _children()
    pool = LocalWorkers(2)
    next(pool.map(time.sleep, [0, seconds, seconds, 0]))
    assert _children() - before
    pool.close()
    # One of them may still be starting.
    assert _end_within(30, before)
    pool.close()


def test_a_signal_while_workers_start_ends_these_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _children()
    pool = LocalWorkers(2)
    submit, noted = pool._pool.submit, list[set[int | None]]()

    def submit_in_time(function: Callable[[int], int], argument: int) -> object:
        signal.raise_signal(signal.SIGTERM)
        return submit(function, argument)

    monkeypatch.setattr(pool._pool, "submit", submit_in_time)
    former = signal.signal(signal.SIGTERM, lambda *_: noted.append({process.pid for process in pool._processes}))
    try:
        pool.submit(abs, 1)
    finally:
        signal.signal(signal.SIGTERM, former)
        pool.close()

    assert noted
    assert len(noted[0]) == 1
    assert _end_within(30, before)
