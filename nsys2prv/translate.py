"""From reports to one Paraver trace: the whole way of the data, once."""

from __future__ import annotations

import itertools
import json
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from tqdm import tqdm

import nsys2prv
from nsys2prv import ledger
from nsys2prv.errors import InconsistentRun, NothingToTranslate, ReportError
from nsys2prv.execution.runs import SortedRuns
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.kernel_families import read_rules
from nsys2prv.ledger import Entry
from nsys2prv.opened import BrokenReports, OpenedReport, open_reports
from nsys2prv.output import SUFFIXES, VIEWS, final_paths, publish, scratch_folder, staging_folder, without_suffix
from nsys2prv.paraver.pcf import read_earlier_labels, write_pcf
from nsys2prv.paraver.prv import TraceWriter, header
from nsys2prv.paraver.reader import open_trace
from nsys2prv.paraver.row import write_row
from nsys2prv.paraver.trace_content import TraceContent
from nsys2prv.paraver.views import write_views
from nsys2prv.reports import Report
from nsys2prv.reports.identity import PID_MASK
from nsys2prv.reports.nsys import NsysExport
from nsys2prv.reports.run import Naming, who_is_who
from nsys2prv.reports.tables import Stretch
from nsys2prv.sources import SOURCES, RowKind, Source, kinds_with_messages, nvtx, select_sources
from nsys2prv.sources.messages import kinds_of_messages, message_ends
from nsys2prv.sources.source import LEFT_OUT, REPAIRED, count_rows
from nsys2prv.timeline import states
from nsys2prv.timeline.axis import align
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.merge import Activity, Shape
from nsys2prv.timeline.messages import Messages
from nsys2prv.timeline.overlaps import StreamLanes
from nsys2prv.timeline.place import EventsOfSource, types_of
from nsys2prv.timeline.rows import arrange
from nsys2prv.timeline.selection import Windows
from nsys2prv.timeline.survey import Survey, complete

PARAVER_LARGE_BYTES = 500_000_000
"""wxParaver asks to cut traces above this size."""

_PIECE_ROWS = 30_000
"""Events that are placed at once."""

_LAUNCH_ROWS = 200_000
"""Ends of launch lines that wait for the other ends of all reports; more are paired before the next report."""

_ROWS_AT_ONCE = 75_000
"""Rows of a table from which on several threads read it."""
_MOST_PARTS = 4

_STATES, _LAUNCHES, _MESSAGES = "states", "launch lines", "messages between ranks"


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
    views
        Render views of the trace, into OUT.cfgs.
    kernel_families
        Own rules for families of kernels, before those that come with the program (`kernel_families.read_rules`).
    gzip
        Write .prv.gz.
    force
        Replace a former output.
    nsys, cache
        Program that exports .nsys-rep files, and folder for the exports.
    scratch
        Folder for intermediate files; by default the folder of the output.
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
    views: bool = True
    kernel_families: Path | None = None
    gzip: bool = False
    force: bool = False
    nsys: Path | None = None
    cache: Path | None = None
    scratch: Path | None = None
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
    base = without_suffix(out)
    final = final_paths(base, force=options.force)
    with staging_folder(base) as staging, scratch_folder(options.scratch, staging) as scratch:
        staged = {suffix: staging / f"trace{suffix}" for suffix in SUFFIXES}
        prv = ".prv.gz" if options.gzip else ".prv"
        translation = _Translation(arguments, options, scratch)
        content = translation.write(staged[prv], staged[".pcf"], staged[".row"], base.name)
        order = [".pcf", ".row", ".json", prv]
        if options.views:
            found = TraceContent.of(open_trace(staged[prv]), translation.types)
            views = write_views(staged[VIEWS], found, final[prv], final[VIEWS])
            content["views"] = [{"path": one.path, "title": one.title} for one in views]
            order.insert(0, VIEWS)
        staged[".json"].write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        publish(staged, final, order)
        if not options.views:
            # A former output's views are of another trace.
            shutil.rmtree(final[VIEWS], ignore_errors=True)
        # The other form of a former output would be read with these labels.
        final[".prv" if options.gzip else ".prv.gz"].unlink(missing_ok=True)
    return Summary(final[prv], content)


@dataclass
class _Made:
    """What the translation of one source gives."""

    events: SortedRuns
    edges: SortedRuns
    launches: Launches
    entry: Entry
    types: set[int] = field(default_factory=set)


class _Translation:
    """One run of `translate`; each step needs the ones before it."""

    def __init__(self, arguments: Sequence[str | Path], options: Options, scratch: Path) -> None:
        self._began = time.monotonic()
        self._options = options
        self._scratch = scratch
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
        )
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
        self._activity = Activity(self._folder / "activity")
        # Threads and streams are different rows: their states are found at once.
        self._edges = {kind: SortedRuns(["time"], self._folder / f"edges-{kind.name}") for kind in RowKind}
        self._ordered = SortedRuns(["start"], self._folder / "ordered")
        self._launches: list[Launches] = []
        self._messages = Messages(self._folder / "messages")
        self.types: set[int] = set()

    def write(self, prv: Path, pcf: Path, row: Path, title: str) -> dict[str, Any]:
        """Write the files of the trace; the result is what stands in OUT.json."""
        while not self._translate_reports():
            # What was collected has the rows of reports that are left out now.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._arrange_all()
        work = [(_LAUNCHES, pair) for pair in self._pairs()]
        work.append((_MESSAGES, partial(self._pair_messages, self._activity.part(_MESSAGES, Shape.MESSAGES))))
        for kind in self._edges:
            work.append((_STATES, partial(self._sweep_states, kind, self._activity.part(_STATES, Shape.STATES))))
        for (name, _), made in zip(work, run_all([piece for _, piece in work]), strict=True):
            self._activity.absorb(name, made)
        began = [opened.identity.utc_ns for opened in self._opened if opened.identity.utc_ns is not None]
        first_line = header(self._rows, self._windows.length, min(began, default=None))
        with (
            self._bar("writing", self._activity.lines, "record") as bar,
            TraceWriter(prv, first_line, self._rows.table) as writer,
        ):
            for sorted_records in self._activity.merge(self._rows.table):
                writer.write(sorted_records)
                bar.update(sorted_records.height)
        write_pcf(pcf, self._labels.used)
        write_row(row, self._rows, title)
        size = prv.stat().st_size
        if size > PARAVER_LARGE_BYTES:
            self._warnings.append(
                f"the trace has {size / 1e6:.0f} MB and Paraver asks to cut traces above {PARAVER_LARGE_BYTES / 1e6:.0f} MB: "
                f"--time, --nvtx, --ranks, --skip and --min-duration make it smaller"
            )
        return self._content(size, writer.records)

    def _translate_reports(self) -> bool:
        """Collect the events of all reports; False when one broke off on the way and they must be collected anew."""
        total = sum(found.rows for opened in self._opened for found in opened.surveys)
        broken = []
        with self._bar("translating", total, "event") as bar:
            for index, opened in enumerate(self._opened):
                if sum(launches.rows for launches in self._launches) > _LAUNCH_ROWS:
                    for made in run_all(self._pairs()):
                        self._activity.absorb(_LAUNCHES, made)
                try:
                    self._translate_report(index, opened, bar)
                    self._collect_messages(index, opened)
                except ReportError as error:
                    self._broken.leave_out(opened.report.path, error)
                    broken.append(opened)
        for opened in broken:
            self._opened.remove(opened)
        self._broken.check_rest(self._opened)
        return not broken

    def _pairs(self) -> list[Callable[[Stop], SortedRuns]]:
        """The work of pairing what waits for it."""
        waiting, self._launches = self._launches, []
        return [partial(self._pair_launches, one, self._activity.part(_LAUNCHES, Shape.MESSAGES)) for one in waiting]

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

    def _translate_report(self, index: int, opened: OpenedReport, bar: tqdm[Any]) -> None:
        launches = Launches.in_folder(self._folder / f"launches{next(self._folders)}")
        work: list[Callable[[Stop], _Made]] = []
        of_survey: list[Survey] = []
        of_sources: list[Entry] = []
        for found in opened.surveys:
            events = EventsOfSource(
                found,
                self._rows.keys.get((index, found.source.row)),
                self._labels,
                self._windows,
                placement=self._placements[index],
                first_cpu=self._rows.first_cpu(opened.identity.host),
                # What is not closed ends with the report.
                report_end=opened.span[1] if opened.span else 0,
                min_duration=self._options.min_duration,
            )
            of_sources.append(Entry.of(found.source))
            parts = 1 if _read_at_once(found) else min(found.rows // _ROWS_AT_ONCE, _MOST_PARTS)
            for stretch in opened.report.tables.stretches(found.source.table, parts):
                made = _Made(
                    self._activity.part(_collection(found.source), events.shape),
                    self._edges[found.source.row].part(),
                    launches.part(),
                    Entry.of(found.source),
                )
                work.append(partial(self._translate_source, opened.view, found, events, stretch, made, bar))
                of_survey.append(found)
        entries = dict(zip(map(id, opened.surveys), of_sources, strict=True))
        results = run_all(work)
        for found, made in zip(of_survey, results, strict=True):
            entries[id(found)].absorb(made.entry)
        # The last that is read of the report: from here on it is whole, and what was made of it is taken over.
        opened.tables = ledger.account(opened.report, of_sources, self._sources, SOURCES)
        for found, made in zip(of_survey, results, strict=True):
            self.types |= made.types
            self._activity.absorb(_collection(found.source), made.events)
            self._edges[found.source.row].absorb(made.edges)
            launches.absorb(made.launches)
        self._launches.append(launches)

    def _sweep_states(self, kind: RowKind, made: SortedRuns, stop: Stop) -> SortedRuns:
        rows = self._rows.table.filter(pl.col("kind") == kind.name.lower())
        for found in states.sweep(self._edges[kind], rows, self._windows):
            stop.check()
            made.add(found)
        return made

    def _pair_launches(self, launches: Launches, made: SortedRuns, stop: Stop) -> SortedRuns:
        for messages in launches.messages():
            stop.check()
            made.add(messages)
        return made

    def _collect_messages(self, index: int, opened: OpenedReport) -> None:
        """Ends of messages of a report, on rows and on the time axis."""
        threads = self._rows.keys.get((index, RowKind.THREAD))
        kinds = kinds_of_messages(opened.report, kinds_with_messages(self._sources, self._options.skip))
        if threads is None or not kinds:
            return
        ranks = {tid & PID_MASK: self._rows.rank(row) for tid, row in threads.select("globalTid", "row").iter_rows()}
        known = {process: rank for process, rank in ranks.items() if rank is not None}
        placement = self._placements[index]
        made = self._messages.part()
        for ends in message_ends(opened.report, known, self._folder / f"messages{index}", kinds):
            placed = ends.join(threads, on="globalTid", how="inner", maintain_order="left")
            made.add(placed.with_columns(placement.of(pl.col("start")), placement.of(pl.col("end"))))
        self._messages.absorb(made)

    def _pair_messages(self, made: SortedRuns, stop: Stop) -> SortedRuns:
        for messages in self._messages.messages(self._windows):
            stop.check()
            made.add(messages)
        return made

    def _translate_source(
        self,
        report: Report,
        found: Survey,
        events: EventsOfSource,
        stretch: Stretch | None,
        made: _Made,
        bar: tqdm[Any],
        stop: Stop,
    ) -> _Made:
        for piece in self._pieces(report, found, stretch, made.entry):
            stop.check()
            for placed in events.place(piece, made.entry, made.launches):
                if "state" in placed.columns:
                    made.edges.add(states.edges(placed))
                narrowed = events.narrow(placed)
                made.types |= types_of(narrowed)
                made.events.add(narrowed)
            bar.update(piece.height)
        return made

    def _pieces(self, report: Report, found: Survey, stretch: Stretch | None, entry: Entry) -> Iterator[pl.DataFrame]:
        """Events of a source in pieces; in the order of their begin when something needs that."""
        source = found.source
        if source.gather is not None:
            folder = self._folder / f"gather{next(self._folders)}"
            pieces: Iterator[pl.DataFrame] = (piece.lazy().pipe(complete).collect() for piece in source.gather(report, folder))
        else:
            pieces = report.pieces(lambda piecewise: complete(source.frame(piecewise)), _PIECE_ROWS, stretch)
        step: Callable[[pl.DataFrame], pl.DataFrame] | None = None
        if source.in_order is not None:
            step = source.in_order()
        elif found.overlaps:
            step = StreamLanes(found.keys)
        if step is None:
            for piece in pieces:
                yield _accounted(piece, entry)
            return
        ordered = self._ordered.part()
        for piece in pieces:
            taken = _accounted(piece, entry)
            told = taken.drop_nulls("start")
            entry.leave_out(ledger.NO_TIME, count_rows(taken) - count_rows(told))
            ordered.add(told)
        for window in ordered.windows():
            kept = step(window)
            entry.leave_out(ledger.SAME_CALL, count_rows(window) - count_rows(kept))
            yield kept

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

    def _content(self, size: int, written: int) -> dict[str, Any]:
        reports = []
        for opened, placement in zip(self._opened, self._placements, strict=True):
            identity = opened.identity
            reports.append(
                {
                    "path": str(opened.report.path),
                    "form": opened.report.tables.form,
                    "host": identity.host,
                    "nsys": identity.tool,
                    "schema": list(identity.schema) if identity.schema else None,
                    "host_source": identity.host_source or None,
                    "ranks": identity.known_ranks,
                    "rank_source": identity.known_ranks_source,
                    "gpus": [asdict(gpu) for gpu in identity.gpus],
                    "nics": [nic.as_json() for nic in identity.nics],
                    "alignment": {
                        "method": placement.method,
                        "offset_ns": placement.at(0),
                        "drift_ppm": round(placement.drift_ppm, 4),
                    },
                    "tables": opened.tables,
                    "warnings": list(identity.warnings),
                }
            )
        defaults = asdict(Options())
        chosen = {key: value for key, value in asdict(self._options).items() if value != defaults[key]}
        return {
            "format": 1,
            "nsys2prv": nsys2prv.__version__,
            "python": platform.python_version(),
            "polars": pl.__version__,
            "options": json.loads(
                json.dumps(chosen, default=lambda value: sorted(value) if isinstance(value, frozenset) else str(value))
            ),
            "trace": {
                "bytes": size,
                "records": written,
                "length_ns": self._windows.length,
                "origin_ns": self._windows.origin,
                "windows_ns": [list(window) for window in zip(self._windows.begins, self._windows.ends, strict=True)][:1000],
                "nodes": len(self._rows.nodes),
                "tasks": len(self._rows.tasks),
                "rows": self._rows.table.height,
            },
            "messages": self._messages.as_json(),
            "run": {
                "ranks": list(self._run.ranks),
                "size": self._run.size,
                "missing": list(self._run.missing),
                "findings": [
                    {
                        "about": finding.kind.value[0],
                        "is_error_with_strict": finding.kind.is_error,
                        "text": finding.text,
                        "reports": list(map(str, finding.reports)),
                    }
                    for finding in self._run.findings
                ],
            },
            "left_out": [{"path": str(one.path), "error": str(one.error)} for one in self._broken.left_out],
            "seconds": round(time.monotonic() - self._began, 3),
            "clocks": [clock.as_json() for clock in self._axis.clocks],
            "reports": reports,
            "nodes": [{"name": node.name, "cpus": node.cpus} for node in self._rows.nodes],
            "tasks": [
                {
                    "name": task.name,
                    "node": self._rows.nodes[task.node].name,
                    "rank": task.rank,
                    "pid": task.pid,
                    "report": str(self._opened[task.report].report.path) if task.report is not None else None,
                    "threads": [thread.name for thread in task.threads],
                    # By the number of the thread in the trace.
                    "nvtx_names": {number: thread.given for number, thread in enumerate(task.threads, 1) if thread.given},
                }
                for task in self._rows.tasks
            ],
            "event_types": [{"number": used.number, "label": used.label} for used in self._labels.used],
            "warnings": [
                *(f"left out: {one.error}" for one in self._broken.left_out),
                *(finding.text for finding in self._run.findings),
                *self._axis.warnings,
                *self._warnings,
            ],
        }


def _accounted(piece: pl.DataFrame, entry: Entry) -> pl.DataFrame:
    """Events of a piece that go on, without the columns that are for the ledger."""
    entry.read += count_rows(piece)
    if LEFT_OUT in piece.columns and piece[LEFT_OUT].null_count() < piece.height:
        for (reason,), rows in piece.drop_nulls(LEFT_OUT).partition_by(LEFT_OUT, as_dict=True).items():
            entry.leave_out(str(reason), count_rows(rows))
        piece = piece.filter(pl.col(LEFT_OUT).is_null())
    if REPAIRED in piece.columns:
        entry.repaired += int(piece[REPAIRED].sum())
    return piece.drop(LEFT_OUT, REPAIRED, strict=False)


def _read_at_once(found: Survey) -> bool:
    """Whether a table must be read as a whole: events are needed in order, or come from several tables."""
    return found.source.in_order is not None or found.overlaps or found.source.gather is not None


def _collection(source: Source) -> str:
    """Name of what is collected of a source: its events have the same columns in all reports."""
    return f"{source.title}, {source.table}"
