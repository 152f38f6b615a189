"""Traces and results with a change by their grammar: a line, a field, a number is another one, missing or twice."""

import json
import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.report_builder import ReportBuilder

import nsys2prv
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

from .oracle import Attempt

_NUMBERS = (
    *("0", "1", "-1", "-0", "00", "7", "65535", "65536", "2147483648", "4294967295", "4294967296", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "9" * 30, "9" * 5000),
    *("", " ", "1.5", "1e3", "+1", " 1", "1 ", "x", "\u0663", "\u00b2", "NaN", "0x1", "1_0"),
)
_LINES = (
    b"", b" ", b"\t", b"# a comment", b"x", b"4:0:1:1:1:0:1:1", b"c:1:1:1:1", b"2:0:1:1:1:0", b"\xff\xfe", b"\0", b"LEVEL"
)  # fmt: skip
_ENDS = (b"\r", b" ", b"\t", b":", b"\0", b"\xff", "\u0663".encode())
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**31, 2**53 + 1, 2**63, 10**30, 1.5, -1e308, float("nan"), float("inf")),
    *("", "x", "1", "useful", "\ud800", "\u202e", "\x1b[2J", "=1+1", "x" * 10_000),
    *([], {}, [[]], [1], {"": 1}),
)


def _report(rank: int) -> ReportBuilder:
    report = ReportBuilder(rank=rank, pid=10 + rank, host=f"n{rank}").mpi_rank(rank)
    report.gpu(0, uuid=f"uuid-{rank}").metric("SM Active", 5, 50)
    for at in range(0, 800, 100):
        report.kernel(f"kernel{at // 100 % 3}", at + 20, at + 80, launch=(at, at + 10))
    report.copy(810, 830, 64)
    report.nvtx_range("step", 0, 900).nvtx_range("part", 100, 300).nvtx_range("part", 500, 650)
    return report.os_call("read", 850, 870).mpi_collective("MPI_Barrier", 880, 890)


@cache
def _traces() -> tuple[Mapping[str, bytes], ...]:
    """Files of small traces by suffix: of two reports, of a chosen time in two windows, with a critical path."""
    traces = []
    with TemporaryDirectory() as folder:
        reports = [_report(rank).write(Path(folder) / f"rank{rank}.sqlite") for rank in range(2)]
        for inputs, more in ((reports, {}), (reports[:1], {"nvtx": "part"}), (reports, {"critical_path": True})):
            out = Path(folder) / f"trace{len(traces)}"
            prv = translate(inputs, out, TranslateOptions(no_views=True, align="none", **more)).prv  # type: ignore[arg-type]
            traces.append({suffix: prv.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row", ".json")})
    return tuple(traces)


@cache
def results() -> bytes:
    """The efficiency of a small report as JSON."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        nsys2prv.open_run(_report(0).write(Path(folder) / "report.sqlite")).efficiency().to_json(path)
        return path.read_bytes()


def trace_mutations(chance: random.Random, folder: Path) -> Attempt:
    """A trace with a change in one of its files, or without that file."""
    files = dict(chance.choice(_traces()))
    suffix = chance.choices(tuple(files), (10, 2, 1, 2))[0]
    if chance.random() < 0.1:
        del files[suffix]
    else:
        changes = (changed_json, _cut, _character) if suffix == ".json" else (*[_changed_lines] * 8, _cut, _character)
        files[suffix] = chance.choice(changes)(chance, files[suffix])
    if suffix != ".json" and chance.random() < 0.5:
        # Without the account other checks must find it.
        files.pop(".json", None)
    for name, content in files.items():
        (folder / f"OUT{name}").write_bytes(content)
    command = chance.choice(("check", "views"))
    return Attempt((command, "OUT.prv"), "OUT", ("OUT.cfgs",) if command == "views" else ())


def _changed_lines(chance: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    at = chance.randrange(len(lines) - 1)
    separator = b":" if b":" in lines[at] else b" "
    fields = lines[at].split(separator)
    place = chance.randrange(len(fields))
    changes: tuple[Callable[[], object], ...] = (
        lambda: lines.pop(at),
        lambda: lines.insert(at, lines[at]),
        lambda: lines.insert(max(1, at + chance.choice((-50, -5, -1, 1, 5, 50))), lines.pop(at)),
        lambda: lines.insert(at, chance.choice(_LINES)),
        lambda: lines.__setitem__(at, lines[at] + chance.choice(_ENDS)),
        *[lambda: fields.__setitem__(place, _other_number(chance, fields[place]))] * 6,
        lambda: fields.pop(place),
        lambda: fields.__setitem__(slice(place, place), chance.choice(([b"1"], [b"9005", b"1"], fields[-2:], [b""]))),
    )
    chosen = chance.randrange(len(changes))
    changes[chosen]()
    if chosen >= 5:
        lines[at] = separator.join(fields)
    return b"\n".join(lines)


def _other_number(chance: random.Random, text: bytes) -> bytes:
    if text.isdigit() and chance.random() < 0.6:
        return str(max(int(text) + chance.choice((-1000, -2, -1, 1, 2, 1000)), 0)).encode()
    return chance.choice(_NUMBERS).encode()


def _cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def _character(chance: random.Random, content: bytes) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([chance.choice(b"\x00\x09\x0a\x0d\x20:()#-,0159acLSV\xff")]) + content[at + 1 :]


def changed_json(chance: random.Random, content: bytes) -> bytes:
    """A value anywhere in a JSON is another one, mostly of its type, missing, or twice."""
    tree = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def walk(parent: Any) -> None:
        for key, value in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
            places.append((parent, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(tree)
    parent, key = chance.choice(places)
    value, how = parent[key], chance.randrange(6)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(value, int):
        parent[key] = value + chance.choice((-1, 1, 1000))
    elif how == 2 and isinstance(parent, list):
        parent.append(value)
    else:
        same_type = [one for one in _VALUES if how > 3 and type(one) is type(value)]
        parent[key] = chance.choice(same_type or _VALUES)
    return json.dumps(tree).encode()


def results_json(chance: random.Random, folder: Path) -> Attempt:
    """Two results of `efficiency`, of which one is changed."""
    content = results()
    for _ in range(chance.choice((1, 1, 1, 5))):
        content = changed_json(chance, content)
    (folder / "good.json").write_bytes(results())
    (folder / "bad.json").write_bytes(content)
    runs = chance.choice((("good.json", "bad.json"), ("bad.json", "good.json"), ("bad.json", "bad.json")))
    return Attempt(("compare", *runs, *chance.choice(((), ("--json",), ("--json-file", "OUT.json"), ("--csv", "OUT")))))
