"""Exports of `.nsys-rep` and `.qdrep` files by nsys: each is beside its recording, says of which it is, and is used again."""

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

from nsys2prv.errors import ExportError
from nsys2prv.execution.output_files import temporary_folder
from nsys2prv.execution.process import cleaned_up, signals_held

RAW_SUFFIXES = (".nsys-rep", ".qdrep")
"""Reports as nsys records them: only nsys can open them."""
# Used where this nsys knows them: NCCL's payloads are JSON in some versions and blobs in others.
_EXTRA_OPTIONS = ("--include-json", "--include-blobs")
_ELSEWHERE = "export it into another folder (nsys export --type sqlite -o DIR/NAME.sqlite), and give that"

_APPLICATION = b"n2pv"
_PLACE_OF_VERSION, _PLACE_OF_APPLICATION = 60, 68
"""Where SQLite has, in the first bytes of a file, the number of a version and that of the application that made it: here what
identifies the recording, and nsys2prv."""
_BYTES_AT_ENDS = 1 << 16


def is_export_of(export: Path, recording: Path) -> bool:
    """Whether an export beside a recording is one of it: nsys2prv notes that in an export; another's has to be newer.

    Raises
    ------
    OSError
        When one of them can't be read.
    """
    noted = _noted_in(export)
    if noted is None:
        return export.stat().st_mtime_ns > recording.stat().st_mtime_ns
    return noted == _identification(recording)


def export_report(report: Path, nsys: Path | None = None) -> Path:
    """Path of the SQLite export of a report, which is beside it; made anew unless there is one of this report.

    Parameters
    ----------
    nsys
        As of `nsys_program`.

    Raises
    ------
    ExportError
        When there is no nsys, or it fails, or something else would be replaced.
    """
    target = report.with_name(f"{report.stem}.sqlite")
    try:
        if target.exists():
            if is_export_of(target, report):
                return target
            if _noted_in(target) is None:
                why = f"its export would replace {target}, which is older and not made by nsys2prv"
                raise ExportError(report, why, f"give that if it is an export of this report, else {_ELSEWHERE}")
    except OSError as error:
        raise ExportError(target, f"can't be read ({error.strerror})", _ELSEWHERE) from error
    program = nsys_program(nsys)
    if program is None:
        raise ExportError.no_nsys(report, nsys or os.environ.get("NSYS_HOME"))
    help_text = _run(program, report, "--help")
    options = [f"{option}=true" for option in _EXTRA_OPTIONS if option in help_text]
    try:
        with temporary_folder(target.parent.absolute(), target.name) as folder:
            # Without the suffix of a report: nobody takes it for one.
            partial = folder / "export"
            identification = _identification(report)
            _run(program, report, "--type", "sqlite", "-f", "true", *options, "-o", str(partial), str(report))
            if not partial.exists():
                raise ExportError.failed(report, program, "it wrote nothing")
            _note(partial, identification)
            partial.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise ExportError.failed(report, program, f"{error}; {_ELSEWHERE}") from error
    return target


def nsys_program(nsys: Path | None) -> Path | None:
    """The nsys to call, by default `$NSYS_HOME/nsys`, `$NSYS_HOME/bin/nsys`, or `nsys` on PATH; None when there is none."""
    home = os.environ.get("NSYS_HOME")
    places = [nsys] if nsys else [*([f"{home}/nsys", f"{home}/bin/nsys"] if home else []), "nsys"]
    return next((Path(path) for place in places if (path := shutil.which(place))), None)


def _run(program: Path, report: Path, *arguments: str) -> str:
    try:
        result = run_program([str(program), "export", *arguments])
    except OSError as error:
        raise ExportError.failed(report, program, str(error)) from error
    if result.returncode != 0:
        raise ExportError.failed(report, program, result.stderr or result.stdout or f"exit code {result.returncode}")
    return result.stdout + result.stderr


def _identification(recording: Path) -> bytes:
    """What differs between recordings: made of the size and of the first and last bytes."""
    with recording.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _BYTES_AT_ENDS, 0))
        end = file.read(_BYTES_AT_ENDS)
        file.seek(0)
        return hashlib.sha256(b"%d %b %b" % (size, end, file.read(_BYTES_AT_ENDS))).digest()[:4]


def _note(export: Path, identification: bytes) -> None:
    """Note in an export of which recording it is."""
    with closing(sqlite3.connect(export)) as database:
        database.execute(f"pragma application_id = {int.from_bytes(_APPLICATION, 'big')}")
        database.execute(f"pragma user_version = {int.from_bytes(identification, 'big', signed=True)}")


def _noted_in(export: Path) -> bytes | None:
    """The recording that an export is of; None when nsys2prv did not make it."""
    with export.open("rb") as file:
        head = file.read(_PLACE_OF_APPLICATION + len(_APPLICATION))
    return head[_PLACE_OF_VERSION : _PLACE_OF_VERSION + 4] if head[_PLACE_OF_APPLICATION:] == _APPLICATION else None


def run_program(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Call a program and wait for its end; OSError when it can't be called."""
    with ExitStack() as stack:
        # A program that is not known yet would not be ended.
        with signals_held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # Signals of a terminal end this process, which ends the program with all that it started.
                start_new_session=True,
            )
            # Its end is waited for last.
            stack.enter_context(process)
            stack.enter_context(cleaned_up(partial(_kill, process)))
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
