"""Events of a run for the measurement."""

from pathlib import Path

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.run.options import ReadOptions
from support.report_builder import ReportBuilder


def events_of(folder: Path, *reports: ReportBuilder, options: ReadOptions | None = None) -> RunEvents:
    """The events of reports with what waits for what; files are written to the folder."""
    folder.mkdir(exist_ok=True)
    paths = [report.write(folder / f"report{place}.sqlite") for place, report in enumerate(reports)]
    return read_events(paths, options or ReadOptions(), folder / "read", with_dependencies=True)
