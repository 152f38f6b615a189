"""Commands that read a trace."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from bench.parts.long_reports import median
from bench.results import at_least, plain, with_lines
from bench.workplace import Workplace

MEGABYTES_GOAL = 200.0
"""Read in a second."""


def readers(place: Workplace) -> dict[str, Any]:
    """`check`, `efficiency` and `views` on a long trace, reading alone, and `efficiency` on its reports."""
    report = place.report(place.long)
    with place.trace(report) as (out, made):
        trace = out.with_name("OUT.prv")
        found = {
            "check": place.run("check", trace, times=place.runs),
            "efficiency": place.run("efficiency", trace, times=place.runs),
            "views": place.run("views", trace, times=place.runs),
        }
        reading = statistics.median(place.script("read_events", trace)[1]["seconds"] for _ in range(place.runs))
    of_report = place.run("efficiency", report, times=place.runs)
    lines = [
        at_least(f"{command} of a trace of {made.bytes / 1e6:,.0f} MB", made.bytes / 1e6 / median(runs), MEGABYTES_GOAL, "MB/s",
                 f" ({median(runs):.3g} s)")
        for command, runs in found.items()
    ]  # fmt: skip
    lines.append(plain("efficiency of a trace: reading its events", reading, "s", f" ({made.bytes / 1e6 / reading:.3g} MB/s)"))
    lines.append(plain("efficiency of its report", median(of_report), "s"))
    runs = {**found, "efficiency of the report": of_report}
    return with_lines(
        lines, bytes=made.bytes, reading=reading, runs={name: [asdict(run) for run in some] for name, some in runs.items()}
    )
