"""Ranks of all reports, and whether the reports are those of one run.

Nothing is guessed in silence: what is missing in reports, or inconsistent, becomes an issue for the user."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from nsys2prv.errors import UnrelatedReports, UsageError, counted
from nsys2prv.exports.global_ids import pid_of
from nsys2prv.exports.identity import Identity, host_name
from nsys2prv.exports.launchers import CHOSEN_BY_USERS, jobs, whole_number
from nsys2prv.run.hosts import shared_names
from nsys2prv.vocabulary.limits import MOST_RANKS
from nsys2prv.vocabulary.name_rules import count_groups, first_group
from nsys2prv.vocabulary.printable import as_utf8
from nsys2prv.vocabulary.wording import ranges

T = TypeVar("T")
InPaths = Callable[[Sequence[Path]], list[T | None]]
"""What finds something in each of some paths, None where it is not."""

RANK_IN_NAME = re.compile(r"(?i)(?<![a-z])rank[-_.=]?([0-9]{1,18})(?![0-9])")
"""Where names of files usually have the rank; used when the reports have none."""

CLOCKS_APART_NS = 15_000_000_000
"""How far clocks of hosts may be apart: reports that are no further apart may be of the same time."""

_SHOWN = 4


class IssueKind(enum.Enum):
    """What an issue is about, and whether it is an error with --strict."""

    DUPLICATE_RANKS = ("duplicate ranks", True)
    MISSING_RANKS = ("missing ranks", True)
    DIFFERENT_RUNS = ("different runs", True)
    MIXED_VERSIONS = ("mixed versions", True)
    UNKNOWN_RANKS = ("unknown ranks", False)
    RANKS_BY_NAME = ("ranks by name", False)
    CONFLICTING_RANKS = ("conflicting ranks", False)
    UNKNOWN_HOSTS = ("unknown hosts", False)
    HOSTS_OF_ONE_NAME = ("hosts of one name", False)

    @property
    def is_error(self) -> bool:
        """Whether the reports are not those of one complete run."""
        return bool(self.value[1])


@dataclass(frozen=True)
class RunIssue:
    """Something inconsistent, or that was concluded: a sentence for the user, and the reports that it is about."""

    kind: IssueKind
    text: str
    reports: tuple[Path, ...] = ()


@dataclass(frozen=True)
class RanksAndHosts:
    """Ranks and hosts of a run.

    `identities` of the reports have the host and ranks in the run. `ranks` are all that are known, sorted; `size` is their
    number as far as it is known, 0 when no rank is known; `missing` are those that no report has.
    """

    identities: tuple[Identity, ...]
    ranks: tuple[int, ...]
    size: int
    missing: tuple[int, ...]
    issues: tuple[RunIssue, ...]


def resolve_ranks(
    paths: Sequence[Path],
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    rank_in: InPaths[int] | None = None,
    host_in: InPaths[str] | None = None,
    chosen: Collection[int] | None = None,
) -> RanksAndHosts:
    """Find the hosts and ranks of all reports, and what is inconsistent.

    Parameters
    ----------
    paths, identities
        The reports, and their identities as they report them.
    spans
        First and last time of each report, in its own time, ns; None for a report without events.
    rank_in, host_in
        What finds the rank and the host in each path (`rank_from`, `host_from`); None: they are those that reports contain.
    chosen
        Ranks that the user selected; None: all.

    Raises
    ------
    UsageError
        When a pattern matches no path.
    """
    issues: list[RunIssue] = []
    resolved = _name_hosts(paths, _find_ranks(paths, identities, rank_in, issues), spans, host_in, issues)
    by_rank: dict[int, list[int]] = {}
    for index, identity in enumerate(resolved):
        for rank in identity.known_ranks:
            if chosen is None or rank in chosen:
                by_rank.setdefault(rank, []).append(index)
    size = max([identity.ranks_of_run or 0 for identity in resolved] + [1 + rank for rank in by_rank]) if by_rank else 0
    listed = range(size) if size <= MOST_RANKS else ()
    missing = tuple(rank for rank in listed if rank not in by_rank and (chosen is None or rank in chosen))
    issues += _duplicates(paths, by_rank)
    issues += _missing(paths, resolved, missing, size)
    if size > MOST_RANKS:
        text = f"the run would have {size:,} ranks, by a report or a path, and more than {MOST_RANKS:,} are not looked for"
        issues.append(RunIssue(IssueKind.MISSING_RANKS, text))
    issues += _different_runs(paths, resolved)
    issues += _apart_in_time(paths, resolved, spans)
    issues += _mixed_versions(paths, resolved)
    return RanksAndHosts(tuple(resolved), tuple(sorted(by_rank)), size, missing, tuple(issues))


# -- ranks ----------------------------------------------------------------------------------------------------------------


def _find_ranks(
    paths: Sequence[Path],
    identities: Sequence[Identity],
    rank_in: InPaths[int] | None,
    issues: list[RunIssue],
) -> list[Identity]:
    resolved = _ranks_by_launcher(identities)
    if rank_in is not None:
        by_name = _by_pattern(rank_in, "--rank-pattern", IssueKind.UNKNOWN_RANKS, paths, issues)
        return [
            identity if rank is None else _with_rank(identity, rank, "--rank-pattern")
            for identity, rank in zip(resolved, by_name, strict=True)
        ]
    issues += _conflicting(paths, resolved)
    unknown = [index for index, identity in enumerate(resolved) if not identity.known_ranks]
    known = {rank for identity in resolved for rank in identity.known_ranks}
    if unknown and len(paths) > 1:
        found = [RANK_IN_NAME.findall(paths[index].name) for index in unknown]
        named = [int(of_path[-1]) for of_path in found if of_path]
        without = [paths[index] for index in unknown]
        if len(set(named)) == len(without) and known.isdisjoint(named):
            for index, rank in zip(unknown, named, strict=True):
                resolved[index] = _with_rank(resolved[index], rank, "name of the file")
            issues.append(
                RunIssue(
                    IssueKind.RANKS_BY_NAME,
                    f"{_do_not(without)} contain a rank: it is taken from the name of the file ({_listed(without)}); "
                    f"--rank-pattern can take it from elsewhere in the path",
                    tuple(without),
                )
            )
        elif known:
            issues.append(
                RunIssue(
                    IssueKind.UNKNOWN_RANKS,
                    f"{_do_not(without)} contain a rank, and come after those that do: {_listed(without)}; "
                    f"--rank-pattern can take it from the path",
                    tuple(without),
                )
            )
    return resolved


def _ranks_by_launcher(identities: Sequence[Identity]) -> list[Identity]:
    """Ranks by the innermost launcher, or by the first one further out that gave different ranks to all reports."""
    launched = [identity for identity in identities if not identity.ranks and identity.launches]
    sources = [source for identity in launched[:1] for source in (one.source for one in identity.launches)]
    for source in sources:
        ranks = [one.rank for identity in launched for one in identity.launches if one.source == source]
        if len(set(ranks)) == len(launched):
            return [_launched_by(identity, source) if not identity.ranks else identity for identity in identities]
    return list(identities)


def _launched_by(identity: Identity, source: str) -> Identity:
    one = next((one for one in identity.launches if one.source == source), None)
    if one is None or one == identity.launches[0]:
        return identity
    return replace(identity, launch_rank=one.rank, launch_source=one.source, ranks_of_run=one.ranks)


def _conflicting(paths: Sequence[Path], identities: Sequence[Identity]) -> list[RunIssue]:
    """Launchers that gave other ranks than those that are used, and as many."""
    launched = [(path, one) for path, one in zip(paths, identities, strict=True) if not one.ranks and one.launches]
    found = []
    for source in dict.fromkeys(other.source for _, one in launched for other in one.launches):
        given = [(path, one, other) for path, one in launched for other in one.launches if other.source == source]
        # A job script passes its own rank on to whatever it starts: that is the same for all, mostly 0.
        values = {other.rank for *_, other in given}
        is_passed_on = values == {0} or (len(given) > 1 and len(values) == 1)
        differing = [
            (path, one, other)
            for path, one, other in given
            if other.rank != one.launch_rank and (other.ranks or one.ranks_of_run) == (one.ranks_of_run or other.ranks)
        ]
        if is_passed_on or not differing:
            continue
        examples = [f"{path}: {one.launch_rank}, not {other.rank}" for path, one, other in differing]
        found.append(
            RunIssue(
                IssueKind.CONFLICTING_RANKS,
                f"{counted(len(differing), 'report')} with another rank by {source} than by {differing[0][1].launch_source}: "
                f"the latter is used, as the innermost launcher ({_listed(examples)}); --rank-pattern can take the rank from "
                f"the path",
                tuple(path for path, *_ in differing),
            )
        )
    return found


def _with_rank(identity: Identity, rank: int, source: str) -> Identity:
    if len(identity.ranks) > 1:
        # Several ranks in one report: the path can't have them all.
        return identity
    size = identity.ranks_of_run if identity.known_ranks == [rank] else None
    ranks = dict.fromkeys(identity.ranks, rank)
    return replace(
        identity, ranks=ranks, rank_source=source if ranks else "", launch_rank=rank, launch_source=source, ranks_of_run=size
    )


def _duplicates(paths: Sequence[Path], by_rank: dict[int, list[int]]) -> list[RunIssue]:
    several = {rank: members for rank, members in by_rank.items() if len(members) > 1}
    if not several:
        return []
    involved = [paths[index] for index in sorted({index for members in several.values() for index in members})]
    first = min(several)
    example = f"rank {first}: {_listed([paths[index] for index in several[first]])}"
    what = "rank is" if len(several) == 1 else "ranks are"
    return [
        RunIssue(
            IssueKind.DUPLICATE_RANKS,
            f"{len(several)} {what} in more than one report ({ranges(several)}; {example}): reports of several runs, or the "
            f"rank must be taken from the path (--rank-pattern)",
            tuple(involved),
        )
    ]


def _missing(paths: Sequence[Path], identities: Sequence[Identity], missing: tuple[int, ...], size: int) -> list[RunIssue]:
    if not missing:
        return []
    without = sum(not identity.known_ranks for identity in identities)
    more = f"; of {counted(without, 'report')} the rank is not known" if without else ""
    what = "rank" if len(missing) == 1 else "ranks"
    return [
        RunIssue(
            IssueKind.MISSING_RANKS,
            f"{what} {ranges(missing)} of {size:,} {'is' if len(missing) == 1 else 'are'} not among the reports{more}",
        )
    ]


# -- hosts ----------------------------------------------------------------------------------------------------------------


def _name_hosts(
    paths: Sequence[Path],
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    host_in: InPaths[str] | None,
    issues: list[RunIssue],
) -> list[Identity]:
    named = list(identities)
    given: set[int] = set()
    if host_in is not None:
        hosts = _by_pattern(host_in, "--host-pattern", IssueKind.UNKNOWN_HOSTS, paths, issues)
        for index, host in enumerate(hosts):
            if host is not None:
                given.add(index)
                named[index] = replace(named[index], host=host, host_source="--host-pattern")
    # In the order of ranks: the names of hosts must not depend on those of files.
    rest = [index for index in range(len(paths)) if index not in given]
    ordered = sorted(rest, key=lambda index: (not named[index].known_ranks, named[index].known_ranks[:1], index))
    taken = {identity.host for identity in named}
    for shared in shared_names(named, spans, ordered):
        machines = []
        number = 0
        for members in shared.machines:
            number += 1
            while f"{shared.name or 'host'} ({number})" in taken:
                number += 1
            machines.append(f"{shared.name or 'host'} ({number})")
            for index in members:
                source = "; ".join(shared.reasons)
                named[index] = replace(named[index], host=machines[-1], host_source=f"distinguished: {source}")
        involved = [paths[index] for members in shared.machines for index in members]
        what = f"have the host name {shared.name}" if shared.name else "have no host name"
        issues.append(
            RunIssue(
                IssueKind.HOSTS_OF_ONE_NAME,
                f"{counted(len(involved), 'report')} {what}, and are of {len(machines)} hosts ({'; '.join(shared.reasons)}): "
                f"they are called {_listed(machines)}; --host-pattern gives them other names",
                tuple(involved),
            )
        )
    nameless = [path for path, identity in zip(paths, named, strict=True) if not identity.host]
    if len(nameless) > 1:
        issues.append(
            RunIssue(
                IssueKind.UNKNOWN_HOSTS,
                f"{len(nameless)} reports have no host name and are treated as reports of one host: {_listed(nameless)}; "
                f"--host-pattern can take it from the path",
                tuple(nameless),
            )
        )
    return named


# -- one run --------------------------------------------------------------------------------------------------------------


def _different_runs(paths: Sequence[Path], identities: Sequence[Identity]) -> list[RunIssue]:
    by_kind: dict[str, dict[str, list[Path]]] = {}
    sizes: dict[str, list[Path]] = {}
    for path, identity in zip(paths, identities, strict=True):
        for kind, job in jobs(identity.environment).items():
            by_kind.setdefault(kind, {}).setdefault(job, []).append(path)
        if identity.ranks_of_run is not None:
            sizes.setdefault(f"{identity.ranks_of_run:,}", []).append(path)
    found = []
    for kind, of_kind in by_kind.items():
        found += _differ(IssueKind.DIFFERENT_RUNS, f"the reports are of {len(of_kind)} runs", kind, of_kind)
    what = "the reports are of runs of different size"
    return found + _differ(IssueKind.DIFFERENT_RUNS, what, "number of ranks", sizes)


def _apart_in_time(
    paths: Sequence[Path], identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None]
) -> list[RunIssue]:
    spans_utc = sorted(
        (identity.utc_ns + span[0], identity.utc_ns + span[1], path)
        for path, identity, span in zip(paths, identities, spans, strict=True)
        if identity.utc_ns is not None and span is not None
    )
    periods: list[tuple[int, int, list[Path]]] = []
    for begin, end, path in spans_utc:
        if not periods or begin > periods[-1][1] + CLOCKS_APART_NS:
            periods.append((begin, end, []))
        first, last, members = periods[-1]
        members.append(path)
        periods[-1] = first, max(last, end), members
    if len(periods) < 2:
        return []
    pieces = [
        f"{counted(len(members), 'report')} from {_moment(begin)} to {_moment(end)} ({_listed(members)})"
        for begin, end, members in periods[:_SHOWN]
    ]
    more = f" and {len(periods) - _SHOWN} more" if len(periods) > _SHOWN else ""
    return [
        RunIssue(
            IssueKind.DIFFERENT_RUNS,
            f"the reports are of {len(periods)} separate periods of time: {'; '.join(pieces)}{more}",
            tuple(path for _, _, members in periods for path in members),
        )
    ]


def _mixed_versions(paths: Sequence[Path], identities: Sequence[Identity]) -> list[RunIssue]:
    versions: dict[str, list[Path]] = {}
    for path, identity in zip(paths, identities, strict=True):
        schema = ".".join(map(str, identity.schema)) if identity.schema else ""
        versions.setdefault(identity.tool or (schema and f"schema {schema}") or "unknown", []).append(path)
    what = f"the reports come from {len(versions)} versions of nsys, which record differently"
    return _differ(IssueKind.MIXED_VERSIONS, what, "nsys", versions)


def _differ(kind: IssueKind, text: str, what: str, groups: dict[str, list[Path]]) -> list[RunIssue]:
    """An issue when reports are in more than one group."""
    if len(groups) < 2:
        return []
    pieces = [
        f"{what} {name}: {counted(len(members), 'report')} ({_listed(members[:1])}{', ...' if len(members) > 1 else ''})"
        for name, members in list(groups.items())[:_SHOWN]
    ]
    more = f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    return [RunIssue(kind, f"{text}: {'; '.join(pieces)}{more}", tuple(path for one in groups.values() for path in one))]


# -- patterns -------------------------------------------------------------------------------------------------------------


def _by_pattern(
    pattern: InPaths[T], option: str, kind: IssueKind, paths: Sequence[Path], issues: list[RunIssue]
) -> list[T | None]:
    """What a pattern finds in each path; paths without a match are an issue."""
    found = pattern(paths)
    without = tuple(path for path, value in zip(paths, found, strict=True) if value is None)
    if len(without) == len(paths):
        raise UsageError(f"{option}: no path of a report matches it ({_listed(paths)})")
    if without:
        issues.append(RunIssue(kind, f"{_do_not(without)} match {option}: {_listed(without)}", without))
    return found


def rank_from(pattern: str) -> InPaths[int]:
    """Finds the rank in paths by a regular expression with one group; raises UsageError when it is no such."""
    groups = _groups("--rank-pattern", pattern)
    if groups != 1:
        raise UsageError(
            f"--rank-pattern {pattern}: it has {counted(groups, 'group')}; put brackets around the rank, as in 'rank(\\d+)'"
        )

    def ranks(paths: Sequence[Path]) -> list[int | None]:
        found = first_group([as_utf8(path.as_posix()) for path in paths], pattern)
        numbers = [whole_number(text) for text in found]
        for path, text, number in zip(paths, found, numbers, strict=True):
            if text is not None and number is None:
                raise UsageError(f"--rank-pattern {pattern}: in {path} it finds {text!r}, which is not a number")
        return numbers

    return ranks


def host_from(pattern: str) -> InPaths[str]:
    """Finds the host in paths by a regular expression with one group, or by names separated by commas; raises UsageError."""
    groups = _groups("--host-pattern", pattern)
    if groups > 1:
        raise UsageError(f"--host-pattern {pattern}: it has {groups} groups; put brackets around the host only")
    if groups == 1:
        return lambda paths: [
            host_name(host or "") or None for host in first_group([as_utf8(path.as_posix()) for path in paths], pattern)
        ]
    # The longest first: node1 must not be found in node12.
    names = sorted((name.strip() for name in pattern.split(",") if name.strip()), key=len, reverse=True)
    if not names:
        raise UsageError("--host-pattern: give a regular expression with one group, or names of hosts")
    # Names are no patterns.
    any_name = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(map(re.escape, names))})(?![A-Za-z0-9])")
    return lambda paths: [next(reversed(any_name.findall(as_utf8(path.as_posix()))), None) for path in paths]


def _groups(option: str, pattern: str) -> int:
    try:
        return count_groups(pattern)
    except ValueError as error:
        raise UsageError(f"{option} {pattern}: this is {error}; there is no look-around and no back-reference") from error


# -- words ----------------------------------------------------------------------------------------------------------------


def _do_not(paths: Sequence[Path]) -> str:
    return "1 report does not" if len(paths) == 1 else f"{len(paths):,} reports do not"


def _listed(things: Sequence[object]) -> str:
    shown = ", ".join(str(thing) for thing in things[:_SHOWN])
    return shown + (f" and {len(things) - _SHOWN:,} more" if len(things) > _SHOWN else "")


def _moment(utc_ns: int) -> str:
    return f"{datetime.fromtimestamp(utc_ns / 1e9, tz=timezone.utc):%Y-%m-%d %H:%M:%S}"


APART_NS = 60_000_000_000
"""How long after the end of one session another one of the same run can start: clocks of hosts may be seconds apart."""
_SAME_PROCESS_NS = 3600_000_000_000
"""How long after the end of one session another one of the same process can start: later, its id may be that of another one."""

_UNITS = ((86_400_000_000_000, "days"), (3600_000_000_000, "hours"), (60_000_000_000, "minutes"))


@dataclass(frozen=True)
class _Report:
    """What shows which run a report is of."""

    path: Path
    jobs: dict[str, str]  # numbers of the run by kind, that of the batch system first
    batch: tuple[str, str] | None  # kind and number of the job, by a batch system
    processes: frozenset[tuple[str, int]]  # host and pid
    start: int | None  # of the session in UTC, ns; None when not known
    end: int  # of the last event


def check_related(paths: Sequence[Path], identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None]) -> None:
    """Check that nothing shows that reports are of different runs.

    Reports of different jobs are. So are reports that were recorded one after the other, with a long time between them, unless
    they have the number of their job in common, or recorded the same process.

    Parameters
    ----------
    paths, identities, spans
        The reports, their hosts and processes in the run, and their first and last time, ns.

    Raises
    ------
    UnrelatedReports
        With two of the reports, and what differs.
    """
    reports = [_report(*of_report) for of_report in zip(paths, identities, spans, strict=True)]
    _check_jobs(reports)
    _check_times([report for report in reports if report.start is not None])


def _report(path: Path, identity: Identity, span: tuple[int, int] | None) -> _Report:
    numbers = jobs(identity.environment)
    return _Report(
        path,
        numbers,
        next(((kind, job) for kind, job in numbers.items() if kind not in CHOSEN_BY_USERS), None),
        frozenset((identity.host, pid_of(pid)) for pid in identity.traced),
        identity.utc_ns,
        (identity.utc_ns or 0) + max(0, span[1] if span else 0),
    )


def _check_jobs(reports: Sequence[_Report]) -> None:
    first_of: dict[str, _Report] = {}
    for report in reports:
        for kind, job in report.jobs.items():
            first = first_of.setdefault(kind, report)
            # A launcher that numbers its runs can be started several times in one job of the batch system.
            if first.jobs[kind] != job and not _same_job(first, report):
                raise UnrelatedReports(first.path, report.path, f"{kind} {job}, not {first.jobs[kind]}")


def _check_times(reports: Sequence[_Report]) -> None:
    """Look for a long time in which nothing was recorded, between reports that have no job or process in common."""
    ordered = sorted(reports, key=lambda report: (report.start or 0, str(report.path)))
    ends = list(itertools.accumulate((report.end for report in ordered), max))
    for place, later in enumerate(ordered[1:], start=1):
        gap = (later.start or 0) - ends[place - 1]
        if gap <= APART_NS:
            continue
        before, after = ordered[:place], ordered[place:]
        batch_jobs = {one.batch for one in before} & {one.batch for one in after} - {None}
        same_processes = _processes(before) & _processes(after) if gap <= _SAME_PROCESS_NS else set()
        if not batch_jobs and not same_processes:
            last = max(before, key=lambda report: report.end)
            end = datetime.fromtimestamp(last.end // 10**9, tz=timezone.utc)
            what = f"that one ended at {end:%Y-%m-%d %H:%M:%S} UTC, this one started {_length(gap)} later"
            raise UnrelatedReports(last.path, later.path, what)


def _length(time: int) -> str:
    unit, name = next((unit, name) for unit, name in _UNITS if time >= unit)
    return f"{time / unit:.1f} {name}"


def _processes(reports: Sequence[_Report]) -> set[object]:
    return set(itertools.chain.from_iterable(report.processes for report in reports))


def _same_job(one: _Report, other: _Report) -> bool:
    """Whether the first kind of number that both reports have is the same."""
    kind = next((kind for kind in one.jobs if kind in other.jobs), None)
    return kind is not None and one.jobs[kind] == other.jobs[kind]
