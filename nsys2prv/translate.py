"""From reports to one Paraver trace: the whole way of the data, once."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from tqdm import tqdm

from nsys2prv.account import Account
from nsys2prv.collecting import MESSAGES, REPORTS_AT_ONCE, ROWS_AT_ONCE, Collected, Group, Plan, collect, collections
from nsys2prv.errors import InconsistentRun, NothingToTranslate
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.workers import Workers, workers
from nsys2prv.kernel_families import read_rules
from nsys2prv.opened import BrokenReports, OpenedReport, open_reports
from nsys2prv.output import SUFFIXES, VIEWS, final_paths, publish, scratch_folder, staging_folder, without_suffix
from nsys2prv.paraver.pcf import read_earlier_labels, write_pcf
from nsys2prv.paraver.prv import header
from nsys2prv.paraver.reader import open_trace
from nsys2prv.paraver.row import write_row
from nsys2prv.paraver.trace_content import TraceContent
from nsys2prv.reports.nsys import NsysExport
from nsys2prv.reports.run import Naming, who_is_who
from nsys2prv.sources import nvtx, select_sources
from nsys2prv.timeline.axis import align
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.merge import Activity
from nsys2prv.timeline.messages import Messages
from nsys2prv.timeline.rows import arrange
from nsys2prv.timeline.selection import Windows
from nsys2prv.writing import pair_messages, write_trace

PARAVER_LARGE_BYTES = 500_000_000
"""wxParaver asks to cut traces above this size."""


@dataclass(frozen=True)
class TimeRange:
    """A stretch of the time axis, ns from the first event; None is open."""

    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class NvtxRange:
    """Name of a range, and of its domain (None: any)."""

    name: str
    domain: str | None = None


@dataclass(frozen=True)
class Options:
    """What to translate and how.

    Attributes
    ----------
    only, skip
        Names of sources (`nsys2prv.sources.NAMES`); an empty `only` means all.
    time, nvtx
        Parts of the time axis to keep.
    ranks
        Ranks to keep; None keeps everything.
    min_duration
        Intervals shorter than this are left out, ns.
    align
        How clocks are tied together: one of `timeline.axis.METHODS`.
    rank_pattern, host_pattern
        Where the rank, and the host, stand in paths of reports (`reports.run.Naming.of`).
    strict
        Reports that are not those of one complete run are an error.
    keep_going
        Reports that can't be read are left out.
    fold_streams
        All streams of a device and process become one row, or a few where events overlap.
    labels
        .pcf of an earlier trace: names keep the numbers that they have there.
    kernel_families
        Own rules for families of kernels, before those that come with the program (`kernel_families.read_rules`).
    no_views
        Leave out the views of the trace, OUT.cfgs.
    gzip
        Write .prv.gz.
    force
        Replace a former output.
    nsys, cache
        Program that exports .nsys-rep files, and folder for the exports.
    scratch
        Folder for intermediate files; by default the folder of the output.
    workers
        Processes on this machine that do the work; 0: this one does it.
    scheduler
        Address of a Dask scheduler whose workers do the work, or its scheduler file; "": none.
    progress
        Show progress; None: when stderr is a terminal.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    time: TimeRange | None = None
    nvtx: NvtxRange | None = None
    ranks: frozenset[int] | None = None
    min_duration: int = 0
    align: str = "auto"
    rank_pattern: str | None = None
    host_pattern: str | None = None
    strict: bool = False
    keep_going: bool = False
    fold_streams: bool = False
    labels: Path | None = None
    kernel_families: Path | None = None
    no_views: bool = False
    gzip: bool = False
    force: bool = False
    nsys: Path | None = None
    cache: Path | None = None
    scratch: Path | None = None
    workers: int = 0
    scheduler: str = ""
    progress: bool | None = None


@dataclass(frozen=True)
class Summary:
    """What was done: `content` is what stands in OUT.json, `prv` the trace."""

    prv: Path
    content: Mapping[str, Any]

    @property
    def left_out(self) -> int:
        """Number of reports that could not be read."""
        return len(self.content["left_out"])


def translate(arguments: Sequence[str | Path], out: Path, options: Options | None = None) -> Summary:
    """Translate reports into one Paraver trace: OUT.prv (or .prv.gz), OUT.pcf, OUT.row, OUT.json, and its views, OUT.cfgs.

    All of them appear under their names when all are complete, the trace last.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    out
        Path of the output without suffix (a .prv or .prv.gz is taken off).

    Raises
    ------
    Nsys2prvError
        With one sentence for the user; nothing of the output is left then, and a former output is whole.
    """
    options = options or Options()
    if options.scheduler:
        # Workers of a cluster have working folders of their own.
        arguments = [Path(argument).absolute() for argument in arguments]
        out = out.absolute()
        places = {name: path.absolute() for name in ("cache", "scratch") if (path := getattr(options, name)) is not None}
        options = replace(options, **places)
    base = without_suffix(out)
    final = final_paths(base, force=options.force)
    with (
        staging_folder(base) as staging,
        scratch_folder(options.scratch, staging) as scratch,
        # Within the folders: nobody writes there any more when they are removed.
        workers(options.workers, options.scheduler) as some,
    ):
        scratch.mkdir(exist_ok=True)
        some.share(staging, scratch)
        staged = {suffix: staging / f"trace{suffix}" for suffix in SUFFIXES}
        prv = ".prv.gz" if options.gzip else ".prv"
        translation = _Translation(arguments, options, scratch, some)
        content = translation.write(staged[prv], staged[".pcf"], staged[".row"], base.name)
        order = [".pcf", ".row", ".json", prv]
        if not options.no_views:
            # Templates are not loaded where no views are wanted.
            from nsys2prv.paraver.views import write_views

            has_messages = content["messages"]["written"] > 0
            found = TraceContent.of(open_trace(staged[prv]), translation.types, has_messages=has_messages)
            views = write_views(staged[VIEWS], found, final[prv], final[VIEWS])
            content["views"] = [{"path": one.path, "title": one.title} for one in views]
            order.insert(0, VIEWS)
        staged[".json"].write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        publish(staged, final, order)
        if options.no_views:
            # A former output's views are of another trace.
            shutil.rmtree(final[VIEWS], ignore_errors=True)
        # The other form of a former output would be read with these labels.
        final[".prv" if options.gzip else ".prv.gz"].unlink(missing_ok=True)
    return Summary(final[prv], content)


class _Translation:
    """One run of `translate`; each step needs the ones before it."""

    def __init__(self, arguments: Sequence[str | Path], options: Options, scratch: Path, workers: Workers) -> None:
        self._began = time.monotonic()
        self._options = options
        self._scratch = scratch
        self._workers = workers
        self._sources = select_sources(options.only, options.skip)
        self._earlier = read_earlier_labels(options.labels) if options.labels else None
        self._families = read_rules(options.kernel_families)
        self._hide_progress: bool | None = None if options.progress is None else not options.progress
        self._warnings: list[str] = []
        self._broken = BrokenReports(options.keep_going)
        self._attempts = itertools.count()
        self._folders = itertools.count()
        naming = Naming.of(options.rank_pattern, options.host_pattern)
        with self._bar("surveying", 0, "table") as bar:
            self._opened = open_reports(
                arguments,
                self._sources,
                workers=workers,
                export=NsysExport(options.nsys, options.cache),
                folder=scratch,
                broken=self._broken,
                bar=bar,
                # A time that was read off a trace of all sources must mean the same one in a trace of some.
                with_other_spans=options.time is not None,
                fold_streams=options.fold_streams,
            )
        self._arrange_all = partial(self._broken.without, self._opened, partial(self._arrange, naming))
        self._arrange_all()

    def _arrange(self, naming: Naming) -> None:
        """Settle who is who, the time axis, the rows and the labels; nothing is collected yet."""
        self._run = who_is_who(
            [opened.report.path for opened in self._opened],
            [opened.told for opened in self._opened],
            [opened.span for opened in self._opened],
            naming,
            self._options.ranks,
        )
        errors = [finding.text for finding in self._run.findings if finding.kind.is_error]
        if self._options.strict and errors:
            raise InconsistentRun(errors)
        for opened, identity in zip(self._opened, self._run.identities, strict=True):
            opened.identity = identity
        identities = list(self._run.identities)
        self._axis = align(
            [opened.report for opened in self._opened],
            identities,
            [opened.span for opened in self._opened],
            self._options.align,
            self._scratch / f"clocks{next(self._folders)}",
            workers=self._workers,
            known=[opened.anchors for opened in self._opened],
        )
        for opened, anchors in zip(self._opened, self._axis.anchors, strict=False):
            opened.anchors = anchors
        self._placements = self._axis.placements
        self._windows = self._choose_windows()
        surveys = [opened.surveys for opened in self._opened]
        self._rows = arrange(identities, surveys, self._options.ranks)
        if self._rows.table.is_empty():
            raise NothingToTranslate(
                "none of the ranks chosen has events" if self._options.ranks else "the reports hold no events"
            )
        self._labels = Labels((found for of_report in surveys for found in of_report), self._earlier, self._families)
        self._folder = self._scratch / f"attempt{next(self._attempts)}"
        self._folder.mkdir()
        self._plan = Shared(
            Plan(
                self._sources,
                self._options.skip,
                self._options.min_duration,
                self._placements,
                self._windows,
                self._rows,
                self._labels,
            ),
            None if self._workers.is_here else self._folder / "plan.pickle",
        )
        self._activity = Activity(self._folder / "activity")
        for name, shape in collections(self._opened).items():
            self._activity.add_collection(name, shape)
        self._messages = Messages(self._folder / "messages")
        self.types: set[int] = set()

    def write(self, prv: Path, pcf: Path, row: Path, title: str) -> dict[str, Any]:
        """Write the files of the trace; the result is what stands in OUT.json."""
        while not self._collect():
            # What was collected has the rows of reports that are left out now.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._arrange_all()
        self._messages, paired = pair_messages(self._messages, self._windows, self._workers, self._folder)
        self._activity.absorb(MESSAGES, paired)
        began = [opened.identity.utc_ns for opened in self._opened if opened.identity.utc_ns is not None]
        first_line = header(self._rows, self._windows.length, min(began, default=None))
        with self._bar("writing", self._activity.lines, "record") as bar:
            records = write_trace(prv, first_line, self._activity, self._rows.table, self._workers, self._folder, bar.update)
        write_pcf(pcf, self._labels.used)
        write_row(row, self._rows, title)
        size = prv.stat().st_size
        if size > PARAVER_LARGE_BYTES:
            self._warnings.append(
                f"the trace has {size / 1e6:.0f} MB and Paraver asks to cut traces above {PARAVER_LARGE_BYTES / 1e6:.0f} MB: "
                f"--time, --nvtx, --ranks, --skip and --min-duration make it smaller"
            )
        usual = asdict(Options())
        return Account(
            options={name: value for name, value in asdict(self._options).items() if value != usual[name]},
            opened=self._opened,
            left_out=self._broken.left_out,
            run=self._run,
            axis=self._axis,
            windows=self._windows,
            rows=self._rows,
            used_types=self._labels.used,
            messages=self._messages.as_json(),
            trace_bytes=size,
            trace_records=records,
            seconds=time.monotonic() - self._began,
            warnings=self._warnings,
        ).as_json()

    def _collect(self) -> bool:
        """Collect the events of all reports; False when one broke off on the way and they must be collected anew."""
        rows = [opened.rows for opened in self._opened]
        pieces = [
            Group(
                self._plan,
                tuple((index, self._opened[index]) for index in group),
                self._folder,
                not self._workers.is_here,
                self._options.keep_going,
            )
            for group in self._workers.groups(rows, REPORTS_AT_ONCE, ROWS_AT_ONCE)
        ]
        broken: list[OpenedReport] = []
        with self._bar("translating", sum(rows), "event") as bar:
            step = partial(collect, tell=bar.update) if self._workers.is_here else collect
            for piece, collected in zip(pieces, self._workers.map(step, pieces), strict=True):
                for index, error in collected.broken.items():
                    self._broken.leave_out(self._opened[index].report.path, error)
                    broken.append(self._opened[index])
                if not broken:
                    self._take_over(collected)
                if not self._workers.is_here:
                    bar.update(sum(rows[index] for index, _ in piece.reports))
        for opened in broken:
            self._opened.remove(opened)
        self._broken.check_rest(self._opened)
        return not broken

    def _take_over(self, collected: Collected) -> None:
        self._activity.absorb_all(collected.activity)
        self._messages.absorb(collected.messages)
        self.types |= collected.types
        for index, tables in collected.tables.items():
            self._opened[index].tables = tables
        for number, lane, beside in sorted(collected.lanes):
            self._labels.use_lane(number, lane, beside)

    def _choose_windows(self) -> Windows:
        ends = [
            placement.at(span[1])
            for opened, placement in zip(self._opened, self._placements, strict=True)
            if (span := opened.span) is not None
        ]
        if not ends:
            raise NothingToTranslate("the reports hold no events of the sources chosen")
        windows = Windows((0,), (max(*ends, 1),))
        if self._options.time is not None:
            begin, end = self._options.time.begin or 0, self._options.time.end
            whole = windows.length
            windows = windows.intersection(Windows((begin,), (end if end is not None else max(whole, begin + 1),)))
            if not windows.begins:
                raise NothingToTranslate(f"the reports end {whole / 1e9:.6f} s after their first event, before the time chosen")
        if self._options.nvtx is not None:
            windows = windows.intersection(self._inside_nvtx(self._options.nvtx))
            if not windows.begins:
                domain = f" of domain {self._options.nvtx.domain!r}" if self._options.nvtx.domain else ""
                raise NothingToTranslate(f"no NVTX range{domain} is called {self._options.nvtx.name!r} in the time chosen")
        return windows

    def _inside_nvtx(self, wanted: NvtxRange) -> Windows:
        stretches = [pl.DataFrame(schema={"begin": pl.Int64, "end": pl.Int64})]
        for opened, placement in zip(self._opened, self._placements, strict=True):
            if not opened.report.has(nvtx.PUSHPOP.table) or opened.span is None:
                continue
            for source in (nvtx.PUSHPOP, nvtx.STARTEND):
                chosen = nvtx.ranges_in_domains(opened.report, source).filter(nvtx.is_called(wanted.name))
                if wanted.domain is not None:
                    chosen = chosen.filter(pl.col("domain") == wanted.domain)
                ends = pl.col("end").fill_null(opened.span[1])
                stretches.append(
                    opened.report.collect(chosen.select(begin=placement.of(pl.col("start")), end=placement.of(ends)))
                )
        return Windows.union(pl.concat(stretches))

    def _bar(self, what: str, total: int, unit: str) -> tqdm[Any]:
        return tqdm(
            total=total,
            desc=what,
            unit=unit,
            unit_scale=True,
            disable=self._hide_progress,
            file=sys.stderr,
            leave=False,
            delay=0.5,
        )
