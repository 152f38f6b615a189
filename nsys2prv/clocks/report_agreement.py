"""Reports of one host whose sessions tell only UTC: how far they are from each other, by collectives of ranks of that host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.clocks.session_placement import ReportClock, SessionTie
from nsys2prv.clocks.shared_events import Floats
from nsys2prv.sources.communication.collectives import ALL

_OFF = 1e6
"""A report that is off by more, ns, has a separate clock: no session reads the time of its start so late."""
_FEW = 5
"""Of fewer collectives the largest distance counts, and what is usual."""
_MOST_TYPICAL = 95.0
_LEAST = 20e3
"""ns: ends of one collective on the GPUs of a host are not closer."""


@dataclass(frozen=True)
class ReportAgreement:
    """How well the reports of each clock agree.

    Attributes
    ----------
    widths
        (reports,): how far a report may be from the others of its clock, ns.
    off
        Reports that contradict the others of their clock: one of their ranks would have ended a collective long before another
        began it.
    """

    widths: Floats
    off: tuple[int, ...]


def report_agreement(collectives: pl.DataFrame, clocks: Sequence[ReportClock]) -> ReportAgreement:
    """How well the reports of each clock agree.

    Parameters
    ----------
    collectives
        Columns `event`, `clock`, `report`, `start`, `end` (ns of the rough placement), `rule`.
    clocks
        Of each report.
    """
    widths = np.array([clock.of_report for clock in clocks])
    of_utc = [index for index, clock in enumerate(clocks) if clock.tie is SessionTie.UTC]
    by_report = (
        collectives.filter((pl.col("rule") == ALL) & pl.col("report").is_in(of_utc))
        .group_by("event", "clock", "report")
        .agg(pl.col("end").min(), pl.col("start").max())
    )
    group = ["event", "clock"]
    compared = by_report.filter(pl.len().over(group) > 1).with_columns(
        apart=(pl.col("end") - pl.col("end").median().over(group)).abs(),
        impossible=pl.max_horizontal(
            pl.col("start").max().over(group) - pl.col("end"), pl.col("start") - pl.col("end").min().over(group)
        ),
    )
    off = []
    for (report,), of_report in compared.group_by("report"):
        index = int(report)
        apart = of_report["apart"].to_numpy().astype(np.float64)
        # Half of it: of two reports, both are as far from the middle.
        if np.median(of_report["impossible"].to_numpy()) > _OFF and np.median(apart) > _OFF / 2:
            off.append(index)
        elif len(apart) < _FEW:
            widths[index] = max(widths[index], float(apart.max()))
        else:
            widths[index] = max(float(np.percentile(apart, _MOST_TYPICAL)), _LEAST)
    return ReportAgreement(widths, tuple(sorted(off)))
