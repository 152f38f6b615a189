"""Runs that are measured with clocks that are known as a test says."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsys2prv.efficiency.clock_accuracy import clock_errors
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.measure import measure_events
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.run_events import RunRows


def measured_with_clocks(
    reports: Sequence[Path], clocks: Mapping[str, Mapping[str, Any]], options: EfficiencyOptions
) -> EfficiencyResult:
    """Efficiency numbers of reports; `clocks` has for each host what differs of `clocks` in OUT.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = read_events(reports, options, folder, with_dependencies=True)
        clocks_of_run = [{**clock, **clocks[clock["host"]]} for clock in events.clocks]
        errors = clock_errors(clocks_of_run, events.report_clocks, events.begin)
        tasks = [task if task.report is None else replace(task, clock=errors[task.report]) for task in events.rows.tasks]
        return measure_events(replace(events, rows=RunRows(tasks), clocks=clocks_of_run), options)


def known_to(*half_widths: int | None, times: Sequence[int] = (0,)) -> dict[str, Any]:
    """A clock that is known to half widths from times of the trace on, ns; None: it is not known."""
    known = [width for width in half_widths if width is not None]
    best, worst = min(known, default=None), max(known) if len(known) == len(half_widths) else None
    return {"interval_ns": {"best": best, "worst": worst, "times": list(times), "half_widths": list(half_widths)}}
