"""`efficiency` beside `translate` of the same reports, in turns: time, memory for each interval, and two workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.measuring import Run
from bench.parts.long_reports import median, million_intervals
from bench.results import DETAIL, Line, at_least, at_most, plain, with_lines
from bench.workplace import Workplace

SHORT_GOAL, LONG_GOAL = 1.3, 1.5
"""Times that a translation takes, at 0.6 and at 6 million intervals."""
WORKERS_GOAL = 1.3
BYTES_GOAL = 100.0
"""Memory for each interval."""


def efficiency(place: Workplace) -> dict[str, Any]:
    """Time and memory of `efficiency` beside those of `translate`, on the long reports."""
    lines: list[Line] = []
    measured: dict[float, list[Run]] = {}
    for report, goal in ((place.short, SHORT_GOAL), (place.long, LONG_GOAL)):
        path, size = place.report(report), million_intervals(report)
        translated: list[Run] = []
        measured[size] = []
        for _ in range(place.runs):
            translated.append(place.translate(path).run)
            measured[size] += place.run("efficiency", path)
        seconds, name = median(measured[size]), f"{size:.2g} million intervals"
        beside = seconds / median(translated)
        lines += [
            plain(name, seconds, "s", f" ({beside:.3g} times as long as translate)"),
            at_most(f"{DETAIL} beside translate", beside, goal, "times"),
            plain(f"{name}: memory", max(run.megabytes for run in measured[size]), "MB"),
        ]
    (few, of_few), (many, of_many) = measured.items()
    more_bytes = (max(run.megabytes for run in of_many) - max(run.megabytes for run in of_few)) * 1e6
    lines.append(at_most("memory for each further interval", more_bytes / ((many - few) * 1e6), BYTES_GOAL, "bytes"))
    spread = place.run("efficiency", place.report(place.long), "--workers", "2", times=place.runs)
    lines.append(at_least("two workers, beside one process", median(of_many) / median(spread), WORKERS_GOAL, "times as fast"))
    runs = {f"{size:.2g} million": [asdict(run) for run in of_size] for size, of_size in measured.items()}
    return with_lines(lines, runs=runs, workers=[asdict(run) for run in spread])
