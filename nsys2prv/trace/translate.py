"""From reports to one Paraver trace: the whole way of the data, once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from nsys2prv.execution.output_files import (
    SUFFIXES,
    VIEWS,
    final_paths,
    publish,
    scratch_folder,
    staging_folder,
    without_suffix,
)
from nsys2prv.execution.workers import Workers, workers
from nsys2prv.paraver.pcf import read_earlier_labels, write_pcf
from nsys2prv.paraver.prv import header
from nsys2prv.paraver.row import write_row
from nsys2prv.paraver.trace_reader import open_trace
from nsys2prv.paraver.views.trace_content import TraceContent
from nsys2prv.run.session import RunSession, seen_by_workers
from nsys2prv.sources.registry import select_sources
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.trace.collect import MESSAGES, Collected, Plan, collect, collections
from nsys2prv.trace.merge import TraceStore
from nsys2prv.trace.summary import Account
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.trace.write import pair_messages, write_trace

PARAVER_LARGE_BYTES = 500_000_000
"""wxParaver asks to cut traces above this size."""


@dataclass(frozen=True)
class Summary:
    """What was done: `content` is what stands in OUT.json, `prv` the trace."""

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
    arguments, options = seen_by_workers(arguments, options or TranslateOptions())
    base = without_suffix(out.absolute() if options.scheduler else out)
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
            from nsys2prv.paraver.views.render import write_views

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
    """One run of `translate`."""

    def __init__(self, arguments: Sequence[str | Path], options: TranslateOptions, scratch: Path, workers: Workers) -> None:
        self._began = time.monotonic()
        self._options = options
        self._workers = workers
        self._sources = select_sources(options.only, options.skip)
        self._reports = RunSession(
            arguments,
            self._sources,
            options,
            scratch,
            workers,
            nvtx=options.nvtx,
            fold_streams=options.fold_streams,
            earlier=read_earlier_labels(options.labels) if options.labels else None,
        )

    def _begin(self, folder: Path) -> tuple[Plan, _Translation]:
        """Make room for what is collected."""
        reports, options = self._reports, self._options
        self._folder = folder
        self._activity = TraceStore(folder / "activity")
        for name, shape in collections(reports.opened).items():
            self._activity.add_collection(name, shape)
        self._messages = Messages(folder / "messages")
        self.types: set[int] = set()
        plan = Plan(
            self._sources,
            options.skip,
            options.min_duration,
            reports.axis.placements,
            reports.windows,
            reports.rows,
            reports.labels,
        )
        return plan, self

    def write(self, prv: Path, pcf: Path, row: Path, title: str) -> dict[str, Any]:
        """Write the files of the trace; the result is what stands in OUT.json."""
        reports = self._reports
        reports.read(collect, self._begin, attrgetter("rows"), "translating")
        self._messages, paired = pair_messages(self._messages, reports.windows, self._workers, self._folder)
        self._activity.absorb(MESSAGES, paired)
        began = [opened.identity.utc_ns for opened in reports.opened if opened.identity.utc_ns is not None]
        first_line = header(reports.rows, reports.windows.length, min(began, default=None))
        with reports.bar("writing", self._activity.lines, "record") as bar:
            records = write_trace(prv, first_line, self._activity, reports.rows.table, self._workers, self._folder, bar.update)
        write_pcf(pcf, reports.labels.used)
        write_row(row, reports.rows, title)
        size = prv.stat().st_size
        warnings = []
        if size > PARAVER_LARGE_BYTES:
            warnings.append(
                f"the trace has {size / 1e6:.0f} MB and Paraver asks to cut traces above {PARAVER_LARGE_BYTES / 1e6:.0f} MB: "
                f"--time, --nvtx, --ranks, --skip and --min-duration make it smaller"
            )
        usual = asdict(TranslateOptions())
        return Account(
            options={name: value for name, value in asdict(self._options).items() if value != usual[name]},
            opened=reports.opened,
            left_out=reports.left_out,
            run=reports.run,
            axis=reports.axis,
            windows=reports.windows,
            rows=reports.rows,
            used_types=reports.labels.used,
            messages=self._messages.as_json(),
            trace_bytes=size,
            trace_records=records,
            seconds=time.monotonic() - self._began,
            warnings=warnings,
        ).as_json()

    def absorb(self, collected: Collected) -> None:
        """Take over what was collected of a group."""
        self._activity.absorb_all(collected.activity)
        self._messages.absorb(collected.messages)
        self.types |= collected.types
        for index, tables in collected.tables.items():
            self._reports.opened[index].tables = tables
        for number, lane, beside in sorted(collected.lanes):
            self._reports.labels.use_lane(number, lane, beside)
