"""Numbers out of the pages of a database are those that SQLite gives; what is unusual or damaged is left to SQLite."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys2prv.errors import DamagedReport
from nsys2prv.exports.sqlite_pages import Pages, UnsupportedPage, find_leaves
from nsys2prv.exports.sqlite_tables import SqliteTables
from nsys2prv.exports.stored_columns import StoredTables, store_columns

TABLE = "EVENTS"
SCHEMA: dict[str, Any] = {"start": pl.Int64, "value": pl.Int64, "real": pl.Float64, "none": pl.Int64, "label": pl.String}
EDGES = [0, 1, *(sign * 2**bits + off for bits in (7, 15, 23, 31, 47, 62) for sign in (1, -1) for off in (-1, 0, 1)), -(2**63)]
ROWS = 3000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LEAST_ROWS_OF_PAGES": 1, "ROWS_OF_PART": 700, "STORED_ROWS": 256}.items():
        monkeypatch.setattr(f"nsys2prv.exports.stored_columns.{name}", value)


@pytest.fixture
def by_driver(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each part that the driver reads."""
    parts: list[int] = []
    query = SqliteTables.query

    def counting(self: SqliteTables, *arguments: Any, **named: Any) -> Iterator[Any]:
        parts.append(1)
        return query(self, *arguments, **named)

    monkeypatch.setattr(SqliteTables, "query", counting)
    return parts


def database(path: Path, page_size: int = 512, columns: str = "start integer, value integer, real real, none integer") -> Path:
    chance = random.Random(1)
    rows = [
        (2**40 + 10 * row, chance.choice([*EDGES, None]), chance.choice([None, 1, 2.5, float("inf")]), None)
        for row in range(ROWS)
    ]
    with closing(sqlite3.connect(path)) as made, made:
        made.execute(f"pragma page_size = {page_size}")
        made.execute("create table StringIds (id integer primary key, value text)")
        made.execute(f"create table {TABLE} ({columns}, label text)")
        made.executemany(f"insert into {TABLE} (start, value, real, none) values (?, ?, ?, ?)", rows)
        # Rows that are deleted leave gaps in pages, and pages that are used again.
        made.execute(f"delete from {TABLE} where rowid % 7 = 0")
        made.executemany(f"insert into {TABLE} (start, value, real, none) values (?, ?, ?, ?)", rows[:200])
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as changed, changed:
        for statement in statements:
            changed.execute(statement)


def read(tables: SqliteTables, schema: dict[str, Any] = SCHEMA) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *tables.batches(TABLE, schema, {})])


def stored(path: Path, schema: dict[str, Any] = SCHEMA) -> StoredTables:
    tables = StoredTables(path)
    store_columns({tables: {TABLE: schema}}, path.parent / "columns")
    return tables


def answer(tables: SqliteTables, schema: dict[str, Any] = SCHEMA) -> list[Any] | str:
    """Rows, or the sentence that tells why there are none."""
    try:
        return read(tables, schema).rows()
    except DamagedReport as error:
        return str(error)


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_numbers_are_those_that_sqlite_gives(page_size: int, tmp_path: Path, by_driver: list[int]) -> None:
    path = database(tmp_path / "a.sqlite", page_size)
    found = stored(path)
    assert not by_driver
    assert_frame_equal(read(found), read(SqliteTables(path)))
    stretches = found.stretches(TABLE, 3)
    assert len(stretches) > 1
    for stretch in stretches:
        of_driver = SqliteTables(path).batches(TABLE, SCHEMA, {}, stretch)
        assert_frame_equal(pl.concat(found.batches(TABLE, SCHEMA, {}, stretch)), pl.concat(of_driver))


@pytest.mark.parametrize(
    "statement",
    [
        f"update {TABLE} set label = 'short' where rowid = 2000",
        f"update {TABLE} set label = '{'long' * 50}' where rowid = 2000",
        f"update {TABLE} set label = zeroblob(5000) where rowid = 2000",
        f"update {TABLE} set value = 1.5 where rowid = 2",
        f"alter table {TABLE} add column further integer default 5",
    ],
)
def test_what_is_unusual_is_left_to_sqlite(statement: str, tmp_path: Path, by_driver: list[int]) -> None:
    path = database(tmp_path / "a.sqlite")
    change(path, statement)
    tables = stored(path)
    assert by_driver
    assert answer(tables) == answer(SqliteTables(path))


def test_a_computed_column_before_others_does_not_shift_them(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    database(path, columns="front integer as (start % 9) stored, start integer, value integer, real real, none integer")
    # Then records have as many values as the table has columns that are not computed.
    change(path, f"alter table {TABLE} add column further integer")
    with closing(sqlite3.connect(path)) as opened:
        expected = opened.execute(f"select start, value from {TABLE}").fetchall()
    schema = {"start": pl.Int64, "value": pl.Int64}
    assert read(stored(path, schema), schema).rows() == expected


@pytest.mark.parametrize(("place", "value"), [(0, 5), (0, 0), (3, 255), (3, 0), (4, 0)])
@pytest.mark.parametrize("page", ["inner", "leaf"])
def test_a_damaged_page_is_found_as_sqlite_finds_it(page: str, place: int, value: int, tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite")
    content = bytearray(path.read_bytes())
    with Pages(path) as pages, closing(sqlite3.connect(path)) as opened:
        (root,) = opened.execute("select rootpage from sqlite_master where name = ?", (TABLE,)).fetchone()
        number = root if page == "inner" else int(find_leaves(pages, root, (), (1, 2 * ROWS)).pages[20])
    content[(number - 1) * 512 + place] = value
    path.write_bytes(content)
    assert answer(stored(path)) == answer(SqliteTables(path))


def test_pages_that_refer_to_each_other_end(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as opened:
        (root,) = opened.execute("select rootpage from sqlite_master where name = ?", (TABLE,)).fetchone()
    content = bytearray(path.read_bytes())
    content[(root - 1) * 512 + 8 : (root - 1) * 512 + 12] = root.to_bytes(4, "big")
    path.write_bytes(content)
    with Pages(path) as pages, pytest.raises(UnsupportedPage):
        find_leaves(pages, root, (), (1, 2 * ROWS))


DECLARED = ("integer", "int", "real", "text", "numeric", "blob", "", "integer as (7) stored", "integer as (8) virtual")
values = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 1.0, 1.5, "1", "a", b"a", 2**53, -(2**47)])
)
columns_of_tables = st.lists(st.sampled_from(DECLARED), min_size=1, max_size=5).filter(
    lambda found: any(" as " not in one for one in found)
)


@given(columns_of_tables, st.data())
def test_any_table_is_read_out_of_pages_as_sqlite_reads_it(
    tmp_path_factory: pytest.TempPathFactory, declared: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.sqlite"
    kept = [f"c{place}" for place, kind in enumerate(declared) if " as " not in kind]
    row = st.tuples(*(st.just(value) if data.draw(st.booleans()) else values for value in (3,) * len(kept)))
    rows = data.draw(st.lists(row, max_size=8)) * data.draw(st.sampled_from([1, 50]))
    key = "c0 integer primary key" if data.draw(st.integers(0, 4)) == 0 and declared[0] == "integer" else f"c0 {declared[0]}"
    columns = ", ".join([key, *(f"c{place} {kind}" for place, kind in enumerate(declared) if place)])
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("pragma page_size = 512")
        made.execute("create table StringIds (id integer, value text)")
        made.execute(f"create table {TABLE} ({columns})")
        insert = f"insert or ignore into {TABLE} ({', '.join(kept)}) values ({', '.join('?' * len(kept))})"
        with suppress(sqlite3.IntegrityError):
            made.executemany(insert, rows)
        if data.draw(st.booleans()):
            made.execute(f"alter table {TABLE} add column late integer default 5")
            with suppress(sqlite3.IntegrityError):
                made.executemany(insert, rows[:3])
        names = [name for _, name, *_ in made.execute(f"pragma table_info({TABLE})")]
        expected = made.execute(f"select {', '.join(names)} from {TABLE}").fetchall()
    schema = {name: data.draw(st.sampled_from([pl.Int64, pl.Float64])) for name in names}

    found = answer(stored(path, schema), schema)

    assert found == answer(SqliteTables(path), schema)
    whole = [place for place, dtype in enumerate(schema.values()) if dtype == pl.Int64]
    if all(isinstance(row[place], int | None) for row in expected for place in whole):
        assert not isinstance(found, str)
        assert [[row[place] for place in whole] for row in found] == [[row[place] for place in whole] for row in expected]
