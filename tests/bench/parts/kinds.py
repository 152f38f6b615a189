"""Heavy kinds of activity: time for each line of the trace, beside kernels."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from bench import heavy_reports
from bench.measuring import Missing
from bench.results import at_most, plain, with_lines
from bench.workplace import Workplace

SLOWER_GOAL = 2.0
"""Times as long for each line, or each row where a line has several, as for a line of kernels."""
REFERENCE = "kernels"


def kinds(place: Workplace) -> dict[str, Any]:
    """Reports of one kind each, with the same number of rows."""
    if not (place.shared / "reports").exists():
        raise Missing(
            f"{place.shared / 'reports'} is not there; the benchmark repeats real reports, name their folder with --shared"
        )
    heavy_reports.SHARED = place.shared
    folder = place.cache / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    reports = {kind: heavy_reports.make(folder, kind, place.sizes.heavy_rows) for kind in heavy_reports.KINDS}
    found = {kind: [place.translate(report, "--no-views") for _ in range(place.runs)] for kind, report in reports.items()}
    rows = place.sizes.heavy_rows
    microseconds = {kind: statistics.median(one.run.seconds for one in of_kind) * 1e6 for kind, of_kind in found.items()}
    # A line of the trace can have several rows of a table, as samples of metrics: then a row counts.
    counted = {kind: max(of_kind[0].records, rows) for kind, of_kind in found.items()}
    lines = []
    for kind, taken in microseconds.items():
        records = found[kind][0].records
        text = f"{kind}: {records / 1e6:.3g} million lines of {rows / 1e6:.3g} million rows"
        beside = taken / counted[kind] / (microseconds[REFERENCE] / counted[REFERENCE])
        more = f" ({taken / records:.3g} us a line, {taken / rows:.3g} us a row)"
        lines.append(
            plain(text, beside, "times", more) if kind == REFERENCE else at_most(text, beside, SLOWER_GOAL, "times", more)
        )
    return with_lines(lines, runs={kind: [asdict(one) for one in translations] for kind, translations in found.items()})
