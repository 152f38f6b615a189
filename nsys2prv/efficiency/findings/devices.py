"""Devices against each other, and against themselves over time: slow ones, those with more work, and clock drops."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.finding import HERTZ, NANOSECONDS, PLAIN, SHARE, Finding, Measured, Number, OnDevice
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import percent, time

KERNELS_BY_DEVICE = "kernels by device"
"""Name of the frame of `Measured.further` with `number`, `value`, `device`, `count` and `total` of all kernels but NCCL's."""

_CLOCK = re.compile(r"\bGPC Clock", re.IGNORECASE)
_TO_HERTZ = ((re.compile(r"\[MHz\]"), 1e6), (re.compile(r"\[kHz\]"), 1e3))
_SLOW_ROWS = 50


def slow_devices(measured: Measured) -> list[Finding]:
    """Devices on which the same kernels take longer."""
    found = _against_others(measured)
    slow = found.filter(
        (pl.col("total") >= limits.SLOW_RATIO.value * pl.col("usual"))
        & (pl.col("slower") >= limits.SLOW_AGREEING.value * pl.col("total"))
        & (pl.col("total") >= limits.SLOW_COMPARED.value * pl.col("everything"))
        & (pl.col("total") - pl.col("usual") >= limits.SLOW_SHARE.value * measured.active_time)
    ).sort("excess", "device", descending=[True, False])
    if slow.is_empty():
        return []
    worst = slow.row(0, named=True)
    lost = round(worst["excess"]) * measured.devices
    ratio = worst["total"] / worst["usual"]
    clock = _clock_ratio(measured, worst["device"])
    seen = (
        f"kernels on {measured.name(worst['device'])} take {time(worst['total'])}, {ratio:.2f} times as long as at the median "
        f"of the other GPUs ({time(worst['usual'])})"
        + (f"; so it is on {counted(slow.height - 1, 'other GPU')}" if slow.height > 1 else "")
        + (f"; its clock is {clock:.2f} times theirs" if clock is not None else "")
    )
    on = []
    for place, one in enumerate(slow.head(_SLOW_ROWS).iter_rows(named=True)):
        # Only the slowest counts: the others are slow at the same time.
        on.append(_whole(measured, one["device"], int(one["count"]), lost if place == 0 else 0))
    numbers = [
        Number("slow GPUs", slow.height),
        Number("ratio of durations to the median of the others", ratio),
        Number("kernel time that was compared", worst["total"], NANOSECONDS),
        Number("the same at the median of the others", worst["usual"], NANOSECONDS),
        Number("part of it in kernels that are slower there", worst["slower"] / worst["total"], SHARE),
    ]
    if clock is not None:
        numbers.append(Number("clock against the median of the others", clock, PLAIN))
    return [Finding(limits.SLOW_DEVICE, seen, lost, on, numbers)]


def _against_others(measured: Measured) -> pl.DataFrame:
    """Of each device: `total` of its kernels that can be compared and the `usual` time of as many at the median of the others;
    `slower`, the part of `total` in kernels that take longer; `everything`, all its kernels; `count`; `excess`."""
    kernels = measured.further[KERNELS_BY_DEVICE].with_columns(mean=pl.col("total") / pl.col("count"))
    everything = kernels.group_by("device").agg(everything=pl.col("total").sum())
    key = ["number", "value"]
    of_all = kernels.group_by(key).agg(pl.len().alias("executing"), usual_count=pl.col("count").median())
    fitting = kernels.join(of_all, on=key, how="inner").filter(
        # A kernel that most devices never execute is the work of some.
        (pl.col("executing") > 1)
        & (pl.col("executing") * 2 > measured.devices)
        & (pl.col("count") >= limits.SLOW_EXECUTIONS.value)
        & ((pl.col("count") - pl.col("usual_count")).abs() <= limits.SLOW_COUNTS.value * pl.col("usual_count"))
    )
    # The median of the others: of the sorted means without the own one.
    ranked = fitting.sort(*key, "mean", "device").with_columns(
        place=pl.int_range(pl.len()).over(key), several=pl.len().over(key)
    ).filter(pl.col("several") > 1)  # fmt: skip
    others = pl.col("several") - 1

    def of_others(rank: pl.Expr) -> pl.Expr:
        """Mean of the n-th of the others: behind the own place the next one counts."""
        return rank + (rank >= pl.col("place")).cast(pl.Int64)

    means = ranked.select(*key, at="place", other="mean")
    lower, upper = of_others((others - 1) // 2), of_others(others // 2)
    ranked = ranked.with_columns(lower=lower, upper=upper)
    for name in ("lower", "upper"):
        ranked = ranked.join(means.rename({"other": f"{name}_mean"}), left_on=[*key, name], right_on=[*key, "at"], how="left")
    usual = (pl.col("lower_mean") + pl.col("upper_mean")) / 2
    return (
        ranked.with_columns(usual=usual * pl.col("count"), is_slower=pl.col("mean") > usual)
        .group_by("device")
        .agg(
            pl.col("total", "usual", "count").sum(),
            slower=pl.col("total").filter("is_slower").sum(),
        )
        .with_columns(excess=pl.col("total") - pl.col("usual"))
        .join(everything, on="device", how="left")
        .sort("device")
    )


def imbalance(measured: Measured, slow: Sequence[Finding]) -> list[Finding]:
    """One device with more useful work than the others.

    Parameters
    ----------
    slow
        What slow devices explain of it.
    """
    devices = measured.tables["devices"]
    useful = devices["useful_ns"]
    if devices.height < 2 or not useful.max():
        return []
    most = int(useful.max())  # type: ignore[arg-type]
    explained = sum(one.cost for one in slow)
    lost = most * devices.height - int(useful.sum()) - explained
    if lost < limits.IMBALANCE_SHARE.value * measured.active_time * measured.devices:
        return []
    mean, least = float(useful.mean()), int(useful.min())  # type: ignore[arg-type]
    largest = int(useful.arg_max() or 0)
    balance = mean / most
    seen = (
        f"{devices['device'][largest]} computes {time(most)}, the {devices.height} GPUs {time(mean)} on average, and the one "
        f"with least work {time(least)}: load balance {percent(balance)}"
    )
    numbers = (
        Number("load balance", balance, SHARE),
        Number("largest useful time", most, NANOSECONDS),
        Number("mean useful time", mean, NANOSECONDS),
        Number("smallest useful time", least, NANOSECONDS),
        Number("of it explained by slow GPUs", explained, NANOSECONDS),
    )
    return [Finding(limits.IMBALANCE, seen, lost, [_whole(measured, largest, 1, lost)], numbers)]


def clock_drops(measured: Measured) -> list[Finding]:
    """Devices whose clock is lower for a time, while they are busy."""
    busy = _clocks(measured)
    if busy.is_empty():
        return []
    low = busy.filter(pl.col("mean") <= limits.CLOCK_RATIO.value * pl.col("median")).with_columns(
        cost=(pl.col("kernels_ns") * (1 - pl.col("mean") / pl.col("median"))).round().cast(pl.Int64)
    )
    on, kept = [], []
    for (name,), rows in low.partition_by("device", as_dict=True, maintain_order=True).items():
        cost = int(rows["cost"].sum())
        if rows.height < limits.CLOCK_BINS.value or cost < limits.CLOCK_SHARE.value * measured.active(
            measured.index(str(name))
        ):
            continue
        worst = rows.sort("cost", "bin", descending=[True, False]).row(0, named=True)
        begin, end = int(rows["begin_ns"].min()), int(rows["end_ns"].max())  # type: ignore[arg-type]
        device = measured.index(str(name))
        place = (worst["begin_ns"], worst["end_ns"])
        on.append(OnDevice(device, rows.height, cost, begin, end, place, measured.streams(device)))
        kept.append(rows)
    if not on:
        return []
    rows = pl.concat(kept)
    ratio = float((rows["mean"] / rows["median"]).min())  # type: ignore[arg-type]
    lowest = rows.sort(pl.col("mean") / pl.col("median")).row(0, named=True)
    unit = _unit(lowest["metric"])
    seen = (
        f"in {rows.height} of {busy.filter(pl.col('device').is_in(rows['device'].implode())).height} busy bins on "
        f"{counted(len(on), 'GPU')} the clock is lower than in most, down to {lowest['mean'] * unit / 1e6:,.0f} MHz where "
        f"{lowest['median'] * unit / 1e6:,.0f} MHz are usual"
    )
    numbers = (
        Number("bins with a low clock", rows.height),
        Number("lowest clock", lowest["mean"] * unit, HERTZ),
        Number("usual clock of that GPU", lowest["median"] * unit, HERTZ),
        Number("lowest clock against the usual one", ratio),
    )
    return [Finding(limits.CLOCK, seen, sum(one.cost for one in on), on, numbers)]


def _clocks(measured: Measured) -> pl.DataFrame:
    """Busy bins of devices with their clock: `device`, `bin`, `metric`, `mean`, `median` of the device, `kernels_ns`, times."""
    sampled = measured.tables["sampled_bins"]
    metric = next((name for name in sampled["metric"].unique(maintain_order=True) if _CLOCK.search(name)), None)
    bins = measured.tables["bins"].select("bin", "begin_ns", "end_ns")
    of_devices = measured.tables["device_bins"].select("bin", "device", "kernels_ns").join(bins, on="bin", how="inner")
    found = sampled.filter(pl.col("metric") == (metric or ""), pl.col("minimum") > 0).join(
        of_devices, on=["device", "bin"], how="inner"
    )
    busy = found.filter(pl.col("kernels_ns") >= limits.CLOCK_BUSY.value * (pl.col("end_ns") - pl.col("begin_ns")))
    return busy.with_columns(median=pl.col("mean").median().over("device")).sort("device", "bin")


def _clock_ratio(measured: Measured, device: int) -> float | None:
    """Median clock of a device while it is busy against the median of the others; None: not sampled on all of them."""
    medians = _clocks(measured).group_by("device").agg(pl.col("median").first())
    own = medians.filter(pl.col("device") == measured.name(device))["median"]
    others = medians.filter(pl.col("device") != measured.name(device))["median"]
    if own.is_empty() or others.len() != measured.devices - 1:
        return None
    return float(own[0]) / float(others.median())  # type: ignore[arg-type]


def _unit(metric: str) -> float:
    """Hz of the unit of a clock."""
    return next((factor for pattern, factor in _TO_HERTZ if pattern.search(metric)), 1.0)


def _whole(measured: Measured, device: int, count: int, cost: int) -> OnDevice:
    """A device that shows something all the time; the place to look at is the bin where it computes most against the others."""
    name = measured.name(device)
    bins = measured.tables["device_bins"].join(measured.tables["bins"].select("bin", "begin_ns", "end_ns"), on="bin")
    own = bins.filter(pl.col("device") == name)
    others = bins.filter(pl.col("device") != name).group_by("bin").agg(others=pl.col("kernels_ns").mean())
    place = own.join(others, on="bin").sort(pl.col("kernels_ns") - pl.col("others"), -pl.col("bin"), descending=True)
    worst = place.row(0, named=True)
    return OnDevice(
        device,
        count,
        cost,
        measured.first[device],
        measured.last[device],
        (worst["begin_ns"], worst["end_ns"]),
        measured.streams(device),
    )
