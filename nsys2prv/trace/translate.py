"""From reports to one Paraver trace: the whole data flow, read from top to bottom; and what OUT.json says of it."""

import contextlib
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.clocks.agreement import Disagreement
from nsys2prv.errors import OutputError, OutputExists, UsageError, counted
from nsys2prv.execution.output_files import output_errors, publish, scratch_folder, staging_folder
from nsys2prv.execution.workers import workers
from nsys2prv.exports.paths import check_kept
from nsys2prv.paraver.label_files import read_earlier_labels
from nsys2prv.paraver.trace_files import VIEWS, companion, without_suffix
from nsys2prv.paraver.trace_format import ParaverFormat
from nsys2prv.run.open import OpenedReport
from nsys2prv.run.ranks import RanksAndHosts
from nsys2prv.run.session import RunPlan, RunSession, disagreement_text, seen_by_workers
from nsys2prv.sources.registry import select_sources
from nsys2prv.timeline.messages import latencies
from nsys2prv.timeline.records import TimelineHead, communicators_of, ranges_as_json, ranges_of_types_as_json, row_ranges
from nsys2prv.timeline.rows import Rows
from nsys2prv.timeline.time_axis import TimeSelection
from nsys2prv.trace.collect import LAUNCHES, MESSAGES, PATH, PATH_LINES, TraceRecords
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.trace.write import TraceFormat, TraceStore, pair_messages, write_trace
from nsys2prv.vocabulary import __version__, wording
from nsys2prv.vocabulary.printable import printable_lines, safe_json
from nsys2prv.vocabulary.wording import known_to, ranks_of_run

FORMAT = 1
"""Version of the form of OUT.json: it changes when something in it changes its meaning."""
SUMMARY = ".json"
"""Suffix of OUT.json."""
_MOST_WINDOWS = 1000
_NO_EVENTS = "no event is in the selected time, ranks and sources: the trace has states only"


@dataclass(frozen=True)
class Summary:
    """A trace that was written: `prv` is its file, `content` that of OUT.json."""

    prv: Path
    content: Mapping[str, Any]

    @property
    def left_out(self) -> int:
        """Number of reports that could not be read."""
        return len(self.content["left_out"])

    @property
    def warnings(self) -> list[str]:
        """What is odd or missing; what several reports share is there once."""
        reports: dict[str, list[str]] = {}
        for report in self.content["reports"]:
            for warning in report["warnings"]:
                reports.setdefault(warning, []).append(report["path"])
        of_reports = [
            f"{paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {warning}"
            for warning, paths in reports.items()
        ]
        return [*of_reports, *self.content["warnings"]]

    def as_text(self) -> str:
        """What was read and written, for a terminal."""
        content, trace = self.content, self.content["trace"]
        written: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        for table in (table for report in content["reports"] for table in report["tables"]):
            left_out.update(table["left_out"])
            for source in table["sources"]:
                written[source["title"]] += source["written"]
                left_out.update(source["left_out"])
        sizes = ", ".join(counted(trace[what], what[:-1]) for what in ("records", "nodes", "tasks", "rows"))
        length = f"{trace['length_ns'] / 1e9:.6f} s"
        lines = [f"{self.prv}: {trace['bytes'] / 1e6:.1f} MB, {length}, {sizes}; made in {content['seconds']:.1f} s"]
        if ranks := content["run"]["ranks"]:
            origins = {report["rank_source"] for report in content["reports"] if report["rank_source"]}
            numbers = ranks_of_run(ranks, content["run"]["size"])
            lines.append(f"  {'rank' if len(ranks) == 1 else 'ranks'} {numbers}, from {', '.join(sorted(origins))}")
        counts = [(count, title) for title, count in written.items() if count]
        counts += _counts_of_messages(content["messages"])
        counts += [(count, f"{'row' if count == 1 else 'rows'} left out: {reason}") for reason, count in left_out.items()]
        if "views" in content:
            counts.append((len(content["views"]), f"views, listed in {companion(self.prv, VIEWS) / 'index.html'}"))
        lines += [f"  {count:>12,}  {text}" for count, text in counts]
        methods = ", ".join(sorted({report["alignment"]["method"] for report in content["reports"]}))
        clocks = [clock["interval_ns"]["worst"] for clock in content["clocks"]]
        synchronized = f", clocks synchronized by {methods} ({known_to(clocks)})" if len(clocks) > 1 else ""
        reports, summary = counted(len(content["reports"]), "report"), companion(self.prv, SUMMARY)
        return printable_lines([*lines, f"  {reports}{synchronized}; full summary in {summary}"])


def _contradicted_launches(store: TraceStore, rows: Rows) -> list[str]:
    """That times of a device contradict those of its host, in the first window with launches, for the row where most do."""
    frames: list[pl.DataFrame] = next(filter(None, map(store.sorts[LAUNCHES].load, store.windows())), [])
    wrong = latencies(pl.concat(frames), "to_row").filter("is_early").sort("least").head(1) if frames else pl.DataFrame()
    for row, least, _ in wrong.iter_rows():
        task, thread = rows.table.select("task", "thread").row(row)
        name, most = rows.tasks[task - 1].threads[thread - 1].name.strip(), wording.time(-least)
        return [f"times of {name} contradict those of its host: most work begins before its launch, by up to {most}"]
    return []


def _counts_of_messages(messages: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Messages between ranks that were written or left out; nothing where there are none."""
    counts = [(messages["written"], "messages between ranks")] if messages["matched"] else []
    if messages["backward"]:
        counts.append((messages["backward"], "of these arrive before they are sent: clocks are not well synchronized"))
    counts += [(count, f"messages left out: {reason}") for reason, count in messages["left_out"].items()]
    for what, reasons in messages["unmatched"].items():
        counts += [(count, f"{what} without a message: {reason}") for reason, count in reasons.items()]
    return counts


def translate(arguments: Sequence[str | Path], out: Path, options: TranslateOptions | None = None) -> Summary:
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
    started = time.monotonic()
    arguments, options = seen_by_workers(arguments, options or TranslateOptions())
    if options.critical_path and (options.fold_streams or options.nvtx):
        raise UsageError("--critical-path needs all streams and one stretch of time: leave out --fold-streams and --nvtx")
    trace_format: TraceFormat = ParaverFormat(compressed=options.gzip, with_views=not options.no_views)
    base = without_suffix(out.absolute() if options.scheduler else out)
    final = _final_paths(base, trace_format, force=options.force)
    # Not --labels: the labels of a former output may be those of its successor.
    check_kept(final.values(), [*arguments, *options.files_read])
    with contextlib.ExitStack() as stack:
        staging = scratch = stack.enter_context(staging_folder(base))
        if options.scratch is not None:
            scratch = stack.enter_context(scratch_folder(options.scratch, os.path.abspath(base)))
        # Within the folders: nobody writes there any more when they are removed.
        pool = stack.enter_context(workers(options.workers, options.scheduler, options.memory, {staging, scratch}))
        # Reports to events: the reports are opened, planned and read; their events become sorted runs of records.
        sources = select_sources(options.only, options.skip)
        session = RunSession(
            arguments,
            sources,
            options,
            scratch,
            pool,
            nvtx=options.nvtx,
            fold_streams=options.fold_streams,
            earlier=read_earlier_labels(options.labels) if options.labels else None,
            fit=trace_format.fit,
        )
        collected = session.read(partial(TraceRecords, options, sources), attrgetter("rows"), "translating")
        path = None
        if options.critical_path:
            # Modules of the measurement take long to load.
            from nsys2prv.trace.path_records import critical_path_records

            path = critical_path_records(session, arguments, collected.folder)
            collected.sorts[PATH].absorb(path.intervals)
            collected.sorts[PATH_LINES].absorb(path.lines)
            collected.types.update(used_type.number for used_type in path.used_types)
            collected.on_rows.add(path.on_rows.rows)
        plan = session.plan
        with session.bar("pairing messages"):
            messages, paired = pair_messages(collected.messages, plan.timeline.selection, pool, collected.folder)
            collected.sorts[MESSAGES].absorb(paired)
        # Events to files: the records are merged in the order of time, and names are written beside them.
        head = _head(plan)
        for opened in plan.reports:
            # All events were read: what is written next can have the place.
            opened.report.tables.delete_kept()
        prv = staging / f"trace{trace_format.suffix}"
        contradictions = _contradicted_launches(collected.store, plan.timeline.rows)
        with session.bar("writing", collected.store.weight, "record") as bar:
            records = write_trace(prv, trace_format, collected.store, head, pool, collected.folder, bar.update)
        used = plan.timeline.labels.used_with(collected.lanes) + (path.used_types if path is not None else [])
        used.sort(key=attrgetter("number"))
        on_rows, senders = collected.on_rows.ranges(), row_ranges(sorted(messages.senders))
        trace_bytes, trace_path = prv.stat().st_size, final[trace_format.suffix]
        with session.bar("writing views"):
            beside = trace_format.finish(prv, trace_path, head, used, on_rows, senders)
        content = {
            "format": FORMAT,
            "nsys2prv": __version__,
            "python": platform.python_version(),
            "polars": pl.__version__,
            "options": _changed(options),
            "trace": {
                "bytes": trace_bytes,
                "records": records,
                **_extent(plan.timeline.selection, plan.timeline.rows),
                "types": sorted(collected.types),
                "rows_of_types": ranges_of_types_as_json(on_rows),
                "rows_of_messages": ranges_as_json(senders),
            },
            "messages": messages.as_json(),
            **({} if path is None else {"critical_path": path.as_json()}),
            "run": _run(plan.run),
            "left_out": [{"path": str(broken.path), "error": str(broken.error)} for broken in session.left_out],
            "seconds": round(time.monotonic() - started, 3),
            "clocks": [clock.as_json() for clock in plan.axis.clocks],
            "clock_check": list(map(_disagreement, plan.axis.disagreements)),
            "reports": [
                _report(opened, alignment, collected.accounts[index])
                for index, (opened, alignment) in enumerate(zip(plan.reports, plan.alignment, strict=True))
            ],
            "nodes": [{"name": node.name, "cpus": node.cpus} for node in plan.timeline.rows.nodes],
            "tasks": _tasks(plan.timeline.rows, plan.reports),
            "event_types": [{"number": used_type.number, "label": used_type.label} for used_type in used],
            "warnings": [
                *(f"left out: {broken.error}" for broken in session.left_out),
                *(issue.text for issue in plan.run.issues),
                *plan.axis.warnings,
                *map(disagreement_text, plan.axis.disagreements),
                *contradictions,
                *(path.warnings if path is not None else []),
                *trace_format.warnings(trace_bytes),
                *([] if collected.types else [_NO_EVENTS]),
            ],
            **beside,
        }
        staging.joinpath(f"trace{SUMMARY}").write_text(safe_json(content, indent=1) + "\n", encoding="utf-8")
        suffixes = (*trace_format.companions, SUMMARY, trace_format.suffix)
        order = [suffix for suffix in suffixes if staging.joinpath(f"trace{suffix}").exists()]
        # What is not in the order belongs to a former output: its views, and the other form of its trace, which would be read
        # with these labels.
        names: dict[str, str | None] = {former.name: None for suffix, former in final.items() if suffix not in order}
        names |= {final[suffix].name: f"trace{suffix}" for suffix in order}
        publish({staging: names}, replace=options.force)
    return Summary(trace_path, content)


def _final_paths(base: Path, trace_format: TraceFormat, *, force: bool) -> dict[str, Path]:
    """Path of each file and folder of a trace, by suffix.

    Raises
    ------
    OutputExists
        When one of them exists, unless `force`.
    OutputError
        When a file has the name of a folder, or a folder that of a file.
    """
    if base.name in {"", ".."}:
        raise OutputError.not_writable(base, "this is the name of a folder", "a name for the files")
    suffixes = (*trace_format.suffixes, SUMMARY, *trace_format.companions)
    final = {suffix: base.with_name(base.name + suffix) for suffix in suffixes}
    with output_errors(base):
        if base.exists() and not base.is_file() and not base.is_dir():
            raise OutputError.not_writable(base, "this is no ordinary file", "a name for the files")
        for suffix, path in final.items():
            if path.exists() and path.is_dir() != (suffix in trace_format.folders):
                kind = "folder" if path.is_dir() else "file"
                raise OutputError.not_writable(path, f"there is a {kind} of this name")
        present = list(filter(os.path.lexists, final.values()))
    if present and not force:
        raise OutputExists(present[0])
    return final


def _head(plan: RunPlan) -> TimelineHead:
    starts = [opened.identity.utc_ns for opened in plan.reports if opened.identity.utc_ns is not None]
    # Writers need no keys of events, which are many.
    rows = replace(plan.timeline.rows, keys={}, devices={})
    communicators = communicators_of([opened.report for opened in plan.reports], plan.timeline.labels, rows)
    return TimelineHead(rows, plan.timeline.selection.length, min(starts, default=None), communicators)


def _changed(options: TranslateOptions) -> Any:
    usual = asdict(TranslateOptions())
    changed = {name: value for name, value in asdict(options).items() if value != usual[name]}
    return json.loads(json.dumps(changed, default=lambda value: sorted(value) if isinstance(value, frozenset) else str(value)))


def _extent(selection: TimeSelection, rows: Rows) -> dict[str, Any]:
    return {
        "length_ns": selection.length,
        "origin_ns": selection.origin,
        "windows_ns": [list(window) for window in zip(selection.starts, selection.ends, strict=True)][:_MOST_WINDOWS],
        "nodes": len(rows.nodes),
        "tasks": len(rows.tasks),
        "rows": rows.table.height,
    }


def _run(run: RanksAndHosts) -> dict[str, Any]:
    return {
        "ranks": list(run.ranks),
        "size": run.size,
        "missing": list(run.missing),
        "findings": [
            {
                "about": issue.about,
                "is_error_with_strict": issue.is_error,
                "text": issue.text,
                "reports": list(map(str, issue.reports)),
            }
            for issue in run.issues
        ],
    }


def _report(opened: OpenedReport, alignment: dict[str, Any], tables: list[dict[str, Any]]) -> dict[str, Any]:
    identity = opened.identity
    return {
        "path": str(opened.report.path),
        "form": opened.report.tables.form,
        "host": identity.host,
        "nsys": identity.tool,
        "schema": list(identity.schema) if identity.schema else None,
        "host_source": identity.host_source or None,
        "ranks": identity.known_ranks,
        "rank_source": identity.known_ranks_source,
        "gpus": [asdict(gpu) for gpu in identity.gpus],
        "nics": [asdict(nic) for nic in identity.nics],
        "alignment": alignment,
        "tables": tables,
        "warnings": list(identity.warnings),
    }


def _disagreement(disagreement: Disagreement) -> dict[str, Any]:
    return {
        "what": disagreement.what,
        "hosts": list(disagreement.hosts),
        "size_ns": round(disagreement.size),
        "count": disagreement.count,
        "text": disagreement_text(disagreement),
    }


def _tasks(rows: Rows, opened: Sequence[OpenedReport]) -> list[dict[str, Any]]:
    return [
        {
            "name": task.name,
            "node": rows.nodes[task.node].name,
            "rank": task.rank,
            "pid": task.pid,
            "report": str(opened[task.report].report.path) if task.report is not None else None,
            "threads": [thread.name for thread in task.threads],
            # By the number of the thread in the trace.
            "nvtx_names": {number: thread.given_names for number, thread in enumerate(task.threads, 1) if thread.given_names},
        }
        for task in rows.tasks
    ]
