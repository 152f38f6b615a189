"""Commands that read a trace."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.parts.long_reports import median
from bench.results import DETAIL, at_least, plain, with_lines
from bench.workplace import Workplace

MEGABYTES_GOAL = 200.0
"""Read in a second."""


def readers(place: Workplace) -> dict[str, Any]:
    """`check` and `views` on a long trace, and `efficiency` on its report."""
    report = place.report(place.long)
    with place.trace(report) as (out, made):
        trace = out.with_name("OUT.prv")
        runs = {command: place.run(command, trace, times=place.runs) for command in ("check", "views")}
    lines = [
        at_least(f"{command} of a trace of {made.bytes / 1e6:,.0f} MB", made.bytes / 1e6 / median(of_command), MEGABYTES_GOAL,
                 "MB/s", f" ({median(of_command):.3g} s)")
        for command, of_command in runs.items()
    ]  # fmt: skip
    runs["efficiency of the report"] = place.run("efficiency", report, times=place.runs)
    lines.append(plain(f"{DETAIL} efficiency of its report", median(runs["efficiency of the report"]), "s"))
    recorded = {name: [asdict(run) for run in of_command] for name, of_command in runs.items()}
    return with_lines(lines, bytes=made.bytes, runs=recorded)
