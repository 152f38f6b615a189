"""Opening reports: forms, columns that come and go, exports by nsys, what arguments stand for."""

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from polars.testing import assert_frame_equal
from support.export_folders import write_arrow_report, write_parquet_report
from support.report_builder import ReportBuilder

from nsys2prv import errors
from nsys2prv.demo import write_report
from nsys2prv.exports import describe, find_reports, open_report
from nsys2prv.exports.columns import Real, Text, pid_of
from nsys2prv.exports.nsys import export_report, nsys_program
from nsys2prv.run.inspect import as_text, inspect, inspect_run
from nsys2prv.run.options import ReadOptions


def test_an_optional_column_that_is_not_there_is_null_and_a_required_one_is_missed(tmp_path: Path) -> None:
    report = ReportBuilder().without("CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId", "gridX")
    report.kernel("k", 0, 10)
    opened = open_report(report.write(tmp_path / "a.sqlite"))
    rows = opened.collect(opened.scan("CUPTI_ACTIVITY_KIND_KERNEL", ("start",), ("graphNodeId", "gridX", "gridY")))
    assert rows.rows() == [(0, None, None, 1)]
    with pytest.raises(errors.MissingColumn, match=r"a\.sqlite: table CUPTI_ACTIVITY_KIND_KERNEL has no column gridX"):
        opened.scan("CUPTI_ACTIVITY_KIND_KERNEL", ("gridX",))


def test_all_rows_of_a_short_table_are_those_of_its_scan(tmp_path: Path) -> None:
    report = ReportBuilder().without("CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId")
    report.kernel("k", 0, 10)
    report.kernel("l", 20, 30)
    write_parquet_report(tmp_path / "a_pqtdir", report.tables())
    for path in (report.write(tmp_path / "a.sqlite"), tmp_path / "a_pqtdir"):
        opened = open_report(path)
        for table, columns in {
            "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "graphNodeId"), "StringIds": ("id", Text("value")),
            "TARGET_INFO_SYSTEM_ENV": ("unknown",), "OSRT_API": ("start",),
        }.items():  # fmt: skip
            assert_frame_equal(opened.read(table, optional=columns), opened.collect(opened.scan(table, optional=columns)))
        with pytest.raises(errors.MissingColumn, match="has no column gridX9"):
            opened.read("CUPTI_ACTIVITY_KIND_KERNEL", ("gridX9",))


def test_text_after_many_rows_without_is_read(tmp_path: Path) -> None:
    rows = 40_000
    tables = dict(ReportBuilder().tables())
    tables["NVTX_EVENTS"] = pl.DataFrame(
        {
            "start": range(rows), "eventType": [59] * rows, "globalTid": [1] * rows,
            "text": [None] * (rows - 1) + ["late"], "doubleValue": [None] * (rows - 1) + [2.5],
        },
        schema_overrides={"text": pl.String, "doubleValue": pl.Float64},
    )  # fmt: skip
    write_report(tmp_path / "a.sqlite", tables)
    opened = open_report(tmp_path / "a.sqlite")
    last = opened.collect(opened.scan("NVTX_EVENTS", ("start",), (Text("text"), Real("doubleValue")))).tail(1)
    assert last.rows() == [(rows - 1, "late", 2.5)]


def test_text_that_is_not_utf_8_is_read_with_marks(tmp_path: Path) -> None:
    path = ReportBuilder().write(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("insert into StringIds values (999, cast(x'4df66c6c' as text))")
    assert open_report(path).strings.filter(pl.col("id") == 999)["value"].to_list() == ["M\ufffdll"]


def test_a_database_whose_texts_are_not_utf_8_is_no_report(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "utf16.sqlite") as database:
        database.execute("pragma encoding = 'UTF-16'")
        database.execute("create table StringIds (id integer, value text)")
    with pytest.raises(errors.NotAReport, match="its texts are UTF-16, and nsys writes UTF-8"):
        open_report(tmp_path / "utf16.sqlite")


def test_reports_are_found_in_folders_and_by_globs_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        ReportBuilder().write(tmp_path / f"rank{number}.sqlite")
    write_parquet_report(tmp_path / "deep" / "x_pqtdir", ReportBuilder().tables())
    (tmp_path / "notes.txt").touch()
    (tmp_path / "rank9.nsys-rep").touch()
    os.utime(tmp_path / "rank9.nsys-rep", (1, 1))
    names = [path.name for path in find_reports([tmp_path])]
    assert names == ["x_pqtdir", "rank1.sqlite", "rank9.sqlite", "rank10.sqlite"]
    assert [path.name for path in find_reports([str(tmp_path / "rank1*.sqlite")])] == ["rank1.sqlite", "rank10.sqlite"]
    with pytest.raises(errors.SameReportTwice):
        find_reports([tmp_path, tmp_path / "deep" / ".." / "rank1.sqlite"])
    with pytest.raises(errors.ReportNotFound, match="no file matches"):
        find_reports([str(tmp_path / "*.qdrep")])


@pytest.fixture
def fake_nsys(tmp_path: Path) -> Path:
    """A program that takes the arguments of `nsys export`, writes down what it was asked and gives a ready export."""
    made = ReportBuilder(host="exported")
    made.os_call("read", 0, 5)
    (tmp_path / "ready").mkdir()
    ready = made.write(tmp_path / "ready" / "ready.sqlite")
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
[ "$2" = --help ] && {{ echo "  --include-json=<true|false>"; exit 0; }}
while [ $# -gt 1 ]; do [ "$1" = -o ] && out="$2"; shift; done
cp {ready} "$out"
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def at_time(path: Path, seconds: int) -> Path:
    os.utime(path, (seconds, seconds))
    return path


def test_a_recorded_report_is_exported_once_and_again_when_it_is_another(tmp_path: Path, fake_nsys: Path) -> None:
    recorded = tmp_path / "run.nsys-rep"
    recorded.write_text("protobuf")
    assert describe(open_report(recorded, fake_nsys)).host == "exported"
    assert (tmp_path / "run.sqlite").exists()
    asked = (tmp_path / "asked").read_text().splitlines()
    # Only what this version knows is asked for.
    assert "--include-json=true" in asked[1]
    assert "--include-blobs" not in asked[1]
    # The same recording, whatever its time.
    open_report(at_time(recorded, 10**10), fake_nsys)
    assert len((tmp_path / "asked").read_text().splitlines()) == 2
    assert find_reports([tmp_path / "run.*"]) == [recorded, tmp_path / "run.sqlite"]

    recorded.write_text("another")
    open_report(at_time(recorded, 1), fake_nsys)

    assert len((tmp_path / "asked").read_text().splitlines()) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"asked", "bin", "ready", "run.nsys-rep", "run.sqlite"}


def test_an_export_stands_for_the_recording_that_it_was_made_from(tmp_path: Path, fake_nsys: Path) -> None:
    recorded = tmp_path / "run" / "run.nsys-rep"
    recorded.parent.mkdir()
    recorded.write_text("protobuf")
    export = export_report(recorded, fake_nsys)
    assert find_reports([recorded.parent]) == [export]
    recorded.write_text("another")
    at_time(recorded, 1)
    assert find_reports([recorded.parent]) == [recorded]


def test_an_export_by_somebody_else_is_not_replaced(tmp_path: Path, fake_nsys: Path) -> None:
    recorded = tmp_path / "run.nsys-rep"
    recorded.write_text("protobuf")
    theirs = ReportBuilder(host="other").write(tmp_path / "run.sqlite")
    assert describe(open_report(at_time(recorded, 1), fake_nsys)).host == "other"
    content = at_time(theirs, 1).read_bytes()

    with pytest.raises(
        errors.ExportError, match=r"its export would replace .*run\.sqlite, which is older and not made by nsys2prv"
    ):
        open_report(at_time(recorded, 2), fake_nsys)

    assert theirs.read_bytes() == content
    assert not (tmp_path / "asked").exists()


def test_nsys_is_found_by_its_home_and_missed_with_a_sentence(
    tmp_path: Path, fake_nsys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = tmp_path / "run.qdrep"
    recorded.write_text("protobuf")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("NSYS_HOME", str(fake_nsys.parent))
    assert nsys_program(None) == fake_nsys
    monkeypatch.delenv("NSYS_HOME")
    with pytest.raises(errors.ExportError, match=r"run\.qdrep: only nsys can open this file.*give one with --nsys"):
        open_report(recorded)


def test_an_export_without_any_metadata_is_described(tmp_path: Path) -> None:
    report = ReportBuilder(schema=None, utc_ns=None)
    report.kernel("k", 0, 10)
    identity = describe(open_report(report.write(tmp_path / "a.sqlite")))
    assert (identity.schema, identity.utc_ns, identity.host) == (None, None, "")
    assert "has no start time of its session" in identity.warnings[0]


def test_inspect_says_what_is_in_a_report(tmp_path: Path) -> None:
    report = ReportBuilder(host="nid001", rank=3, with_mpi=True)
    report.gpu(0, name="NVIDIA H100")
    report.kernel("k", 1000, 2000, launch=(0, 500))
    report.row("EVENTS_NOT_KNOWN", start=5, globalTid=report.global_tid())
    text = as_text(inspect([report.write(tmp_path / "a.sqlite")])[0])
    for expected in (
        "schema 3.11, sqlite", "host nid001", "1 rank: 3 (from MPI_RANKS)", "D0 NVIDIA H100",
        "0.000002 s from the first event to the last", "1  Kernels (kernels) on 1 row",
        "1  EVENTS_NOT_KNOWN: no source translates",
    ):  # fmt: skip
        assert expected in text, text


def test_inspect_says_what_is_known_of_a_clock_and_estimates_it_for_a_run(tmp_path: Path) -> None:
    paths = []
    for rank, monotonic in enumerate((5, None)):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=2, host=f"node{rank + 1:02}", monotonic_ns=monotonic)
        report.kernel("k", 0, 10)
        paths.append(report.write(tmp_path / f"{rank}.sqlite"))
    found = inspect(paths)
    assert [one["clock"] for one in found] == [{"start": "monotonic"}, {"start": "utc"}]
    assert "  clock: the start of the session is known in UTC, to about 100.000 µs, and by no monotonic clock" in as_text(
        found[1]
    )

    of_run, estimated, _ = inspect_run(paths, ReadOptions())
    assert "  clocks: 2, synchronized by utc; not known" in of_run
    unknown = {"best": None, "worst": None, "times": [0], "half_widths": [None]}
    assert [(one["clock"]["start"], one["clock"]["host"], one["clock"]["of_report_ns"]) for one in estimated] == [
        ("monotonic", "node01", 0), ("utc", "node02", 0)
    ]  # fmt: skip
    assert [one["clock"]["interval_ns"] for one in estimated] == [unknown, unknown]
    assert "  clock of node02, by utc: not known" in as_text(estimated[1])


def test_a_file_that_replaces_another_is_read(tmp_path: Path) -> None:
    for host in ("first", "second"):
        (tmp_path / "a.sqlite").unlink(missing_ok=True)
        assert describe(open_report(ReportBuilder(host=host).write(tmp_path / "a.sqlite"))).host == host


def test_a_process_that_nsys_started_by_its_launcher_is_called_as_the_program(tmp_path: Path) -> None:
    """PROCESSES may have the name from before the program took the place of the launcher."""
    builder = ReportBuilder()
    builder.kernel("k", 0, 10)
    for pid, launcher, thread in (
        (2000, "nsys-launcher", "gem_main"),
        (3000, "nsys-launcher", None),
        (4000, "ProcessLauncher", "MPI Rank 3"),
    ):
        builder.process(pid, launcher)
        if thread is not None:
            builder.thread(pid, pid=pid, name=thread)
            builder.thread(pid + 1, pid=pid, name="helper")
    identity = describe(open_report(builder.write(tmp_path / "one.sqlite")))

    names = {pid_of(global_pid): name for global_pid, name in identity.processes.items()}
    assert names == {1000: "python3", 2000: "gem_main", 3000: "nsys-launcher", 4000: "helper"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.write_bytes(table.read_bytes() * 2), "something follows the end of the stream"),
        (lambda table: table.write_bytes(table.read_bytes()[:-8]), "the stream is cut off"),
        (lambda table: table.write_bytes(table.read_bytes()[: table.stat().st_size // 2]), "NVTX_EVENTS.arrow"),
        (lambda table: table.write_bytes(b""), "NVTX_EVENTS.arrow"),
        (lambda table: table.with_suffix(".ipc").touch(), "NVTX_EVENTS.arrow and NVTX_EVENTS.ipc are two files of one table"),
        (
            lambda table: pl.DataFrame({"id": [1]}).write_parquet(table.with_suffix(".parquet")),
            "it holds tables in Parquet and in Arrow files",
        ),
    ],
)
def test_tables_of_which_a_part_would_be_missing_are_refused(
    change: Callable[[Path], object], sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a_arwdir"
    write_arrow_report(folder, ReportBuilder().nvtx_range("a", 0, 5).tables())
    table = folder / "NVTX_EVENTS.arrow"
    events = pl.read_ipc(table.read_bytes())
    events.write_ipc_stream(table)
    assert open_report(folder).tables.row_count("NVTX_EVENTS") == 1
    change(table)
    with pytest.raises((errors.DamagedReport, errors.NotAReport), match=sentence):
        open_report(folder).tables.row_count("NVTX_EVENTS")


@pytest.mark.parametrize("values", [[True], [1.5]], ids=["booleans", "not whole"])
def test_times_of_another_type_are_refused(values: list[Any], tmp_path: Path) -> None:
    tables = dict(ReportBuilder().nvtx_range("a", 0, 5).tables())
    write_parquet_report(tmp_path / "a_pqtdir", tables)
    tables["NVTX_EVENTS"].with_columns(end=pl.Series(values)).write_parquet(tmp_path / "a_pqtdir" / "NVTX_EVENTS.parquet")
    with pytest.raises(errors.DamagedReport, match="column end is of type"):
        open_report(tmp_path / "a_pqtdir").read("NVTX_EVENTS", ("end",))


def write_to(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return ReportBuilder().write(path)


def _linked_folder(folder: Path) -> None:
    write_to(folder.parent / "elsewhere" / "rank7.sqlite")
    (folder / "more").symlink_to(folder.parent / "elsewhere")


def _tables_with_a_report(folder: Path) -> None:
    write_parquet_report(folder / "x_pqtdir", ReportBuilder().tables())
    write_to(folder / "x_pqtdir" / "rank3.sqlite")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda folder: (folder / "rank1.sqlite").symlink_to(folder / "gone"), "rank1.sqlite: this link leads nowhere"),
        (lambda folder: (folder / "rank1.sqlite").symlink_to(folder / "rank1.sqlite"), "can't be read|leads nowhere"),
        (lambda folder: os.mkfifo(folder / "rank1.sqlite"), "rank1.sqlite: this is no ordinary file"),
        (_linked_folder, "more: this is a link to a folder"),
        (_tables_with_a_report, "it holds tables of a report and another report, rank3.sqlite"),
    ],
)
def test_a_folder_is_read_wholly_or_not_at_all(change: Callable[[Path], object], sentence: str, tmp_path: Path) -> None:
    write_to(tmp_path / "run" / "rank0.sqlite")
    write_to(tmp_path / "run" / "rank2.SQLITE")
    (tmp_path / "run" / "again").symlink_to(tmp_path / "run")
    assert len(find_reports([tmp_path / "run"])) == 2
    change(tmp_path / "run")
    with pytest.raises(errors.ReportError, match=sentence):
        find_reports([tmp_path / "run"])


def test_a_glob_of_any_depth_ends_where_links_lead_back(tmp_path: Path) -> None:
    report = write_to(tmp_path / "run" / "a" / "rank0.sqlite")
    for place in range(6):
        (tmp_path / "run" / "a" / f"link{place}").symlink_to(tmp_path / "run")
    assert find_reports([f"{tmp_path}/run/**/*.sqlite"]) == [report]


@pytest.mark.parametrize("form", ["pqtdir", "arwdir"])
@pytest.mark.parametrize("length", [10, 4 << 20])
def test_a_text_that_many_rows_share_is_refused_where_it_would_not_fit(length: int, form: str, tmp_path: Path) -> None:
    folder, rows = tmp_path / f"a_{form}", 2000
    write = write_parquet_report if form == "pqtdir" else write_arrow_report
    write(folder, ReportBuilder().tables())
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * length]))
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "value": text})
    if form == "pqtdir":
        pyarrow.parquet.write_table(table, folder / "StringIds.parquet")
    else:
        with pa.OSFile(str(folder / "StringIds.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    if length == 10:
        assert open_report(folder).strings["value"].to_list() == ["x" * length] * rows
    else:
        with pytest.raises(errors.DamagedReport, match="its texts take more than"):
            open_report(folder).strings  # noqa: B018
