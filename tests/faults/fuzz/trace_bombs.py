"""Small files beside or in place of a trace that would take memory or time without end."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

from .commands import Commands
from .mutated_traces import READING_COMMANDS, Files, made_traces
from .oracle import Surroundings, fault_of

_DATE = b"#Paraver (21/11/2025 at 06:36):"
_HEADER = _DATE + b"1000_ns:1(4):1:1(1:1)\n"
_LARGE = (b"1000000", b"65536", b"1000000000", b"9" * 18, b"9" * 19, b"9" * 30, b"9" * 5000)


_DIFFERING = (
    *(b"2:0:1:1:1:0:%d:1", b"2:0:1:%d:1:0:1:1", b"2:0:1:1:%d:0:63000006:5", b"2:0:1:1:1:0:63000006:%d"),
    *(b"1:0:1:1:%d:0:9:1", b"1:0:1:1:1:0:9:%d", b"2:0:1:1:1:0:9004000%d:1"),
)


def _packed(chance: random.Random, piece: bytes, megabytes: int, before: bytes = b"", after: bytes = b"") -> bytes:
    """Compressed repeats of a text, some hundred megabytes of it in one."""
    packer = zlib.compressobj(1, wbits=31)
    many = piece * ((1 << 20) // len(piece))
    packed = [
        packer.compress(before),
        *(packer.compress(many) for _ in range(megabytes)),
        packer.compress(after),
        packer.flush(),
    ]
    return b"".join(packed)


class TraceBombs:
    name = "trace-bombs"
    description = (
        "endless headers, lines and numbers, repeats in .gz, headers of huge numbers, many types, pipes and devices as files"
    )

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        _, files = made_traces()[0]
        for suffix in (".pcf", ".row"):
            (folder / f"OUT{suffix}").write_bytes(files[suffix])
        prv = chance.choice(_BOMBS)(chance, folder, files)
        before = Surroundings(folder)
        command = chance.choice(READING_COMMANDS)
        run = commands.run(*command, prv, folder=folder)
        return fault_of(run, names="OUT") or before.fault(("OUT.cfgs",) if command[0] == "views" and run.code == 0 else ())


def _packed_text(chance: random.Random, folder: Path, _: Files) -> str:
    """Repeats of a text: in the header, in a line, of lines."""
    piece = chance.choice((b"0", b"\0", b"9,", b"1:1,", b"\n", b"#\n", b":1", b"2:0:1:1:1:0:9005:1\n", b"x\n", b"c:1:1:1:1\n"))
    before = chance.choice(
        (b"", _DATE, _DATE + b"1", _DATE + b"1000_ns:1(", _DATE + b"1000_ns:1(4):1:9(", _HEADER, _HEADER + b"2:0:1:1:1:0")
    )
    (folder / "OUT.prv.gz").write_bytes(_packed(chance, piece, chance.choice((1, 20, 150)), before))
    return "OUT.prv.gz"


def _large_header(chance: random.Random, folder: Path, files: Files) -> str:
    """A header with one huge number, before the records of a good trace."""
    fields = [b"1000", b"1", b"4", b"1", b"1", b"1", b"0"]
    fields[chance.randrange(len(fields))] = chance.choice(_LARGE)
    end, nodes, cpus, tasks, threads, node, communicators = fields
    header = (
        _DATE + end + b"_ns:" + nodes + b"(" + cpus + b"):1:" + tasks + b"(" + threads + b":" + node + b")," + communicators
    )
    records = files[".prv"].partition(b"\n")[2] if chance.random() < 0.5 else b""
    (folder / "OUT.prv").write_bytes(header + b"\n" + records)
    return "OUT.prv"


def _many_types(chance: random.Random, folder: Path, _: Files) -> str:
    """Each line has another event type, row, value or state."""
    count = chance.choice((1_000, 300_000))
    line = chance.choice(_DIFFERING)
    (folder / "OUT.prv.gz").write_bytes(gzip.compress(_HEADER + b"\n".join(line % each for each in range(count)) + b"\n", 1))
    return "OUT.prv.gz"


def _large_number(chance: random.Random, folder: Path, files: Files) -> str:
    """One number anywhere in the .pcf or .row is huge."""
    suffix = chance.choice((".pcf", ".row"))
    words = files[suffix].split(b" ")
    numbers = [at for at, word in enumerate(words) if word.strip().isdigit()]
    words[chance.choice(numbers)] = chance.choice(_LARGE)
    (folder / f"OUT{suffix}").write_bytes(b" ".join(words))
    return _good(folder, files)


def _long_names(chance: random.Random, folder: Path, files: Files) -> str:
    """A .pcf, .row or .json of many or long lines."""
    suffix = chance.choice((".pcf", ".row", ".json"))
    piece = chance.choice((b"\n", b"x", b"LEVEL NODE SIZE 1\nx\n", b"EVENT_TYPE\n0 1 x\n", b"[", b'{"a":', b"1,"))
    megabytes = chance.choice((1, 3, 20))
    before = chance.choice((files[suffix], b"", b"["))
    (folder / f"OUT{suffix}").write_bytes(before + piece * (megabytes * (1 << 20) // len(piece)))
    return _good(folder, files)


def _no_file(chance: random.Random, folder: Path, files: Files) -> str:
    """A named pipe, a folder, a device or a link to itself in place of one of the files."""
    suffix = chance.choice((".prv", ".prv.gz", ".pcf", ".row", ".json"))
    prv = _good(folder, files)
    path = folder / f"OUT{suffix}"
    path.unlink(missing_ok=True)
    kind = chance.randrange(4)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == 2 else path.name)
    return path.name if suffix.startswith(".prv") else prv


def _good(folder: Path, files: Files) -> str:
    (folder / "OUT.prv").write_bytes(files[".prv"])
    return "OUT.prv"


_BOMBS: tuple[Callable[[random.Random, Path, Files], str], ...] = (
    *(_packed_text, _packed_text, _large_header, _many_types, _large_number, _long_names, _no_file),
)
