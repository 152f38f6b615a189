"""Commands on small reports: most of what they take is their start."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measuring import Missing, Run
from bench.parts.long_reports import cpu_median, median
from bench.results import at_most, with_lines
from bench.workplace import Workplace

SMALL = ("cuda-graphs", "cpu-only")
VERSION_GOAL, INSPECT_GOAL, TRANSLATE_GOAL = 0.1, 0.7, 1.2
"""Seconds."""
TIMES = 3
"""Times as many runs as of what takes longer."""


def start(place: Workplace) -> dict[str, Any]:
    """`--version`, and `inspect` and `translate` with views of small reports, after one run that does not count."""
    reports = [place.shared / "reports" / f"{name}.sqlite" for name in SMALL]
    for report in reports:
        if not report.exists():
            raise Missing(f"{report} is not there; name the folder of real reports with --shared")
    found: dict[str, tuple[list[Run], float]] = {"--version": (_after_one(place, "--version"), VERSION_GOAL)}
    for report in reports:
        found[f"inspect {report.stem}"] = _after_one(place, "inspect", report), INSPECT_GOAL
    with tempfile.TemporaryDirectory(dir=place.cache) as folder:
        for report in reports:
            arguments = ("translate", report, "-o", Path(folder, "OUT"), "--force")
            found[f"translate {report.stem}, with views"] = _after_one(place, *arguments), TRANSLATE_GOAL
    lines = [
        at_most(name, median(runs), goal, "s", f", {cpu_median(runs):.3g} s of processors")
        for name, (runs, goal) in found.items()
    ]
    return with_lines(lines, runs={name: [asdict(run) for run in runs] for name, (runs, _) in found.items()})


def _after_one(place: Workplace, *arguments: str | Path) -> list[Run]:
    return place.run(*arguments, times=1 + TIMES * place.runs)[1:]
