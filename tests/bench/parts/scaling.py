"""Time and memory on reports and on ten times as long ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.parts.long_reports import median
from bench.results import at_most, with_lines
from bench.workplace import LongReport, Workplace

TIME_GOAL = 11.0
"""Times as long for ten times the length: about ten, and a little for the noise."""
MEMORY_GOAL = 1.3
"""Times the memory for ten times the length."""


def scaling(place: Workplace) -> dict[str, Any]:
    """Each report, and the same ten times as long."""
    again = place.sizes.again
    pairs = [
        (place.short, place.long),
        *((LongReport(name, 1), LongReport(name, again)) for name in ("pytorch-uvm", "pytorch-h100")),
    ]
    lines, all_runs = [], {}
    for pair in pairs:
        short, long = ([place.translate(place.report(one)).run for _ in range(place.runs)] for one in pair)
        all_runs |= {one.name: [asdict(run) for run in runs] for one, runs in zip(pair, (short, long), strict=True)}
        seconds, megabytes = (
            [of(runs) for runs in (short, long)] for of in (median, lambda runs: max(run.megabytes for run in runs))
        )
        name = f"{pair[0].name} to {pair[1].name}"
        change = f" ({seconds[0]:.2f} s to {seconds[1]:.2f} s)"
        lines.append(at_most(f"{name}: time", seconds[1] / seconds[0], TIME_GOAL, "times", change))
        change = f" ({megabytes[0]:.0f} MB to {megabytes[1]:.0f} MB)"
        lines.append(at_most(f"{name}: memory", megabytes[1] / megabytes[0], MEMORY_GOAL, "times", change))
    return with_lines(lines, runs=all_runs)
