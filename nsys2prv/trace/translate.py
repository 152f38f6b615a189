"""From reports to one Paraver trace: the whole data flow, read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from nsys2prv.errors import UsageError
from nsys2prv.execution.output_files import (
    SUFFIXES,
    VIEWS,
    final_paths,
    scratch_folder,
    staging_folder,
    without_suffix,
)
from nsys2prv.execution.publishing import Staged, publish
from nsys2prv.execution.scratch import make_folder
from nsys2prv.execution.workers import workers
from nsys2prv.exports.paths import check_kept
from nsys2prv.paraver.dimemas import DimemasFormat, account_of
from nsys2prv.paraver.pcf import read_earlier_labels
from nsys2prv.paraver.trace_format import ParaverFormat
from nsys2prv.paraver.trace_reader import open_trace
from nsys2prv.paraver.views.trace_content import Occurring, TraceContent
from nsys2prv.run.plan import RunPlan
from nsys2prv.run.session import RunSession, seen_by_workers
from nsys2prv.sources.registry import select_sources
from nsys2prv.timeline.records import TimelineHead
from nsys2prv.timeline.rows_of_types import row_ranges
from nsys2prv.timeline.task_groups import communicators_of
from nsys2prv.trace.collect import MESSAGES, PATH, PATH_LINES, TraceRecords
from nsys2prv.trace.summary import TraceSummary
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.trace.write import pair_messages, write_trace
from nsys2prv.vocabulary.printable import safe_json

_ONLY_FOR_DIMEMAS = ("mpi",)
PARAVER_LARGE_BYTES = 500_000_000
"""wxParaver asks to cut traces above this size."""


@dataclass(frozen=True)
class Summary:
    """A trace that was written: `prv` is its file, `content` that of OUT.json."""

    prv: Path
    content: Mapping[str, Any]

    @property
    def left_out(self) -> int:
        """Number of reports that could not be read."""
        return len(self.content["left_out"])


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
    if options.for_dimemas and any((options.only, options.skip, options.min_duration, options.gzip)):
        raise UsageError("--for-dimemas selects what is written: leave out --only, --skip, --min-duration and --gzip")
    if options.critical_path and any((options.fold_streams, options.nvtx, options.for_dimemas)):
        raise UsageError(
            "--critical-path needs all streams and one stretch of time: leave out --fold-streams, --nvtx and --for-dimemas"
        )
    base = without_suffix(out.absolute() if options.scheduler else out)
    final = final_paths(base, force=options.force)
    # Not --labels: the labels of a former output may be those of its successor.
    check_kept(final.values(), [*arguments, *options.files_read])
    with (
        staging_folder(base) as staging,
        scratch_folder(options.scratch, staging) as scratch,
        # Within the folders: nobody writes there any more when they are removed.
        workers(options.workers, options.scheduler, options.memory) as some,
    ):
        make_folder(scratch)
        some.share(staging, scratch)
        some.prepare(write_trace)
        staged = {suffix: staging / f"trace{suffix}" for suffix in SUFFIXES}
        trace_format = DimemasFormat() if options.for_dimemas else ParaverFormat(compressed=options.gzip)
        # Reports to events: the reports are opened, planned and read; their events become sorted runs of records.
        sources = select_sources(_ONLY_FOR_DIMEMAS if options.for_dimemas else options.only, options.skip)
        session = RunSession(
            arguments,
            sources,
            options,
            scratch,
            some,
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
            if path.used_type is not None:
                collected.types.add(path.used_type.number)
            collected.on_rows.add(path.on_rows.rows)
        plan = session.plan
        with session.bar("pairing messages"):
            messages, paired = pair_messages(collected.messages, plan.timeline.selection, some, collected.folder)
            collected.sorts[MESSAGES].absorb(paired)
        # Events to files: the records are merged in the order of time, and names are written beside them.
        head = _head(plan)
        for opened in plan.reports:
            # All events were read: what is written next can have the place.
            opened.report.tables.delete_kept()
        prv = staged[trace_format.suffix]
        with session.bar("writing", collected.store.weight, "record") as bar:
            records = write_trace(prv, trace_format, collected.store, head, some, collected.folder, bar.update)
        used = plan.timeline.labels.used_with(collected.lanes)
        if path is not None and path.used_type is not None:
            used.append(path.used_type)
        used.sort(key=attrgetter("number"))
        trace_format.write_names(staging / "trace", head, used, base.name)
        on_rows, senders = collected.on_rows.ranges(), row_ranges(sorted(messages.senders))
        content = TraceSummary(
            options=_changed(options),
            plan=plan,
            left_out=session.left_out,
            tables=collected.accounts,
            used_types=used,
            # Dimemas gets calls that it does not know under another type.
            types=None if options.for_dimemas else collected.types,
            on_rows=on_rows,
            senders=senders,
            messages=messages.as_json(),
            critical_path=path.as_json() if path is not None else None,
            trace_bytes=prv.stat().st_size,
            trace_records=records,
            seconds=time.monotonic() - started,
            warnings=[*(path.warnings if path is not None else []), *_size_warnings(prv.stat().st_size)],
        ).as_json()
        if options.for_dimemas:
            with session.bar("reading the trace"):
                account = account_of(prv, head.communicators, content["messages"]["written"])
            content["dimemas"] = account.as_json()
            content["warnings"] += account.warnings
        if not options.no_views:
            with session.bar("writing views"):
                content["views"] = _write_views(staged, final, trace_format.suffix, Occurring(on_rows, senders))
        if final[VIEWS].exists():
            _keep_own_files(final[VIEWS], staged[VIEWS])
        order = [*([VIEWS] if staged[VIEWS].exists() else []), ".pcf", ".row", ".json", trace_format.suffix]
        staged[".json"].write_text(safe_json(content, indent=1) + "\n", encoding="utf-8")
        # What is not in the order belongs to a former output: its views, and the other form of its trace, which would be read
        # with these labels.
        names: dict[str, str | None] = {final[suffix].name: None for suffix in SUFFIXES if suffix not in order}
        names |= {final[suffix].name: staged[suffix].name for suffix in order}
        publish(Staged(staging, names), replace=options.force)
    return Summary(final[trace_format.suffix], content)


def _head(plan: RunPlan) -> TimelineHead:
    starts = [opened.identity.utc_ns for opened in plan.reports if opened.identity.utc_ns is not None]
    # Writers need no keys of events, which are many.
    rows = replace(plan.timeline.rows, keys={}, devices={})
    communicators = communicators_of([opened.report for opened in plan.reports], plan.timeline.labels, rows)
    return TimelineHead(rows, plan.timeline.selection.length, min(starts, default=None), communicators)


def _write_views(
    staged: Mapping[str, Path], final: Mapping[str, Path], suffix: str, occurring: Occurring
) -> list[dict[str, str]]:
    """Write the views of a trace; the result is what OUT.json has of them."""
    # Templates are not loaded where no views are written.
    from nsys2prv.paraver.views.render import write_views

    found = TraceContent.of(open_trace(staged[suffix]), occurring)
    views = write_views(staged[VIEWS], found, final[suffix], final[VIEWS])
    return [{"path": one.path, "title": one.title} for one in views]


def _keep_own_files(former: Path, new: Path) -> None:
    from nsys2prv.paraver.views.own_files import keep_own_files

    keep_own_files(former, new)


def _changed(options: TranslateOptions) -> dict[str, Any]:
    """Options that are not the default."""
    usual = asdict(TranslateOptions())
    return {name: value for name, value in asdict(options).items() if value != usual[name]}


def _size_warnings(size: int) -> list[str]:
    if size <= PARAVER_LARGE_BYTES:
        return []
    return [
        f"the trace has {size / 1e6:.0f} MB and Paraver asks to cut traces above {PARAVER_LARGE_BYTES / 1e6:.0f} MB: "
        f"--time, --nvtx, --ranks, --skip and --min-duration make it smaller"
    ]
