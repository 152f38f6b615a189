"""Reports of all forms with a row in every table, and something else in the place of what nsys writes."""

import functools
import os
import random
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet
from support.failed_runs import small_report
from support.hostile_report import AtRandom, write_hostile_report
from support.whole_report import whole_report

from .commands import run_command
from .oracle import Attempt

_CHANGES = ("--ideal-network", "--no-late-ranks", "--no-launch-cost", "--data-loading", "0.5")
_COMMANDS: tuple[tuple[str, ...], ...] = (
    *[("inspect",), ("translate", "-o", "OUT"), ("efficiency",)] * 2,
    ("translate", "-o", "OUT", "--keep-going"),
    ("translate", "-o", "OUT", "--workers", "2"),
    ("translate", "-o", "OUT", "--fold-streams"),
    ("translate", "-o", "OUT", "--critical-path"),
    ("efficiency", "--keep-going"),
    ("efficiency", "--per-iteration", "step", "--regions", "*", "--window", "500ns:", "--talp", "OUT.talp.json"),
    ("efficiency", "-o", "OUT.html", "--json-file", "OUT.json", "--csv", "OUT.csv"),
    ("whatif", *_CHANGES),
    ("whatif", *_CHANGES, "--scale", "*=1e6", "--json-file", "OUT.json"),
)
"""Commands whose last argument is a report."""
_KEPT = (
    "StringIds", "NVTX_EVENTS", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "PROCESSES",
    "CUPTI_ACTIVITY_KIND_KERNEL"
)  # fmt: skip
_PAGE = 4096
_NUMBERS = [sign * number for number in (1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62) for sign in (1, -1)]
_VALUES: tuple[object, ...] = (
    *(None, 0, *_NUMBERS, 2**63 - 1, -(2**63)),
    *(0.5, -1.5, 1e300, float("inf"), float("-inf"), float("nan")),
    *("", " ", "text", "-1", "1e5", "²", "٣", "9" * 18, "9" * 19, "9" * 5000, "0x10", "NaN", "x" * 65_536),
    *("\0", "a\0b", "a\nb", "\x1b[31m", "\x9b", "\u202e", "{", "[" * 5000, '{"a": 1e999}', '{"a": ' * 900, "(" * 5000),
    *(b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", bytes(range(256)), b"\0" * 65_536),
)


def _of_report(chance: random.Random, name: str) -> Attempt:
    return Attempt((*chance.choice(_COMMANDS), name), "report")


def damaged_bytes(chance: random.Random, folder: Path) -> Attempt:
    """A report, an efficiency as JSON, or rules of kernel families, with other bytes."""
    name = chance.choice(("report.sqlite", "report_pqtdir", "report_arwdir", "rules.csv", "bad.json"))
    is_report = name.startswith("report")
    report = small_report(20).write(folder / (name if is_report else "report.sqlite"))
    if name == "rules.csv":
        (folder / name).write_text('what,value,pattern\nfamily,My {precision} {1},"^kernel_(\\d+), ?"\nprecision,fp64,double\n')
    elif name == "bad.json":
        assert run_command("efficiency", report.name, "--json-file", name, folder=folder).code == 0
    file = chance.choice(sorted(report.iterdir())) if report.is_dir() else folder / name
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 3, 20))):
        _damage(content, chance)
    file.write_bytes(content)
    if name == "bad.json":
        return Attempt(("compare", report.name, name, "--csv", "OUT"), name)
    return _of_report(chance, name) if is_report else Attempt(("efficiency", report.name, "--kernel-families", name), name)


def _damage(content: bytearray, chance: random.Random) -> None:
    """Change some bytes in place."""
    if not content:
        return
    at = chance.randrange(len(content))
    length = min(chance.choice((1, 4, 8, 512, 4096)), len(content) - at)
    kind = chance.randrange(7)
    if kind == 0:
        content[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        content[at : at + length] = bytes(length)
    elif kind == 2:
        content[at : at + length] = chance.randbytes(length)
    elif kind == 3:
        del content[at:]
    elif kind == 4:
        content[at:at] = content[at : at + length]
    elif kind == 5 and len(content) >= _PAGE:
        # A page of a database in the place of another: of another table, or inside its own tree.
        at, other = (_PAGE * chance.randrange(len(content) // _PAGE) for _ in range(2))
        content[at : at + _PAGE] = content[other : other + _PAGE]
    else:
        other = chance.randrange(len(content) - length + 1)
        content[at : at + length] = content[other : other + length]


def hostile_texts(chance: random.Random, folder: Path) -> Attempt:
    """Pieces that try something in texts of a report."""
    write_hostile_report(folder / "report.sqlite", AtRandom(chance, chance.choice((0.05, 0.3, 1.0))))
    return Attempt((*chance.choice(_COMMANDS), "report.sqlite"))


def column_values(chance: random.Random, folder: Path) -> Attempt:
    """Values that nsys does not write in columns of one row or of all."""
    changed = [chance.choice(list(_tables())) for _ in range(chance.choice((1, 1, 2, 5)))]
    with _database(folder, chance, changed) as database:
        for table in changed:
            column, value = chance.choice(_tables()[table].columns), chance.choice(_VALUES)
            as_text = isinstance(value, bytes) and chance.random() < 0.5
            where = chance.choice(("", "where rowid = 1", "where rowid = 2", "where rowid > 1"))
            database.execute(f'update "{table}" set "{column}" = {"cast(? as text)" if as_text else "?"} {where}', (value,))
    return _of_report(chance, "report.sqlite")


def _database(folder: Path, chance: random.Random, changed: list[str]) -> closing[sqlite3.Connection]:
    """The database of a report, without most tables that do not change, which takes less time."""
    shutil.copy(_made(".sqlite"), folder / "report.sqlite")
    database = sqlite3.connect(folder / "report.sqlite", isolation_level=None)
    database.execute("pragma synchronous = off")
    for table in _tables():
        if table not in (*changed, *_KEPT) and chance.random() < 0.93:
            database.execute(f'drop table "{table}"')
    return closing(database)


_ENDLESS = "with recursive r(n) as (select 1 union all select n + 1 from r) select {} from r"
_MODULES = ("fts5(a, b)", "rtree(id, a, b)", "dbstat", "fts3(a, b)", "csv(filename=''/etc/hosts'')")
_FORMULAS = ("1", "abs(-5)", "zeroblob(1000000000)", "'text'", "[start] + 1", "json('[[[')")
_OBJECTS: tuple[Callable[[random.Random, str, list[str]], list[str]], ...] = (
    # A view in the place of a table, which may be called a table.
    lambda chance, table, columns: [
        f'alter table "{table}" rename to kept',
        f'create view "{table}" as '
        + chance.choice(
            (
                _ENDLESS.format(", ".join(f"n as [{name}]" for name in columns)),
                "select * from kept",
                f"select {', '.join(f'randomblob(1000000000) as [{name}]' for name in columns)} from kept",
                "select a.* from kept a, kept b, kept c, kept d",
                f'select * from "{table}"',
            )
        ),
        *chance.choice(([], [f"update sqlite_master set type = 'table' where name = '{table}'"])),
    ],
    lambda chance, table, columns: [
        f'drop table "{table}"',
        "insert into sqlite_master (type, name, tbl_name, rootpage, sql) values "
        f"('table', '{table}', '{table}', 0, 'CREATE VIRTUAL TABLE \"{table}\" using {chance.choice(_MODULES)}')",
    ],
    lambda chance, table, columns: [
        f'alter table "{table}" rename to kept',
        f'create table "{table}" ({", ".join(f"[{name}]" for name in columns[1:])}, '
        f"[{columns[0]}] as ({chance.choice(_FORMULAS)}) {chance.choice(('virtual', 'stored'))})",
        f'insert into "{table}" select {", ".join(f"[{name}]" for name in columns[1:])} from kept',
    ],
    lambda chance, table, columns: [f'create trigger t after insert on "{table}" begin delete from "{table}"; end'],
    # An index that has other rows than its table.
    lambda chance, table, columns: [
        f'create index i on "{table}" ([{chance.choice(columns)}])',
        f"update sqlite_master set rootpage = {chance.randrange(60)} where type = 'index'",
    ],
    lambda chance, table, columns: [
        f"update sqlite_master set {chance.choice(('type', 'name', 'tbl_name', 'rootpage'))} = "
        + chance.choice(
            ("null", "0", "1", "-1", "1 << 62", "1.5", "'table'", "'view'", "x'fffe'", "'StringIds'", "'a\nb'", "''")
        )
        + f" where name = '{table}'"
    ],
    lambda chance, table, columns: [
        "update sqlite_master set sql = "
        + chance.choice(
            (
                f"substr(sql, 1, {chance.randrange(60)})",
                f"replace(sql, 'INTEGER', '{chance.choice(('TEXT', 'REAL', 'BLOB', 'INTEGER PRIMARY KEY', ''))}')",
                f"replace(sql, 'CREATE TABLE', '{chance.choice(('create table', 'CREATE VIEW', 'CREATE TEMP TABLE'))}')",
                f"sql || '{chance.choice((' WITHOUT ROWID', ' STRICT', ';drop table StringIds', ' -- '))}'",
                *("null", "5", "x'fffe'", "''", f"'{'(' * 100_000}'"),
            )
        )
        + f" where name = '{table}'"
    ],
    lambda chance, table, columns: [
        f"create table FURTHER_{number} (start integer, [end] integer, globalTid integer)"
        for number in range(chance.choice((300, 3000)))
    ],
    lambda chance, table, columns: [
        f'alter table "{table}" rename column [{chance.choice(columns)}] to '
        + chance.choice(('"select"', '"a""b"', '"x;y"', '"\u202e"', '"a\nb"', f'"{"x" * 5000}"', '""'))
    ],
    lambda chance, table, columns: [f'alter table "{table}" drop column [{chance.choice(columns)}]'],
)
"""Statements that put another object in the place of a table, from its name and columns."""


def sqlite_objects(chance: random.Random, folder: Path) -> Attempt:
    """Other objects than tables in a database."""
    table = chance.choice((*_KEPT, "CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API", "MPI_RANKS"))
    with _database(folder, chance, [table]) as database:
        database.execute("pragma writable_schema = on")
        # What SQLite refuses can't be in a file of its.
        with suppress(sqlite3.Error):
            database.execute("begin")
            for statement in chance.choice(_OBJECTS)(chance, table, _tables()[table].columns):
                database.execute(statement)
        database.execute("commit")
    return _of_report(chance, "report.sqlite")


def folder_tables(chance: random.Random, folder: Path) -> Attempt:
    """Other types, other columns, and other things than files in folders of Parquet and Arrow tables."""
    form, suffix = chance.choice((("_pqtdir", ".parquet"), ("_arwdir", ".arrow")))
    report = Path(shutil.copytree(_made(form), folder / f"report{form}"))
    changed = {chance.choice(list(_tables())) for _ in range(chance.choice((1, 1, 3)))}
    for table in _tables():
        if table not in (*changed, *_KEPT) and chance.random() < 0.93:
            (report / f"{table}{suffix}").unlink()
    for table in sorted(changed):
        file = report / f"{table}{suffix}"
        if chance.random() < 0.25:
            _replace(file, chance)
        else:
            # Parquet lacks some types.
            with suppress(pa.ArrowNotImplementedError):
                _write(_changed(_tables()[table].to_arrow(compat_level=pl.CompatLevel.oldest()), chance), file, chance)
    return _of_report(chance, report.name)


_TYPES: tuple[Callable[[int], pa.Array], ...] = (
    lambda size: pa.array([{"a": 1, "b": "x"}] * size),
    lambda size: pa.array([[1, 2]] * size),
    lambda size: pa.array([[("k", 1)]] * size, pa.map_(pa.string(), pa.int64())),
    lambda size: pa.array(["a"] * size).dictionary_encode(),
    lambda size: pa.array([b"\xff\xfe"] * size),
    lambda size: pa.array([b"\xff" * 4] * size, pa.binary(4)),
    lambda size: pa.array([None] * size, pa.null()),
    lambda size: pa.array([True] * size),
    lambda size: pa.array([0] * size, pa.timestamp("us", tz="UTC")),
    lambda size: pa.array([0] * size, pa.duration("ns")),
    lambda size: pa.array([1] * size, pa.decimal128(38, 0)),
    lambda size: pa.array([float("nan")] * size),
    lambda size: pa.array([2**64 - 1] * size, pa.uint64()),
    lambda size: pa.array([-(2**63)] * size),
    lambda size: pa.array(["9" * 5000] * size, pa.large_string()),
    lambda size: pa.array(["5"] * size, pa.string_view()),
    lambda size: pa.array([None] * size, pa.struct([])),
    lambda size: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\0" * 16] * size, pa.binary(16))),
)
"""Columns of types and values that nsys does not write."""


def _changed(table: pa.Table, chance: random.Random) -> pa.Table:
    place = chance.randrange(table.num_columns)
    name = table.column_names[place]
    other = chance.choice(("", "\0", "x" * 5000, "ü", "a\nb"))
    changes: tuple[Callable[[], pa.Table], ...] = (
        *[lambda: table.set_column(place, name, chance.choice(_TYPES)(table.num_rows))] * 4,
        lambda: table.remove_column(place),
        lambda: table.append_column(name, table.column(place)),
        lambda: table.rename_columns([other if one == name else one for one in table.column_names]),
        lambda: table.slice(0, 0),
    )
    return chance.choice(changes)()


def _write(table: pa.Table, file: Path, chance: random.Random) -> None:
    if file.suffix == ".parquet":
        pa.parquet.write_table(table, file, compression=chance.choice(("none", "zstd")), row_group_size=chance.choice((1, 100)))
        return
    with pa.OSFile(str(file), "wb") as sink, chance.choice((pa.ipc.new_file, pa.ipc.new_stream))(sink, table.schema) as writer:
        writer.write_table(table)


def _replace(file: Path, chance: random.Random) -> None:
    """Put something else in the place of a file."""
    content = file.read_bytes()
    file.unlink()
    chance.choice(
        (
            lambda: os.mkfifo(file),
            file.mkdir,
            lambda: file.symlink_to("nowhere"),
            lambda: file.symlink_to(file.name),
            lambda: file.write_bytes(content[: chance.randrange(len(content))]),
            lambda: file.write_bytes(content + chance.randbytes(100)),
            # The other format under this name.
            lambda: file.write_bytes(chance.choice((b"PAR1", b"ARROW1", b"SQLite format 3\0")) + content),
        )
    )()


@functools.cache
def _tables() -> dict[str, pl.DataFrame]:
    return whole_report().tables()


_LOCK = threading.Lock()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends. Not when the module is imported: processes that are killed import it too."""
    return tempfile.TemporaryDirectory(prefix="whole-report-")


def _made(form: str) -> Path:
    with _LOCK:
        path = Path(_folder().name) / f"report{form}"
        return path if path.exists() else whole_report().write(path)
