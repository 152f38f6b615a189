"""Databases in which something else than a table stands in the place of a table, or is beside it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from .commands import Commands
from .oracle import Surroundings, fault_of_reading
from .report_commands import REPORT_COMMANDS
from .whole_report import whole_tables, write_whole_report

_ENDLESS = "with recursive r(n) as (select 1 union all select n + 1 from r)"
_NAMES = (
    "select",
    "a b",
    'a"b',
    "a'b",
    "x;y",
    "ü",
    "\u202e",
    "a\nb",
    "a\0b",
    "x" * 5000,
    "",
    "sqlite_x",
    "NVTX_EVENTS ",
    "nvtx_events",
)
_EVENTS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds", "OSRT_API", "MPI_RANKS")
_ALWAYS = (*_EVENTS, "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "PROCESSES")

_TYPES = ("TEXT", "REAL", "BLOB", "INTEGER PRIMARY KEY", "INT DEFAULT (random())", "")
_BEGINS = ("create table", "CREATE VIEW", "CREATE TABLE IF NOT EXISTS", "CREATE TEMP TABLE")

Change = Callable[[sqlite3.Connection, str, random.Random], None]


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in database.execute(f'pragma table_info("{table}")')]


def _view(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    columns = _columns(database, table)
    body = chance.choice(
        (
            f"{_ENDLESS} select {', '.join(f'n as [{name}]' for name in columns)} from r",
            f'select * from "kept_{table}"',
            f'select {", ".join(f"randomblob(1000000000) as [{name}]" for name in columns)} from "kept_{table}"',
            f'select a.* from "kept_{table}" a, "kept_{table}" b, "kept_{table}" c, "kept_{table}" d',
            f'select * from "{table}"',
        )
    )
    database.execute(f'alter table "{table}" rename to "kept_{table}"')
    database.execute(f'create view "{table}" as {body}')
    if chance.random() < 0.5:
        _edit_schema(database, f"update sqlite_master set type = 'table' where name = '{table}'")


def _virtual(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    columns = ", ".join(f"[{name}]" for name in _columns(database, table))
    database.execute(f'drop table "{table}"')
    module = chance.choice((f"fts5({columns})", f"rtree(id, {columns})", "dbstat", "fts3(a, b)", "csv(filename='/etc/hosts')"))
    try:
        database.execute(f'create virtual table "{table}" using {module}')
    except sqlite3.Error:
        sql = f'CREATE VIRTUAL TABLE "{table}" using {module}'.replace("'", "''")
        _edit_schema(
            database,
            f"insert into sqlite_master (type, name, tbl_name, rootpage, sql) values ('table','{table}','{table}',0,'{sql}')",
        )


def _generated(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    columns = _columns(database, table)
    computed = chance.choice(columns)
    formula = chance.choice(
        ("1", "abs(-5)", "zeroblob(1000000000)", "'text'", f"[{chance.choice(columns)}] + 1", "json('[[[')")
    )
    others = [name for name in columns if name != computed]
    if not others:
        return
    kind = chance.choice(("virtual", "stored"))
    database.execute(f'alter table "{table}" rename to "kept_{table}"')
    definition = ", ".join([*(f"[{name}]" for name in others), f"[{computed}] as ({formula}) {kind}"])
    try:
        database.execute(f'create table "{table}" ({definition})')
        names = ", ".join(f"[{name}]" for name in others)
        database.execute(f'insert into "{table}" ({names}) select {names} from "kept_{table}"')
    except sqlite3.Error:
        # A formula over the column itself, or one that is too large to be stored.
        return


def _trigger(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    database.execute(f'create trigger t_{chance.randrange(10**6)} after insert on "{table}" begin delete from "{table}"; end')


def _index(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    column = chance.choice(_columns(database, table))
    database.execute(f'create index i_{chance.randrange(10**6)} on "{table}" ([{column}]) {chance.choice(("", "where 1"))}')
    if chance.random() < 0.5:
        # An index that has other rows than its table.
        _edit_schema(
            database,
            "update sqlite_master set rootpage = (select max(rootpage) from sqlite_master where type = 'index') "
            "where type = 'index'",
        )


def _schema_text(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    (sql,) = database.execute("select sql from sqlite_master where name = ?", (table,)).fetchone()
    place = chance.randrange(len(sql))
    other = chance.choice(
        (
            sql[:place],
            sql[:place] + chance.choice("()\"',;\0\x80x1 -") + sql[place + 1 :],
            sql[:place] + sql[place // 2 :],
            sql.replace("INTEGER", chance.choice(_TYPES)),
            sql.replace("CREATE TABLE", chance.choice(_BEGINS)),
            sql + chance.choice((" WITHOUT ROWID", " STRICT", ";drop table StringIds", " -- ")),
            None, 5, b"\xff\xfe", "", "(" * 100_000, "CREATE TABLE x(" + ",".join(f"c{i}" for i in range(3000)) + ")",
        )
    )  # fmt: skip
    _edit_schema(database, "update sqlite_master set sql = ? where name = ?", (other, table))


def _schema_row(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    column = chance.choice(("type", "name", "tbl_name", "rootpage"))
    value = chance.choice(
        (None, 0, 1, 2, -1, 2**31, 2**62, 1.5, "table", "view", "index", b"\xff\xfe", "x" * 65_536, "StringIds", *_NAMES)
    )
    _edit_schema(database, f"update sqlite_master set {column} = ? where name = ?", (value, table))


def _same_pages(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    other = chance.choice(_EVENTS)
    _edit_schema(
        database,
        "update sqlite_master set rootpage = (select rootpage from sqlite_master where name = ?) where name = ?",
        (other, table),
    )


def _many_tables(database: sqlite3.Connection, _table: str, chance: random.Random) -> None:
    database.execute("begin")
    for number in range(chance.choice((300, 3000, 6000))):
        database.execute(f"create table FURTHER_{number} (start integer, [end] integer, globalTid integer)")
    database.execute("commit")


def _names(database: sqlite3.Connection, table: str, chance: random.Random) -> None:
    name = chance.choice(_NAMES)
    column = chance.choice(_columns(database, table))
    done = chance.choice(
        (f'alter table "{table}" rename column [{column}] to {_quoted(name)}', f"create table {_quoted(name)} (start, [end])",
         f'alter table "{table}" add column {_quoted(name)}', f'alter table "{table}" drop column [{column}]')
    )  # fmt: skip
    try:
        database.execute(done)
    except (sqlite3.Error, ValueError):
        # What SQLite refuses can't be in a file of its.
        return


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _edit_schema(database: sqlite3.Connection, sql: str, values: tuple[object, ...] = ()) -> None:
    database.execute("pragma writable_schema = on")
    database.execute(sql, values)


CHANGES: tuple[Change, ...] = (
    _view, _virtual, _generated, _trigger, _index, _schema_text, _schema_text, _schema_row, _schema_row, _same_pages,
    _many_tables, _names,
)  # fmt: skip


class SqliteObjects:
    name = "sqlite-objects"
    description = "views, virtual tables, triggers, generated columns, other schemas, thousands of tables in SQLite exports"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        report = folder / "report.sqlite"
        write_whole_report(report)
        table = chance.choice(_EVENTS)
        change = chance.choice(CHANGES)
        with closing(sqlite3.connect(report, isolation_level=None)) as database:
            database.execute("pragma synchronous = off")
            for other in whole_tables():
                if other not in _ALWAYS:
                    database.execute(f'drop table "{other}"')
            change(database, table, chance)
        (folder / "change.txt").write_text(f"{change.__name__} {table}\n")
        before = Surroundings(folder)
        command = chance.choice(REPORT_COMMANDS)
        run = commands.run(*command, "report.sqlite", folder=folder)
        return fault_of_reading(run, before, names="report")
