"""Options, each declared once (its name, type, default, text), and how values are read: from text or from Python values.

A field of an `OptionSet` is an option of the command line, `--fold-streams`, and a keyword of the Python API, `fold_streams`.
Imported at each start of the program, so it needs nothing heavy."""

import enum
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from nsys2prv.clocks import AlignMethod
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.limits import LONGEST_NS, MOST_DIGITS, MOST_RANKS, MOST_WORKERS
from nsys2prv.vocabulary.wording import short

_NUMBER = f"[0-9]{{1,{MOST_DIGITS}}}"
_TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_SIZES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip


@dataclass(frozen=True)
class TimeRange:
    """A part of the time axis, in ns from the first event of the run; None is open."""

    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class NvtxRange:
    """Name of an NVTX range, and of its domain (None: any)."""

    name: str
    domain: str | None = None


def duration(value: str | int) -> int:
    """A time with its unit, in ns; a whole number is in ns already.

    >>> duration("1.5s"), duration("10us"), duration(200)
    (1500000000, 10000, 200)
    """
    why = "not a time; write a number with its unit (ns, us, ms, s, m), such as 1.5s or 10us"
    nanoseconds = value if isinstance(value, int) else _amount(value, _TIMES, why)
    if nanoseconds < 0:
        raise ValueError("a negative time")
    if nanoseconds > LONGEST_NS:
        raise ValueError(f"too long a time; the longest is {LONGEST_NS // 10**9:,} s")
    return nanoseconds


def _amount(value: str, units: Mapping[str, int], why: str) -> int:
    """A number with its unit; ValueError with the reason."""
    match = re.fullmatch(rf"\s*({_NUMBER}(?:\.{_NUMBER})?|\.{_NUMBER})\s*({'|'.join(units)})\s*", value)
    if match is None:
        raise ValueError(why)
    integer, _, fraction = match[1].partition(".")
    unit = units[match[2]]
    # Not as a float: nanoseconds of a long trace have more digits than one holds.
    return int(integer or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def memory_size(value: str | int) -> int:
    """A size with its unit, in bytes; a whole number is in bytes already.

    >>> memory_size("2GB"), memory_size("1.5 GiB"), memory_size(500_000_000)
    (2000000000, 1610612736, 500000000)
    """
    why = "not a size; write a number with its unit (MB, GB, MiB, GiB), such as 2GB or 500MB"
    return value if isinstance(value, int) else _amount(value, _SIZES, why)


def time_range(value: str | TimeRange | Sequence[str | int | None]) -> TimeRange:
    """A range of time: START:END, or the two as a pair, of which each may be absent.

    >>> time_range("1us:2us"), time_range((None, "30s"))
    (TimeRange(begin=1000, end=2000), TimeRange(begin=None, end=30000000000))
    """
    if isinstance(value, TimeRange):
        return value
    if isinstance(value, str):
        if ":" not in value:
            raise ValueError("not a time range; write START:END, such as 1.5s:2s, 200ms: or :30s")
        value = [part.strip() or None for part in value.split(":", 1)]
    start, end = (None if time is None else duration(time) for time in value)
    if end is not None and end <= (start or 0):
        raise ValueError("the end is not after the start; write START:END, such as 1.5s:2s")
    return TimeRange(start, end)


def nvtx_range(value: str | NvtxRange) -> NvtxRange:
    """An NVTX range: NAME or NAME@DOMAIN.

    >>> nvtx_range("step"), nvtx_range("step@app")
    (NvtxRange(name='step', domain=None), NvtxRange(name='step', domain='app'))
    """
    if isinstance(value, NvtxRange):
        return value
    name, _, domain = value.rpartition("@") if "@" in value else (value, "", "")
    if not name:
        raise ValueError("no name of a range; write NAME or NAME@DOMAIN")
    return NvtxRange(name, domain or None)


def rank_list(value: str | int | Iterable[int]) -> frozenset[int]:
    """Ranks: numbers and ranges separated by commas, or the numbers themselves.

    >>> sorted(rank_list("0-2,12")), sorted(rank_list(range(2)))
    ([0, 1, 2, 12], [0, 1])
    """
    if isinstance(value, int):
        value = (value,)
    if not isinstance(value, str):
        return frozenset(map(_rank, value))
    ranks: set[int] = set()
    for piece in value.split(","):
        match = re.fullmatch(r"\s*([0-9]+)(?:-([0-9]+))?\s*", piece)
        if match is None:
            raise ValueError("not a list of ranks; write numbers and ranges, such as 0-7,12")
        first, last = _rank(match[1]), _rank(match[2] or match[1])
        if last < first:
            raise ValueError(f"{first}-{last} ends before it begins; write numbers and ranges, such as 0-7,12")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def _rank(value: str | int) -> int:
    # Without its value, Python refuses to read thousands of digits.
    rank = MOST_RANKS if isinstance(value, str) and len(value) > MOST_DIGITS else int(value)
    if not 0 <= rank < MOST_RANKS:
        raise ValueError(f"a rank out of range, 0 to {MOST_RANKS - 1:,}")
    return rank


def name_list(value: str | Iterable[str]) -> tuple[str, ...]:
    """Names separated by commas, or several such texts.

    >>> name_list("nvtx, mpi"), name_list(["kernels,copies", "mpi"])
    (('nvtx', 'mpi'), ('kernels', 'copies', 'mpi'))
    """
    texts = [value] if isinstance(value, str) else value
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def check_utf8(value: object) -> None:
    """Refuse a text that is none: what a shell passes need not be UTF-8."""
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        raise ValueError("not UTF-8") from None


def texts(value: str | Iterable[str]) -> tuple[str, ...]:
    """One text or several, each as it is."""
    return (value,) if isinstance(value, str) else tuple(value)


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
                for text_of_value in value if isinstance(value, list | tuple) else (value,):
                    check_utf8(text_of_value)
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
    declared = [field for field in fields(options) if _KEY in field.metadata and (not names or field.name in names)]
    ordered = sorted(declared, key=lambda field: field.name not in options.__annotations__)
    return [(field, field.metadata[_KEY]) for field in ordered]


@dataclass(frozen=True)
class ReadOptions(OptionSet):
    """How reports are read, whatever is made of them.

    `progress` shows progress on stderr; None: when that is a terminal."""

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
        False, "Fail on duplicate or missing ranks, several runs or versions, and clocks that contradict.", group=REPORTS
    )
    unrelated: bool = option(
        False, "Take reports of different jobs together, or recorded minutes to years apart: do not refuse them.", group=REPORTS
    )
    keep_going: bool = option(False, "Leave out reports that can't be read; the exit code is 10 then.", group=REPORTS)
    kernel_families: Path | None = option(
        None, "Further rules for kernel families (CSV: what,value,pattern), which take precedence.", "FILE", Path, group=REPORTS
    )
    nsys: Path | None = option(
        None, "The nsys that exports .nsys-rep files (default: $NSYS_HOME, then PATH).", "PROGRAM", Path, group=REPORTS
    )
    scratch: Path | None = option(
        None, "Folder for intermediate files (default: beside the trace, else the system's).", "DIR", Path, group=SPEED
    )
    workers: int = option(
        0, "Processes here that share the work (default: only this one).", "N", least=0, most=MOST_WORKERS, group=SPEED
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
