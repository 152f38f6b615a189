"""The plan of a run: ranks and hosts, one time axis, the part of it that is kept, rows and labels, over all reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.clocks.align import Axis, align
from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.errors import ClocksDisagree, InconsistentRun, NothingToTranslate, first_of
from nsys2prv.execution.workers import Workers
from nsys2prv.run.clock_check import disagreement_text
from nsys2prv.run.nvtx_names import names_of_ranges
from nsys2prv.run.open import OpenedReport
from nsys2prv.run.option_values import NvtxRange, TimeRange
from nsys2prv.run.ranks import InPaths, RanksAndHosts, resolve_ranks
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.run.unrelated import check_related
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.timeline.labels import EarlierLabels, Labels
from nsys2prv.timeline.reader import TimelinePlan
from nsys2prv.timeline.rows import Rows, arrange
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.vocabulary.kernel_families import Rule
from nsys2prv.vocabulary.wording import did_you_mean_any


@dataclass(frozen=True)
class RunPlan:
    """What is known of a run before its events are read; `timeline` is what the reader of events needs."""

    reports: tuple[OpenedReport, ...]
    run: RanksAndHosts
    axis: Axis
    timeline: TimelinePlan

    @property
    def alignment(self) -> list[dict[str, Any]]:
        """How each report was placed and how well its times are known, for OUT.json.

        `first_ns`, `last_ns` are its first and last time on the axis, null without events; `clock` is the place of its clock
        among the clocks of the axis; the others as of `Placement` and `ClockError`.
        """
        return [
            {
                "method": placement.method,
                "offset_ns": placement.at(0),
                "drift_ppm": round(placement.drift_ppm, 4),
                **error.as_json(),
                "first_ns": placement.at(opened.span[0]) if opened.span else None,
                "last_ns": placement.at(opened.span[1]) if opened.span else None,
            }
            for opened, placement, error in zip(self.reports, self.axis.placements, self.axis.errors, strict=True)
        ]


def make_plan(
    opened: Sequence[OpenedReport],
    folder: Path,
    *,
    workers: Workers,
    options: ReadOptions,
    rank_in: InPaths[int] | None,
    host_in: InPaths[str] | None,
    families: tuple[Rule, ...],
    nvtx: NvtxRange | None,
    earlier: EarlierLabels | None,
    fit: Callable[[Rows], Rows] | None,
) -> RunPlan:
    """Plan a run.

    Parameters
    ----------
    opened
        Its reports.
    folder
        For the events that align clocks.
    workers
        Who reads them.
    options, nvtx
        How reports are read; keep only the time inside these ranges.
    rank_in, host_in
        What finds the rank and the host in the paths of reports; None: they are those that reports contain.
    families, earlier
        Families of kernels; labels that keep their numbers.
    fit
        Makes the rows keep the limits of an output format.

    Raises
    ------
    ReportError
        When a report breaks off.
    UnrelatedReports
        When reports are of different runs, and the options do not allow that.
    InconsistentRun
        With `strict`, when the reports are not those of one complete run, or (`ClocksDisagree`) what was placed on the axis
        contradicts itself.
    NothingToTranslate
        When no event is left after the selection.
    """
    spans = [one.span for one in opened]
    paths, reported = [one.report.path for one in opened], [one.reported for one in opened]
    run = resolve_ranks(paths, reported, spans, rank_in, host_in, options.ranks)
    errors = [issue.text for issue in run.issues if issue.kind.is_error]
    if options.strict and errors:
        raise InconsistentRun(errors)
    if not options.unrelated:
        check_related(paths, run.identities, spans)
    axis = align(
        [one.report for one in opened],
        run.identities,
        spans,
        options.align,
        folder,
        workers=workers,
    )
    if options.strict and axis.disagreements:
        raise ClocksDisagree(map(disagreement_text, axis.disagreements))
    # Of a report alone no sync points were looked for.
    sync_points: Sequence[SyncPoints | None] = axis.sync_points or [None] * len(opened)
    reports = tuple(
        replace(one, identity=identity, sync_points=points)
        for one, identity, points in zip(opened, run.identities, sync_points, strict=True)
    )
    selection = _select_time(reports, axis, options.time, nvtx)
    surveys = [one.surveys for one in reports]
    rows = arrange(run.identities, surveys, options.ranks)
    if rows.table.is_empty():
        raise NothingToTranslate("none of the ranks chosen has events" if options.ranks else "the reports hold no events")
    labels = Labels((survey for of_report in surveys for survey in of_report), earlier, families)
    timeline = TimelinePlan(axis.placements, selection, fit(rows) if fit is not None else rows, labels)
    return RunPlan(reports, run, axis, timeline)


def _select_time(reports: Sequence[OpenedReport], axis: Axis, time: TimeRange | None, nvtx: NvtxRange | None) -> TimeSelection:
    ends = [placement.at(one.span[1]) for one, placement in zip(reports, axis.placements, strict=True) if one.span is not None]
    if not ends:
        raise NothingToTranslate(
            f"{first_of(one.report.path for one in reports)}: no events of the sources that are read; see nsys2prv inspect, "
            "or record more: nsys profile --trace=cuda,nvtx,mpi,osrt"
        )
    selection = TimeSelection((0,), (max(*ends, 1),))
    if time is not None:
        begin, whole = time.begin or 0, selection.length
        end = time.end if time.end is not None else max(whole, begin + 1)
        selection = selection.intersection(TimeSelection((begin,), (end,)))
        if not selection.starts:
            raise NothingToTranslate(f"the reports end {whole / 1e9:.6f} s after their first event, before the time chosen")
    if nvtx is not None:
        ranges = [pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64}), *_nvtx_ranges(reports, axis, nvtx)]
        selection = selection.intersection(TimeSelection.union(pl.concat(ranges)))
        if not selection.starts:
            domain = f" of domain {nvtx.domain!r}" if nvtx.domain else ""
            near = did_you_mean_any(nvtx.name, names_of_ranges(one.report for one in reports), "inspect --nvtx")
            raise NothingToTranslate(f"no NVTX range{domain} is called {nvtx.name!r} in the time chosen{near}")
    return selection


def _nvtx_ranges(reports: Sequence[OpenedReport], axis: Axis, chosen: NvtxRange) -> Iterator[pl.DataFrame]:
    """Columns `start`, `end` (ns of the axis) of the ranges of a name."""
    for opened, placement in zip(reports, axis.placements, strict=True):
        if not opened.report.has(nvtx_ranges.PUSHPOP.table) or opened.span is None:
            continue
        for source in (nvtx_ranges.PUSHPOP, nvtx_ranges.STARTEND):
            found = nvtx_ranges.ranges_in_domains(opened.report, source).filter(nvtx_ranges.is_called(chosen.name))
            if chosen.domain is not None:
                found = found.filter(pl.col("domain") == chosen.domain)
            ends = pl.col("end").fill_null(opened.span[1])
            yield opened.report.collect(found.select(start=placement.of(pl.col("start")), end=placement.of(ends)))
