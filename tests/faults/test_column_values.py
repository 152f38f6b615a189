"""Any value in any column of an SQLite export: a trace, or a sentence that names the report."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from support import rest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

from nsys2prv.errors import DamagedReport, NotAReport
from nsys2prv.exports import open_report
from nsys2prv.timeline.coverage import INEXACT

BAD_REPORT = 3
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def write_changed(command_line: CommandLine, change: str, *values: object) -> None:
    """x.sqlite, with three kernels and a change."""
    with closing(sqlite3.connect(small_report().write(command_line.folder / "x.sqlite"))) as database, database:
        database.execute(f"update {change}", values)


@pytest.mark.parametrize(
    ("change", "value", "says"),
    [
        *(
            (f"{column} = ? where rowid = 2", value, KERNELS)
            for column in ("start", "end")
            for value in ("soon", b"\xff\0", "²")
        ),
        ("start = ? where rowid = 1", -(2**63), "no time of a session"),
        *(("streamId = cast(? as text)", value, "column streamId") for value in ("soon", b"\xff\0", b"\xed\xa0\x80")),
    ],
    ids=ascii,
)
def test_a_text_or_what_is_no_time_is_an_error_of_the_report(
    change: str, value: object, says: str, command_line: CommandLine
) -> None:
    write_changed(command_line, f"{KERNELS} set {change}", value)
    sentence(command_line.run("translate", "x.sqlite", "-o", "OUT"), BAD_REPORT, "x.sqlite", says)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("META_DATA_EXPORT set value = ?", "²"),
        ("META_DATA_EXPORT set value = ?", "9" * 5000),
        ("TARGET_INFO_SYSTEM_ENV set value = ?", "²"),
        ("TARGET_INFO_SYSTEM_ENV set value = ?", "9" * 5000),
        (f"{KERNELS} set deviceId = ?", -1),
    ],
    ids=lambda part: str(part)[:22],
)
def test_odd_numbers_and_names_are_no_reason_to_fail(change: str, value: object, command_line: CommandLine) -> None:
    write_changed(command_line, change, value)
    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0
    assert command_line.run("check", "OUT.prv").returncode == 0


@pytest.mark.parametrize("form", ["x.sqlite", "x_pqtdir"])
def test_one_damaged_end_makes_no_trace_of_centuries(form: str, command_line: CommandLine) -> None:
    report = small_report()
    report.kernel("late", 500, 2**62)
    report.write(command_line.folder / form)
    sentence(command_line.run("translate", form, "-o", "OUT"), BAD_REPORT, form, "53,376 days", "CUPTI_ACTIVITY_KIND_KERNEL")


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), *rest(-(2**53) - 1, 2**63 - 1)])
def test_values_that_no_tool_shows_exactly_are_left_out_and_counted(number: int, command_line: CommandLine) -> None:
    report = small_report(1, context=number, stream=number)
    report.copy(100, 120, number, launch=(90, 95))
    report.nvtx_range("step", 0, 200, payload={"batch": number}).nvtx_range("layer", 0, 100, int64Value=number)
    report.metric("power", 50, number)
    report.write(command_line.folder / "x.sqlite")

    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0

    assert command_line.run("check", "OUT.prv").returncode == 0
    account = json.loads((command_line.folder / "OUT.json").read_text())["reports"][0]["tables"]
    sources = [source for table in account for source in table["sources"]]
    assert sum(source["repaired"] for source in sources) >= 2
    assert {INEXACT: 1} in [source["left_out"] for source in sources]


def test_an_event_without_a_name_for_what_it_is_is_left_out(command_line: CommandLine) -> None:
    report = small_report()
    report.copy(100, 120, 4096, launch=(90, 95), copyKind=None)
    report.write(command_line.folder / "x.sqlite")
    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0
    assert command_line.run("check", "OUT.prv").returncode == 0


def test_overhead_can_be_chosen_alone(command_line: CommandLine) -> None:
    report = small_report()
    report.row("PROFILER_OVERHEAD", start=0, end=5, globalTid=report.global_tid(), nameId=1)
    report.write(command_line.folder / "x.sqlite")
    assert command_line.run("translate", "x.sqlite", "-o", "OUT", "--only", "overhead").returncode == 0
    tables = json.loads((command_line.folder / "OUT.json").read_text())["reports"][0]["tables"]
    assert [(one["source"], one["written"]) for table in tables for one in table["sources"]] == [("overhead", 1)]


# -- folders of Parquet and Arrow files that are damaged, or hold other things than tables of nsys -------
OTHER_TYPES = {
    "struct": pa.array([{"a": 1}] * 3),
    "list": pa.array([[1]] * 3),
    "text": pa.array(["soon"] * 3),
    "time": pa.array([0] * 3, pa.timestamp("ns")),
    "dictionary": pa.array(["a"] * 3).dictionary_encode(),
}


@pytest.fixture(params=["x_pqtdir", "x_arwdir"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return small_report().write(tmp_path / request.param)


def kernel_file(folder: Path) -> Path:
    return next(folder.glob(f"{KERNELS}.*"))


def write(table: pa.Table, file: Path) -> None:
    if file.suffix == ".parquet":
        pa.parquet.write_table(table, file)
    else:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def kernels() -> pa.Table:
    frame = small_report().tables()[KERNELS]
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_column_of_another_type_is_an_error_of_its_file(kind: str, folder: Path) -> None:
    table = kernels()
    place = table.column_names.index("streamId")
    write(table.set_column(place, "streamId", OTHER_TYPES[kind]), kernel_file(folder))
    report = open_report(folder)
    with pytest.raises(DamagedReport, match=rf"{KERNELS}\.\w+: .*column streamId is of type"):
        report.collect(report.scan(KERNELS, ("streamId",)))


def test_a_column_that_is_there_twice_is_an_error_of_its_file(folder: Path) -> None:
    table = kernels()
    write(table.append_column("start", table["end"]), kernel_file(folder))
    report = open_report(folder)
    with pytest.raises(DamagedReport, match=KERNELS):
        report.collect(report.scan(KERNELS, ("start",)))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_opened(make: object, folder: Path) -> None:
    file = kernel_file(folder)
    file.unlink()
    assert callable(make)
    make(file)
    with pytest.raises(NotAReport, match=f"{file.name} is no file"):
        open_report(folder)


def test_a_first_time_that_is_none_is_an_error_of_the_report(folder: Path) -> None:
    table = kernels()
    place = table.column_names.index("start")
    write(table.set_column(place, "start", pa.array([-(2**63), 0, 1])), kernel_file(folder))
    with pytest.raises(DamagedReport, match="is no time of a session"):
        open_report(folder)


def test_more_rows_than_a_file_can_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_report().write(tmp_path / "x_pqtdir")
    monkeypatch.setattr("nsys2prv.exports.folder_tables.MOST_ROWS", 10)
    monkeypatch.setattr("nsys2prv.exports.folder_tables.MOST_ROWS_PER_BYTE", 0)
    pl.DataFrame({"start": [0] * 100, "end": [1] * 100}).write_parquet(kernel_file(folder))
    report = open_report(folder)
    with pytest.raises(DamagedReport, match="100 rows don't fit into it"):
        report.scan(KERNELS, ("start",))


def test_more_columns_than_any_table_has_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys2prv.exports.folder_tables.MOST_COLUMNS", 5)
    with pytest.raises(DamagedReport, match="more than 5 columns"):
        open_report(folder).has(KERNELS, "start")


def as_streams(folder: Path) -> Path:
    """The tables of a folder in Arrow's stream format."""
    for file in folder.glob("*.arrow"):
        with pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        file.unlink()
        with pa.OSFile(str(file), "wb") as target, pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table)
    return folder


def test_offsets_of_texts_that_lead_outside_are_refused(tmp_path: Path, command_line: CommandLine) -> None:
    report = as_streams(small_report(30).write(tmp_path / "rank0_arwdir"))
    table = report / "StringIds.arrow"
    content = table.read_bytes()
    with pa.ipc.open_stream(table) as reader:
        offsets = reader.read_all()["value"].chunk(0).buffers()[1].to_pybytes()
    assert content.count(offsets) == 1
    # All but the first and the last, which sizes of buffers are checked against.
    wrong = offsets[:8] + b"\x7f" * (len(offsets) - 16) + offsets[-8:]
    table.write_bytes(content.replace(offsets, wrong))
    sentence(command_line.run("translate", report, "-o", "OUT"), BAD_REPORT, "StringIds.arrow")
