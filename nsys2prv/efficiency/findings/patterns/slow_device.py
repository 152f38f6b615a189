"""Slow GPU: the same kernels take longer on one device."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gpu_clocks import clock_ratio
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import scaled_kernels
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
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
FEWEST_KERNELS = Threshold("fewest different kernels that are slower by a like factor", 2, "", "one kernel can have other work")
LIKE_FACTOR = Threshold(
    "least part of the time in kernels whose slowdown is within a half and twice that of all", 0.75, "0 to 1",
    "a slow GPU slows all kernels alike",
)  # fmt: skip
OTHERS_AGREE = Threshold(
    "least part of the other devices whose kernels differ by less than that ratio from their median", 0.5, "0 to 1",
    "durations that are spread over all devices are unequal work",
)  # fmt: skip
LEAST_LOST = Threshold("least share lost, of the active time of all", 0.02, "0 to 1", "less is within the spread of GPUs")

_KERNEL = ("number", "value")
_MOST_DEVICES = 50
"""Slow devices that are listed."""


def _judge(evidence: Evidence) -> Finding | None:
    """Slow devices; the slowest one counts."""
    slow = differing(evidence).filter(is_slow())
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
        Number("different kernels that are slower by a like factor", worst["alike_kernels"]),
    ]
    if clock is not None:
        numbers.append(Number("clock against the median of the others", clock))
    return Finding(text, devices, numbers, wall=round(worst["excess"]))


def differing(evidence: Evidence) -> pl.DataFrame:
    """Devices whose kernels take longer than those of the others, slow or with more work; the largest excess comes first.

    Columns as of `_against_others`.
    """
    return (
        _against_others(evidence)
        .filter(
            (pl.col("total") >= SLOWDOWN.value * pl.col("usual"))
            & (pl.col("slower") >= AGREEMENT.value * pl.col("total"))
            & (pl.col("total") >= COMPARABLE.value * pl.col("everything"))
            & (pl.col("total") - pl.col("usual") >= LEAST_LOST.value * evidence.active_time)
        )
        .sort("excess", "device", descending=[True, False])
    )


def is_slow() -> pl.Expr:
    """Whether it is the device that makes the kernels of a row of `differing` longer, and not their work."""
    return (
        (pl.col("alike_kernels") >= FEWEST_KERNELS.value)
        & (pl.col("alike") >= LIKE_FACTOR.value * pl.col("total"))
        & (pl.col("agreeing") >= OTHERS_AGREE.value)
    )


def _against_others(evidence: Evidence) -> pl.DataFrame:
    """Kernel times of each device against those of the others, for kernels that most devices execute equally often.

    Returns
    -------
    Columns `device`, `total` (ns of its comparable kernels), `usual` (ns of as many at the median of the others), `excess`
    (their difference), `slower` (the part of `total` in kernels that take longer), `everything` (ns of all its kernels),
    `count`; `alike` and `alike_kernels` (time and number of kernels that are slower by a like factor), `agreeing` (part of the
    other devices whose kernels take about as long as at their median); `number`, `value` and `ratio` of the kernel with the
    largest excess.
    """
    everything = evidence.kernels_by_device.group_by("device").agg(everything=pl.col("total").sum())
    each = _each_kernel(evidence)
    whole = pl.col("total").sum().over("device") / pl.col("usual").sum().over("device")
    slowdown = pl.col("ratio") - 1
    is_alike = pl.col("is_slower") & (slowdown >= (whole - 1) / 2) & (slowdown <= (whole - 1) * 2)
    excess = pl.col("total") - pl.col("usual")
    by_device = (
        each.with_columns(is_alike=is_alike)
        .group_by("device")
        .agg(
            pl.col("total", "usual", "count").sum(),
            slower=pl.col("total").filter("is_slower").sum(),
            alike=pl.col("total").filter("is_alike").sum(),
            alike_kernels=pl.col("is_alike").sum(),
            **{name: pl.col(name).sort_by(excess, descending=True).first() for name in (*_KERNEL, "ratio")},
        )
        .with_columns(excess=excess)
        .join(everything, on="device", how="left")
        .sort("device")
    )
    return by_device.with_columns(agreeing=_agreeing(by_device))


def _each_kernel(evidence: Evidence) -> pl.DataFrame:
    """Kernels that most devices execute equally often, by device.

    Returns
    -------
    Columns `device`, `number`, `value`, `count`, `total` (ns), `usual` (ns of as many at the median of the other devices),
    `is_slower`, `ratio` (total / usual), and others.
    """
    kernels = evidence.kernels_by_device.with_columns(mean=pl.col("total") / pl.col("count"))
    key = list(_KERNEL)
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
    return ranked.with_columns(usual=usual * pl.col("count"), is_slower=pl.col("mean") > usual, ratio=pl.col("mean") / usual)


def as_others(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """Kernels of the devices of a finding take as long as at the median of the others."""
    named = [one.device for one in finding.devices]
    kernels = _each_kernel(evidence).filter(pl.col("device").is_in(named))
    return Without(scaled_kernels(built, kernels.with_columns(factor=1 / pl.col("ratio"))))


def _agreeing(by_device: pl.DataFrame) -> pl.Series:
    """For each device the part of the others whose kernels, against the usual durations, are near their median."""
    ratios = (by_device["total"] / by_device["usual"]).to_list()
    near = SLOWDOWN.value
    parts = []
    # One sorted list for all: the median of the others is one of two neighbours in it.
    ordered = np.sort(np.array(ratios))
    for own in ratios:
        others = np.delete(ordered, int(np.searchsorted(ordered, own)))
        middle = float(np.median(others)) if len(others) else 1.0
        first, last = np.searchsorted(others, [middle / near, middle * near])
        parts.append((last - first) / len(others) if len(others) else 1.0)
    return pl.Series(parts, dtype=pl.Float64)


RULE = FindingRule(
    kind="slow-device",
    title="Slow GPU: the same kernels take longer on one device",
    sees="different kernels that all devices execute equally often, and that take longer on one than on the median of the "
    "others, by a like factor, while the others agree",
    needs=(needs.SEVERAL_DEVICES,),
    cost="what its kernels take longer than at the median of the others, times n: all may have to wait for it; of several slow "
    "ones the slowest counts",
    view="1-gpu-kernels/kernel_average",
    advice="Compare clocks, temperature, power limit and ECC errors (nvidia-smi -q), look for another process on that GPU, "
    "check the placement; leave the device out to prove it.",
    thresholds=(
        SLOWDOWN,
        AGREEMENT,
        COUNT_DIFFERENCE,
        FEWEST_EXECUTIONS,
        COMPARABLE,
        FEWEST_KERNELS,
        LIKE_FACTOR,
        OTHERS_AGREE,
        LEAST_LOST,
    ),
    judge=_judge,
    without=as_others,
    unseen="kernels that are slow on all GPUs: there is no other one to compare them with",
)
