"""Unified memory: pages migrate back and forth between host and device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import PARTS, part_of
from nsys2prv.efficiency.findings.copy_times import CopyTimes
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import NO_VALUE, value_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.efficiency.intervals import Intervals, Numbers, segments
from nsys2prv.efficiency.run_events import PAGE_FAULTS
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import size, time

FEWEST_COPIES = Threshold("fewest migrations of a device", 100, "", "pages are needed once, and fewer are a start")
BOTH_WAYS = Threshold(
    "least part of the bytes in the direction with fewer, for `back and forth`", 0.1, "0 to 1", "else pages migrate once"
)
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is not worth a prefetch")


class ToDevice(CopyTimes):
    """Migrations of pages to the device."""

    matches = pl.lit(True)
    kinds = (11,)
    is_whole = True


class ToHost(CopyTimes):
    """Migrations of pages to the host."""

    matches = pl.lit(True)
    kinds = (12,)
    is_whole = True


class BothWays(CopyTimes):
    """Migrations of pages to the device and to the host."""

    matches = pl.lit(True)
    kinds = (11, 12)
    is_whole = True


class FaultTimes:
    """Times in which page faults of devices are handled, or pages migrate: a meter of the rule.

    Attributes
    ----------
    faults
        Of each device, faults that were recorded, in groups of neighbours.
    handled
        Of each device, ns: faults are handled.
    waited
        Of each part of the run (PARTS) and device, ns: that, or pages migrate.
    """

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        devices = len(context.events.rows.devices)
        self.faults, self.handled = (np.zeros(devices, dtype=np.int64) for _ in range(2))
        self.waited: Numbers = np.zeros((PARTS, devices), dtype=np.int64)
        names = [event_types.COPY_KINDS[kind] for kind in BothWays.kinds]
        self._migrations = [value_of(context.events.types, event_types.MEMORY_OPERATION, name) for name in names]

    def update(self, chunk: TimeChunk) -> None:
        """Add the faults and migrations of a chunk."""
        faults = chunk.inside[PAGE_FAULTS.name]
        moved = chunk.copies.filter(pl.col("value").is_in(sorted({*self._migrations} - {NO_VALUE})))
        if faults.is_empty() and moved.is_empty():
            return
        new = faults.filter(pl.col("begin") >= chunk.begin)
        rows = self._context.events.rows
        np.add.at(self.faults, rows.located(new)["device"].to_numpy(), 1)
        of_faults, both = (
            rows.located(frame.select("row", "start", "end")).filter(pl.col("device") >= 0)
            for frame in (faults, pl.concat([faults.select("row", "start", "end"), moved.select("row", "start", "end")]))
        )
        self.handled += self._covered(of_faults).sum(axis=0)
        self.waited += self._covered(both)

    def _covered(self, found: pl.DataFrame) -> Numbers:
        """Time that intervals cover, by the part of the run that they begin in, and device."""
        found_segments = segments(Intervals.of(found["device"].to_numpy(), found["start"].to_numpy(), found["end"].to_numpy()))
        is_open = found_segments.counts[0] > 0
        begin, device, length = (
            values[is_open] for values in (found_segments.begin, found_segments.group, found_segments.length)
        )
        part = pl.select(part_of(pl.lit(pl.Series(begin)), self._context.events.length)).to_series().to_numpy()
        covered: Numbers = np.zeros_like(self.waited)
        np.add.at(covered, (part, device), length)
        return covered


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many migrations: kernels wait for pages that are not there."""
    to_device, to_host, both_ways = (evidence.meter(meter).by_device(evidence) for meter in (ToDevice, ToHost, BothWays))
    devices = evidence.costly(both_ways, FEWEST_COPIES, LEAST_LOST)
    if not devices:
        return None
    named = {stats.device for stats in devices}
    there, back = ([stats for stats in found if stats.device in named] for found in (to_device, to_host))
    moved, returned = total(there, "bytes"), total(back, "bytes")
    lost, again = cost(there), cost(back)
    both = min(moved, returned) / max(moved + returned, 1)
    is_thrashing = both >= BOTH_WAYS.value
    text = (
        f"{count(devices):,} migrations {on_devices(devices)} bring {size(moved)} of unified memory to the device in "
        f"{time(lost)}, and {size(returned)} to the host in {time(again)}, {size((moved + returned) / count(devices))} each"
        + (": pages migrate back and forth" if is_thrashing else "")
    )
    waits = evidence.meter(FaultTimes)
    faults, handled = (int(sum(values[device] for device in named)) for values in (waits.faults, waits.handled))
    if faults:
        text += f"; page faults of kernels are handled for {time(handled)}"
        devices = [replace(stats, cost=int(waits.waited[:, stats.device].sum())) for stats in devices]
    else:
        text += "; how long kernels wait for page faults was not recorded (--cuda-um-gpu-page-faults=true)"
    numbers = (
        Number("migrations", count(devices)),
        Number("bytes to the device", moved, BYTES),
        Number("bytes to the host", returned, BYTES),
        Number("part of the bytes in the direction with fewer", both, SHARE),
        Number("time of migrations to the device", lost, NANOSECONDS),
        Number("time of migrations to the host", again, NANOSECONDS),
        Number("groups of page faults of kernels", faults),
        Number("time in which these are handled", handled, NANOSECONDS),
    )
    # Devices that wait in the same part of the run wait together.
    together = int(waits.waited[:, sorted(named)].max(axis=1).sum())
    return Finding(text, devices, numbers, wall=together if faults else None, is_bound=faults > 0)


RULE = FindingRule(
    kind="unified-memory",
    title="Unified memory: kernels and hosts wait for pages that migrate",
    sees="many migrations of pages, to the device when kernels touch them and to the host when it does, and whether both "
    "happen",
    needs=(needs.UNIFIED_MEMORY,),
    cost="time of the migrations, and in which page faults are handled where that was recorded, also beside kernels: these, or "
    "the host, wait for the pages",
    view="7-memory/copies",
    advice="cudaMemPrefetchAsync before the kernel, cudaMemAdvise (preferred location, read-mostly), larger pieces; keep data "
    "that the host reads in separate memory.",
    thresholds=(FEWEST_COPIES, BOTH_WAYS, LEAST_LOST),
    judge=_judge,
    meters=(ToDevice, ToHost, BothWays, FaultTimes),
)
