"""Options, each declared once: its name, type, default, text, and how a value is read.

A field of an `OptionSet` is an option of the command line, `--fold-streams`, and a keyword of the Python API, `fold_streams`.
Imported at each start of the program, so it needs nothing heavy.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from nsys2prv.clocks import AlignMethod
from nsys2prv.errors import UsageError
from nsys2prv.run.option_values import TimeRange, check_utf8, memory_size, rank_list, time_range
from nsys2prv.vocabulary.limits import MOST_WORKERS
from nsys2prv.vocabulary.wording import short

SELECT, REPORTS, SPEED, MEASURE, TRACE = "Select", "Reports and clocks", "Speed", "Measure", "Trace"
"""Groups of options: what is taken of reports, how reports become one run, where and how the work is done, and what is made."""
_KEY = "option"
_LONGEST_VALUE = 200
"""Characters of a value that a message shows."""


@dataclass(frozen=True)
class OptionText:
    """What an option is besides its type and default."""

    help: str
    metavar: str | None = None
    read: Callable[[Any], Any] | None = None  # makes the value of what a user gives, or raises ValueError with the reason
    short: str = ""  # a second spelling on the command line, such as -z
    least: int | None = None
    most: int | None = None
    names: Callable[[], Iterable[str]] | None = None  # values that a shell can complete
    group: str | None = None  # of options, in help


def option(default: Any, help: str, metavar: str | None = None, read: Callable[[Any], Any] | None = None, **more: Any) -> Any:
    """A field of an `OptionSet`; the other parameters are those of `OptionText`."""
    return field(default=default, metadata={_KEY: OptionText(help, metavar, read, **more)})


def one_of(choices: type[enum.Enum]) -> Callable[[Any], enum.Enum]:
    """Reads one of a few names."""

    def read(value: Any) -> enum.Enum:
        try:
            return choices(value)
        except ValueError:
            raise ValueError(f"not one of {', '.join(str(choice.value) for choice in choices)}") from None

    return read


@dataclass(frozen=True)
class OptionSet:
    """Options that belong together. Values may be given as texts, as on the command line.

    Raises
    ------
    UsageError
        When a value makes no sense.
    """

    def __post_init__(self) -> None:
        for declared, text in declared_options(type(self)):
            value = getattr(self, declared.name)
            if value is None:
                continue
            try:
                for given in value if isinstance(value, list | tuple) else (value,):
                    check_utf8(given)
                if text.read is not None:
                    object.__setattr__(self, declared.name, text.read(value))
                elif (text.least is not None and value < text.least) or (text.most is not None and value > text.most):
                    raise ValueError(f"out of range, {text.least} to {text.most if text.most is not None else 'any number'}")
            except (TypeError, ValueError) as error:
                # Python refuses to write thousands of digits.
                worded = "..." if isinstance(value, int) and value.bit_length() > 64 else short(repr(value), _LONGEST_VALUE)
                raise UsageError(f"{declared.name}={worded}: {error}") from error


def declared_options(options: type[OptionSet], names: Collection[str] = ()) -> list[tuple[Field[Any], OptionText]]:
    """The options of a set, or those of some names; the ones that it adds to others first."""
    found = [(one, one.metadata[_KEY]) for one in fields(options) if _KEY in one.metadata and (not names or one.name in names)]
    return sorted(found, key=lambda pair: pair[0].name not in options.__annotations__)


@dataclass(frozen=True)
class ReadOptions(OptionSet):
    """How reports are read, whatever is made of them.

    `progress` shows progress on stderr; None: when that is a terminal.
    """

    time: TimeRange | None = option(
        None, "Time range to keep, counted from the first event: 1.5s:2s, 200ms:, :30s.", "START:END", time_range, group=SELECT
    )
    ranks: frozenset[int] | None = option(None, "Ranks to keep: 0-7,12.", "LIST", rank_list, group=SELECT)
    align: AlignMethod = option(
        AlignMethod.AUTO,
        "Clock synchronization method: auto, none, utc, monotonic (per host), messages, mpi or nccl (collectives).",
        "METHOD",
        one_of(AlignMethod),
        group=REPORTS,
    )
    rank_pattern: str | None = option(
        None,
        r"Regular expression whose group is the rank in the path of a report: 'rank(\d+)'. Takes precedence over ranks that "
        r"reports contain.",
        "REGEX",
        group=REPORTS,
    )
    host_pattern: str | None = option(
        None,
        r"Regular expression whose group is the host in the path of a report: '/(node\d+)/'; or host names: node01,node02.",
        "PATTERN",
        group=REPORTS,
    )
    strict: bool = option(
        False,
        "Fail on duplicate or missing ranks, on reports of different runs or versions, and on clocks that "
        "contradict each other.",
        group=REPORTS,
    )
    unrelated: bool = option(
        False,
        "Take reports together that are of different jobs, or were recorded minutes to years apart, rather than refuse them.",
        group=REPORTS,
    )
    keep_going: bool = option(False, "Leave out reports that can't be read; the exit code is 10 then.", group=REPORTS)
    kernel_families: Path | None = option(
        None,
        "Additional rules for kernel families (CSV: what,value,pattern); they take precedence.",
        "FILE",
        Path,
        group=REPORTS,
    )
    nsys: Path | None = option(
        None, "The nsys that exports .nsys-rep files (default: $NSYS_HOME, then PATH).", "PROGRAM", Path, group=REPORTS
    )
    scratch: Path | None = option(
        None,
        "Folder for intermediate files (default: beside the trace, or the system's temporary folder).",
        "DIR",
        Path,
        group=SPEED,
    )
    workers: int = option(
        0,
        "Processes on this machine that share the work (default: only this one).",
        "N",
        least=0,
        most=MOST_WORKERS,
        group=SPEED,
    )
    scheduler: str = option("", "Dask cluster that does the work: address or file of its scheduler.", "ADDRESS", group=SPEED)
    memory: int | None = option(
        None,
        "Memory that all processes together may take: 2GB, 500MB (default: what is free; long reports need 400 MB in each).",
        "SIZE",
        memory_size,
        group=SPEED,
    )
    progress: bool | None = None

    @property
    def files_read(self) -> tuple[Path, ...]:
        """Files that options name and that are read; no output replaces them."""
        return tuple(path for path in (self.kernel_families, Path(self.scheduler)) if path is not None and os.path.isfile(path))
