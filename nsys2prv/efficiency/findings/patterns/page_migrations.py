"""Unified memory: pages migrate back and forth between host and device."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.copy_times import CopyTimes
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
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
    numbers = (
        Number("migrations", count(devices)),
        Number("bytes to the device", moved, BYTES),
        Number("bytes to the host", returned, BYTES),
        Number("part of the bytes in the direction with fewer", both, SHARE),
        Number("time of migrations to the device", lost, NANOSECONDS),
        Number("time of migrations to the host", again, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind="unified-memory",
    title="Unified memory: kernels and hosts wait for pages that migrate",
    sees="many migrations of pages, to the device when kernels touch them and to the host when it does, and whether both "
    "happen",
    needs=(needs.UNIFIED_MEMORY,),
    cost="time of the migrations, also beside kernels: these, or the host, wait for the pages",
    view="7-memory/copies",
    advice="cudaMemPrefetchAsync before the kernel, cudaMemAdvise (preferred location, read-mostly), larger pieces; keep data "
    "that the host reads in separate memory.",
    thresholds=(FEWEST_COPIES, BOTH_WAYS, LEAST_LOST),
    judge=_judge,
    meters=(ToDevice, ToHost, BothWays),
)
