"""Slow GPU: the same kernels take longer on one device."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gpu_clocks import clock_ratio
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import time

SLOWDOWN = Threshold("least ratio of durations to the median device", 1.05, "", "GPUs of one kind differ by some percent")
AGREEMENT = Threshold(
    "least part of the time in kernels that are slower there", 0.75, "0 to 1", "else single kernels have other work there"
)
COUNT_DIFFERENCE = Threshold(
    "largest difference of executions of a kernel to the median device", 0.05, "0 to 1", "other counts are other work"
)
FEWEST_EXECUTIONS = Threshold("fewest executions of a kernel on a device", 10, "", "means of fewer are chance")
COMPARABLE = Threshold(
    "least part of the kernel time that can be compared", 0.5, "0 to 1", "else the devices do different things"
)
LEAST_LOST = Threshold("least share lost, of the active time of all", 0.02, "0 to 1", "less is within the spread of GPUs")

_MOST_DEVICES = 50
"""Slow devices that are listed."""


def _judge(evidence: Evidence) -> Finding | None:
    """Slow devices; the slowest one counts."""
    slow = _against_others(evidence).filter(
        (pl.col("total") >= SLOWDOWN.value * pl.col("usual"))
        & (pl.col("slower") >= AGREEMENT.value * pl.col("total"))
        & (pl.col("total") >= COMPARABLE.value * pl.col("everything"))
        & (pl.col("total") - pl.col("usual") >= LEAST_LOST.value * evidence.active_time)
    ).sort("excess", "device", descending=[True, False])  # fmt: skip
    if slow.is_empty():
        return None
    worst = slow.row(0, named=True)
    lost = round(worst["excess"]) * evidence.devices
    ratio = worst["total"] / worst["usual"]
    clock = clock_ratio(evidence, worst["device"])
    text = (
        f"kernels on {evidence.device_name(worst['device'])} take {time(worst['total'])}, {ratio:.2f} times as long as at the "
        f"median of the other GPUs ({time(worst['usual'])})"
        + (f"; {counted(slow.height - 1, 'other GPU')} also" if slow.height > 1 else "")
        + (f"; its clock is {clock:.2f} times theirs" if clock is not None else "")
    )
    # The other slow devices are slow at the same time, and cost nothing more.
    devices = [
        evidence.whole_device(one["device"], int(one["count"]), lost if place == 0 else 0)
        for place, one in enumerate(slow.head(_MOST_DEVICES).iter_rows(named=True))
    ]
    numbers = [
        Number("slow GPUs", slow.height),
        Number("ratio of durations to the median of the others", ratio),
        Number("kernel time that was compared", worst["total"], NANOSECONDS),
        Number("the same at the median of the others", worst["usual"], NANOSECONDS),
        Number("part of it in kernels that are slower there", worst["slower"] / worst["total"], SHARE),
    ]
    if clock is not None:
        numbers.append(Number("clock against the median of the others", clock))
    return Finding(text, devices, numbers)


def _against_others(evidence: Evidence) -> pl.DataFrame:
    """Kernel times of each device against those of the others, for kernels that most devices execute equally often.

    Returns
    -------
    Columns `device`, `total` (ns of its comparable kernels), `usual` (ns of as many at the median of the others), `excess`
    (their difference), `slower` (the part of `total` in kernels that take longer), `everything` (ns of all its kernels),
    `count`.
    """
    kernels = evidence.kernels_by_device.with_columns(mean=pl.col("total") / pl.col("count"))
    everything = kernels.group_by("device").agg(everything=pl.col("total").sum())
    key = ["number", "value"]
    of_all = kernels.group_by(key).agg(pl.len().alias("executing"), usual_count=pl.col("count").median())
    comparable = kernels.join(of_all, on=key, how="inner").filter(
        # A kernel that most devices never execute is work of a few only.
        (pl.col("executing") > 1)
        & (pl.col("executing") * 2 > evidence.devices)
        & (pl.col("count") >= FEWEST_EXECUTIONS.value)
        & ((pl.col("count") - pl.col("usual_count")).abs() <= COUNT_DIFFERENCE.value * pl.col("usual_count"))
    )
    # The median of the others: of the sorted means without that of the device itself.
    ranked = comparable.sort(*key, "mean", "device").with_columns(
        place=pl.int_range(pl.len()).over(key), several=pl.len().over(key)
    ).filter(pl.col("several") > 1)  # fmt: skip
    others = pl.col("several") - 1

    def place_among_all(rank: pl.Expr) -> pl.Expr:
        """Place of the n-th of the others: those after the device itself are one place further."""
        return rank + (rank >= pl.col("place")).cast(pl.Int64)

    means = ranked.select(*key, at="place", other="mean")
    ranked = ranked.with_columns(lower=place_among_all((others - 1) // 2), upper=place_among_all(others // 2))
    for name in ("lower", "upper"):
        ranked = ranked.join(means.rename({"other": f"{name}_mean"}), left_on=[*key, name], right_on=[*key, "at"], how="left")
    usual = (pl.col("lower_mean") + pl.col("upper_mean")) / 2
    return (
        ranked.with_columns(usual=usual * pl.col("count"), is_slower=pl.col("mean") > usual)
        .group_by("device")
        .agg(pl.col("total", "usual", "count").sum(), slower=pl.col("total").filter("is_slower").sum())
        .with_columns(excess=pl.col("total") - pl.col("usual"))
        .join(everything, on="device", how="left")
        .sort("device")
    )


RULE = FindingRule(
    kind="slow-device",
    title="Slow GPU: the same kernels take longer on one device",
    sees="kernels that all devices execute equally often, and that take longer on one than on the median of the others",
    needs="kernels on two devices or more",
    cost="what its kernels take longer than at the median of the others, times n: all may have to wait for it; of several slow "
    "ones the slowest counts",
    view="analysis/kernel_average",
    advice="Compare clocks, temperature, power limit and ECC errors (nvidia-smi -q), look for another process on that GPU, "
    "check the placement; leave the device out to prove it.",
    thresholds=(SLOWDOWN, AGREEMENT, COUNT_DIFFERENCE, FEWEST_EXECUTIONS, COMPARABLE, LEAST_LOST),
    judge=_judge,
)
