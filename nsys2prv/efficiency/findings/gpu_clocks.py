"""Sampled clocks of devices while they are busy."""

from __future__ import annotations

import re

import polars as pl

from nsys2prv.efficiency.findings.rule import Evidence, Threshold

BUSY = Threshold("least part of a bin in which the device runs kernels", 0.5, "0 to 1", "idle GPUs lower their clocks")

_CLOCK = re.compile(r"\bGPC Clock", re.IGNORECASE)
_TO_HERTZ = ((re.compile(r"\[MHz\]"), 1e6), (re.compile(r"\[kHz\]"), 1e3))


def busy_clocks(evidence: Evidence) -> pl.DataFrame:
    """Busy bins of devices with their clock.

    Returns
    -------
    Columns `device` (name), `bin`, `metric`, `mean` (of the bin), `median` (of the means of the device), `kernels_ns`,
    `begin_ns`, `end_ns`, and others of the table `sampled_bins`.
    """
    sampled = evidence.tables["sampled_bins"]
    metric = next((name for name in sampled["metric"].unique(maintain_order=True) if _CLOCK.search(name)), None)
    bins = evidence.tables["bins"].select("bin", "begin_ns", "end_ns")
    of_devices = evidence.tables["device_bins"].select("bin", "device", "kernels_ns").join(bins, on="bin", how="inner")
    clocks = sampled.filter(pl.col("metric") == (metric or ""), pl.col("minimum") > 0).join(
        of_devices, on=["device", "bin"], how="inner"
    )
    busy = clocks.filter(pl.col("kernels_ns") >= BUSY.value * (pl.col("end_ns") - pl.col("begin_ns")))
    return busy.with_columns(median=pl.col("mean").median().over("device")).sort("device", "bin")


def clock_ratio(evidence: Evidence, device: int) -> float | None:
    """Median clock of a busy device against the median of the others; None: not sampled on all of them."""
    medians = busy_clocks(evidence).group_by("device").agg(pl.col("median").first())
    is_own = pl.col("device") == evidence.device_name(device)
    own, others = medians.filter(is_own)["median"], medians.filter(~is_own)["median"]
    if own.is_empty() or others.len() != evidence.devices - 1:
        return None
    return float(own[0]) / float(others.median())  # type: ignore[arg-type]


def hertz(metric: str) -> float:
    """The unit of a clock metric in Hz, from its name."""
    return next((factor for pattern, factor in _TO_HERTZ if pattern.search(metric)), 1.0)
