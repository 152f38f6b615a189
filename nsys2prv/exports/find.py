"""Reports that a user names on the command line."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nsys2prv.errors import NotAReport, ReportError, ReportNotFound, SameReportTwice, UsageError
from nsys2prv.execution.lacks import lack_in
from nsys2prv.execution.private_folders import PREFIX
from nsys2prv.exports.folder_forms import form_of_folder
from nsys2prv.exports.report import RAW_SUFFIXES

_REPEATED = re.compile(r"(?<![^/])(?:\*\*/+){2,}")
"""Any depth, said more than once: the same paths, found in exponential time."""
FILE_SUFFIXES = (".sqlite", *RAW_SUFFIXES)
"""Of the files in a folder, those that are reports."""


TRACE_SUFFIXES = (".prv", ".prv.gz")


def check_are_reports(arguments: Iterable[object]) -> None:
    """Raise UsageError when an argument is the name of a Paraver trace."""
    for argument in arguments:
        if str(argument).endswith(TRACE_SUFFIXES):
            raise UsageError(f"{argument}: this is a trace; give the reports that it was made from")


def find_reports(arguments: Iterable[str | Path], leave_out: Callable[[ReportError], None] | None = None) -> list[Path]:
    """Paths of the reports that arguments mean, in a fixed order.

    Parameters
    ----------
    arguments
        Files, folders of tables, folders that hold reports (at any depth), and globs. An export beside the
        `.nsys-rep` that it was made from is used instead of it.
    leave_out
        Called with what would be raised, to go on without it.

    Raises
    ------
    ReportNotFound
        When an argument matches nothing.
    SameReportTwice
        When two arguments lead to the same file.
    """
    found: dict[Path, Path] = {}
    for argument in arguments:
        try:
            for real, path in _reports_of(argument):
                if real in found:
                    raise SameReportTwice(found[real], path, "it is the same file")
                found[real] = path
        except ReportError as error:
            if leave_out is None:
                raise
            leave_out(error)
    return sorted(found.values(), key=_natural_order)


def _reports_of(argument: str | Path) -> list[tuple[Path, Path]]:
    """Reports of one argument, each with its real path."""
    try:
        return [(path.resolve(), path) for path in _expand(argument)]
    except (OSError, ValueError, RuntimeError) as error:
        # Of names that no file can have, of folders that can't be entered, and of links that lead in a circle.
        why = getattr(error, "strerror", None) or str(error)
        at = getattr(error, "filename", None) or argument
        raise lack_in(error) or ReportNotFound(at, f"it can't be read ({why})") from error


def _expand(argument: str | Path) -> list[Path]:
    path = Path(argument)
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [path]
    matches = _matches(_REPEATED.sub("**/", str(argument)))
    if not matches:
        raise ReportNotFound(path, "no file matches" if glob.has_magic(str(argument)) else "there is no such file or folder")
    return [report for match in matches for report in (_in_folder(match) if match.is_dir() else [match])]


def _matches(pattern: str) -> list[Path]:
    """What a glob means. Any depth (`**`) does not go through links, which may lead to a folder that they are in."""
    parts = Path(pattern).parts
    if "**" not in parts:
        return [Path(match) for match in sorted(glob.glob(pattern))]
    first = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    top = Path(*parts[:first])
    return sorted(path for path in top.glob(str(Path(*parts[first:]))) if not _is_hidden(path.relative_to(top)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _in_folder(folder: Path) -> list[Path]:
    """Reports in a folder, at any depth: it is read wholly, or not at all."""
    if form_of_folder(folder):
        beside = [path for path in folder.iterdir() if path.suffix.lower() in FILE_SUFFIXES or _holds_tables(path)]
        if beside:
            raise NotAReport(folder, f"it holds tables of a report and another report, {beside[0].name}: name them one by one")
        return [folder]
    within = list(everything_below(folder))
    for path in within:
        _check_is_read(path, folder)
    files = [path for path in within if path.suffix.lower() in FILE_SUFFIXES and path.is_file()]
    exported = {path.with_suffix("") for path in files if path.suffix == ".sqlite"}
    reports = [path for path in files if path.suffix not in RAW_SUFFIXES or path.with_suffix("") not in exported]
    reports += [report for path in within if _holds_tables(path) for report in _in_folder(path)]
    if not reports:
        raise ReportNotFound(folder, "there is no report in this folder")
    return reports


def _holds_tables(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and form_of_folder(path) is not None


def _check_is_read(path: Path, folder: Path) -> None:
    """Raise ReportNotFound for what would be left out of a folder silently."""
    if path.is_dir():
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise ReportNotFound(path, f"this is a link to a folder, which is not entered: name {path.resolve()} too")
    elif path.suffix.lower() in FILE_SUFFIXES and not path.is_file():
        why = "this link leads nowhere" if path.is_symlink() and not path.exists() else "this is no ordinary file"
        raise ReportNotFound(path, f"{why}: remove it, or name the reports one by one")


def everything_below(folder: Path) -> Iterator[Path]:
    """Everything in a folder but intermediate files; OSError where a folder can't be read: what is in it would be missing
    silently.
    """

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=fail):
        # Tables of a run that still works, or was killed, are none of a report.
        folders[:] = [name for name in folders if not name.startswith(PREFIX)]
        yield from (Path(parent, name) for name in (*folders, *files))


def _natural_order(path: Path) -> list[tuple[int, int, str]]:
    """Sort key under which rank10 comes after rank9."""
    pieces = re.findall(r"\d+|\D", f"{path} ")
    return [(0, int(piece), piece) if piece.isdecimal() else (1, 0, piece) for piece in pieces]
