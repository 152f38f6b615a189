"""Ranks of all reports, and whether the reports are those of one run.

Nothing is guessed in silence: what is missing in reports, or inconsistent, becomes an issue for the user."""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from nsys2prv.errors import UnrelatedReports, UsageError, counted
from nsys2prv.exports.columns import pid_of
from nsys2prv.exports.identity import Identity, host_name
from nsys2prv.run.hosts import SharedName, shared_names
from nsys2prv.vocabulary.launchers import CHOSEN_BY_USERS, Launched, jobs
from nsys2prv.vocabulary.limits import MOST_RANKS, whole_number
from nsys2prv.vocabulary.name_rules import count_groups, first_group
from nsys2prv.vocabulary.printable import as_utf8
from nsys2prv.vocabulary.wording import ranges

T = TypeVar("T")
InPaths = Callable[[Sequence[Path]], list[T | None]]
"""What finds something in each of some paths, None where it is not."""

RANK_IN_NAME = re.compile(r"(?i)(?<![a-z])rank[-_.=]?([0-9]{1,18})(?![0-9])")
"""Where names of files usually have the rank; used when the reports have none."""

NOT_AMONG_REPORTS = "not among the reports"
"""In warnings about ranks that are missing."""
CLOCKS_APART_NS = 15_000_000_000
"""How far clocks of hosts may be apart: reports that are no further apart may be of the same time."""

_SHOWN = 4


_ERRORS = frozenset({"duplicate ranks", "missing ranks", "different runs", "mixed versions"})
"""What issues are about where reports are not those of one complete run."""


@dataclass(frozen=True)
class RunIssue:
    """Something inconsistent, or that was concluded: what it is about, a sentence for the user, and the reports."""

    about: str
    text: str
    reports: tuple[Path, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether it is an error with --strict."""
        return self.about in _ERRORS


@dataclass(frozen=True)
class RanksAndHosts:
    """Ranks and hosts of a run.

    `identities` of the reports have the host and ranks in the run. `ranks` are all that are known, sorted; `size` is the number
    of ranks of the run (None: not known, as one rank alone may not say it); `missing` are those that no report has."""

    identities: tuple[Identity, ...]
    ranks: tuple[int, ...]
    size: int | None
    missing: tuple[int, ...]
    issues: tuple[RunIssue, ...]


def resolve_ranks(
    paths: Sequence[Path],
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    rank_in: InPaths[int] | None = None,
    host_in: InPaths[str] | None = None,
    selected: Collection[int] | None = None,
) -> RanksAndHosts:
    """Find the hosts and ranks of all reports, and what is inconsistent.

    `spans` are the first and last time of each report, in its own time, ns; None for a report without events. `rank_in` and
    `host_in` find the rank and the host in each path (`rank_from`, `host_from`); None: they are those that reports contain.
    `selected` are the ranks that the user selected; None: all. Raises UsageError when a pattern matches no path."""
    run = _Run(paths, identities)
    run.find_ranks(rank_in)
    run.name_hosts(host_in, spans)
    by_rank: dict[int, list[int]] = {}
    for index, identity in enumerate(run.identities):
        for rank in identity.known_ranks:
            if selected is None or rank in selected:
                by_rank.setdefault(rank, []).append(index)
    known = {rank for identity in run.identities for rank in identity.known_ranks}
    size = max([identity.ranks_of_run or 0 for identity in run.identities] + [1 + rank for rank in known]) if by_rank else 0
    listed = range(size) if size <= MOST_RANKS else ()
    missing = tuple(rank for rank in sorted(listed if selected is None else selected) if rank not in by_rank)
    run.check_ranks(by_rank, missing, size)
    run.check_runs()
    run.check_periods(spans)
    run.check_versions()
    is_known = len(known) > 1 or any(identity.ranks_of_run for identity in run.identities)
    known_size = size if is_known and size <= MOST_RANKS else None
    return RanksAndHosts(tuple(run.identities), tuple(sorted(by_rank)), known_size, missing, tuple(run.issues))


class _Run:
    """Reports of a run, their identities so far, and what is inconsistent; reports are meant by their index."""

    def __init__(self, paths: Sequence[Path], identities: Sequence[Identity]) -> None:
        self.paths = paths
        self.identities = list(identities)
        self.issues: list[RunIssue] = []

    def add_issue(self, about: str, text: str, reports: Iterable[int] = ()) -> None:
        self.issues.append(RunIssue(about, text, tuple(self.paths[index] for index in reports)))

    def listed(self, reports: Iterable[int]) -> str:
        return _listed([self.paths[index] for index in reports])

    def in_paths(self, pattern: InPaths[T], option: str, about: str) -> list[T | None]:
        """What a pattern finds in each path; paths without a match are an issue."""
        matches = pattern(self.paths)
        without = [index for index, match in enumerate(matches) if match is None]
        if len(without) == len(self.paths):
            raise UsageError(f"{option}: no path of a report matches it ({_listed(self.paths)})")
        if without:
            self.add_issue(about, f"{_do_not(without)} match {option}: {self.listed(without)}", without)
        return matches

    def find_ranks(self, rank_in: InPaths[int] | None) -> None:
        self._find_launcher()
        if rank_in is not None:
            for index, rank in enumerate(self.in_paths(rank_in, "--rank-pattern", "unknown ranks")):
                if rank is not None:
                    self._set_rank(index, rank, "--rank-pattern")
            return
        self._check_launchers()
        without = [index for index, identity in enumerate(self.identities) if not identity.known_ranks]
        if not without or len(self.paths) < 2:
            return
        ranks = {rank for identity in self.identities for rank in identity.known_ranks}
        in_names = [RANK_IN_NAME.findall(self.paths[index].name) for index in without]
        named = [int(of_path[-1]) for of_path in in_names if of_path]
        if len(set(named)) == len(without) and ranks.isdisjoint(named):
            for index, rank in zip(without, named, strict=True):
                self._set_rank(index, rank, "name of the file")
            text = f"contain a rank: it is taken from the name of the file ({self.listed(without)}); --rank-pattern can take"
            self.add_issue("ranks by name", f"{_do_not(without)} {text} it from elsewhere in the path", without)
        elif ranks:
            text = f"contain a rank, and come after those that do: {self.listed(without)}; --rank-pattern can take it from"
            self.add_issue("unknown ranks", f"{_do_not(without)} {text} the path", without)

    def _find_launcher(self) -> None:
        """Take ranks of the innermost launcher, or of the first one further out that gave different ranks to all reports."""
        launched = [identity for identity in self.identities if not identity.ranks and identity.launches]
        for source in [launch.source for identity in launched[:1] for launch in identity.launches]:
            ranks = [launch.rank for identity in launched for launch in identity.launches if launch.source == source]
            if len(set(ranks)) == len(launched):
                self.identities = [_launched_by(identity, source) for identity in self.identities]
                return

    def _check_launchers(self) -> None:
        """Look for launchers that gave other ranks than those that are used, and as many."""
        launches: dict[str, dict[int, Launched]] = {}
        for index, identity in enumerate(self.identities):
            for launch in identity.launches if not identity.ranks else ():
                launches.setdefault(launch.source, {})[index] = launch
        for source, of_source in launches.items():
            # A job script passes its own rank on to whatever it starts: that is the same for all, mostly 0.
            values = {launch.rank for launch in of_source.values()}
            is_passed_on = values == {0} or (len(of_source) > 1 and len(values) == 1)
            differing = {
                index: f"{self.paths[index]}: {identity.launch_rank}, not {launch.rank}"
                for index, launch in of_source.items()
                if launch.rank != (identity := self.identities[index]).launch_rank
                and (launch.ranks or identity.ranks_of_run) == (identity.ranks_of_run or launch.ranks)
            }
            if differing and not is_passed_on:
                innermost = self.identities[min(differing)].launch_source
                self.add_issue(
                    "conflicting ranks",
                    f"{counted(len(differing), 'report')} with another rank by {source} than by {innermost}: the latter is "
                    f"used, as the innermost launcher ({_listed([*differing.values()])}); --rank-pattern can take the rank "
                    f"from the path",
                    differing,
                )

    def _set_rank(self, index: int, rank: int, source: str) -> None:
        identity = self.identities[index]
        if len(identity.ranks) > 1:
            # Several ranks in one report: the path can't have them all.
            return
        size = identity.ranks_of_run if identity.known_ranks == [rank] else None
        ranks = dict.fromkeys(identity.ranks, rank)
        identity = replace(identity, ranks=ranks, rank_source=source if ranks else "")
        self.identities[index] = replace(identity, launch_rank=rank, launch_source=source, ranks_of_run=size)

    def name_hosts(self, host_in: InPaths[str] | None, spans: Sequence[tuple[int, int] | None]) -> None:
        hosts: list[str | None] = [None] * len(self.paths)
        if host_in is not None:
            hosts = self.in_paths(host_in, "--host-pattern", "unknown hosts")
        for index, host in enumerate(hosts):
            if host is not None:
                self.identities[index] = replace(self.identities[index], host=host, host_source="--host-pattern")
        # In the order of ranks: the names of hosts must not depend on those of files.
        ranks = [identity.known_ranks for identity in self.identities]
        unnamed = [index for index, host in enumerate(hosts) if host is None]
        ordered = sorted(unnamed, key=lambda index: (not ranks[index], ranks[index][:1], index))
        for shared in shared_names(list(self.identities), spans, ordered):
            self._distinguish(shared)
        nameless = [index for index, identity in enumerate(self.identities) if not identity.host]
        if len(nameless) > 1:
            text = f"{len(nameless)} reports have no host name and are treated as reports of one host: {self.listed(nameless)}"
            self.add_issue("unknown hosts", f"{text}; --host-pattern can take it from the path", nameless)

    def _distinguish(self, shared: SharedName) -> None:
        used, reasons = {identity.host for identity in self.identities}, "; ".join(shared.reasons)
        free = (name for number in itertools.count(1) if (name := f"{shared.name or 'host'} ({number})") not in used)
        machines = [next(free) for _ in shared.machines]
        for name, members in zip(machines, shared.machines, strict=True):
            for index in members:
                identity = self.identities[index]
                self.identities[index] = replace(identity, host=name, host_source=f"distinguished: {reasons}")
        reports = list(itertools.chain.from_iterable(shared.machines))
        what = f"have the host name {shared.name}" if shared.name else "have no host name"
        self.add_issue(
            "hosts of one name",
            f"{counted(len(reports), 'report')} {what}, and are of {len(machines)} hosts ({reasons}): they are called "
            f"{_listed(machines)}; --host-pattern gives them other names",
            reports,
        )

    def check_ranks(self, by_rank: Mapping[int, list[int]], missing: Sequence[int], size: int) -> None:
        """Look for ranks in several reports, and in none."""
        several = {rank: members for rank, members in by_rank.items() if len(members) > 1}
        if several:
            first = min(several)
            what = "rank is" if len(several) == 1 else "ranks are"
            self.add_issue(
                "duplicate ranks",
                f"{len(several)} {what} in more than one report ({ranges(several)}; rank {first}: "
                f"{self.listed(several[first])}): reports of several runs, or the rank must be taken from the path "
                f"(--rank-pattern)",
                sorted({index for members in several.values() for index in members}),
            )
        if missing:
            without = sum(not identity.known_ranks for identity in self.identities)
            more = f"; of {counted(without, 'report')} the rank is not known" if without else ""
            what, are = ("rank", "is") if len(missing) == 1 else ("ranks", "are")
            of = f" of {size:,}" if missing[-1] < size else ""
            text = f"{what} {ranges(missing)}{of} {are} {NOT_AMONG_REPORTS}{more}"
            self.add_issue("missing ranks", text)
        if size > MOST_RANKS:
            text = f"the run would have {size:,} ranks, by a report or a path, and more than {MOST_RANKS:,} are not looked for"
            self.add_issue("missing ranks", text)

    def check_runs(self) -> None:
        """Look for reports of several jobs, or of jobs of different size."""
        by_kind: dict[str, dict[str, list[int]]] = {}
        sizes: dict[str, list[int]] = {}
        for index, identity in enumerate(self.identities):
            for kind, job in jobs(identity.environment).items():
                by_kind.setdefault(kind, {}).setdefault(job, []).append(index)
            if identity.ranks_of_run is not None:
                sizes.setdefault(f"{identity.ranks_of_run:,}", []).append(index)
        for kind, of_kind in by_kind.items():
            self._compare("different runs", f"the reports are of {len(of_kind)} runs", kind, of_kind)
        self._compare("different runs", "the reports are of runs of different size", "number of ranks", sizes)

    def check_periods(self, spans: Sequence[tuple[int, int] | None]) -> None:
        """Look for reports of separate times."""
        spans_utc = sorted(
            (identity.utc_ns + span[0], identity.utc_ns + span[1], self.paths[index], index)
            for index, (identity, span) in enumerate(zip(self.identities, spans, strict=True))
            if identity.utc_ns is not None and span is not None
        )
        periods: list[tuple[int, int, list[int]]] = []
        for begin, end, _, index in spans_utc:
            if not periods or begin > periods[-1][1] + CLOCKS_APART_NS:
                periods.append((begin, end, []))
            first, last, members = periods[-1]
            periods[-1] = first, max(last, end), [*members, index]
        if len(periods) > 1:
            texts = [
                f"{counted(len(members), 'report')} from {_moment(begin)} to {_moment(end)} ({self.listed(members)})"
                for begin, end, members in periods
            ]
            self.add_issue(
                "different runs",
                f"the reports are of {len(periods)} separate periods of time: {_listed(texts, '; ')}",
                [index for *_, members in periods for index in members],
            )

    def check_versions(self) -> None:
        """Look for reports of different versions of nsys."""
        versions: dict[str, list[int]] = {}
        for index, identity in enumerate(self.identities):
            schema = ".".join(map(str, identity.schema)) if identity.schema else ""
            versions.setdefault(identity.tool or (schema and f"schema {schema}") or "unknown", []).append(index)
        text = f"the reports come from {len(versions)} versions of nsys, which record differently"
        self._compare("mixed versions", text, "nsys", versions)

    def _compare(self, about: str, text: str, what: str, groups: Mapping[str, list[int]]) -> None:
        """An issue when reports are in more than one group."""
        if len(groups) > 1:
            texts = [
                f"{what} {name}: {counted(len(members), 'report')} ({self.paths[members[0]]}{', ...' if members[1:] else ''})"
                for name, members in groups.items()
            ]
            self.add_issue(about, f"{text}: {_listed(texts, '; ')}", itertools.chain.from_iterable(groups.values()))


def _launched_by(identity: Identity, source: str) -> Identity:
    launch = next((launch for launch in identity.launches if launch.source == source), None)
    if identity.ranks or launch is None or launch == identity.launches[0]:
        return identity
    return replace(identity, launch_rank=launch.rank, launch_source=launch.source, ranks_of_run=launch.ranks)


def rank_from(pattern: str) -> InPaths[int]:
    """Finds the rank in paths by a regular expression with one group; raises UsageError when it is no such."""
    groups = _groups("--rank-pattern", pattern)
    if groups != 1:
        raise UsageError(
            f"--rank-pattern {pattern}: it has {counted(groups, 'group')}; put brackets around the rank, as in 'rank(\\d+)'"
        )

    def ranks(paths: Sequence[Path]) -> list[int | None]:
        texts = first_group([as_utf8(path.as_posix()) for path in paths], pattern)
        numbers = [whole_number(text) for text in texts]
        for path, text, number in zip(paths, texts, numbers, strict=True):
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


def _do_not(reports: Sequence[object]) -> str:
    return "1 report does not" if len(reports) == 1 else f"{len(reports):,} reports do not"


def _listed(texts: Sequence[object], separator: str = ", ") -> str:
    shown = separator.join(map(str, texts[:_SHOWN]))
    return shown + (f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else "")


def _moment(utc_ns: int) -> str:
    return f"{datetime.fromtimestamp(utc_ns // 10**9, tz=timezone.utc):%Y-%m-%d %H:%M:%S}"


APART_NS = 60_000_000_000
"""How long after the end of one session another one of the same run can start: clocks of hosts may be seconds apart."""
_SAME_PROCESS_NS = 3600_000_000_000
"""How long after the end of one session another one of the same process can start: later, its id may be that of another one."""

_UNITS = ((86_400_000_000_000, "days"), (3600_000_000_000, "hours"), (60_000_000_000, "minutes"), (0, "s"))


def check_related(paths: Sequence[Path], identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None]) -> None:
    """Check that nothing shows that reports are of different runs.

    Reports of different jobs are. So are reports that were recorded one after the other, with a long time between them, unless
    they have the number of their job in common, or recorded the same process; and at any distance, of one rank on a host that
    is another process. Raises UnrelatedReports with two of the reports, and what differs. Identities have the hosts and
    processes in the run; spans are the first and last times, ns."""
    numbers = [jobs(identity.environment) for identity in identities]
    first_of: dict[str, int] = {}
    for index, of_report in enumerate(numbers):
        for kind, job in of_report.items():
            first = first_of.setdefault(kind, index)
            # A launcher that numbers its runs can be started several times in one job of the batch system.
            outermost = next(outer for outer in numbers[first] if outer in of_report)
            if numbers[first][kind] != job and numbers[first][outermost] != of_report[outermost]:
                raise UnrelatedReports(paths[first], paths[index], f"{kind} {job}, not {numbers[first][kind]}")
    _check_times(paths, identities, spans, numbers)


def _check_times(
    paths: Sequence[Path],
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    numbers: Sequence[Mapping[str, str]],
) -> None:
    """Look for times in which nothing was recorded, between reports that have no process in common: for long ones where they
    have no job in common either, and for any that parts two processes of a rank or, without ranks, of a program of a host."""
    starts = [(identity.utc_ns, index) for index, identity in enumerate(identities) if identity.utc_ns is not None]
    starts.sort(key=lambda start: (start[0], str(paths[start[1]])))
    ends = ((start + max(0, span[1] if (span := spans[index]) else 0), index) for start, index in starts)
    latest = list(itertools.accumulate(ends, max))

    def of_batch(reports: Sequence[tuple[int, int]]) -> set[tuple[str, str]]:
        """Kinds and numbers of the jobs of batch systems."""
        by_systems = (
            [(kind, job) for kind, job in numbers[index].items() if kind not in CHOSEN_BY_USERS] for _, index in reports
        )
        return {job for of_report in by_systems for job in of_report[:1]}

    def processes(reports: Sequence[tuple[int, int]]) -> set[tuple[str, int]]:
        return {(identities[index].host, pid_of(pid)) for _, index in reports for pid in identities[index].traced}

    def ranks_or_programs(reports: Sequence[tuple[int, int]]) -> set[tuple[str, str]]:
        found = [identities[index] for _, index in reports]
        ranks = {(of.host, f"rank {rank}") for of in found for rank in of.known_ranks}
        unranked = [of for of in found if of.host and not of.known_ranks]
        return ranks | {(of.host, name) for of in unranked for pid in of.traced if (name := of.processes.get(pid))}

    for place in range(1, len(starts)):
        end, last = latest[place - 1]
        gap = starts[place][0] - end
        if gap <= 0:
            continue
        before, after = starts[:place], starts[place:]
        again = ranks_or_programs(before) & ranks_or_programs(after)
        if not again and (gap <= APART_NS or of_batch(before) & of_batch(after)):
            continue
        if gap > _SAME_PROCESS_NS or not processes(before) & processes(after):
            unit, name = next((unit, name) for unit, name in _UNITS if gap >= unit)
            named = sorted(again) if gap <= _SAME_PROCESS_NS else []
            twice = "".join(f", and {what} of {host} is another process in it" for host, what in named[:1])
            what = f"that one ended at {_moment(end)} UTC, this one started {gap / (unit or 10**9):.1f} {name} later{twice}"
            raise UnrelatedReports(paths[last], paths[after[0][1]], what)
