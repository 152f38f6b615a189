"""Rules about devices: slow ones, unequal work, imbalance, clocks, and tensor cores that are idle."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, least_share, losses_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without
from nsys2prv.efficiency.graph.changes import scaled_kernels
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import short, time

# -- a device against the others ------------------------------------------------------------------

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
LEAST_SLOWER = least_share(0.02, "less is within the spread of GPUs", ", of the active time of all")

_KERNEL = ["number", "value"]
_MOST_DEVICES = 50
"""Devices that are listed."""
_IS_SLOW = (
    (pl.col("alike_kernels") >= FEWEST_KERNELS.value)
    & (pl.col("alike") >= LIKE_FACTOR.value * pl.col("total"))
    & (pl.col("agreeing") >= OTHERS_AGREE.value)
)
"""Whether it is the device that makes the kernels of a row of `_differing` longer, and not their work."""


def _differing(evidence: Evidence) -> pl.DataFrame:
    """Devices whose kernels take longer than those of the others, slow or with more work; the largest excess comes first.

    Columns as of `_against_others`.
    """
    return (
        _against_others(evidence)
        .filter(
            (pl.col("total") >= SLOWDOWN.value * pl.col("usual"))
            & (pl.col("slower") >= AGREEMENT.value * pl.col("total"))
            & (pl.col("total") >= COMPARABLE.value * pl.col("of_all_kernels"))
            & (pl.col("total") - pl.col("usual") >= LEAST_SLOWER.value * evidence.active_time)
        )
        .sort("excess", "device", descending=[True, False])
    )


def _against_others(evidence: Evidence) -> pl.DataFrame:
    """Kernel times of each device against those of the others, for kernels that most devices execute equally often.

    Returns
    -------
    Columns `device`, `total` (ns of its comparable kernels), `usual` (ns of as many at the median of the others), `excess`
    (their difference), `slower` (the part of `total` in kernels that take longer), `of_all_kernels` (ns of all its kernels),
    `count`; `alike` and `alike_kernels` (time and number of kernels that are slower by a like factor), `agreeing` (part of the
    other devices whose kernels take about as long as at their median); `number`, `value` and `ratio` of the kernel with the
    largest excess.
    """
    of_all_kernels = evidence.measured(Kernels).by_device.group_by("device").agg(of_all_kernels=pl.col("total").sum())
    slowdown = pl.col("ratio") - 1
    of_device = pl.col("total").sum().over("device") / pl.col("usual").sum().over("device") - 1
    is_alike = pl.col("is_slower") & (slowdown >= of_device / 2) & (slowdown <= of_device * 2)
    excess = pl.col("total") - pl.col("usual")
    by_device = (
        _comparable_kernels(evidence)
        .with_columns(is_alike=is_alike)
        .group_by("device")
        .agg(
            pl.col("total", "usual", "count").sum(),
            slower=pl.col("total").filter("is_slower").sum(),
            alike=pl.col("total").filter("is_alike").sum(),
            alike_kernels=pl.col("is_alike").sum(),
            **{name: pl.col(name).sort_by(excess, descending=True).first() for name in (*_KERNEL, "ratio")},
        )
        .with_columns(excess=excess)
        .join(of_all_kernels, on="device", how="left")
        .sort("device")
    )
    return by_device.with_columns(agreeing=_agreeing(by_device))


def _comparable_kernels(evidence: Evidence) -> pl.DataFrame:
    """Kernels that most devices execute equally often, by device.

    Returns
    -------
    Columns `device`, `number`, `value`, `count`, `total` (ns), `usual` (ns of as many at the median of the other devices),
    `is_slower`, `ratio` (total / usual), and others.
    """
    kernels = evidence.measured(Kernels).by_device.with_columns(mean=pl.col("total") / pl.col("count"))
    of_all = kernels.group_by(_KERNEL).agg(pl.len().alias("executing"), usual_count=pl.col("count").median())
    comparable = kernels.join(of_all, on=_KERNEL, how="inner").filter(
        # A kernel that most devices never execute is work of a few only.
        (pl.col("executing") > 1)
        & (pl.col("executing") * 2 > evidence.devices)
        & (pl.col("count") >= FEWEST_EXECUTIONS.value)
        & ((pl.col("count") - pl.col("usual_count")).abs() <= COUNT_DIFFERENCE.value * pl.col("usual_count"))
    )
    # The median of the others: of the sorted means without that of the device itself, which is at `place`.
    place, several = pl.int_range(pl.len()).over(_KERNEL), pl.len().over(_KERNEL)
    ranked = comparable.sort(*_KERNEL, "mean", "device").with_columns(place=place, several=several)
    ranked = ranked.filter(pl.col("several") > 1)
    ranks = ((pl.col("several") - 2) // 2, (pl.col("several") - 1) // 2)
    lower, upper = (pl.col("mean").gather(rank + (rank >= pl.col("place"))).over(_KERNEL) for rank in ranks)
    usual = (lower + upper) / 2
    return ranked.with_columns(usual=usual * pl.col("count"), is_slower=pl.col("mean") > usual, ratio=pl.col("mean") / usual)


def _agreeing(by_device: pl.DataFrame) -> pl.Series:
    """For each device the part of the others whose kernels, against the usual durations, are near their median."""
    ratios = (by_device["total"] / by_device["usual"]).to_list()
    near = SLOWDOWN.value
    parts = []
    # One sorted list for all: the median of the others is one of two neighbours in it.
    ordered = np.sort(np.array(ratios))
    for ratio in ratios:
        peers = np.delete(ordered, int(np.searchsorted(ordered, ratio)))
        middle = float(np.median(peers)) if len(peers) else 1.0
        first, last = np.searchsorted(peers, [middle / near, middle * near])
        parts.append((last - first) / len(peers) if len(peers) else 1.0)
    return pl.Series(parts, dtype=pl.Float64)


def _listed(evidence: Evidence, devices: pl.DataFrame, lost: int) -> Losses:
    """Devices that differ. The first one counts: the others take longer at the same time, and cost nothing more."""
    rows = devices.head(_MOST_DEVICES).select("device", pl.col("count").cast(pl.Int64)).iter_rows()
    return Losses(evidence.of_device(device, count, lost if place == 0 else 0) for place, (device, count) in enumerate(rows))


def _as_others(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """Kernels of the devices of a finding take as long as at the median of the others."""
    kernels = _comparable_kernels(evidence).filter(pl.col("device").is_in(finding.losses.indices))
    return Without(scaled_kernels(built, kernels.with_columns(factor=1 / pl.col("ratio"))))


def _slow_device(evidence: Evidence) -> Finding | None:
    """Slow devices; the slowest one counts."""
    slow = _differing(evidence).filter(_IS_SLOW)
    if slow.is_empty():
        return None
    worst = slow.row(0, named=True)
    ratio = Number("ratio of durations to the median of the others", worst["total"] / worst["usual"])
    compared = Number.time("kernel time that was compared", worst["total"])
    usual = Number.time("the same at the median of the others", worst["usual"])
    clock = _clock_ratio(evidence, worst["device"])
    text = (
        f"kernels on {evidence.name(worst['device'])} take {compared}, {ratio.value:.2f} times as long as at the "
        f"median of the other GPUs ({usual})"
        + (f"; {counted(slow.height - 1, 'other GPU')} also" if slow.height > 1 else "")
        + (f"; its clock is {clock:.2f} times theirs" if clock is not None else "")
    )
    numbers = [
        Number("slow GPUs", slow.height),
        ratio,
        compared,
        usual,
        Number.share("part of it in kernels that are slower there", worst["slower"] / worst["total"]),
        Number("different kernels that are slower by a like factor", worst["alike_kernels"]),
    ]
    if clock is not None:
        numbers.append(Number("clock against the median of the others", clock))
    excess = round(worst["excess"])
    return Finding(text, _listed(evidence, slow, excess * evidence.devices), numbers, wall=excess)


SLOW_DEVICE = FindingRule(
    kind="slow-device",
    title="Slow GPU: the same kernels take longer on one device",
    sees="different kernels that all devices execute equally often, and that take longer on one than on the median of the "
    "others, by a like factor, while the others agree",
    needs=(rule.SEVERAL_DEVICES,),
    cost="what its kernels take longer than at the median of the others, times n: all may have to wait for it; of several slow "
    "ones the slowest counts",
    view="1-gpu-kernels/kernel_average",
    advice="Compare clocks, temperature, power limit and ECC errors (nvidia-smi -q), look for another process on that GPU, "
    "check the placement; leave the device out to prove it.",
    thresholds=(
        SLOWDOWN, AGREEMENT, COUNT_DIFFERENCE, FEWEST_EXECUTIONS, COMPARABLE, FEWEST_KERNELS, LIKE_FACTOR, OTHERS_AGREE,
        LEAST_SLOWER,
    ),
    judge=_slow_device,
    without=_as_others,
    unseen="kernels that are slow on all GPUs: there is no other one to compare them with",
)  # fmt: skip


def _unequal_work(evidence: Evidence) -> Finding | None:
    """Devices with more work; the one with most counts."""
    more = _differing(evidence).filter(~_IS_SLOW)
    if more.is_empty():
        return None
    worst = more.row(0, named=True)
    ratio = Number("ratio of durations to the median of the others", worst["total"] / worst["usual"])
    compared = Number.time("kernel time that was compared", worst["total"])
    agreeing = Number.share("part of the other GPUs that agree with each other", worst["agreeing"])
    text = (
        f"kernels on {evidence.name(worst['device'])} take {compared}, {ratio.value:.2f} times as long as as many "
        f"at the median of the other GPUs; {short(evidence.kernel_name(worst['number'], worst['value']))} takes "
        f"{worst['ratio']:.2f} times as long. {agreeing} of the other GPUs agree with each other: so it is their work, and "
        "not one slow GPU"
    )
    numbers = (
        Number("GPUs with more work", more.height),
        ratio,
        compared,
        Number.time("the same at the median of the others", worst["usual"]),
        Number.share("part of it in kernels that are slower there by a like factor", worst["alike"] / worst["total"]),
        agreeing,
    )
    excess = round(worst["excess"])
    return Finding(text, _listed(evidence, more, excess * (evidence.devices - 1)), numbers, wall=excess)


UNEQUAL_WORK = FindingRule(
    kind="unequal-work",
    title="Unequal work: the same kernels have more to do on some devices",
    sees="kernels that all devices execute equally often, and that take longer on one than on the median of the others, where "
    "single kernels differ, or durations are spread over all devices (else it is `slow-device`)",
    needs=(rule.SEVERAL_DEVICES,),
    cost="what its kernels take longer than at the median of the others, for all others: they may have to wait for it",
    view="1-gpu-kernels/kernel_average",
    advice="Distribute the data anew: particles, rows of a sparse matrix, sequence lengths, experts. Kernels of equal grids "
    "differ by what their data make them do.",
    thresholds=(SLOWDOWN, AGREEMENT, COMPARABLE, LEAST_SLOWER),
    judge=_unequal_work,
    without=_as_others,
)

# -- imbalance ------------------------------------------------------------------------------------

LEAST_IMBALANCE = least_share(
    0.05, "a load balance above 95 % is good", ", of n x the active time of all, beside what slow devices explain"
)


def _imbalance(evidence: Evidence) -> Finding | None:
    """The device with most useful work; what slow devices explain is left out."""
    devices = evidence.tables["devices"]
    useful = devices["useful_ns"].to_numpy()
    if len(useful) < 2 or not useful.max():
        return None
    largest = int(useful.argmax())
    most = Number.time("largest useful time", int(useful.max()))
    mean = Number.time("mean useful time", float(useful.mean()))
    least = Number.time("smallest useful time", int(useful.min()))
    findings = [evidence.finding(kind) for kind in ("slow-device", "unequal-work")]
    # What all devices wait for costs the others as much as it is longer.
    explained = max(((finding.wall or 0) * (len(useful) - 1) for finding in findings if finding is not None), default=0)
    lost = int(useful.max()) * len(useful) - int(useful.sum()) - explained
    if lost < LEAST_IMBALANCE.value * evidence.active_time * len(useful):
        return None
    balance = Number.share("load balance", mean.value / most.value)
    text = (
        f"{devices['device'][largest]} computes {most}, the {len(useful)} GPUs {mean} on average, and the one "
        f"with least work {least}: load balance {balance}"
    )
    of_slow = Number.time("of it explained by slow GPUs and unequal work", explained)
    losses = Losses([evidence.of_device(largest, 1, lost)])
    return Finding(text, losses, (balance, most, mean, least, of_slow), wall=lost // len(useful))


IMBALANCE = FindingRule(
    kind="imbalance",
    title="Imbalance: one device has more useful work than others",
    sees="useful time of the device that has most of it against the mean over devices, beside what slow GPUs and unequal work "
    "explain",
    needs=(rule.SEVERAL_DEVICES,),
    cost="n max U - sum U, less that of slow GPUs and of unequal work",
    view="1-gpu-kernels/useful_time",
    advice="Distribute the work anew: sizes of parts, sequence lengths, pipeline stages, experts; use devices that are idle.",
    thresholds=(LEAST_IMBALANCE,),
    judge=_imbalance,
)

# -- clocks ---------------------------------------------------------------------------------------

BUSY = Threshold("least part of a bin in which the device runs kernels", 0.5, "0 to 1", "idle GPUs lower their clocks")
LARGEST_RATIO = Threshold(
    "largest ratio to the usual clock: that of the fastest tenth of the busy bins", 0.9, "",
    "GPUs give up some percent under load",
)  # fmt: skip
FEWEST_BINS = Threshold("fewest bins with such a clock", 3, "", "a single one may be an odd sample")
LEAST_THROTTLED = least_share(0.01, "less is not worth a look")

_USUAL = 0.9
"""Of the busy bins of a device, in the order of their clocks, the place of the usual one."""
_CLOCK = re.compile(r"\bGPC Clock", re.IGNORECASE)
_TO_HERTZ = {"[MHz]": 1e6, "[kHz]": 1e3}


def _busy_clocks(evidence: Evidence) -> pl.DataFrame:
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


def _clock_ratio(evidence: Evidence, device: int) -> float | None:
    """Median clock of a busy device against the median of the others; None: not sampled on all of them."""
    medians = dict(_busy_clocks(evidence).group_by("device").agg(pl.col("median").first()).iter_rows())
    clock = medians.pop(evidence.name(device), None)
    return None if clock is None or len(medians) != evidence.devices - 1 else clock / float(np.median(list(medians.values())))


def _clock_throttling(evidence: Evidence) -> Finding | None:
    """Devices with a low clock in several busy bins."""
    # Not the median: a clock can be low in more than half of the run.
    usual = pl.col("mean").quantile(_USUAL, interpolation="higher").over("device")
    ratio = pl.col("mean") / pl.col("usual")
    busy = _busy_clocks(evidence).with_columns(usual=usual)
    low = busy.filter(pl.col("mean") <= LARGEST_RATIO.value * pl.col("usual"))
    low = low.with_columns(cost=(pl.col("kernels_ns") * (1 - ratio)).round().cast(pl.Int64))
    losses = _of_bins(low, evidence)
    if not losses:
        return None
    is_slow = pl.col("device").is_in([evidence.name(loss.index) for loss in losses])
    low = low.filter(is_slow).sort(ratio, maintain_order=True)
    first = low.row(0, named=True)
    unit = next((factor for name, factor in _TO_HERTZ.items() if name in first["metric"]), 1.0)
    bins = Number("bins with a low clock", low.height)
    lowest, normal = (
        Number("lowest clock", first["mean"] * unit, "Hz"),
        Number("usual clock of that GPU", first["usual"] * unit, "Hz"),
    )
    text = (
        f"in {low.height} of {busy.filter(is_slow).height} busy bins {losses} the clock is lower than usual, "
        f"down to {lowest} from the usual {normal}"
    )
    numbers = [bins, lowest, normal, Number("lowest clock against the usual one", first["mean"] / first["usual"])]
    # All devices have to wait for the one that loses most at a time.
    wall = int(low.group_by("bin").agg(pl.col("cost").max())["cost"].sum())
    if evidence.measured(Nccl).members.height:
        numbers.append(Number("GPUs that wait in collectives", evidence.devices))
        worst = max(losses, key=lambda loss: (loss.cost, -loss.index))
        losses = Losses(replace(loss, cost=wall * evidence.devices if loss is worst else 0) for loss in losses)
    return Finding(text, losses, numbers, wall=wall)


def _of_bins(low: pl.DataFrame, evidence: Evidence) -> Losses:
    """What devices lose in bins with a low clock (columns of `_busy_clocks`, `cost`)."""
    index = {device.name: place for place, device in enumerate(evidence.run.events.rows.devices)}
    device = pl.col("device").replace_strict(index, return_dtype=pl.Int64)
    bins = low.select("cost", device=device, begin="begin_ns", end="end_ns")
    losses = losses_of(evidence.run, bins, worst="occurrence")
    costly = evidence.costly(losses, LEAST_THROTTLED, FEWEST_BINS)
    return Losses(replace(loss, rows=evidence.streams(loss.index), costs={}) for loss in costly)


CLOCK_THROTTLING = FindingRule(
    kind="clock-throttling",
    title="Clock throttling: the device runs slower for a time",
    sees="bins in which a busy device has a lower clock than in the fastest tenth of its busy bins",
    needs=(rule.CLOCKS,),
    cost="kernel time in these bins x (1 - clock / usual clock), times n where collectives make the others wait",
    view="2-gpu-metrics/metric",
    advice="Look at power limit, temperature and other users of the GPU (nvidia-smi -q -d PERFORMANCE); lock clocks to compare "
    "runs.",
    thresholds=(BUSY, LARGEST_RATIO, FEWEST_BINS, LEAST_THROTTLED),
    judge=_clock_throttling,
)

# -- tensor cores ---------------------------------------------------------------------------------

LARGEST_USE = Threshold(
    "largest mean activity of tensor cores in such kernels", 0.05, "0 to 1", "kernels that use them reach more"
)
FEWEST_SAMPLES = Threshold("fewest samples in such kernels on a device", 20, "", "means of fewer are chance")
LEAST_IDLE = least_share(0.05, "less is not worth another precision")

_FAMILIES = r"(?i)gemm|gemv|matmul|attention|convolution|\bconv"
"""Families of kernels that tensor cores can do."""


def _idle_tensor_cores(evidence: Evidence) -> Finding | None:
    """Devices on which such kernels take long without tensor cores."""
    sampled = evidence.tables["sampled_kernels"]
    metric = next((name for name in sampled["metric"].unique(maintain_order=True) if name and "tensor" in name.lower()), "")
    idle = sampled.filter(
        (pl.col("metric") == metric)
        & (pl.col("level") == "kernel")
        & (pl.col("samples") >= FEWEST_SAMPLES.value)
        & (pl.col("mean") <= 100 * LARGEST_USE.value)
    )
    families = evidence.tables["kernels"].select(name="kernel", family="family").unique("name")
    idle = idle.join(families, on="name", how="left").filter(
        pl.col("family").str.contains(_FAMILIES) | pl.col("name").str.contains(_FAMILIES)
    )
    by_device = idle.group_by("device").agg(pl.col("time_ns").sum(), kernels=pl.len()).sort("device")
    losses = evidence.costly(
        [
            evidence.of_device(evidence.device_index(name), kernels, lost)
            for name, lost, kernels in by_device.select("device", "time_ns", "kernels").iter_rows()
        ],
        LEAST_IDLE,
    )
    if not losses:
        return None
    longest = idle.sort("time_ns", "name", descending=[True, False]).row(0, named=True)
    names = idle["name"].n_unique()
    mean = float((idle["mean"] * idle["time_ns"]).sum()) / max(int(idle["time_ns"].sum()), 1) / 100
    active = Number.share("mean activity of tensor cores in them", mean)
    text = (
        f"{counted(names, 'kernel')} of matrix multiplications, convolutions or attention take {time(losses.cost)} "
        f"with tensor cores active in {active} of the time; most time of these takes {short(longest['name'])}"
    )
    of_longest = Number.time("time of the one that takes most", longest["time_ns"])
    return Finding(text, losses, (Number("such kernels", names), active, of_longest))


IDLE_TENSOR_CORES = FindingRule(
    kind="idle-tensor-cores",
    title="Idle tensor cores: matrix multiplications do not use them",
    sees="kernels of matrix multiplications, convolutions and attention in which tensor cores are hardly active",
    needs=(rule.TENSOR_ACTIVE,),
    cost="time of these kernels: how much faster they become depends on precision and size",
    view="2-gpu-metrics/tensor_per_gemm",
    advice="Lower precision (TF32, BF16, FP16, FP8), sizes that are multiples of 8 or 16, library kernels for this GPU. Where "
    "double precision is needed, tensor cores of data-centre GPUs can do it too.",
    thresholds=(LARGEST_USE, FEWEST_SAMPLES, LEAST_IDLE),
    judge=_idle_tensor_cores,
)
