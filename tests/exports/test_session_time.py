"""Exports with times in UTC or shifted by a constant give what the same report gives without; contradictions are found."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import rest
from support.export_folders import write_arrow_report, write_parquet_report
from support.nsys_columns import COLUMNS
from support.report_builder import ReportBuilder
from support.shifted_exports import shifted_tables

from nsys2prv.demo import write_report
from nsys2prv.exports import describe, open_report
from nsys2prv.exports.columns import TIME_COLUMNS
from nsys2prv.exports.session_time import SessionTime
from nsys2prv.run.inspect import inspect
from nsys2prv.run.options import NvtxRange
from nsys2prv.sources.registry import SOURCES
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

START = 1_700_000_000_123_456_789
"""Start of the sessions in UTC, ns."""
SECOND = 1_000_000_000

FORMS = {".sqlite": write_report, "_pqtdir": write_parquet_report, "_arwdir": write_arrow_report}


def report(rank: int = 0) -> ReportBuilder:
    """A report with times of every kind: intervals, marks, samples, events of plugins, handles that are used again."""
    made = ReportBuilder(host=f"node{rank}", rank=rank, ranks=2, with_mpi=True, utc_ns=START + 1000 * rank)
    made.gpu().context()
    made.kernel("gemm", 5000, 9000, launch=(1000, 2000))
    made.copy(9500, 9900, 1024, launch=(3000, 3500))
    made.nvtx_range("step", 900, 10_000).nvtx_range("never closed", 9100, None).nvtx_mark("here", 4000)
    made.os_call("read", 200, 700)
    made.on_cpu(-500, 15_000, cpu=1).cpu_sample(800, [("f", "a.so")])
    made.metric("SM Active", 100, 50).metric("SM Active", 6000, 70)
    made.plugin_event("network", "counters", 400, {"bytes": 1}).plugin_event(
        "network", "counters", None, {"bytes": 5}, raw_time=800
    )
    made.communicator(7, rank=rank, size=2, parent=94577367172512, time=10_050, group=(0, 1))
    made.mpi_p2p("MPI_Send" if rank == 0 else "MPI_Recv", 10_100, 10_900, partner=1 - rank, size=64, communicator=7)
    made.mpi_collective("MPI_Barrier", 11_000, 12_000).diagnostic("Some CUPTI events were lost", time=3000)
    return made


def export(folder: Path, rank: int, form: str, *, utc: int = 0, shift: int = 0) -> Path:
    path = folder / f"rank{rank}{form}"
    folder.mkdir(parents=True, exist_ok=True)
    FORMS[form](path, shifted_tables(report(rank).tables(), utc=utc, shift=shift))
    return path


def trace_of(folder: Path, *reports: Path, **options: Any) -> tuple[bytes, ...]:
    translated = translate(list(reports), folder / "trace", TranslateOptions(no_views=True, **options)).prv
    return tuple(translated.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row"))


@pytest.fixture(scope="module")
def unshifted(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ...]:
    folder = tmp_path_factory.mktemp("unshifted")
    return trace_of(folder, *(export(folder, rank, ".sqlite") for rank in range(2)))


@pytest.mark.parametrize(
    ("form", "utc", "shift"),
    [
        # Nothing says that nsys takes the start that it reports.
        ("_arwdir", START + 7, 3 * SECOND),
        pytest.param("_pqtdir", START, -5000, marks=pytest.mark.thorough),
        *rest(
            *((".sqlite", START, 0), ("_arwdir", 0, 40 * SECOND), (".sqlite", 0, -5000), ("_pqtdir", 0, -40 * SECOND)),
            # To a common start of all reports.
            *((".sqlite", START, -START), (".sqlite", 0, START)),
        ),
    ],
)
def test_a_shifted_export_gives_the_same_trace(
    tmp_path: Path, unshifted: tuple[bytes, ...], form: str, utc: int, shift: int
) -> None:
    reports = [export(tmp_path, rank, form, utc=utc + 1000 * rank if utc else 0, shift=shift) for rank in range(2)]
    assert trace_of(tmp_path, *reports) == unshifted
    assert describe(open_report(reports[0])).warnings == describe(open_report(export(tmp_path / "plain", 0, form))).warnings


def test_shifted_and_unshifted_exports_of_one_run_go_together(tmp_path: Path, unshifted: tuple[bytes, ...]) -> None:
    assert trace_of(tmp_path, export(tmp_path, 0, "_pqtdir"), export(tmp_path, 1, ".sqlite", utc=START + 1000)) == unshifted


@pytest.mark.parametrize("nvtx", [None, pytest.param(NvtxRange("step"), marks=pytest.mark.thorough)])
def test_times_are_chosen_in_time_of_the_session(tmp_path: Path, nvtx: NvtxRange | None) -> None:
    plain, shifted = (
        trace_of(tmp_path / name, export(tmp_path / name, 0, ".sqlite", utc=utc), time="2us:9us", nvtx=nvtx)
        for name, utc in (("plain", 0), ("shifted", START))
    )
    assert shifted == plain


def test_the_first_and_last_time_are_those_of_the_session(tmp_path: Path) -> None:
    plain, shifted = inspect(
        [export(tmp_path / "a", 0, ".sqlite"), export(tmp_path / "b", 0, ".sqlite", utc=START, shift=-777)]
    )
    assert (shifted["first_ns"], shifted["last_ns"]) == (plain["first_ns"], plain["last_ns"]) == (-500, 15_000)


def test_pieces_and_chosen_rows_have_times_of_the_session(tmp_path: Path) -> None:
    opened = open_report(export(tmp_path, 0, ".sqlite", utc=START))
    marks = opened.collect(opened.scan("NVTX_EVENTS", ("start",), ("end",), only={"eventType": (34,)}))
    assert marks.rows() == [(4000, None)]
    in_pieces = opened.pieces(
        lambda one: one.scan_events("SCHED_EVENTS", ("start",), (), None).filter(pl.col("start") > 0), rows=1
    )
    assert [piece.rows() for piece in in_pieces if piece.height] == [[(15_000,)]]


def test_the_start_of_the_session_is_in_times_in_utc(tmp_path: Path) -> None:
    tables = shifted_tables(report().tables(), utc=START)
    del tables["TARGET_INFO_SESSION_START_TIME"]
    write_report(tmp_path / "a.sqlite", tables)
    assert describe(open_report(tmp_path / "a.sqlite")).utc_ns == START


def test_exports_that_do_not_tell_the_sum_tell_its_options(tmp_path: Path) -> None:
    tables = shifted_tables(report().tables(), utc=START)
    tables["META_DATA_EXPORT"] = tables["META_DATA_EXPORT"].filter(pl.col("name") != "EXPORT_CONFIG_TIME_SHIFT")
    write_report(tmp_path / "a.sqlite", tables)
    assert open_report(tmp_path / "a.sqlite").session_time == SessionTime(START)


def _without_metadata(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return tables | {"META_DATA_EXPORT": report().tables()["META_DATA_EXPORT"]}


def _metadata_only(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return report().tables() | {"META_DATA_EXPORT": tables["META_DATA_EXPORT"]}


def _only_of_one_table(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return tables | {"OSRT_API": report().tables()["OSRT_API"]}


@pytest.mark.parametrize(
    ("utc", "shift", "change", "sentence"),
    [
        (
            START, 0, _metadata_only,
            r"reports times in UTC from 2023-11-14 22:13:20 on, but those of COMPOSITE_EVENTS, "
            r".* and \d more are counted from the start of the session: they are read as such",
        ),
        (
            START, 5 * SECOND, _metadata_only,
            r"reports times in UTC .* but they begin at -500 ns: they are read as times from the start of the session",
        ),
        (
            0, 40 * SECOND, _metadata_only,
            r"reports times shifted by 40\.0+ s, but they begin at -500 ns: "
            r"they are read as times from the start of the session$",
        ),
        (0, -100_000 * SECOND, _metadata_only, r"reports times shifted by -100000\.0+ s, but they begin at -500 ns"),
        (
            START, 0, _without_metadata,
            r"reports times from the start of the session, but they begin at 1,700,000,000,123,456,289 ns: "
            r"they are read as times in UTC from 2023-11-14 22:13:20 on",
        ),
        (
            START, 0, _only_of_one_table,
            r"reports times in UTC .*, but those of OSRT_API are counted from the start of the session: they are read as such",
        ),
    ],
)  # fmt: skip
def test_metadata_that_contradict_the_times_are_found(
    tmp_path: Path, utc: int, shift: int, change: Callable[[dict[str, pl.DataFrame]], dict[str, pl.DataFrame]], sentence: str
) -> None:
    write_parquet_report(tmp_path / "rank0_pqtdir", change(shifted_tables(report().tables(), utc=utc, shift=shift)))
    opened, plain = open_report(tmp_path / "rank0_pqtdir"), open_report(export(tmp_path, 0, ".sqlite"))
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "OSRT_API", "SCHED_EVENTS", "NVTX_EVENTS"):
        found, wanted = (one.collect(one.scan(table, ("start",))).to_series() for one in (opened, plain))
        assert found.to_list() == wanted.to_list()
    warnings = describe(opened).warnings
    assert [warning for warning in warnings if re.search(sentence, warning)], warnings


def test_times_that_no_session_has_begin_at_its_start(tmp_path: Path) -> None:
    """Shifted by nobody knows what: neither the metadata nor the start of the session explain it."""
    tables = shifted_tables(report().tables(), utc=START - 10**17)
    write_report(tmp_path / "a.sqlite", _without_metadata(tables))
    opened = open_report(tmp_path / "a.sqlite")
    assert opened.session_time.at(START - 10**17 - 500) == 0
    assert opened.session_time.warning.endswith("they are read as times shifted by 1600000000.123456240 s")
    assert describe(opened).utc_ns == START


def test_times_long_before_the_session_are_told(tmp_path: Path) -> None:
    write_report(tmp_path / "a.sqlite", _without_metadata(shifted_tables(report().tables(), shift=-40 * SECOND)))
    assert "but they begin at -40,000,000,500 ns" in open_report(tmp_path / "a.sqlite").session_time.warning


def test_domains_that_were_made_before_the_session_contradict_nothing(tmp_path: Path) -> None:
    made = ReportBuilder()
    made.row("NVTX_EVENTS", start=-40 * SECOND, eventType=75, text="TensorRT", globalTid=made.global_tid(), domainId=1)
    assert open_report(made.nvtx_range("work", 100, 200).write(tmp_path / "a.sqlite")).session_time.warning == ""


def test_a_recording_that_starts_late_contradicts_nothing(tmp_path: Path) -> None:
    late = 2 * 24 * 3600 * SECOND
    made = ReportBuilder(utc_ns=START)
    made.os_call("read", late, late + 5)
    assert open_report(made.write(tmp_path / "a.sqlite")).session_time == SessionTime()


NO_TIMES_OF_EVENTS = {
    "endGlobalTid": "a thread",
    "clockRate": "Hz",
    "duration": "a length",
    "startTime": "counted from the start of the session, or from that of the monotonic clock",
    "stopTime": "the same",
    "utcEpochNs": "start of the session, of another clock",
    "utcTime": "the same",
    "localTime": "the same",
    "systemClockNs": "the same, of the monotonic clock",
    "timestampType": "a number of a type",
    "timeSourceId": "a number of a source",
    "vendorId": "a number of a vendor",
}
LIKE_A_TIME = re.compile(r"(?i)time|stamp|start|end(?![a-z])|begin|stop|Ns$|duration|clock|At$")


def test_every_column_of_times_is_known() -> None:
    """A column of a time is of the session, or it is one of those that are not."""
    named = {column for columns in COLUMNS.values() for column in columns if LIKE_A_TIME.search(column)}
    assert named - NO_TIMES_OF_EVENTS.keys() == TIME_COLUMNS


def test_every_source_reads_its_times_as_times() -> None:
    read = set(itertools.chain.from_iterable(source.times for source in SOURCES if isinstance(source.times, tuple)))
    assert read <= TIME_COLUMNS
    columns = {str(column) for source in SOURCES for column in (*source.required, *source.optional)}
    assert {column for column in columns if LIKE_A_TIME.search(column)} - NO_TIMES_OF_EVENTS.keys() <= TIME_COLUMNS
