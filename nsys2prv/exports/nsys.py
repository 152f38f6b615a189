"""Export of `.nsys-rep` and `.qdrep` files by calling nsys; the export is kept and used again while it is newer."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from nsys2prv.errors import ExportError, ReportError
from nsys2prv.execution.programs import run_program
from nsys2prv.execution.scratch import temporary_folder
from nsys2prv.exports.forms import EXPORT_TABLES
from nsys2prv.exports.sqlite_form import SqliteTables

# Used where this nsys knows them: NCCL's payloads are JSON in some versions and blobs in others.
_EXTRA_OPTIONS = ("--include-json", "--include-blobs")
_ELSEWHERE = "export it into another folder (nsys export --type sqlite -o DIR/NAME.sqlite), and give that"


@dataclass(frozen=True)
class NsysExport:
    """How to export reports.

    Attributes
    ----------
    nsys
        The program; by default `$NSYS_HOME/nsys`, `$NSYS_HOME/bin/nsys`, or `nsys` on PATH.
    """

    nsys: Path | None = None

    def export(self, report: Path) -> Path:
        """Path of the SQLite export of a report, which is beside it; made anew when there is none newer than the report.

        ExportError when there is no nsys, or it fails.
        """
        target = report.with_name(f"{report.stem}.sqlite")
        try:
            is_there = target.exists()
        except OSError as error:
            raise ExportError(f"{target}: can't be read ({error.strerror}); {_ELSEWHERE}") from error
        if is_there and target.stat().st_mtime_ns > report.stat().st_mtime_ns:
            return target
        if is_there and not _is_export(target):
            raise ExportError(f"{report}: its export would replace {target}, which is none; {_ELSEWHERE}")
        nsys = self.program()
        if nsys is None:
            raise ExportError.no_nsys(report)
        known = self._run(nsys, report, "export", "--help")
        options = [f"{option}=true" for option in _EXTRA_OPTIONS if option in known]
        try:
            with temporary_folder(target.parent.absolute()) as folder:
                # Without the suffix of a report: nobody takes it for one.
                partial = folder / "export"
                self._run(nsys, report, "export", "--type", "sqlite", "-f", "true", *options, "-o", str(partial), str(report))
                if not partial.exists():
                    raise ExportError.failed(report, nsys, "it wrote nothing")
                partial.replace(target)
        except OSError as error:
            raise ExportError.failed(report, nsys, f"{error}; {_ELSEWHERE}") from error
        return target

    def program(self) -> Path | None:
        """The nsys to call; None when there is none."""
        if self.nsys is not None:
            found = shutil.which(self.nsys)
            return Path(found) if found else None
        home = os.environ.get("NSYS_HOME")
        places = [Path(home) / "nsys", Path(home) / "bin" / "nsys"] if home else []
        named = next((shutil.which(place) for place in places if shutil.which(place)), None)
        found = named or shutil.which("nsys")
        return Path(found) if found else None

    def _run(self, nsys: Path, report: Path, *arguments: str) -> str:
        try:
            done = run_program([str(nsys), *arguments])
        except OSError as error:
            raise ExportError.failed(report, nsys, str(error)) from error
        if done.returncode != 0:
            raise ExportError.failed(report, nsys, done.stderr or done.stdout or f"exit code {done.returncode}")
        return done.stdout + done.stderr


def _is_export(path: Path) -> bool:
    try:
        return not SqliteTables(path).names().isdisjoint(EXPORT_TABLES)
    except (ReportError, OSError):
        return False
