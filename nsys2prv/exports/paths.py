"""Paths that a user names: which reports arguments mean, and which files no output replaces."""

import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nsys2prv.errors import KeptFile, NotAReport, ReportError, ReportNotFound, SameReportTwice, UsageError
from nsys2prv.execution.memory import resource_error_in
from nsys2prv.execution.output_files import PREFIX
from nsys2prv.exports.folder_tables import ArrowTables, ParquetTables, form_of_folder
from nsys2prv.exports.nsys import RAW_SUFFIXES, is_export_of
from nsys2prv.exports.sqlite_tables import SQLITE_START

_REPEATED = re.compile(r"(?<![^/])(?:\*\*/+){2,}")
"""Any depth, said more than once: the same paths, found in exponential time."""
_FILE_SUFFIXES = (".sqlite", *RAW_SUFFIXES)
"""Of the files in a folder, those that are reports."""
_TRACE_SUFFIXES = (".prv", ".prv.gz")
_REPORT_SUFFIXES = (*_FILE_SUFFIXES, *ParquetTables.suffixes, *ArrowTables.suffixes)
_REPORT_STARTS = (SQLITE_START, b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
"""First bytes of databases, and of tables in Parquet, Arrow's file format and its stream format."""


def check_are_reports(arguments: Iterable[object]) -> None:
    """Raise UsageError when an argument is the name of a Paraver trace."""
    for argument in arguments:
        if str(argument).endswith(_TRACE_SUFFIXES):
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
    by_real_path: dict[Path, Path] = {}
    for argument in arguments:
        try:
            for real, path in _reports_of(argument):
                if real in by_real_path:
                    raise SameReportTwice(by_real_path[real], path, "it is the same file")
                by_real_path[real] = path
        except ReportError as error:
            if leave_out is None:
                raise
            leave_out(error)
    return sorted(by_real_path.values(), key=_natural_order)


def _reports_of(argument: str | Path) -> list[tuple[Path, Path]]:
    """Reports of one argument, each with its real path."""
    try:
        return [(path.resolve(), path) for path in _expand(argument)]
    except (OSError, ValueError, RuntimeError) as error:
        # Of names that no file can have, of folders that can't be entered, and of links that lead in a circle.
        why = getattr(error, "strerror", None) or str(error)
        at = getattr(error, "filename", None) or argument
        raise resource_error_in(error) or ReportNotFound(at, f"it can't be read ({why})") from error


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
    matches = top.glob(str(Path(*parts[first:])))
    return sorted(path for path in matches if not any(part.startswith(".") for part in path.relative_to(top).parts))


def _in_folder(folder: Path) -> list[Path]:
    """Reports in a folder, at any depth: it is read wholly, or not at all."""
    if form_of_folder(folder):
        beside = [path for path in folder.iterdir() if path.suffix.lower() in _FILE_SUFFIXES or _holds_tables(path)]
        if beside:
            raise NotAReport(folder, f"it holds tables of a report and another report, {beside[0].name}: name them one by one")
        return [folder]
    within = list(everything_below(folder))
    for path in within:
        _check_is_read(path, folder)
    files = [path for path in within if path.suffix.lower() in _FILE_SUFFIXES and path.is_file()]
    present, replaced = set(files), set()
    for recording in files:
        export = recording.with_suffix(".sqlite")
        if recording.suffix in RAW_SUFFIXES and export in present:
            replaced.add(recording if is_export_of(export, recording) else export)
    reports = [path for path in files if path not in replaced]
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
    elif path.suffix.lower() in _FILE_SUFFIXES and not path.is_file():
        why = "this link leads nowhere" if path.is_symlink() and not path.exists() else "this is no ordinary file"
        raise ReportNotFound(path, f"{why}: remove it, or name the reports one by one")


def everything_below(folder: Path) -> Iterator[Path]:
    """Everything in a folder but intermediate files; OSError where a folder can't be read: what is in it would be missing
    silently."""

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


def check_kept(outputs: Iterable[Path], inputs: Iterable[str | Path] = ()) -> None:
    """Check before long work that outputs replace nothing that must stay.

    Parameters
    ----------
    outputs
        Files that are written, and folders that are replaced with all that is in them.
    inputs
        Files and folders that the command reads. Reports in folders and globs need not be listed one by one: a report is
        kept whether or not it is read.

    Raises
    ------
    KeptFile
        When there is an input, a report, or something else than a file, such as a device.
    """
    read = {identity for path in inputs if (identity := _identity(Path(path))) is not None}
    for output in outputs:
        if os.path.isdir(output):
            _check_folder(output, read)
        else:
            _check_file(output, read)


def _check_file(path: Path, read: set[tuple[int, int]]) -> None:
    if not os.path.exists(path):
        # Whether it can be written there is found out by who writes.
        return
    if not os.path.isfile(path):
        raise KeptFile(path, "this is no ordinary file")
    if _identity(path) in read:
        raise KeptFile(path, "this command reads it")
    if _is_report(path):
        raise KeptFile(path, "this is a report, or a table of one")


def _check_folder(folder: Path, read: set[tuple[int, int]]) -> None:
    if _identity(folder) in read:
        raise KeptFile(folder, "this command reads it")
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if _identity(path) in read:
                raise KeptFile(folder, f"it contains {path}, which this command reads")
            if name in files and (name.endswith(_TRACE_SUFFIXES) or _is_report(path)):
                raise KeptFile(folder, f"it contains a report or a trace, {path}")


def _identity(path: Path) -> tuple[int, int] | None:
    """What is the same for all names of a file; None when there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _is_report(path: Path) -> bool:
    # Not of a pipe, which would not answer.
    with contextlib.suppress(OSError):
        if path.suffix not in _REPORT_SUFFIXES and os.path.isfile(path):
            with path.open("rb") as file:
                return file.read(16).startswith(_REPORT_STARTS)
    return path.suffix in _REPORT_SUFFIXES
