"""Efficiency of millions of events that are made in memory."""

from __future__ import annotations

import statistics
from typing import Any

from bench.results import at_most, with_lines
from bench.workplace import Workplace

SECONDS_GOAL, MEGABYTES_GOAL = 30.0, 2_000.0


def efficiency(place: Workplace) -> dict[str, Any]:
    """All tables of a run of ten million intervals, without and with sampled metrics: collected, sorted and measured."""
    lines, numbers = [], []
    for samples in (0, place.sizes.samples):
        arguments = (str(place.sizes.intervals), str(samples))
        found = [
            place.script("measure_made", *arguments, environment={"_RJEM_MALLOC_CONF": "narenas:1"}) for _ in range(place.runs)
        ]
        seconds, megabytes = statistics.median(one[1] for one in found), max(one[0].megabytes for one in found)
        name = f"{place.sizes.intervals:,} intervals" + (f", {samples:,} samples" if samples else "")
        lines.append(at_most(name, seconds, SECONDS_GOAL, "s"))
        lines.append(at_most("... memory", megabytes, MEGABYTES_GOAL, "MB"))
        numbers.append({"samples": samples, "seconds": seconds, "megabytes": megabytes})
    return with_lines(lines, runs=numbers)
