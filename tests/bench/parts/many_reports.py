"""Many small reports of one run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.parts.long_reports import median
from bench.results import DETAIL, at_most, plain, with_lines
from bench.workplace import Workplace

TIME_GOAL = 1.25
"""Times as long for each report of many as for each of a few: as long, and a little for the noise."""
MEGABYTES_GOAL, OPEN_FILES_GOAL = 1_000.0, 255


def many(place: Workplace) -> dict[str, Any]:
    """A few reports, before and after many: the many take minutes, in which the machine may have become slower or faster."""
    few, many = place.sizes.reports
    of_few = [place.translate(place.many(few), watch=True).run for _ in range(place.runs)]
    of_many = place.translate(place.many(many), watch=True).run
    of_few += [place.translate(place.many(few), watch=True).run for _ in range(place.runs)]
    each, each_of_many = median(of_few) / few * 1e3, of_many.seconds / many * 1e3
    lines = [
        plain(f"{few} reports", median(of_few), "s", f" ({each:.0f} ms each)"),
        plain(f"{many:,} reports", of_many.seconds, "s", f" ({each_of_many:.0f} ms each)"),
        at_most(f"{DETAIL} time for each, beside a few", each_of_many / each, TIME_GOAL, "times"),
        at_most(f"memory of {many:,} reports", of_many.megabytes, MEGABYTES_GOAL, "MB"),
        at_most(f"open files with {many:,} reports", of_many.open_files, OPEN_FILES_GOAL, "files"),
    ]
    return with_lines(lines, few=[asdict(run) for run in of_few], many=asdict(of_many))
