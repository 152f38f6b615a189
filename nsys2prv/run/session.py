"""Reports of one run and what is settled over all of them: who is who, the time axis, what is kept of it, rows, labels.

What a translation and a measurement have in common: reports are looked over, settled, and then read group by group by whatever
does the work. One that breaks off ends all of it, or is left out; the others are settled anew then.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import polars as pl
from tqdm import tqdm

from nsys2prv.clocks.align import Axis, align
from nsys2prv.errors import InconsistentRun, NothingToTranslate, ReportError
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.sizes import REPORTS_AT_ONCE, ROWS_OF_GROUP
from nsys2prv.execution.workers import Workers
from nsys2prv.exports.nsys import NsysExport
from nsys2prv.run.open import BrokenReports, LeftOut, OpenedReport, open_reports
from nsys2prv.run.option_values import NvtxRange
from nsys2prv.run.ranks import Naming, Run, resolve_ranks
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.sources.source import Source
from nsys2prv.timeline.labels import EarlierLabels, Labels
from nsys2prv.timeline.rows import Rows, arrange
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.vocabulary.kernel_families import read_rules

R = TypeVar("R", bound=ReadOptions)
P = TypeVar("P")


def seen_by_workers(arguments: Sequence[str | Path], options: R) -> tuple[list[str | Path], R]:
    """Arguments and options whose paths mean the same to the workers of a cluster, which have working folders of their own."""
    if not options.scheduler:
        return list(arguments), options
    places = {name: path.absolute() for name in ("cache", "scratch") if (path := getattr(options, name)) is not None}
    return [Path(argument).absolute() for argument in arguments], replace(options, **places)


@dataclass(frozen=True)
class Group(Generic[P]):
    """A piece of work: some reports.

    Attributes
    ----------
    plan
        What is settled over all of them.
    reports
        Each with its number among all.
    folder
        For what is collected.
    on_disk
        Whether all of it goes there: another process goes on with it.
    keep_going
        Whether the rest is read after a report that breaks off.
    """

    plan: Shared[P]
    reports: tuple[tuple[int, OpenedReport], ...]
    folder: Path
    on_disk: bool
    keep_going: bool

    def own_folder(self) -> Path:
        """A folder of one attempt alone: another worker may have died over the same group."""
        return self.folder / f"group{self.reports[0][0]}-{secrets.token_hex(4)}"

    def each(self, step: Callable[[int, OpenedReport], object]) -> dict[int, ReportError]:
        """Do a step for each report; those that broke off, by number.

        Raises
        ------
        ReportError
            Of the first one, unless the others are to be read nevertheless.
        """
        broken: dict[int, ReportError] = {}
        for index, opened in self.reports:
            try:
                step(index, opened)
            except ReportError as error:
                if not self.keep_going:
                    raise
                broken[index] = error
        return broken


class FromGroup(Protocol):
    """What is made of a group: reports that broke off, by number; nothing of the group may be used then."""

    broken: dict[int, ReportError]


class FromAll(Protocol):
    """What is made of all reports: takes over what was made of each group, in the order of reports."""

    def absorb(self, made: Any, /) -> None: ...


C = TypeVar("C", bound=FromGroup)
W = TypeVar("W", bound=FromAll)


class RunSession:
    """Reports of one run, opened and arranged.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    sources
        What is wanted of them.
    how
        What to keep, and how clocks and names are tied together.
    folder
        For intermediate files.
    workers
        Who does the work.
    nvtx
        Keep only the time inside these ranges.
    fold_streams
        Take all streams of a device and process for one.
    earlier
        Labels that keep their numbers.

    Attributes
    ----------
    opened
        The reports that can be read.
    run, axis, windows, rows, labels
        Who is who, the time axis, what of it is kept, the rows, and numbers of types and values.

    Raises
    ------
    Nsys2prvError
        With one sentence for the user; here as in `arrange` and `read`.
    """

    run: Run
    axis: Axis
    windows: TimeSelection
    rows: Rows
    labels: Labels

    def __init__(
        self,
        arguments: Sequence[str | Path],
        sources: tuple[Source, ...],
        how: ReadOptions,
        folder: Path,
        workers: Workers,
        *,
        nvtx: NvtxRange | None = None,
        fold_streams: bool = False,
        earlier: EarlierLabels | None = None,
    ) -> None:
        self._how = how
        self._folder = folder
        self._workers = workers
        self._nvtx = nvtx
        self._earlier = earlier
        self._families = read_rules(how.kernel_families)
        self._naming = Naming.of(how.rank_pattern, how.host_pattern)
        self._broken = BrokenReports(how.keep_going)
        self._folders = itertools.count()
        with self.bar("surveying", 0, "table") as bar:
            self.opened = open_reports(
                arguments,
                sources,
                workers=workers,
                export=NsysExport(how.nsys, how.cache),
                folder=folder,
                broken=self._broken,
                bar=bar,
                # A time that was read off a trace of all sources must mean the same one in a trace of some.
                with_other_spans=how.time is not None,
                fold_streams=fold_streams,
            )
        self.arrange()

    @property
    def left_out(self) -> list[LeftOut]:
        """Reports that could not be read, and why."""
        return self._broken.left_out

    def arrange(self) -> None:
        """Settle all that is settled over all reports; no event is collected yet."""
        self._broken.without(self.opened, self._settle)

    def read(
        self,
        collect: Callable[..., C],
        begin: Callable[[Path], tuple[P, W]],
        rows: Callable[[OpenedReport], int],
        what: str,
    ) -> W:
        """Read the events of all reports, group by group. When one breaks off, the others are arranged and read anew.

        Parameters
        ----------
        collect
            What is done with a `Group[P]`; in this process, `tell` learns how many rows were read.
        begin
            Called before, and again before all is read anew, with a new folder for what is collected. Gives the plan, which is
            what `collect` needs of what is settled, and what takes over what it makes.
        rows
            How many rows are read of a report.
        what
            The work, for progress.
        """
        while True:
            folder = self._folder / f"attempt{next(self._folders)}"
            folder.mkdir()
            plan, whole = begin(folder)
            if self._read_all(collect, plan, folder, rows, what, whole):
                return whole
            # What was collected has the rows of reports that are left out now.
            shutil.rmtree(folder, ignore_errors=True)
            self.arrange()

    def _read_all(
        self,
        collect: Callable[..., C],
        plan: P,
        folder: Path,
        rows: Callable[[OpenedReport], int],
        what: str,
        whole: FromAll,
    ) -> bool:
        is_here = self._workers.is_here
        shared = Shared(plan, None if is_here else folder / "plan.pickle")
        of_reports = [rows(opened) for opened in self.opened]
        groups = [
            Group(shared, tuple((index, self.opened[index]) for index in group), folder, not is_here, self._how.keep_going)
            for group in self._workers.groups(of_reports, REPORTS_AT_ONCE, ROWS_OF_GROUP)
        ]
        broken: list[OpenedReport] = []
        with self.bar(what, sum(of_reports), "event") as bar:
            step = partial(collect, tell=bar.update) if is_here else collect
            for group, made in zip(groups, self._workers.map(step, groups), strict=True):
                for index, error in made.broken.items():
                    self._broken.leave_out(self.opened[index].report.path, error)
                    broken.append(self.opened[index])
                if not broken:
                    whole.absorb(made)
                if not is_here:
                    bar.update(sum(of_reports[index] for index, _ in group.reports))
        for opened in broken:
            self.opened.remove(opened)
        self._broken.check_rest(self.opened)
        return not broken

    def bar(self, what: str, total: int, unit: str) -> tqdm[Any]:
        """Shows progress, as the user wants it."""
        return tqdm(
            total=total,
            desc=what,
            unit=unit,
            unit_scale=True,
            disable=None if self._how.progress is None else not self._how.progress,
            file=sys.stderr,
            leave=False,
            delay=0.5,
        )

    def _settle(self) -> None:
        how = self._how
        spans = [opened.span for opened in self.opened]
        self.run = resolve_ranks(
            [opened.report.path for opened in self.opened],
            [opened.told for opened in self.opened],
            spans,
            self._naming,
            how.ranks,
        )
        errors = [finding.text for finding in self.run.findings if finding.kind.is_error]
        if how.strict and errors:
            raise InconsistentRun(errors)
        for opened, identity in zip(self.opened, self.run.identities, strict=True):
            opened.identity = identity
        identities = list(self.run.identities)
        self.axis = align(
            [opened.report for opened in self.opened],
            identities,
            spans,
            how.align,
            self._folder / f"clocks{next(self._folders)}",
            workers=self._workers,
            known=[opened.anchors for opened in self.opened],
        )
        for opened, anchors in zip(self.opened, self.axis.anchors, strict=False):
            opened.anchors = anchors
        self.windows = self._choose_windows()
        surveys = [opened.surveys for opened in self.opened]
        self.rows = arrange(identities, surveys, how.ranks)
        if self.rows.table.is_empty():
            raise NothingToTranslate("none of the ranks chosen has events" if how.ranks else "the reports hold no events")
        self.labels = Labels((found for of_report in surveys for found in of_report), self._earlier, self._families)

    def _choose_windows(self) -> TimeSelection:
        ends = [
            placement.at(opened.span[1])
            for opened, placement in zip(self.opened, self.axis.placements, strict=True)
            if opened.span is not None
        ]
        if not ends:
            raise NothingToTranslate("the reports hold no events of the sources chosen")
        windows = TimeSelection((0,), (max(*ends, 1),))
        if self._how.time is not None:
            begin, end = self._how.time.begin or 0, self._how.time.end
            whole = windows.length
            windows = windows.intersection(TimeSelection((begin,), (end if end is not None else max(whole, begin + 1),)))
            if not windows.begins:
                raise NothingToTranslate(f"the reports end {whole / 1e9:.6f} s after their first event, before the time chosen")
        if self._nvtx is not None:
            windows = windows.intersection(self._inside_nvtx(self._nvtx))
            if not windows.begins:
                domain = f" of domain {self._nvtx.domain!r}" if self._nvtx.domain else ""
                raise NothingToTranslate(f"no NVTX range{domain} is called {self._nvtx.name!r} in the time chosen")
        return windows

    def _inside_nvtx(self, wanted: NvtxRange) -> TimeSelection:
        stretches = [pl.DataFrame(schema={"begin": pl.Int64, "end": pl.Int64})]
        for opened, placement in zip(self.opened, self.axis.placements, strict=True):
            if not opened.report.has(nvtx_ranges.PUSHPOP.table) or opened.span is None:
                continue
            for source in (nvtx_ranges.PUSHPOP, nvtx_ranges.STARTEND):
                chosen = nvtx_ranges.ranges_in_domains(opened.report, source).filter(nvtx_ranges.is_called(wanted.name))
                if wanted.domain is not None:
                    chosen = chosen.filter(pl.col("domain") == wanted.domain)
                ends = pl.col("end").fill_null(opened.span[1])
                stretches.append(
                    opened.report.collect(chosen.select(begin=placement.of(pl.col("start")), end=placement.of(ends)))
                )
        return TimeSelection.union(pl.concat(stretches))
