"""Outputs in the way of each other: places that can't be replaced, files of others, inputs, two programs that write."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from support.failed_runs import small_report

from .commands import Commands, Run
from .oracle import Surroundings, fault_of, trace_fault

_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "OUT.prv": ("translate", "rank0.sqlite", "-o", "OUT"),
    "OUT.prv.gz": ("translate", "rank0.sqlite", "-o", "OUT", "-z"),
    "OUT.pcf": ("translate", "rank0.sqlite", "-o", "OUT", "--no-views"),
    "OUT.cfgs": ("translate", "rank0.sqlite", "-o", "OUT.prv"),
    "OUT.json": ("efficiency", "rank0.sqlite", "--json-file", "OUT.json"),
    "OUT.html": ("efficiency", "rank0.sqlite", "-o", "OUT.html"),
    "OUT.talp": ("efficiency", "rank0.sqlite", "--talp", "OUT.talp", "--json-file", "OUT.json", "-o", "OUT.html"),
    "OUT": ("efficiency", "rank0.sqlite", "--csv", "OUT"),
    "OUT.whatif.json": ("whatif", "rank0.sqlite", "--no-launch-cost", "--json-file", "OUT.whatif.json"),
    "OUT.whatif": ("whatif", "rank0.sqlite", "--no-launch-cost", "--csv", "OUT.whatif"),
    "OUT.path.prv": ("translate", "rank0.sqlite", "-o", "OUT.path", "--critical-path"),
    "OUT.views": ("views", "former.prv", "-o", "OUT.views"),
}
"""Commands that write, by one of their outputs."""


class Outputs:
    name = "outputs"
    description = (
        "inputs, links, devices, folders and files of others where an output goes; former outputs that can't be replaced"
    )

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        small_report(20).write(folder / "rank0.sqlite")
        made = commands.run("translate", "rank0.sqlite", "-o", "former", folder=folder)
        assert made.code == 0, made.stderr
        output, command = chance.choice(list(_COMMANDS.items()))
        force = ("--force",) if chance.random() < 0.7 else ()
        if chance.random() < 0.5:
            # A former output, whole.
            first = commands.run(*command, folder=folder)
            if problem := fault_of(first) or (f"exit code {first.code}" if first.code else None):
                return f"alone: {problem}"
        way = chance.choice(list(_WAYS))
        undo = _WAYS[way](folder, output, chance)
        try:
            before = Surroundings(folder)
            run = commands.run(*command, *force, folder=folder)
            return self._fault(run, before, folder, f"{way} at {output} of {' '.join((*command, *force))}")
        finally:
            undo()

    def _fault(self, run: Run, before: Surroundings, folder: Path, what: str) -> str | None:
        problem = fault_of(run) or before.fault(("OUT",) if run.code == 0 else ()) or _own_files_fault(folder)
        if problem is None and run.code == 0 and run.arguments[0] == "translate":
            prv = folder / f"{run.arguments[3].removesuffix('.prv')}.prv{'.gz' if '-z' in run.arguments else ''}"
            problem = trace_fault(prv)
        return problem and f"{what}: {problem}"


def _nothing() -> None:
    pass


def _own_files(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    """Files of the user in each folder that is there."""
    for place in (folder / "OUT", folder / "OUT.cfgs", folder / "OUT.cfgs" / "0-start-here", folder / "OUT.views"):
        if place.is_dir():
            (place / "own.cfg").write_text("own")
            (place / "own.csv").write_text("own")
            (place / "own").symlink_to("/dev/null")
    return _nothing


def _own_files_fault(folder: Path) -> str | None:
    """What is missing of them."""
    for place in (folder / "OUT", folder / "OUT.cfgs", folder / "OUT.cfgs" / "0-start-here", folder / "OUT.views"):
        names = {name for name in os.listdir(place) if name.startswith("own")} if place.is_dir() else set()
        if names and names != {"own", "own.cfg", "own.csv"}:
            return f"of the user's files in {place.name} there are only {sorted(names)}"
    return None


def _link_to_input(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    _remove(folder / output)
    make = os.symlink if chance.random() < 0.5 else os.link
    make(folder / "rank0.sqlite", folder / output)
    return _nothing


def _link_to_nothing(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    _remove(folder / output)
    (folder / output).symlink_to(chance.choice(("nothing", output, "/nonexistent/nothing", "/dev/full")))
    return _nothing


def _folder(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    _remove(folder / output)
    (folder / output).mkdir()
    if chance.random() < 0.5:
        (folder / output / "foreign.txt").write_text("foreign")
    return _nothing


def _foreign_file(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    _remove(folder / output)
    (folder / output).write_text("foreign")
    return _nothing


def _pipe(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    _remove(folder / output)
    os.mkfifo(folder / output)
    return _nothing


def _immovable(folder: Path, output: str, chance: random.Random) -> Callable[[], None]:
    """A file or folder that can't be renamed: another file system is mounted there, or it is immutable."""
    there = [path for path in folder.iterdir() if path.name.startswith("OUT") and not path.is_symlink()]
    if not there:
        return _nothing
    place = chance.choice(there)
    for do, undo in (
        (("mount", "--bind", place, place), ("umount", place)),
        (("chattr", "+i", place), ("chattr", "-i", place)),
    ):
        if subprocess.run(list(map(str, do)), capture_output=True, check=False).returncode == 0:
            return lambda undo=undo: subprocess.run(list(map(str, undo)), check=True)  # type: ignore[misc]
    return _nothing


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        subprocess.run(["rm", "-r", str(path)], check=True)
    else:
        path.unlink(missing_ok=True)


_WAYS: Mapping[str, Callable[[Path, str, random.Random], Callable[[], None]]] = {
    "own files": _own_files,
    "link to the input": _link_to_input,
    "link to nothing": _link_to_nothing,
    "folder": _folder,
    "foreign file": _foreign_file,
    "pipe": _pipe,
    "immovable": _immovable,
}
