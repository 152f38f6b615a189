"""The same trace from this process, from local workers and from a Dask cluster, whatever happens to the workers."""

import contextlib
import gzip
import io
import itertools
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from polars.testing import assert_frame_equal
from support import QUICK, rest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report
from support.report_builder import ReportBuilder

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency import measure as measuring
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.errors import DamagedReport, UsageError
from nsys2prv.execution import process
from nsys2prv.execution import workers as execution
from nsys2prv.execution.output_files import make_folder, temporary_folder
from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.trace_format import gzip_blocks
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions

NOT_COMPARED = ("seconds", "options")
"""What OUT.json tells of the way, not of the trace."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of 2 ranks on 2 nodes."""
    folder = tmp_path_factory.mktemp("reports")
    write_reports(folder, Cluster(nodes=2, gpus_per_node=1, iterations=2, layers=1, with_nccl=True, with_mpi=True))
    return folder


@pytest.fixture(scope="module")
def alone(reports: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process makes of them, under the name of a trace that all tests use."""
    return files_of(translate([reports], tmp_path_factory.mktemp("alone") / "trace", TranslateOptions()))


@pytest.fixture
def several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers with several threads each, beside this process with one: so many has Polars in `make test`."""
    monkeypatch.setattr(process, "_MOST_THREADS", 1)
    monkeypatch.setattr(execution, "cores", lambda: 6)
    monkeypatch.setenv("POLARS_MAX_THREADS", "3")


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    """A Dask cluster of 2 workers on this machine."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


def the_way(way: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    if way == "dask":
        return {"scheduler": request.getfixturevalue("dask").scheduler_address}
    return {} if way == "one process" else {"workers": 2}


def files_of(summary: Summary) -> dict[str, bytes]:
    """The trace, its labels, rows and views, and the account without what tells of the way."""
    base = summary.prv.with_name(summary.prv.name.removesuffix(".gz").removesuffix(".prv"))
    account = {key: value for key, value in summary.content.items() if key not in NOT_COMPARED}
    packed = summary.prv.read_bytes()
    views = base.with_name(f"{base.name}.cfgs")
    return {
        "prv": gzip.decompress(packed) if summary.prv.suffix == ".gz" else packed,
        "pcf": base.with_name(f"{base.name}.pcf").read_bytes(),
        "row": base.with_name(f"{base.name}.row").read_bytes(),
        "json": json.dumps(account).encode(),
        **{str(view.relative_to(views)): view.read_bytes() for view in sorted(views.rglob("*.cfg"))},
    }


def outputs(summary: Summary) -> set[str]:
    """How the names of all that lies beside the trace end: nothing half-made may stay there."""
    return {path.name.removeprefix("trace") for path in summary.prv.parent.iterdir()}


# Who compresses does not depend on who schedules: `make test-all` has all of them.
WAYS_AND_FORMS = pytest.mark.parametrize(
    ("way", "with_gzip"),
    [
        pytest.param("2 workers", True, id="gzip-2 workers"),
        pytest.param("dask", False, id="plain-dask", marks=pytest.mark.thorough),
        pytest.param("2 workers", False, id="plain-2 workers", marks=pytest.mark.thorough),
        pytest.param("dask", True, id="gzip-dask", marks=pytest.mark.thorough),
    ],
)


@WAYS_AND_FORMS
@pytest.mark.usefixtures("alone", "several_threads")
def test_the_trace_is_the_same_from_one_process_and_from_several(
    way: str, with_gzip: bool, request: pytest.FixtureRequest, reports: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "several").mkdir()
    spread = translate([reports], tmp_path / "several" / "trace", TranslateOptions(**the_way(way, request), gzip=with_gzip))
    one, several = ({**files, "json": without_size(files["json"])} for files in (alone, files_of(spread)))
    assert several == one
    if with_gzip:
        # Also compressed, one process writes the same: what it is for the same content does not depend on parts.
        assert spread.prv.read_bytes() == in_blocks(alone["prv"])
    assert check_trace(spread.prv).violations == ()
    assert outputs(spread) == {".prv.gz" if with_gzip else ".prv", ".pcf", ".row", ".json", ".cfgs"}


def in_blocks(trace: bytes) -> bytes:
    """A trace as it is compressed: the header, then the records."""
    header = b"".join(line for line in trace.splitlines(keepends=True) if line.startswith((b"#", b"c:")))
    packed = io.BytesIO()
    for content in (header, trace.removeprefix(header)):
        with gzip_blocks(packed) as write:
            write(content)
    return packed.getvalue()


def without_size(account: bytes) -> bytes:
    content = json.loads(account)
    # A compressed trace is smaller.
    del content["trace"]["bytes"]
    return json.dumps(content).encode()


@pytest.fixture(scope="module")
def long_alone(long_report: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """What one process makes of the long report."""
    return translate([long_report], tmp_path_factory.mktemp("long") / "one", TranslateOptions())


@pytest.mark.slow
@pytest.mark.thorough
@WAYS_AND_FORMS
def test_a_trace_of_many_windows_is_joined_of_parts(
    way: str, with_gzip: bool, request: pytest.FixtureRequest, long_report: Path, long_alone: Summary, tmp_path: Path
) -> None:
    spread = translate([long_report], tmp_path / "several", TranslateOptions(**the_way(way, request), gzip=with_gzip))
    assert files_of(spread)["prv"] == files_of(long_alone)["prv"]
    if with_gzip:
        # More than one member, and a reader that takes them for one stream.
        assert spread.prv.read_bytes().count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00") > 1


MOMENTS = {"surveying": "**/columns*", "collecting": "**/group*/**/*.arrow", "writing": "**/part-*"}


@pytest.mark.thorough
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_of_a_cluster_that_is_killed_changes_nothing_but_the_time(
    moment: str, dask: Any, request: pytest.FixtureRequest, reports: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "several").mkdir()
    killed: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 60
        while not any((tmp_path / "several").glob(f".*/{MOMENTS[moment]}")) and time.monotonic() < until:
            time.sleep(0.001)
        killed.append(next(nanny.pid for nanny in dask.workers.values() if nanny.pid))
        os.kill(killed[0], signal.SIGKILL)

    watch = threading.Thread(target=kill)
    watch.start()
    spread = translate([reports], tmp_path / "several" / "trace", TranslateOptions(**the_way("dask", request)))
    watch.join()

    assert killed
    assert files_of(spread) == alone
    assert outputs(spread) == {".prv", ".pcf", ".row", ".json", ".cfgs"}


@pytest.mark.parametrize("way", ["2 workers", *rest("dask")])
def test_a_broken_report_is_named(way: str, request: pytest.FixtureRequest, reports: Path, tmp_path: Path) -> None:
    shutil.copytree(reports, tmp_path / "reports")
    broken = max((tmp_path / "reports").glob("*.sqlite"))
    broken.write_bytes(broken.read_bytes()[:50_000])
    with pytest.raises(DamagedReport) as error:
        translate([tmp_path / "reports"], tmp_path / "out", TranslateOptions(**the_way(way, request)))
    assert str(broken) in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports"]


def translating(command_line: CommandLine, reports: Path, folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A translation that has begun to collect, and the processes of its workers."""
    folder.mkdir()
    process = command_line.start("translate", reports, "-o", folder / "out", "--workers", 2)
    until = time.monotonic() + 60
    while not any(folder.glob(".*/**/group*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    return process, workers


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupt_ends_the_workers_and_leaves_nothing(
    number: signal.Signals, command_line: CommandLine, reports: Path, tmp_path: Path
) -> None:
    process, workers = translating(command_line, reports, tmp_path / "there")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert stderr.startswith("nsys2prv: interrupted")
    assert stderr.count("\n") == 1
    psutil.wait_procs(workers, timeout=10)
    assert [one for one in workers if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.thorough
def test_workers_end_with_the_process_that_began_them(command_line: CommandLine, reports: Path, tmp_path: Path) -> None:
    process, workers = translating(command_line, reports, tmp_path / "there")
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def no_file_above_64_kb() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_a_disk_that_is_full_for_workers_is_told_as_for_one_process(command_line: CommandLine, tmp_path: Path) -> None:
    large = small_report(20_000).write(tmp_path / "large.sqlite")
    folder = tmp_path / "there"
    folder.mkdir()
    done = command_line.run("translate", large, "-o", folder / "out", "--workers", 2, prepare=no_file_above_64_kb)
    sentence(done, 5, f"nsys2prv: {folder / 'out'}: the disk is full")
    assert list(folder.iterdir()) == []


def assert_same_tables(found: EfficiencyResult, wanted: EfficiencyResult) -> None:
    """Sums of fractions may differ in the last bits: they are added in another order."""
    assert found.tables.keys() == wanted.tables.keys()
    for name, table in wanted.tables.items():
        assert_frame_equal(found.tables[name], table, rel_tol=1e-12)
    assert found.head["warnings"] == wanted.head["warnings"]


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["2 workers", "dask"])
def test_efficiency_numbers_are_the_same_from_one_process_and_from_several(
    way: str, request: pytest.FixtureRequest, reports: Path, tmp_path: Path
) -> None:
    options = EfficiencyOptions(regions=("*",), scratch=tmp_path)
    spread = EfficiencyOptions(**the_way(way, request), regions=("*",), scratch=tmp_path)
    alone = measuring.measure([reports], options)
    request.getfixturevalue("several_threads")
    filled = {name for name, table in alone.tables.items() if table.height}
    assert filled >= {"devices", "kernels", "gaps", "regions", "threads", "nccl", "findings"}
    assert_same_tables(measuring.measure([reports], spread), alone)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["one process", *rest("2 workers", "dask")])
def test_a_report_that_breaks_off_while_it_is_measured_is_left_out(
    way: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    paths = [tmp_path / f"rank{rank}.sqlite" for rank in range(3)]
    for rank, path in enumerate(paths):
        report = ReportBuilder(rank=rank, ranks=3, pid=1000 + rank).gpu(rank)
        for index in range(500):
            report.copy(100 * index, 100 * index + 40 + rank, 8)
        report.write(path)
    without = measuring.measure([paths[0], paths[2]], EfficiencyOptions(**QUICK))
    with sqlite3.connect(paths[1]) as database:
        # Nobody looks at sizes of copies before these are read.
        database.execute("update CUPTI_ACTIVITY_KIND_MEMCPY set bytes = 'many' where start > 40000")
    database.close()

    (tmp_path / "scratch").mkdir()
    how = {**the_way(way, request), **QUICK, "scratch": tmp_path / "scratch"}
    found = measuring.measure(paths, EfficiencyOptions(**how, keep_going=True))
    assert [one["path"] for one in found.head["left_out"]] == [str(paths[1])]
    assert found.left_out == 1
    for name in ("devices", "memory_operations", "run"):
        assert_frame_equal(found.tables[name], without.tables[name])
    with pytest.raises(DamagedReport, match=r"rank1\.sqlite"):
        measuring.measure(paths, EfficiencyOptions(**how))
    assert not list((tmp_path / "scratch").iterdir())


def test_workers_of_a_cluster_must_see_the_folder_of_intermediate_files(
    dask: Any, monkeypatch: pytest.MonkeyPatch, reports: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(execution, "_look_for", lambda folders: ("node07", folders))
    how = EfficiencyOptions(scheduler=dask.scheduler_address, scratch=tmp_path)
    with pytest.raises(UsageError, match=r"node07, can't write to .*--scratch"):
        measuring.measure([reports], how)
    assert not list(tmp_path.iterdir())


# -- a cluster that is not there: exit code 2 -----------------------------------------------------------------------------


def test_a_cluster_needs_dask(monkeypatch: pytest.MonkeyPatch, reports: Path, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"Dask, which is not installed: pip install 'dask\[distributed\]'"):
        translate([reports], tmp_path / "out", TranslateOptions(scheduler="tcp://127.0.0.1:1"))
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_workers_is_told(monkeypatch: pytest.MonkeyPatch, reports: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(execution, "_SECONDS_TO_COME", 1)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as empty:
        options = TranslateOptions(scheduler=empty.scheduler_address)
        with pytest.raises(UsageError, match="no worker came"):
            translate([reports], tmp_path / "out", options)


def test_work_for_somebody_who_is_gone_leaves_nothing(tmp_path: Path) -> None:
    numbers = itertools.count()

    def write(folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            while True:
                number = next(numbers)
                make_folder(folder / f"group{number}")
                (folder / f"group{number}" / "rows.arrow").write_text("rows")

    with temporary_folder(tmp_path, "shared") as shared:
        writing = threading.Thread(target=write, args=(shared,))
        writing.start()
        while next(numbers) < 20:
            time.sleep(0.001)
    writing.join(30)

    assert not writing.is_alive()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        make_folder(shared / "later")
