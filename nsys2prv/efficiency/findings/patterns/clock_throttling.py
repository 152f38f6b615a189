"""Clock throttling: the clock of a busy device is lower for a time."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import DeviceStats, on_devices
from nsys2prv.efficiency.findings.finding import HERTZ, Finding, Number
from nsys2prv.efficiency.findings.gpu_clocks import BUSY, busy_clocks, hertz
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold

LARGEST_RATIO = Threshold(
    "largest ratio to the usual clock: that of the fastest tenth of the busy bins",
    0.9,
    "",
    "GPUs give up some percent under load",
)
FEWEST_BINS = Threshold("fewest bins with such a clock", 3, "", "a single one may be an odd sample")
_USUAL = 0.9
"""Of the busy bins of a device, in the order of their clocks, the place of the usual one."""
LEAST_LOST = Threshold("least share lost", 0.01, "0 to 1", "less is not worth a look")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with a low clock in several busy bins."""
    # Not the median: a clock can be low in more than half of the run.
    usual = pl.col("mean").quantile(_USUAL, interpolation="higher").over("device")
    busy = busy_clocks(evidence).with_columns(usual=usual)
    ratio = pl.col("mean") / pl.col("usual")
    low = busy.filter(pl.col("mean") <= LARGEST_RATIO.value * pl.col("usual")).with_columns(
        cost=(pl.col("kernels_ns") * (1 - ratio)).round().cast(pl.Int64)
    )
    devices = []
    for (name,), rows in low.partition_by("device", as_dict=True, maintain_order=True).items():
        device = evidence.device_index(str(name))
        worst = rows.sort("cost", "bin", descending=[True, False]).row(0, named=True)
        stats = DeviceStats(
            device=device,
            count=rows.height,
            cost=int(rows["cost"].sum()),
            begin=int(rows["begin_ns"].min()),  # type: ignore[arg-type]
            end=int(rows["end_ns"].max()),  # type: ignore[arg-type]
            worst=(worst["begin_ns"], worst["end_ns"]),
            rows=evidence.streams(device),
        )
        if stats.count >= FEWEST_BINS.value and evidence.costs_share(stats, LEAST_LOST):
            devices.append(stats)
    if not devices:
        return None
    is_slow = pl.col("device").is_in([evidence.device_name(stats.device) for stats in devices])
    low = low.filter(is_slow).sort(ratio, maintain_order=True)
    lowest = low.row(0, named=True)
    unit = hertz(lowest["metric"])
    text = (
        f"in {low.height} of {busy.filter(is_slow).height} busy bins {on_devices(devices)} the clock is lower than usual, "
        f"down to {lowest['mean'] * unit / 1e6:,.0f} MHz from the usual {lowest['usual'] * unit / 1e6:,.0f} MHz"
    )
    numbers = [
        Number("bins with a low clock", low.height),
        Number("lowest clock", lowest["mean"] * unit, HERTZ),
        Number("usual clock of that GPU", lowest["usual"] * unit, HERTZ),
        Number("lowest clock against the usual one", lowest["mean"] / lowest["usual"]),
    ]
    # All devices have to wait for the one that loses most at a time.
    lost = low.filter(is_slow).group_by("bin").agg(pl.col("cost").max())
    wall = int(lost["cost"].sum())
    if evidence.transfers.height:
        numbers.append(Number("GPUs that wait in collectives", evidence.devices))
        worst_one = max(devices, key=lambda stats: (stats.cost, -stats.device))
        devices = [replace(one, cost=wall * evidence.devices if one is worst_one else 0) for one in devices]
    return Finding(text, devices, numbers, wall=wall)


RULE = FindingRule(
    kind="clock-throttling",
    title="Clock throttling: the device runs slower for a time",
    sees="bins in which a busy device has a lower clock than in the fastest tenth of its busy bins",
    needs=(needs.CLOCKS,),
    cost="kernel time in these bins x (1 - clock / usual clock), times n where collectives make the others wait",
    view="2-gpu-metrics/metric",
    advice="Look at power limit, temperature and other users of the GPU (nvidia-smi -q -d PERFORMANCE); lock clocks to compare "
    "runs.",
    thresholds=(BUSY, LARGEST_RATIO, FEWEST_BINS, LEAST_LOST),
    judge=_judge,
)
