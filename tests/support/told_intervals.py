"""Whether the true offsets of clocks lie in the intervals that are told, in many simulated runs of each kind of cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks import AlignMethod
from nsys2prv.clocks.align import Axis, align
from nsys2prv.exports import describe, open_report
from nsys2prv.run.ranks import resolve_ranks
from nsys2prv.timeline.time_axis import ClockError
from support.simulated_clocks import KINDS, SimulatedReport, simulate, write_simulated

_MOMENTS = 9
HONEST = 0.99
"""Share of the pairs of reports whose true offset must be inside the told interval."""
_MORE_UNKNOWN = 0.02
"""Share of the pairs of which nothing may be known although something connects them."""


class PairsOfReports(NamedTuple):
    """Each two reports of simulated runs, at equal steps of time from the first event of the run to the last."""

    same_host: NDArray[np.bool_]
    errors: NDArray[np.float64]
    margins: NDArray[np.float64]

    @classmethod
    def joined(cls, parts: Sequence[PairsOfReports]) -> PairsOfReports:
        """The pairs of several runs."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("same_host", "errors", "margins")))

    def of_hosts(self, *, same: bool) -> PairsOfReports:
        """The pairs of one host, or of different hosts, that record at the same time."""
        chosen = (self.same_host == same) & ~np.isnan(self.errors).all(axis=1)
        return PairsOfReports(self.same_host[chosen], self.errors[chosen], self.margins[chosen])

    @property
    def known(self) -> NDArray[np.bool_]:
        """(pairs,): whether the offset is known at all of the moments."""
        return ~np.isinf(self.margins).any(axis=1)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """(pairs,): whether the error is inside the interval at all of the moments."""
        return ~(self.errors > self.margins).any(axis=1)


def aligned(reports: Sequence[SimulatedReport], method: AlignMethod = AlignMethod.AUTO) -> Axis:
    """Write reports of a simulated run and align them, as a translation does."""
    with TemporaryDirectory() as folder:
        paths = write_simulated(reports, Path(folder))
        opened = [open_report(path) for path in paths]
        spans = [report.span for report in reports]
        identities = resolve_ranks(paths, [describe(report) for report in opened], spans).identities
        return align(opened, identities, spans, method, Path(folder, "scratch"))


def compare_with_truth(reports: Sequence[SimulatedReport], axis: Axis) -> PairsOfReports:
    """Compare each two reports of a simulated run, as placed, with the true clocks."""
    first, last = min(report.recorded[0] for report in reports), max(report.recorded[1] for report in reports)
    true = np.linspace(first, last, _MOMENTS).astype(np.int64)
    placed = np.stack(
        [
            pl.DataFrame({"time": report.in_session(true)}).select(placement.of(pl.col("time"))).to_series().to_numpy()
            for report, placement in zip(reports, axis.placements, strict=True)
        ]
    )
    is_recorded = np.stack([(true >= report.recorded[0]) & (true <= report.recorded[1]) for report in reports])
    one, other = np.triu_indices(len(reports), 1)
    both = is_recorded[one] & is_recorded[other]
    node = np.array([report.node for report in reports])
    margins = [clock_margin(axis.errors[a], axis.errors[b], placed[a]) for a, b in zip(one, other, strict=True)]
    return PairsOfReports(
        node[one] == node[other],
        np.where(both, np.abs(placed[one] - placed[other]), np.nan),
        np.where(both, np.stack(margins), np.nan),
    )


def clock_margin(first: ClockError, second: ClockError, times: NDArray[np.int64]) -> NDArray[np.float64]:
    """How far the order or distance of two moments of two reports can be wrong, at times of the axis, ns."""
    inside = np.full(len(times), first.of_report + second.of_report)
    if first.clock == second.clock:
        return inside
    return inside + first.at(times) + second.at(times) if first.group == second.group else np.full(len(times), np.inf)


class KindResult(NamedTuple):
    """What comes out for a kind of cluster: of pairs of reports of different hosts, unless said otherwise."""

    kind: str
    runs: int
    inside: float | None
    inside_host: float | None
    not_known: float
    margin_median: float
    margin_largest: float
    error_median: float
    error_99: float
    error_largest: float

    @property
    def is_honest(self) -> bool:
        """Whether the intervals hold often enough."""
        return all(share is None or share >= HONEST for share in (self.inside, self.inside_host))

    @property
    def is_useful(self) -> bool:
        """Whether the intervals are as narrow, and as many clocks are known, as the data allow."""
        kind = KINDS[self.kind]
        return kind.width is None or (self.not_known <= kind.unknowable + _MORE_UNKNOWN and self.margin_median <= kind.width)


def try_kind(kind: str, seeds: Sequence[int]) -> KindResult:
    """Simulate runs of a kind, align them, and compare with the true clocks."""
    runs = [simulate(KINDS[kind], seed) for seed in seeds]
    pairs = PairsOfReports.joined([compare_with_truth(reports, aligned(reports)) for reports in runs])
    between, within = pairs.of_hosts(same=False), pairs.of_hosts(same=True)
    known = between.known
    margins, errors = np.nanmax(between.margins[known], axis=1), np.nanmax(between.errors[known], axis=1)
    return KindResult(
        kind,
        len(seeds),
        _share(between.inside[known]),
        _share(within.inside[within.known]),
        1 - float(known.mean()),
        *(_percentile(margins, share) for share in (50, 100)),
        *(_percentile(errors, share) for share in (50, 99, 100)),
    )


def _share(found: NDArray[np.bool_]) -> float | None:
    return float(found.mean()) if len(found) else None


def _percentile(values: NDArray[np.float64], share: float) -> float:
    return float(np.percentile(values, share)) if len(values) else 0.0
