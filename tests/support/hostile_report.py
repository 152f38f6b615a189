"""Reports in which every text tries something: to end a line, to run as script, formula or template, to move the cursor."""

import json
import random
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from nsys2prv.demo.cluster import Cluster, generate
from nsys2prv.demo.nsys_tables import ENUMERATIONS, write_report

from .nccl_regions import payload_blob
from .nsys_columns import COLUMNS
from .report_builder import ReportBuilder
from .whole_report import whole_report

BROKEN = "broken"
"""What each text would make happen, or say, if it did anything."""
BEHIND = (
    f"</script><script>document.title='{BROKEN}'</script>",
    f"<img src=x onerror=\"document.title='{BROKEN}'\">",
    f"'\" onmouseover=\"document.title='{BROKEN}'\" x='",
    f"\x1b[2J\x1b]0;{BROKEN}\x07\x1b[31m",
    f"\x9b2J\x9d0;{BROKEN}\x9c\x85x",
    f"\nnsys2prv: {BROKEN}\r\nwarning: {BROKEN}\rx",
    f"\n{{{{ '{BROKEN}' * 7 * 7 }}}}{{% raw %}}{{# x",
    "%s%n {0} {name} ${jndi:ldap://x} `id` $(id)",
    f"/../../../../{BROKEN}",
    "\u202etxt.exe\u2066\u200f\u061c",
    "a\x00nul\x08\x08\x08\x7f",
    "a\ue000b\ue000",
    "long" * 20_000,
    f"\u2028{BROKEN}\u2029\u0085\x1c\x1d\x1e\x1f\x0b\x0c",
    "$$\\frac{1}{2}$$ \\(x\\)",
    f"]]>--><!--<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///{BROKEN}'>]>&e;",
    f"javascript:document.title='{BROKEN}'",
    '"},{"x":["\\u001b',
    '", "x" ,\t;\'"',
    f"\n2:1:1:1:1:5:9400:1\n2:1:1:1:1:6:{BROKEN}",
    f"\nEVENT_TYPE\n0    90000000    {BROKEN}\nVALUES\n1    {BROKEN}",
    f"\nLEVEL THREAD SIZE 3\n{BROKEN}",
    f"\nwindow_name {BROKEN}\nwindow_id 99\nConfigFile.EndDescription",
    f"\n============={BROKEN}.cfg\n#ParaverCFG",
    '[CUDA memcpy HtoD] * " # {1,2,3}',
    " \t \u00a0\u3000",
    "日本語 🚀 مرحبا",
)
"""Pieces that come behind a text. The character U+E000 becomes half of a surrogate pair, which is no UTF-8."""
BEFORE = ("=cmd|' /C calc'!A0", "+1+", "-1-", "@SUM(1+1)*", "\t=1+1", "\r\n=1+1", "＝1+1", "#", "\x1b", "{{", "../", "%")
"""Pieces that come before a text."""
SECRET = "hunter2-of-the-environment"
"""Value of all variables of the environment, and part of all commands: it must not come out anywhere."""

_HALF = "\ue000"
_KEYS = {
    ("META_DATA_EXPORT", "name"),
    ("META_DATA_EXPORT", "value"),
    ("META_DATA_CAPTURE", "name"),
    ("META_DATA_CAPTURE", "value"),
    ("TARGET_INFO_SYSTEM_ENV", "name"),
}
"""Texts by which nsys names its settings: they have hostile neighbours instead."""
_JSON = {
    ("GENERIC_EVENTS", "data"), ("GENERIC_EVENT_TYPES", "data"), ("GENERIC_EVENT_SOURCES", "data"),
    ("NVTX_EVENTS", "jsonText"),
}  # fmt: skip
_OF_NSYS = {"Name", "Fields", "TimeSource", "SourceGroup", "SessionNs", "Unknown"}
_CALLS = ("cu", "MPI_", "nccl")
"""How names of calls begin that are known by their name."""
_ENVIRONMENT = "PROCESS_0:ENVIRONMENT_VARIABLE"
_SCHEMA, _ENUMERATION, _TEXT = 16_777_300, 16_777_301, 75

Weave = Callable[[str], str]
"""Makes a text hostile; the same for the same text."""


class InTurn:
    """Weaves each text with the next piece."""

    def __init__(self, first: int = 0) -> None:
        self._pieces = [*((True, piece) for piece in BEFORE), *((False, piece) for piece in BEHIND)]
        self._next = first
        self._woven: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if text not in self._woven:
            is_before, piece = self._pieces[self._next % len(self._pieces)]
            self._next += 1
            self._woven[text] = piece + text if is_before else text + piece
        return self._woven[text]


class AtRandom:
    """Weaves some texts with random pieces."""

    def __init__(self, chance: random.Random, share: float) -> None:
        self._chance, self._share = chance, share
        self._woven: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if text not in self._woven:
            self._woven[text] = self._made(text) if self._chance.random() < self._share else text
        return self._woven[text]

    def _made(self, text: str) -> str:
        chance = self._chance
        kind = chance.randrange(6)
        if kind == 0:
            return "".join(
                chr(chance.choice((*range(32), *range(127, 160), 0x202E, 0x2028, 0xE000, 0xFEFF, 0xFFFE))) for _ in range(9)
            )
        if kind == 1:
            return "".join(chr(chance.randrange(1, 0xD800)) for _ in range(chance.choice((1, 5, 300))))
        before = [chance.choice(BEFORE) for _ in range(chance.choice((0, 1, 1, 2)))]
        behind = [chance.choice(BEHIND) for _ in range(chance.choice((0, 1, 1, 3)))]
        return "".join([*before, text, *behind])


class Alike:
    """Weaves all texts with the same piece, but calls of CUDA and MPI: ranges and kernels recur, and calls are known."""

    def __init__(self, piece: str, *, is_before: bool = False) -> None:
        self._piece, self._is_before = piece, is_before

    def __call__(self, text: str) -> str:
        if text.startswith(_CALLS):
            return text
        return self._piece + text if self._is_before else text + self._piece


def write_hostile_training(folder: Path, weave: Weave) -> list[Path]:
    """Write the reports of a training with iterations and much that is slow, with something hostile in all texts."""
    folder.mkdir(exist_ok=True)
    cluster = Cluster(nodes=2, gpus_per_node=1, iterations=4, layers=1, slow_gpu=1, allocations_in_loop=True)
    return [_write_woven(folder / f"{name}.sqlite", tables, weave) for name, tables in generate(cluster)]


def write_hostile_report(path: Path, weave: Weave, *, rank: int = 0, ranks: int = 1) -> Path:
    """Write an SQLite export with a row in every table that has texts, and something hostile in all of them."""
    return _write_woven(path, _report_of_all_texts(weave, rank, ranks).tables(), weave)


def _write_woven(path: Path, tables: Mapping[str, pl.DataFrame], weave: Weave) -> Path:
    woven = {table: _woven(table, frame, weave) for table, frame in tables.items()}
    write_report(path, woven)
    _halve(path, woven)
    return path


def _woven(table: str, frame: pl.DataFrame, weave: Weave) -> pl.DataFrame:
    columns = [
        pl.Series(column.name, [None if text is None else _of_column(table, column.name, text, weave) for text in column])
        for column in frame.select(pl.col(pl.String))
    ]
    return frame.with_columns(column.cast(pl.String) for column in columns)


def _of_column(table: str, column: str, text: str, weave: Weave) -> str:
    if (table, column) in _KEYS:
        return text
    return json.dumps(_of_json(json.loads(text), weave)) if (table, column) in _JSON else weave(text)


def _of_json(value: object, weave: Weave) -> object:
    if isinstance(value, dict):
        return {name if name in _OF_NSYS else weave(name): _of_json(one, weave) for name, one in value.items()}
    if isinstance(value, list):
        return [_of_json(one, weave) for one in value]
    return weave(value) if isinstance(value, str) and value not in _OF_NSYS else value


def _halve(path: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    """Put bytes that are no UTF-8 in the place of their mark."""
    database = sqlite3.connect(path)
    with database:
        for table, frame in tables.items():
            for column in frame.select(pl.col(pl.String)):
                if column.str.contains(_HALF, literal=True).any():
                    name = column.name
                    database.execute(f"update {table} set {name} = replace({name}, char(0xe000), cast(x'eda080' as text))")
    database.close()


def _report_of_all_texts(weave: Weave, rank: int, ranks: int) -> ReportBuilder:
    """A row in each table that has texts; values of settings are woven here."""
    host = f"node{rank}"
    report = whole_report(host=host, rank=rank, ranks=ranks)
    for table in COLUMNS:
        for number in (0, 1, 2, 4129) if table.startswith("ENUM_") and table not in ENUMERATIONS else ():
            report.row(table, id=number, name=f"{table}_{number}", label=f"{table.lower()} {number}")
    for number in range(3):
        report.kernel(f"void mine::step<(int){number}>(float *)", 4000 + 100 * number, 4050 + 100 * number, launch=(3900, 3950))
    report.nvtx_enumeration(_ENUMERATION, {0: "cold", 3: "warm"}, size=4, domain="app")
    report.nvtx_schema(_SCHEMA, [("state", _ENUMERATION, 0), ("name", _TEXT, 4)], 16, domain="app", arrayOrUnionDetail=[0, 12])
    blob = payload_blob(report.nvtx_domain("app"), _SCHEMA, b"\x03\x00\x00\x00\x1b[2J\xe2\x80\xae\xed\xa0\x80\x00\x00")
    report.nvtx_range("with payload", 100, 200, domain="app", binaryData=blob)
    report.row("EVENTS_NOT_KNOWN", start=5, globalTid=report.global_tid(), text="of a table that is not known")
    for name in ("API_TOKEN", "AWS_SECRET_ACCESS_KEY", "PATH"):
        report.variable(name, f"{SECRET}-{name}")
    report.variable("SLURM_JOB_ID", weave("4711")).variable("CUDA_VISIBLE_DEVICES", weave("0"))
    report.variable("HOSTNAME", weave(host)).variable("PMIX_HOSTNAME", weave(host))
    report.row("META_DATA_CAPTURE", name=_ENVIRONMENT, value=weave(f"{SECRET} without a name"))
    report.row("META_DATA_CAPTURE", name="PROCESS_0:COMMAND", value=f"/usr/bin/train --token {SECRET}")
    report.row("META_DATA_CAPTURE", name="PROCESS_0:WORKING_DIR", value=f"/home/{SECRET}")
    report.row("META_DATA_CAPTURE", name=weave("PROCESS_0:COMMAND"), value=weave("value"))
    report.row("META_DATA_EXPORT", name=weave("EXPORT_OPTION"), value=weave("value"))
    report.row("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=weave("2024.2"))
    report.row("TARGET_INFO_SYSTEM_ENV", name="CpuCores", value=weave("64"))
    report.row("TARGET_INFO_SYSTEM_ENV", name=weave("Kernel"), value=weave("6.1"))
    return report
