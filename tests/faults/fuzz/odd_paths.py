"""Odd paths for reports, outputs, and all other files that options name, with neighbours that could be taken for them."""

from __future__ import annotations

import os
import random
from pathlib import Path

from support.report_builder import ReportBuilder

from .commands import Commands
from .oracle import Surroundings, fault_of

_NAMES = (
    b"a*", b"run[1]", b"{a,b}", b"~", b"~root", b"rank=0", b"50%41", b"a#b", b"x?mode=rw", b"file:x", b"a b", b" a", b"a ",
    b"-x", b"--force", b"a\nb", b"a\tb", b"a\x1b[31mb", b"a\x7f", "rank²".encode(), "r³x".encode(), "①".encode(), "é".encode(),
    "日本".encode(), "\u202egnp".encode(), "\U0001f600".encode(), b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"x" * 230,
    b"x" * 247, b"x" * 249, b"x" * 255, b"x" * 256, b"x" * 5000, b"a/" * 2000 + b"b", b"", b".", b"..", b"./", b"../",
    b"a\x00b",
    b"'", b'"', b"a;b", b"a|b", b"$HOME", b"`id`", b"%s", b"{0}", b"\\", b"a\\b", b"con", b"rank" + b"9" * 200, b".hidden",
    b"/dev/null", b"/dev/full", b"/dev/stdin", b"/proc/self/mem", b"rank0.sqlite/x", b"nothing/x", b"loop/x",
    b"loop", b"closed/x", b"closed", b"unreadable", b"readonly/x", b"s3://bucket/x", b"http://host/x", b"hf://x",
    b"OUT.prv", b"OUT.prv.gz", b".prv", b".prv.gz", b"x.sqlite", b"x.nsys-rep", b"x_pqtdir", b"@x", b"x.json", b"**", b"**/*",
)  # fmt: skip
_ENDINGS = (b"", b".sqlite", b"_pqtdir", b"_arwdir", b".prv", b".nsys-rep", b".json", b"*", b"/", b"/.", b"/..")
_PLACES = (
    ("inspect", "{}"),
    ("translate", "{}", "-o", "OUT"),
    ("translate", "{}", "--keep-going", "rank1.sqlite", "-o", "OUT"),
    ("translate", "rank1.sqlite", "-o", "{}"),
    ("translate", "rank1.sqlite", "-o", "{}", "--force"),
    ("translate", "rank1.sqlite", "-o", "OUT", "--scratch", "{}"),
    ("translate", "rank1.sqlite", "-o", "OUT", "--labels", "{}"),
    ("translate", "rank1.sqlite", "-o", "OUT", "--kernel-families", "{}"),
    ("translate", "raw.nsys-rep", "-o", "OUT", "--nsys", "{}"),
    ("efficiency", "{}"),
    ("efficiency", "rank1.sqlite", "-o", "{}"),
    ("efficiency", "rank1.sqlite", "--json-file", "{}"),
    ("efficiency", "rank1.sqlite", "--csv", "{}"),
    ("efficiency", "rank1.sqlite", "--talp", "{}"),
    ("efficiency", "rank1.sqlite", "--scratch", "{}"),
    ("translate", "rank1.sqlite", "-o", "{}", "--critical-path"),
    ("whatif", "{}", "--no-launch-cost"),
    ("whatif", "rank1.sqlite", "--no-launch-cost", "--json-file", "{}"),
    ("whatif", "rank1.sqlite", "--no-launch-cost", "--csv", "{}"),
    ("whatif", "rank1.sqlite", "--no-launch-cost", "--scratch", "{}"),
    ("check", "{}"),
    ("views", "{}"),
    ("views", "former.prv", "-o", "{}"),
    ("compare", "rank1.sqlite", "{}"),
    ("demo", "{}", "--nodes", "1", "--gpus", "1"),
)


class OddPaths:
    name = "odd-paths"
    description = "reports, outputs and other files with odd, long, looping, closed and undecodable names, decoys beside them"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        # In a folder of its own: what is written as ../x is beside it.
        within = folder / "within"
        within.mkdir()
        _surround(within)
        assert commands.run("translate", "rank1.sqlite", "-o", "former", folder=within).code == 0
        name = chance.choice(_NAMES)
        if chance.random() < 0.4:
            name += chance.choice(_ENDINGS)
        if chance.random() < 0.1:
            name = os.fsencode(within) + b"/" + name
        place = chance.choice(_PLACES)
        if chance.random() < 0.6:
            _try_to_make(within, name, chance)
        no_rights = chance.random() < 0.5
        before = Surroundings(folder)
        given = os.fsdecode(name)
        if os.path.realpath(os.path.join(os.fsencode(within), name.replace(b"\0", b""))) == b"/":
            return None
        if "\0" in given:
            # No program can be given it.
            given = given.replace("\0", "\x01")
        run = commands.run(*(given if one == "{}" else one for one in place), folder=within, without_rights=no_rights)
        problem = fault_of(run)
        if problem is None and run.code not in {0, 10}:
            problem = before.fault()
        if problem is None:
            problem = _touched(before, given, place)
        if problem is None and "decoy" in run.stdout and given not in {"decoy.sqlite"} and not _may_match(name):
            problem = "a neighbour was read"
        return problem and f"{' '.join(place)} with {name[:80]!r} {'without rights' if no_rights else ''}: {problem}"


def _report(host: str, kernel: str, rank: int) -> ReportBuilder:
    report = ReportBuilder(host=host, rank=rank, ranks=2)
    report.kernel(kernel, 10, 20, launch=(0, 5))
    return report


def _surround(within: Path) -> None:
    _report("node1", "wanted", 1).write(within / "rank1.sqlite")
    (within / "raw.nsys-rep").write_bytes(b"raw")
    (within / "loop").symlink_to("loop")
    (within / "unreadable").write_text("x")
    (within / "unreadable").chmod(0)
    for name, mode in (("closed", 0), ("readonly", 0o555)):
        (within / name).mkdir()
        (within / name).chmod(mode)


def _try_to_make(within: Path, name: bytes, chance: random.Random) -> None:
    """Something of this name, where that can be."""
    path = os.path.join(os.fsencode(within), name)
    if b"\0" in name:
        # No file can have it, and functions of paths raise errors of several kinds.
        return
    if not os.path.realpath(os.path.dirname(path)).startswith(os.fsencode(within)) or os.path.lexists(path):
        return
    target = Path(os.fsdecode(path))
    try:
        kind = chance.choice(("report", "report", "folder", "text", "link", "pipe"))
        if kind == "report":
            made = within / "made.sqlite"
            _report("node0", "wanted", 0).write(made)
            made.rename(target)
        elif kind == "folder":
            target.mkdir()
        elif kind == "text":
            target.write_text("text")
        elif kind == "link":
            target.symlink_to("rank1.sqlite")
        else:
            os.mkfifo(target)
    except (OSError, ValueError):
        # A name that no file can have.
        pass


def _touched(before: Surroundings, given: str, place: tuple[str, ...]) -> str | None:
    """What changed besides the output and, for the demo, its folder."""
    fault = before.fault(("within/OUT",))
    if fault is None or not fault.startswith("left: "):
        return fault
    # What is new has the name that was given, or lies in a folder of that name.
    if "{}" in place[place.index("{}") - 1 :] and place[place.index("{}") - 1] in {
        "-o",
        "--json-file",
        "--csv",
        "--talp",
        "demo",
    }:
        return None
    return None if place[0] == "views" else fault


def _may_match(name: bytes) -> bool:
    return any(character in name for character in b"*?[{")
