"""Reports that are not of one run: a trace of several runs would be one of hours or years in which nothing happens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from nsys2prv.errors import UnrelatedReports
from nsys2prv.exports.columns import pid_of
from nsys2prv.exports.identity import Identity
from nsys2prv.exports.launchers import CHOSEN_BY_USERS, jobs

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
