"""All rules over a run: what they measure on the way through it, and the tables that come of it."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.catalogue import BY_KIND
from nsys2prv.efficiency.findings.communication import Communication
from nsys2prv.efficiency.findings.copies import Copies
from nsys2prv.efficiency.findings.devices import clock_drops, imbalance, slow_devices
from nsys2prv.efficiency.findings.finding import Measured, as_rows
from nsys2prv.efficiency.findings.gap_causes import Idle
from nsys2prv.efficiency.findings.nccl_contention import NcclContention
from nsys2prv.efficiency.findings.streams import Streams
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk


class Findings:
    """What rules measure beside the tables of a run."""

    def __init__(self, ground: SweepContext) -> None:
        self._idle = Idle(ground)
        self._copies, self._company, self._streams = Copies(ground), NcclContention(ground), Streams(ground)
        self._communication = Communication(ground)

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        for one in (self._copies, self._company, self._streams, self._communication):
            one.take(part)

    def take_gaps(self, gaps: pl.DataFrame) -> None:
        """Take in gaps, as `gaps.Gaps` tells them to its listener."""
        self._idle.take(gaps)

    def tables(self, measured: Measured, arrivals: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
        """The tables of findings.

        Parameters
        ----------
        measured
            The run and its tables.
        arrivals
            As of `Communication.findings`.
        """
        slow = slow_devices(measured)
        found = [
            *self._idle.findings(measured),
            *slow,
            *imbalance(measured, slow),
            *self._company.findings(measured),
            *self._communication.findings(measured, arrivals),
            *self._copies.findings(measured, self._idle),
            *self._streams.findings(measured),
            *clock_drops(measured),
        ]
        whole = measured.length * measured.devices
        least = max(limits.LEAST_COST.value, limits.LEAST_SHARE.value * whole)
        return as_rows([one for one in found if one.cost >= least], measured, BY_KIND)
