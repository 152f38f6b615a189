"""Mutations of traces by their grammar: a record, a field, a label, a name, a number is another one, missing or twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.checkout import CHECKOUT
from support.report_builder import ReportBuilder

from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

Files = Mapping[str, bytes]
"""Content of the files of a trace by suffix."""
_SUFFIXES = (".prv", ".pcf", ".row", ".json")
READING_COMMANDS = (("check",), ("views",))
"""What campaigns that change traces do with them; the last argument is the trace."""
_REAL = CHECKOUT.parent / "shared" / "reports"
_SMALL_REAL_REPORTS = ("nvtx-2022.4.2.sqlite", "cuda-graphs.sqlite", "sched.sqlite", "mpi4")

_NUMBERS = (
    *(
        "0",
        "1",
        "2",
        "-1",
        "-0",
        "00",
        "3",
        "7",
        "255",
        "65535",
        "65536",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
    ),
    *("9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "9" * 30, "9" * 5000),
    *("", " ", "1.5", "1e3", "+1", " 1", "1 ", "x", "\u0663", "\u00b2", "NaN", "0x1", "1_0"),
)


def _made_reports() -> list[ReportBuilder]:
    reports = []
    for rank in range(2):
        report = ReportBuilder(rank=rank, pid=10 + rank, host=f"n{rank}").mpi_rank(rank)
        report.gpu(0, uuid=f"uuid-{rank}").metric("SM Active", 5, 50)
        for index in range(8):
            at = 100 * index
            report.kernel(f"kernel{index % 3}", at + 20, at + 80, launch=(at, at + 10))
        report.copy(810, 830, 64)
        report.nvtx_range("step", 0, 900)
        report.nvtx_range("part", 100, 300)
        report.nvtx_range("part", 500, 650)
        report.os_call("read", 850, 870)
        report.mpi_collective("MPI_Barrier", 880, 890)
        reports.append(report)
    return reports


@cache
def made_traces() -> tuple[tuple[str, Files], ...]:
    """Traces that are mutated, with their names: of made reports, and of a chosen time in two windows."""
    with TemporaryDirectory() as folder:
        made = [report.write(Path(folder) / f"rank{rank}.sqlite") for rank, report in enumerate(_made_reports())]
        windows = TranslateOptions(no_views=True, align="none", nvtx="part")
        return (
            ("made", _translated(made, TranslateOptions(no_views=True, align="none"))),
            ("windows", _translated(made[:1], windows)),
            ("critical path", _translated(made, TranslateOptions(no_views=True, align="none", critical_path=True))),
        )


@cache
def traces() -> tuple[tuple[str, Files], ...]:
    """The same, and those of small real reports where there are some."""
    real = [_REAL / name for name in _SMALL_REAL_REPORTS if _REAL.is_dir()]
    return (*made_traces(), *((path.name, _translated([path], TranslateOptions(no_views=True))) for path in real))


def _translated(reports: list[Path], options: TranslateOptions) -> Files:
    with TemporaryDirectory() as folder:
        prv = translate(reports, Path(folder) / "trace", options).prv
        return {suffix: prv.with_suffix(suffix).read_bytes() for suffix in _SUFFIXES}


def mutated(chance: random.Random, files: Files) -> tuple[str, dict[str, bytes]]:
    """One mutation of a trace: its kind, and the files."""
    suffix = chance.choices(_SUFFIXES, (10, 2, 1, 2))[0]
    kind, change = chance.choice(_MUTATIONS[suffix])
    changed = change(chance, files[suffix])
    instead = {name: content for name, content in files.items() if name != suffix}
    if changed is not None:
        instead[suffix] = changed
    if suffix != ".json" and chance.random() < 0.5:
        # Without the account other checks must find it.
        instead.pop(".json", None)
    return f"{suffix}: {kind}", instead


def _write_lines(lines: list[bytes]) -> bytes:
    return b"\n".join(lines)


def _of_line(pattern: bytes, change: Callable[[random.Random, list[bytes], int], None]) -> Callable[..., bytes]:
    """A mutation of a line that starts with something; of the header: b"#"."""

    def mutate(chance: random.Random, content: bytes) -> bytes:
        lines = content.split(b"\n")
        places = [at for at, line in enumerate(lines[:-1]) if line.startswith(pattern)] or [0]
        change(chance, lines, chance.choice(places))
        return _write_lines(lines)

    return mutate


def _remove(_: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at]


def _repeat(_: random.Random, lines: list[bytes], at: int) -> None:
    lines.insert(at, lines[at])


def _move(chance: random.Random, lines: list[bytes], at: int) -> None:
    line = lines.pop(at)
    lines.insert(max(1, at + chance.choice((-50, -5, -1, 1, 5, 50))), line)


def _insert(chance: random.Random, lines: list[bytes], at: int) -> None:
    odd = (
        b"",
        b" ",
        b"\t",
        b"# a comment",
        b"x",
        b"4:0:1:1:1:0:1:1",
        b"c:1:1:1:1",
        b"2:0:1:1:1:0",
        b"\xff\xfe",
        b"\0",
        b"LEVEL",
        b"VALUES",
    )
    lines.insert(at, chance.choice(odd))


def _field(chance: random.Random, lines: list[bytes], at: int) -> None:
    fields = lines[at].split(b":")
    place = chance.randrange(len(fields))
    if chance.random() < 0.6 and fields[place].isdigit():
        fields[place] = str(max(int(fields[place]) + chance.choice((-1000, -2, -1, 1, 2, 1000)), 0)).encode()
    else:
        fields[place] = chance.choice(_NUMBERS).encode()
    lines[at] = b":".join(fields)


def _fewer_fields(chance: random.Random, lines: list[bytes], at: int) -> None:
    fields = lines[at].split(b":")
    place = chance.randrange(len(fields))
    del fields[place : place + chance.choice((1, 2))]
    lines[at] = b":".join(fields)


def _more_fields(chance: random.Random, lines: list[bytes], at: int) -> None:
    fields = lines[at].split(b":")
    place = chance.randrange(len(fields) + 1)
    fields[place:place] = chance.choice(([b"1"], [b"9005", b"1"], [b"63000006", b"0"], fields[-2:], [b""]))
    lines[at] = b":".join(fields)


def _end_of_line(chance: random.Random, lines: list[bytes], at: int) -> None:
    lines[at] += chance.choice((b"\r", b" ", b"\t", b":", b"\0", b"\xff", "\u0663".encode()))


def _swap(chance: random.Random, lines: list[bytes], at: int) -> None:
    other = min(at + chance.choice((1, 2)), len(lines) - 2)
    lines[at], lines[other] = lines[other], lines[at]


def _split_state(chance: random.Random, lines: list[bytes], at: int) -> None:
    """A state becomes two, perhaps with 1 ns between them."""
    fields = lines[at].split(b":")
    if len(fields) != 8 or int(fields[6]) - int(fields[5]) < 3:
        return
    middle = (int(fields[5]) + int(fields[6])) // 2
    second = [*fields[:5], str(middle + chance.choice((0, 1, -1))).encode(), *fields[6:]]
    lines[at] = b":".join([*fields[:6], str(middle).encode(), fields[7]])
    time = int(second[5])
    place = next(
        (
            other
            for other in range(at + 1, len(lines) - 1)
            if lines[other][:1] in b"123" and int(lines[other].split(b":")[5]) > time
        ),
        len(lines) - 1,
    )
    lines.insert(place, b":".join(second))


def _shift_edge(chance: random.Random, lines: list[bytes], at: int) -> None:
    """A state ends elsewhere; perhaps the next of its row starts there, too."""
    fields = lines[at].split(b":")
    if len(fields) != 8:
        return
    end = fields[6]
    moved = str(max(int(end) + chance.choice((-1, 1)), 0)).encode()
    lines[at] = b":".join([*fields[:6], moved, fields[7]])
    if chance.random() < 0.5:
        for other in range(at + 1, len(lines)):
            next_fields = lines[other].split(b":")
            if next_fields[:5] == fields[:5] and next_fields[5] == end:
                lines[other] = b":".join([*next_fields[:5], moved, *next_fields[6:]])
                break


def _cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def _without_kind(kind: bytes) -> Callable[..., bytes]:
    def mutate(_: random.Random, content: bytes) -> bytes:
        return _write_lines([line for line in content.split(b"\n") if not line.startswith(kind)])

    return mutate


def _part_of_header(chance: random.Random, content: bytes) -> bytes:
    """A number of the header is another one."""
    first, end, rest = content.partition(b"\n")
    pieces: list[bytes] = []
    for byte in (first[at : at + 1] for at in range(len(first))):
        if pieces and pieces[-1].isdigit() and byte.isdigit():
            pieces[-1] += byte
        else:
            pieces.append(byte)
    numbers = [at for at, piece in enumerate(pieces) if piece.isdigit()]
    place = chance.choice(numbers)
    is_near = chance.random() < 0.6
    near = str(max(int(pieces[place]) + chance.choice((-1, 1, 2)), 0)).zfill(len(pieces[place]))
    pieces[place] = near.encode() if is_near else chance.choice(_NUMBERS).encode()
    return b"".join(pieces) + end + rest


def _date(chance: random.Random, content: bytes) -> bytes:
    dates = (
        *(
            b"31/02/2025 at 06:36",
            b"00/01/2025 at 06:36",
            b"01/13/2025 at 06:36",
            b"01/01/2025 at 24:00",
            b"01/01/2025 at 06:60",
        ),
        *(
            b"29/02/2024 at 06:36",
            b"29/02/2025 at 06:36",
            b"1/1/2025 at 6:36",
            b"01/01/25 at 06:36",
            b"now",
            b"",
            b"01/01/0000 at 00:00",
        ),
    )
    before, _, rest = content.partition(b"(")
    return before + b"(" + chance.choice(dates) + b")" + rest.partition(b")")[2]


def _characters(chance: random.Random, content: bytes) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([chance.choice(b"\x00\x09\x0a\x0d\x20:()#-,0159acLSV\xff")]) + content[at + 1 :]


def _word(chance: random.Random, lines: list[bytes], at: int) -> None:
    words = lines[at].split(b" ")
    places = [place for place, word in enumerate(words) if word]
    if places:
        near = [place for place in places if words[place].isdigit()]
        place = chance.choice(near or places)
        is_number = bool(near) and chance.random() < 0.5
        words[place] = (
            str(int(words[place]) + chance.choice((-1, 1))).encode() if is_number else chance.choice(_NUMBERS).encode()
        )
    lines[at] = b" ".join(words)


_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, 10**30, 1.5, float("nan"), "", "x", "1", "\ud800", "\u202e"),
    *([], {}, [[]], [1], {"": 1}),
)


def changed_json(chance: random.Random, content: bytes) -> bytes:
    """A value anywhere in a JSON is another one, missing, or twice."""
    whole = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def walk(found: Any) -> None:
        for key, value in list(found.items() if isinstance(found, dict) else enumerate(found)):
            places.append((found, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(whole)
    parent, key = chance.choice(places)
    value = parent[key]
    how = chance.randrange(4)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(value, int):
        parent[key] = value + chance.choice((-1, 1, 1000))
    elif how == 2 and isinstance(parent, list):
        parent.append(value)
    else:
        parent[key] = chance.choice(_ODD_VALUES)
    return json.dumps(whole).encode()


def _odd_json(chance: random.Random, _content: bytes) -> bytes:
    odd = (
        b"",
        b"{",
        b"null",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"nsys2prv": 1, "trace": {}}',
        b'{"nsys2prv": "1", "trace": []}',
        b"\xff",
        b"9" * 5000,
    )
    return chance.choice(odd)


def _no_file(_: random.Random, _content: bytes) -> None:
    return None


_LINE_CHANGES = {
    "a line removed": _remove,
    "a line twice": _repeat,
    "a line moved": _move,
    "a line inserted": _insert,
    "lines swapped": _swap,
    "end of a line": _end_of_line,
}
_Mutation = tuple[str, Callable[[random.Random, bytes], bytes | None]]
_RECORDS = {b"1:": "state", b"2:": "event", b"3:": "message"}
_MUTATIONS: Mapping[str, tuple[_Mutation, ...]] = {
    ".prv": (
        *(
            (f"{name} ({kind})", _of_line(start, change))
            for start, kind in _RECORDS.items()
            for name, change in _LINE_CHANGES.items()
        ),
        *((f"a field ({kind})", _of_line(start, _field)) for start, kind in _RECORDS.items() for _ in range(4)),
        *((f"fewer fields ({kind})", _of_line(start, _fewer_fields)) for start, kind in _RECORDS.items()),
        *((f"more fields ({kind})", _of_line(start, _more_fields)) for start, kind in _RECORDS.items()),
        *((f"no {kind}s", _without_kind(start)) for start, kind in _RECORDS.items()),
        *[("a state in two", _of_line(b"1:", _split_state))] * 2,
        *[("an edge of a state", _of_line(b"1:", _shift_edge))] * 2,
        *[("a number of the header", _part_of_header)] * 3,
        ("the date", _date),
        ("a communicator", _of_line(b"c:", _field)),
        ("cut off", _cut),
        ("a character", _characters),
        ("nothing", lambda _, content: content),
    ),
    ".pcf": (
        *((name, _of_line(b"", change)) for name, change in _LINE_CHANGES.items()),
        *[("a number or word", _of_line(b"", _word))] * 3,
        ("cut off", _cut),
        ("a character", _characters),
        ("no file", _no_file),
    ),
    ".row": (
        *((name, _of_line(b"", change)) for name, change in _LINE_CHANGES.items()),
        *[("a size", _of_line(b"LEVEL", _word))] * 2,
        ("cut off", _cut),
        ("a character", _characters),
        ("no file", _no_file),
    ),
    ".json": (
        *[("a value", changed_json)] * 8,
        ("cut off", _cut),
        ("a character", _characters),
        ("another content", _odd_json),
    ),
}
