"""Events of a run for the measurement: read from reports, and from their trace."""

from __future__ import annotations

from pathlib import Path

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from support.report_builder import ReportBuilder


def from_both(folder: Path, *reports: ReportBuilder, options: ReadOptions | None = None) -> list[RunEvents]:
    """The events of reports with what waits for what, and those of their trace."""
    folder.mkdir(exist_ok=True)
    paths: list[str | Path] = [report.write(folder / f"report{place}.sqlite") for place, report in enumerate(reports)]
    trace = translate(paths, folder / "OUT", TranslateOptions()).prv
    return [
        read_events(arguments, options or ReadOptions(), folder / f"read{place}", with_dependencies=True)
        for place, arguments in enumerate((paths, [trace]))
    ]
