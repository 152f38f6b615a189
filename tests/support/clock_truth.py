"""How well clocks of a simulated run are aligned, against the true clocks of the simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks import AlignMethod
from nsys2prv.clocks.align import Axis, align
from nsys2prv.demo.scenario import UTC_ZERO, Cluster
from nsys2prv.exports import describe, open_report


@dataclass(frozen=True)
class AlignmentError:
    """The error of an alignment."""

    axis: Axis
    errors: NDArray[np.float64]
    reported: NDArray[np.float64]

    def percentile(self, share: float) -> float:
        """Percentile of the absolute error over hosts and moments, ns."""
        return float(np.percentile(np.abs(self.errors), share))

    @property
    def honest(self) -> float:
        """Share of hosts whose true error is, at the median, within the reported one."""
        return float((np.median(np.abs(self.errors), axis=1) <= self.reported).mean())


def alignment_error(
    reports: Sequence[Path], cluster: Cluster, method: str, hosts: Sequence[int] | None = None, moments: int = 50
) -> AlignmentError:
    """Align reports of a simulated run and compare with its true clocks."""
    opened = [open_report(path) for path in reports]
    identities = [describe(report) for report in opened]
    spans = []
    for report in opened:
        first, last = report.tables.extent("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", {})[1:]
        assert first is not None
        assert last is not None
        spans.append((first, last))
    with TemporaryDirectory() as scratch:
        axis = align(opened, identities, spans, AlignMethod(method), Path(scratch))
    chosen = range(cluster.nodes) if hosts is None else hosts
    ranks = [node * cluster.gpus_per_node for node in chosen]
    length = max(last - first for first, last in spans)
    times = np.linspace(0, length, moments).astype(np.int64)
    placed = []
    for node, rank in zip(chosen, ranks, strict=True):
        clock, utc = cluster.clocks[node], identities[rank].utc_ns
        assert utc is not None
        of_report = UTC_ZERO + clock.offset + clock.elapsed(times) - utc
        placed.append(pl.DataFrame({"time": of_report}).select(axis.placements[rank].of(pl.col("time"))).to_series().to_numpy())
    ahead = np.stack(placed).astype(np.float64)
    ahead -= times
    reported_errors = {clock.name: clock.correction.percentile_95 for clock in axis.clocks if clock.correction is not None}
    reported = np.array([reported_errors.get(cluster.host(rank), np.nan) for rank in ranks])
    return AlignmentError(axis, ahead - ahead.mean(axis=0), reported)
