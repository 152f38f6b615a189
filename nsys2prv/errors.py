"""All errors that users see; `exit_code` is what the command line ends with.

A translation that left reports out (--keep-going) ends with 10. As in shells, a signal makes the exit code 128 and its number:
Ctrl-C 130, SIGTERM 143, and 141 where nobody reads the output to its end. The text of an error is one sentence that names the
file, what is wrong, and what to do. No other exception is raised on purpose; the command line turns any other into a Defect."""

from __future__ import annotations

import copyreg
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

LEFT_OUT_EXIT_CODE = 10
"""Success, but reports were left out."""
INTERRUPTED_EXIT_CODE = 130
NOT_READ_EXIT_CODE = 141
"""The reader of stdout (such as `head`) closed it early."""
TERMINATED_EXIT_CODE = 143
TRACEBACK_VARIABLE = "NSYS2PRV_TRACEBACK"
"""Environment variable that has the traceback of a defect printed."""


class Nsys2prvError(Exception):
    """Base of all errors; its text is one sentence for the user.

    Attributes
    ----------
    exit_code
        What the command line ends with.
    """

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are pickled in worker processes, and most constructors take other arguments than the text.
        return copyreg.__newobj__, (type(self), str(self)), dict(self.__dict__)  # type: ignore[attr-defined]


class _OfPath(Exception):
    """What errors about a file or folder share.

    Attributes
    ----------
    path
        The report, or the file in it that is wrong; or the output.
    remedy
        What to do, unless another one is given.
    """

    remedy = ""

    def __init__(self, path: str | Path, why: str, remedy: str = "") -> None:
        super().__init__(f"{path}: {why}; {remedy or self.remedy}")
        self.path = Path(path)


class UsageError(Nsys2prvError):
    """Wrong option or argument."""

    exit_code = 2


class ReportError(_OfPath, Nsys2prvError):
    """A report can't be read: missing, no nsys export, damaged, empty, without a required column, twice, of another run."""

    exit_code = 3


class ReportNotFound(ReportError):
    remedy = "give nsys reports, exports of them, or folders that hold some"


class NotAReport(ReportError):
    """Neither a database nor a folder of tables."""

    remedy = "give a .nsys-rep, or an export of one made by `nsys export --type sqlite` (or parquetdir, arrowdir)"


class DamagedReport(ReportError):
    remedy = "export the report again"

    def __init__(self, path: str | Path, why: str) -> None:
        super().__init__(path, f"the export is damaged or incomplete ({_one_line(why)})")


class UnfinishedReport(ReportError):
    """A program still writes it, or ended before it was complete."""

    remedy = "wait until it is complete"


class EmptyReport(ReportError):
    """No tables, or no events in them."""

    remedy = "record the program again, or leave this report out"


class MissingColumn(ReportError):
    remedy = "export the report again with a newer nsys, or leave the table's source out with --skip"

    def __init__(self, path: str | Path, table: str, missing: Iterable[str], present: Iterable[str]) -> None:
        has = f"it has {', '.join(sorted(present)) or 'none'}"
        super().__init__(path, f"table {table} has no column {', '.join(sorted(missing))} ({has})")


class SameReportTwice(ReportError):
    remedy = "give each report once"

    def __init__(self, first: str | Path, second: str | Path, why: str) -> None:
        super().__init__(second, f"the same report as {first} ({why})")


class UnrelatedReports(ReportError):
    remedy = "give the reports of one run, or all with --unrelated"

    def __init__(self, first: str | Path, second: str | Path, what: str) -> None:
        super().__init__(second, f"not of the same run as {first} ({what})")


class ExportError(_OfPath, Nsys2prvError):
    """A `.nsys-rep` file needs nsys, which is not installed or failed."""

    exit_code = 4

    @classmethod
    def no_nsys(cls, path: str | Path, place: str | Path | None) -> ExportError:
        command = f"nsys export --type sqlite --include-json true --include-blobs true {Path(path).name}"
        why = f"only nsys can open this file, and {f'there is none at {place}' if place else 'no nsys is on PATH'}"
        return cls(path, why, f"give one with --nsys or NSYS_HOME, or export the report where nsys is installed: {command}")

    @classmethod
    def failed(cls, path: str | Path, nsys: str | Path, why: str) -> ExportError:
        remedy = "give an nsys of the same version as the one that recorded the report, or a newer one, with --nsys"
        return cls(path, f"{nsys} could not export it ({_one_line(why)})", remedy)


class OutputError(_OfPath, Nsys2prvError):
    """The output can't be written: no such folder, it exists already (use `--force`), or the disk is full."""

    exit_code = 5

    @classmethod
    def not_writable(cls, path: str | Path, why: str | BaseException, place: str = "another place") -> OutputError:
        return cls(path, f"can't be written ({_one_line(why)})", f"give {place}")

    @classmethod
    def of_intermediate_files(cls, path: str | Path, why: str | BaseException) -> OutputError:
        return cls(path, f"intermediate files can't be written or read ({_one_line(why)})", "put them elsewhere with --scratch")


class OutputExists(OutputError):
    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "exists already", "use --force to replace it, or give another name")


class KeptFile(OutputError):
    """An input, a report or a device is where an output was to go: it stays, whatever the user forces."""

    def __init__(self, path: str | Path, why: str) -> None:
        super().__init__(path, f"never replaced ({why})", "give another name for the output")


class DiskFull(OutputError):
    def __init__(self, path: str | Path, *, has_output: bool = True) -> None:
        elsewhere = "put the intermediate files elsewhere with --scratch"
        remedy = f"write elsewhere with -o, {elsewhere}, or make the trace smaller (-z, --time, --skip, --min-duration)"
        super().__init__(path, "the disk is full", f"free some space, {remedy if has_output else f'or {elsewhere}'}")


class NotPrivate(OutputError):
    """What workers exchange is executed when it is read: it is not read where another user may have written it."""

    def __init__(self, path: str | Path, why: str) -> None:
        place = "on a file system that keeps owners and permissions"
        super().__init__(path, f"not read ({why})", f"give a folder for intermediate files with --scratch, {place}")


class TooManyRows(Nsys2prvError):
    """More rows than Paraver can display."""

    exit_code = 6

    def __init__(self, rows: int, limit: int, streams: int = 0) -> None:
        fold = f"merge the {counted(streams, 'stream')} into a few rows per device with --fold-streams, " if streams else ""
        super().__init__(
            f"the trace would have {counted(rows, 'row')} and {counted(limit, 'row')} are the most; select ranks with "
            f"--ranks, {fold}or leave sources out with --skip"
        )


class NothingToTranslate(Nsys2prvError):
    """The selected time, ranks and sources contain no event."""

    exit_code = 7

    def __init__(self, why: str) -> None:
        super().__init__(f"no event is left: {why}")


class TraceError(_OfPath, Nsys2prvError):
    """A Paraver trace can't be read."""

    exit_code = 8
    remedy = "give the .prv (or .prv.gz) of a Paraver trace"


class TraceNotReadable(TraceError):
    """A file of a trace is there, and the system does not let it be read: that is no fault of the trace."""

    remedy = "give a trace that can be"

    def __init__(self, path: str | Path, error: OSError) -> None:
        super().__init__(path, f"it can't be read ({error.strerror or error})")


class InconsistentRun(Nsys2prvError):
    """`--strict`: the reports are not one complete run, or their clocks contradict each other."""

    exit_code = 9
    problem = "the reports are not one complete run"

    def __init__(self, findings: Iterable[str]) -> None:
        super().__init__(f"{self.problem}: {'; '.join(findings)} (without --strict this is a warning)")


class ClocksDisagree(InconsistentRun):
    """`--strict`: what was placed on the time axis contradicts itself."""

    problem = "the clocks of the reports contradict each other"


class NoResources(Nsys2prvError):
    """The system gives no memory, threads or processes, or a worker died."""

    exit_code = 11
    sentence = (
        "the system gives no more {}; use fewer --workers, or raise the limits of the job "
        "(memory; ulimit -v for address space, -u for processes and threads, -n for open files)"
    )

    def __init__(self, *what: object) -> None:
        super().__init__(self.sentence.format(*what))


class LittleAddressSpace(NoResources):
    """A limit of the process leaves less than the libraries need to work: the limit and what they need, bytes."""

    sentence = (
        "this process may use {:,} MB of memory or address space (ulimit -d, -v), and needs at least "
        "{:,} MB, most of it reserved only; raise the limit, or ask the batch system for more memory"
    )

    def __init__(self, *limits: int) -> None:
        super().__init__(*(round(limit / 1e6) for limit in limits))


class WorkerDied(NoResources):
    """A worker, or the scheduler of a cluster, died or is silent."""

    sentence = "a worker {}; use fewer workers on each machine, or give the job more memory, and start the command again"

    def __init__(self, what: str = "died, most likely because it ran out of memory") -> None:
        super().__init__(what)


class RunTooLarge(NoResources):
    """The columns of a run do not fit in the memory in which it is measured."""

    sentence = (
        "to measure {} takes about {:,.0f} MB, and {:,.0f} MB are left; measure a part of the run ({}), or give more memory "
        "(--memory, or that of the job)"
    )

    def __init__(self, intervals: int, needed: int, room: int, parts: Sequence[str]) -> None:
        super().__init__(counted(intervals, "interval"), needed / 1e6, room / 1e6, " or ".join(parts))


def first_of(inputs: Iterable[str | Path]) -> str:
    """The first of some inputs, at least one, and how many more there are.

    >>> first_of(["a.sqlite", "b.sqlite", "c.sqlite"])
    'a.sqlite and 2 more'
    """
    first, *more = map(str, inputs)
    return f"{first} and {len(more)} more" if more else first


class NothingToMeasure(Nsys2prvError):
    """`efficiency`, `compare`: neither a GPU nor a host thread did anything. `whatif`: no process uses a GPU."""

    exit_code = 12
    why = "there is no work of a GPU and no host thread"

    def __init__(self, inputs: Iterable[str | Path]) -> None:
        super().__init__(f"{first_of(inputs)}: {self.why}; give reports that include CUDA (nsys profile --trace=cuda)")


class NoDevices(NothingToMeasure):
    why = "no work of a GPU was recorded, so there is nothing to replay"


class NotEfficiency(_OfPath, Nsys2prvError):
    """`compare`: a `.json` file that `efficiency --json-file` did not write."""

    exit_code = 13
    remedy = "give what `nsys2prv efficiency --json-file FILE` of this version wrote, or reports"

    def __init__(self, path: str | Path, why: str) -> None:
        super().__init__(path, _one_line(why))


class Defect(Nsys2prvError):
    """An error in nsys2prv itself; please report it."""

    exit_code = 14

    def __init__(self, error: BaseException) -> None:
        package, frames = Path(__file__).parent, traceback.extract_tb(error.__traceback__)
        here = [frame for frame in frames if package in Path(frame.filename).parents]
        place = f" at {Path(here[-1].filename).name}:{here[-1].lineno}" if here else ""
        super().__init__(
            f"an error in nsys2prv itself ({type(error).__name__}{place}: {_one_line(str(error))}); please report it, with "
            f"what {TRACEBACK_VARIABLE}=1 in the environment makes it print"
        )


class _OfGate(Exception):
    outcome = ""

    def __init__(self, sentences: Sequence[str], checked: int) -> None:
        conditions = f"{len(sentences)} of {counted(checked, 'condition')}"
        super().__init__(f"the gate {self.outcome}, {conditions}: {'; '.join(sentences)}")


class GateFailed(_OfGate, Nsys2prvError):
    """`compare`: a condition of `--fail-if` is true."""

    exit_code = 15
    outcome = "fails"


class GateNotDecidable(_OfGate, Nsys2prvError):
    """`compare`: no condition of `--fail-if` is true, and of some it is not known."""

    exit_code = 16
    outcome = "is not decidable"


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "report"), counted(1200, "row")
    ('1 report', '1,200 rows')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _one_line(why: str | BaseException) -> str:
    """A reason, or what an error of the system or a library says, on one line."""
    return " ".join((getattr(why, "strerror", None) or str(why)).split())[:300]
