"""Where the measured events come from: reports or a trace; both become `RunEvents`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys2prv.efficiency.from_reports import events_of_reports
from nsys2prv.efficiency.from_trace import events_of_trace, is_trace
from nsys2prv.efficiency.run_events import COLLECTIONS, RANGES, RunEvents
from nsys2prv.errors import UsageError
from nsys2prv.execution.workers import workers
from nsys2prv.run.read_options import ReadOptions


def read_events(
    arguments: Sequence[str | Path],
    options: ReadOptions,
    folder: Path,
    *,
    with_ranges: bool = True,
    with_dependencies: bool = False,
) -> RunEvents:
    """Read the events of a run: reports (files, folders, globs), or one .prv or .prv.gz.

    Of a trace, the options `time`, `ranks`, `cache` and `progress` count. NVTX ranges are read `with_ranges`, and what says
    which events wait for which (collections that are `optional`) `with_dependencies`.

    Raises Nsys2prvError with one sentence for the user.
    """
    collections = tuple(
        one for one in COLLECTIONS if (with_ranges or one is not RANGES) and (with_dependencies or not one.optional)
    )
    traces = [argument for argument in arguments if is_trace(argument)]
    if not traces:
        with workers(options.workers, options.scheduler, options.memory) as some:
            some.share(folder)
            return events_of_reports(arguments, options, folder, some, collections)
    if len(arguments) > 1:
        raise UsageError(f"{traces[0]}: a trace is measured alone; give one trace, or reports, or compare runs with `compare`")
    return events_of_trace(Path(traces[0]), options, folder, collections)
