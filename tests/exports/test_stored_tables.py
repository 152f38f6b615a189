"""Tables that are read once: what is stored of them answers as the database does, and what is not stored is read from it."""

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.report_builder import ReportBuilder

from nsys2prv.demo import write_report
from nsys2prv.exports.sqlite_tables import SqliteTables
from nsys2prv.exports.stored_columns import StoredTables, store_columns
from nsys2prv.sources.registry import SOURCES
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

TABLE = "NVTX_EVENTS"
SCHEMA: dict[str, Any] = {
    "start": pl.Int64, "end": pl.Int64, "eventType": pl.Int64, "globalTid": pl.Int64, "text": pl.String,
    "doubleValue": pl.Float64, "binaryData": pl.Binary, "category": pl.Int64,
}  # fmt: skip
ROWS = 1000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few hundred rows are stored in parts and batches."""
    monkeypatch.setattr("nsys2prv.exports.stored_columns.ROWS_OF_PART", 200)
    monkeypatch.setattr("nsys2prv.exports.stored_columns.STORED_ROWS", 64)


@pytest.fixture
def rows_queried(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rows that were read of each table out of databases."""
    counted: Counter[str] = Counter()
    query = SqliteTables.query

    def counting(self: SqliteTables, table: str, *arguments: Any, **named: Any) -> Iterator[Any]:
        for batch in query(self, table, *arguments, **named):
            counted[table] += batch.height
            yield batch

    monkeypatch.setattr(SqliteTables, "query", counting)
    return counted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = range(ROWS)
    events = {
        "start": [2**40 + 10 * row for row in rows],
        "end": [None if row % 7 == 0 else 2**40 + 10 * row + 5 for row in rows],
        "eventType": [59 + row % 2 for row in rows],
        "globalTid": [2**48 - 1] * ROWS,
        "text": [None if row % 3 == 0 else f"näme {row % 5}" for row in rows],
        "doubleValue": [None if row % 11 else row / 4 for row in rows],
        "binaryData": [None if row % 13 else b"\xff\x00" for row in rows],
        "category": [None] * ROWS,
    }
    write_report(tmp_path / "a.sqlite", {**ReportBuilder().tables(), TABLE: pl.DataFrame(events)})
    return tmp_path / "a.sqlite"


def stored(path: Path, schema: dict[str, Any] = SCHEMA) -> StoredTables:
    tables = StoredTables(path)
    store_columns({tables: {TABLE: schema}}, path.parent / "columns")
    return tables


def answers(tables: SqliteTables, only: dict[str, Any]) -> dict[str, pl.DataFrame]:
    return {
        "scan": tables.scan(TABLE, SCHEMA, only).collect(),
        "some": tables.scan(TABLE, SCHEMA, only).select("text", "end").collect(),
        "rows": tables.scan(TABLE, SCHEMA, only).select(pl.len()).collect(),
        "read": tables.read(TABLE, SCHEMA),
        "batches": pl.concat([pl.DataFrame(schema=SCHEMA), *tables.batches(TABLE, SCHEMA, only)]),
    }


@pytest.mark.parametrize("only", [{}, {"eventType": (60,)}, {"eventType": (7,)}], ids=["all", "some", "none"])
def test_what_is_stored_answers_as_the_database_does(only: dict[str, Any], path: Path, rows_queried: Counter[str]) -> None:
    database, files = SqliteTables(path), stored(path)
    expected = answers(database, only)
    extent = database.extent(TABLE, "start", "end", only)
    rows_queried.clear()

    found = answers(files, only)

    for name, frame in expected.items():
        assert_frame_equal(found[name], frame)
    assert files.extent(TABLE, "start", "end", only) == extent
    assert files.row_count(TABLE) == database.row_count(TABLE)
    assert not rows_queried


def test_stretches_are_the_table_whether_columns_are_stored_or_not(path: Path) -> None:
    files = stored(path, {name: dtype for name, dtype in SCHEMA.items() if name != "text"})
    for count in (1, 2, 3, 50):
        stretches = files.stretches(TABLE, count)
        for columns in ({"start": pl.Int64}, {"start": pl.Int64, "text": pl.String}):
            batches = [batch for stretch in stretches for batch in files.batches(TABLE, columns, {}, stretch)]
            assert_frame_equal(pl.concat(batches), SqliteTables(path).scan(TABLE, columns, {}).collect())
    assert len(files.stretches(TABLE, 3)) == 3


def test_other_processes_read_what_is_stored(path: Path, rows_queried: Counter[str]) -> None:
    files = pickle.loads(pickle.dumps(stored(path)))
    rows_queried.clear()
    assert files.scan(TABLE, SCHEMA, {}).collect().height == ROWS
    assert not rows_queried


def test_without_what_was_kept_the_database_answers(path: Path, rows_queried: Counter[str]) -> None:
    tables = stored(path)
    kept = answers(tables, {"eventType": (60,)})
    rows_queried.clear()
    tables.delete_kept()
    assert not [file for file in (path.parent / "columns").rglob("*") if file.is_file()]
    for name, found in answers(tables, {"eventType": (60,)}).items():
        assert_frame_equal(found, kept[name])
    assert rows_queried[TABLE]


def test_a_translation_reads_each_table_once(tmp_path: Path, rows_queried: Counter[str]) -> None:
    report = ReportBuilder()
    launches = [report.api_call("cudaLaunchKernel_v7000", 100 * k, 100 * k + 10) for k in range(5)]
    for number, launch in enumerate(launches):
        report.kernel("gemm", 100 * number + 50, 100 * number + 90, correlation=launch)
    report.nvtx_range("step", 0, 450)
    counts = {name: frame.height for name, frame in report.tables().items()}

    translate([report.write(tmp_path / "a.sqlite")], tmp_path / "trace", TranslateOptions(no_views=True))

    of_sources = {source.table for source in SOURCES} & rows_queried.keys()
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"} <= of_sources
    # Names of threads are looked for in NVTX events before.
    assert {table: rows_queried[table] for table in of_sources} == {table: counts[table] for table in of_sources}
