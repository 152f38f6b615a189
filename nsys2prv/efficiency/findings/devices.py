"""Rules about devices and their kernels: slow GPUs, unequal work, clocks, and kernels that could be faster or need not run."""

from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Threshold
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.efficiency.graph.changes import as_others, means_in_parts, with_usual
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import time_where
from nsys2prv.efficiency.measured_run import KERNEL
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.run_events import LAUNCH_SIZES
from nsys2prv.errors import counted
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import short, time

# -- a device against the others ------------------------------------------------------------------
_KERNEL = ["number", "value"]
_MOST_DEVICES = 50
"""Devices that are listed."""


def _is_slower_throughout(evidence: Evidence, devices: pl.DataFrame) -> pl.Series:
    """Which devices take hardly less than the others in any part of the run, where they take longer in others."""
    kernels = evidence.rows.located(evidence.run.operations.filter(pl.col("number") == event_types.KERNEL))
    lengths = kernels.select(*_KERNEL, "device", length=pl.col("end") - pl.col("start"))
    longer = (pl.col("mean") - pl.col("usual")) * pl.col("runs")
    sums = means_in_parts(lengths, _KERNEL, "device", runs=pl.len()).group_by("device").agg(
        more=longer.clip(lower_bound=0).sum(), less=-longer.clip(upper_bound=0).sum()
    )  # fmt: skip
    both = devices.select(pl.col("device").cast(pl.Int64)).join(sums, on="device", how="left", maintain_order="left")
    return both.select((pl.col("less") <= SlowDevice.less.value * pl.col("more")).fill_null(True)).to_series()


def _differing(evidence: Evidence) -> pl.DataFrame:
    """Devices whose kernels take longer than those of the others, slow (`is_slow`) or with more work; the largest excess comes
    first: `total` (ns of its comparable kernels) against `usual` (ns of as many at the median of the others), of it `slower`
    (in kernels that take longer) and `alike` (by a like factor), and `number`, `value`, `ratio` of the worst kernel."""
    of_all_kernels = evidence.run.measured(Kernels).by_device.group_by("device").agg(of_all_kernels=pl.col("total").sum())
    slowdown = pl.col("ratio") - 1
    of_device = pl.col("total").sum().over("device") / pl.col("usual").sum().over("device") - 1
    is_alike = (slowdown > 0) & (slowdown >= of_device / 2) & (slowdown <= of_device * 2)
    total, excess = pl.col("total"), pl.col("total") - pl.col("usual")
    by_device = _comparable_kernels(evidence).with_columns(is_alike=is_alike).group_by("device").agg(
        pl.col("total", "usual", "count").sum(),
        slower=total.filter(slowdown > 0).sum(),
        alike=total.filter("is_alike").sum(),
        alike_kernels=pl.col("is_alike").sum(),
        **{name: pl.col(name).sort_by(excess, descending=True).first() for name in (*_KERNEL, "ratio")},
    )  # fmt: skip
    by_device = by_device.join(of_all_kernels, on="device", how="left").sort("device")
    differing = by_device.with_columns(excess=excess, agreeing=_agreeing(by_device)).with_columns(
        is_slow=(pl.col("alike_kernels") >= SlowDevice.fewest_kernels.value)
        & (pl.col("alike") >= SlowDevice.like_factor.value * total)
        & (pl.col("agreeing") >= SlowDevice.others_agree.value)
    ).filter(
        total >= _Differing.slowdown.value * pl.col("usual"),
        pl.col("slower") >= _Differing.agreement.value * total,
        total >= _Differing.comparable.value * pl.col("of_all_kernels"),
        excess >= _Differing.least.value * evidence.active_time,
    ).sort("excess", "device", descending=[True, False])  # fmt: skip
    is_slow = differing["is_slow"]
    return differing.with_columns(is_slow & _is_slower_throughout(evidence, differing)) if is_slow.any() else differing


def _comparable_kernels(evidence: Evidence) -> pl.DataFrame:
    """Kernels that most devices execute equally often, by device, with `usual` (ns of as many at the median of the others) and
    `ratio` (total / usual)."""
    kernels = evidence.run.measured(Kernels).by_device.with_columns(mean=pl.col("total") / pl.col("count"))
    executing, usual_count = pl.len().over(_KERNEL), pl.col("count").median().over(_KERNEL)
    comparable = kernels.filter(
        # A kernel that most devices never execute is work of a few only.
        executing * 2 > evidence.devices,
        pl.col("count") >= SlowDevice.fewest_executions.value,
        (pl.col("count") - usual_count).abs() <= SlowDevice.count_difference.value * usual_count,
    )
    usual = pl.col("usual")
    return with_usual(comparable, _KERNEL, "device").with_columns(usual=usual * pl.col("count"), ratio=pl.col("mean") / usual)


def _repeated(evidence: Evidence) -> str | None:
    has_none = evidence.run.measured(Kernels).by_device.height and _comparable_kernels(evidence).is_empty()
    fewest = SlowDevice.fewest_executions.value
    return f"no kernel is executed {fewest:.0f} times or more, about equally often, on most GPUs" if has_none else None


def _agreeing(by_device: pl.DataFrame) -> pl.Series:
    """For each device the part of the others whose kernels, against the usual durations, are near their median."""
    ratios, near, parts = (by_device["total"] / by_device["usual"]).to_numpy(), _Differing.slowdown.value, []
    for place in range(len(ratios)):
        peers = np.delete(ratios, place)
        middle = np.median(peers)
        parts.append(((peers >= middle / near) & (peers < middle * near)).mean())
    return pl.Series(parts, dtype=pl.Float64)


class _Differing(FindingRule):
    """A rule about devices whose kernels take longer: the one with the largest excess counts."""

    needs = (rule.SEVERAL_DEVICES, rule.Need("kernels that most GPUs execute often", _repeated))
    slowdown = Threshold("least ratio of durations to the median device", 1.05, "GPUs of one kind differ by some percent", "")
    agreement = Threshold("least part of the time in kernels that are slower there", 0.75, "else some have other work there")
    comparable = Threshold("least part of the kernel time that can be compared", 0.5, "else the devices do different things")
    least = Threshold.least_share(0.02, "less is within the spread of GPUs", ", of the active time of all")
    is_slow: bool
    """Whether the device makes its kernels longer, and not their work."""

    def judge(self, evidence: Evidence) -> Finding | None:
        devices = _differing(evidence).filter(pl.col("is_slow") == self.is_slow)
        if devices.is_empty():
            return None
        worst = devices.row(0, named=True)
        # Kernels that run at the same time take their time once.
        running = evidence.tables["devices"]["kernels_ns"][worst["device"]]
        excess = round(min(worst["excess"], running * worst["excess"] / worst["total"]))
        # The others take longer at the same time, and cost nothing more.
        lost = excess * (evidence.devices if self.is_slow else evidence.devices - 1)
        cost = pl.when(pl.int_range(pl.len()) == 0).then(lost).otherwise(0)
        also = f"; {counted(devices.height - 1, 'other GPU')} also" if devices.height > 1 else ""
        ratio, clock = worst["total"] / worst["usual"], _clock_ratio(evidence, worst["device"])
        return self.finding(
            evidence.throughout(devices.head(_MOST_DEVICES).select("device", "count", cost=cost)),
            wall=excess,
            number=devices.height,
            name=evidence.name(worst["device"]),
            ratio=ratio,
            times=f"{ratio:.2f}",
            compared=worst["total"],
            usual=worst["usual"],
            slower=worst["slower"] / worst["total"],
            kernels=worst["alike_kernels"],
            kernel=short(evidence.kernel_name(worst["number"], worst["value"])),
            of_kernel=f"{worst['ratio']:.2f}",
            alike=worst["alike"] / worst["total"],
            agreeing=worst["agreeing"],
            clock=clock,
            further=also + (f"; its clock is {clock:.2f} times theirs" if clock is not None else ""),
        )

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """Kernels of these devices take as long as at the median of the others."""
        return as_others(built, evidence.rows.device, finding.losses.indices, _comparable_kernels(evidence))


class SlowDevice(_Differing, kind="slow-device"):
    is_slow = True
    count_difference = Threshold("largest difference of executions of a kernel to the median device", 0.05, "else other work")
    fewest_executions = Threshold("fewest executions of a kernel on a device", 10, "means of fewer are chance", "")
    fewest_kernels = Threshold("fewest different kernels slower by a like factor", 2, "one kernel can have other work", "")
    like_factor = Threshold(
        "least part of the time in kernels slower by half to twice as much as all", 0.75, "a slow GPU slows all kernels alike"
    )
    others_agree = Threshold(
        "least part of the other devices whose kernels differ by less than that ratio from their median", 0.5,
        "durations that are spread over all devices are unequal work",
    )  # fmt: skip
    less = Threshold(
        "largest time that its kernels take less in parts of the run, against what they take more in others", 0.25,
        "work that varies is longer now here and now there",
    )  # fmt: skip


class UnequalWork(_Differing, kind="unequal-work"):
    is_slow = False


class Imbalance(FindingRule, kind="imbalance", needs=(rule.SEVERAL_DEVICES, rule.SAME_TIMES)):
    least = Threshold.least_share(
        0.05, "a load balance above 95 % is good", ", of n x the active time of all, beside what slow devices explain"
    )

    def judge(self, evidence: Evidence) -> Finding | None:
        devices = evidence.tables["devices"]
        useful = devices["useful_ns"].to_numpy()
        if len(useful) < 2 or not useful.max():
            return None
        largest = int(useful.argmax())
        findings = [evidence.finding(kind) for kind in ("slow-device", "unequal-work")]
        # What all devices wait for costs the others as much as it is longer.
        explained = max((finding.wall or 0 for finding in findings if finding), default=0) * (len(useful) - 1)
        lost = int(useful.max()) * len(useful) - int(useful.sum()) - explained
        if lost < self.least.value * evidence.active_time * len(useful):
            return None
        return self.finding(
            evidence.throughout(pl.DataFrame({"device": [largest], "count": 1, "cost": lost})),
            wall=lost // len(useful),
            name=devices["device"][largest],
            number=str(len(useful)),
            balance=float(useful.mean() / useful.max()),
            most=int(useful.max()),
            mean=float(useful.mean()),
            least=int(useful.min()),
            explained=explained,
        )


# -- clocks ---------------------------------------------------------------------------------------
_USUAL = 0.9
"""Of the busy bins of a device, in the order of their clocks, the place of the usual one."""
_CLOCK = r"(?i)\bGPC Clock"


def _busy_clocks(evidence: Evidence) -> pl.DataFrame:
    """Busy bins of devices with their clock: columns of the table `sampled_bins`, and `kernels_ns`, `begin_ns`, `end_ns`."""
    sampled = evidence.tables["sampled_bins"].filter(pl.col("metric").str.contains(_CLOCK))
    clocks = sampled.filter(pl.col("metric") == pl.col("metric").first(), pl.col("minimum") > 0)
    bins = evidence.tables["bins"].select("bin", "begin_ns", "end_ns")
    of_devices = evidence.tables["device_bins"].select("bin", "device", "kernels_ns").join(bins, on="bin", how="inner")
    is_busy = pl.col("kernels_ns") >= ClockThrottling.busy.value * (pl.col("end_ns") - pl.col("begin_ns"))
    return clocks.join(of_devices, on=["device", "bin"], how="inner").filter(is_busy).sort("device", "bin")


def _clock_ratio(evidence: Evidence, device: int) -> float | None:
    """Median clock of a busy device against the median of the others; None: not sampled on all of them."""
    medians = dict(_busy_clocks(evidence).group_by("device").agg(pl.col("mean").median()).iter_rows())
    clock = medians.pop(evidence.name(device), None)
    return None if clock is None or len(medians) != evidence.devices - 1 else clock / float(np.median(list(medians.values())))


class ClockThrottling(FindingRule, kind="clock-throttling", needs=(rule.CLOCKS,)):
    busy = Threshold("least part of a bin in which the device runs kernels", 0.5, "idle GPUs lower their clocks")
    largest_ratio = Threshold(
        "largest ratio to the clock of the fastest tenth of busy bins", 0.9, "GPUs give up some percent under load", ""
    )
    fewest = Threshold("fewest bins with such a clock", 3, "a single one may be an odd sample", "")
    least = Threshold.least_share(0.01, "less is not worth a look")

    def judge(self, evidence: Evidence) -> Finding | None:
        # Not the median: a clock can be low in more than half of the run.
        usual = pl.col("mean").quantile(_USUAL, interpolation="higher").over("device")
        ratio = pl.col("mean") / pl.col("usual")
        busy = _busy_clocks(evidence).with_columns(usual=usual)
        low = busy.filter(pl.col("mean") <= self.largest_ratio.value * pl.col("usual"))
        low = low.with_columns(cost=(pl.col("kernels_ns") * (1 - ratio)).round().cast(pl.Int64))
        bins = low.select("cost", evidence.index, begin="begin_ns", end="end_ns")
        losses = self.costly(Losses.of(evidence.run, bins, worst="occurrence"), evidence)
        if not losses:
            return None
        is_slow = pl.col("device").is_in([evidence.name(index) for index in losses.indices])
        low = low.filter(is_slow).sort(ratio, maintain_order=True)
        first = low.row(0, named=True)
        unit = next((factor for name, factor in {"[MHz]": 1e6, "[kHz]": 1e3}.items() if name in first["metric"]), 1.0)
        # All devices have to wait for the one that loses most at a time.
        wall = int(low.group_by("bin").agg(pl.col("cost").max())["cost"].sum())
        finding = self.finding(
            losses,
            wall=wall,
            busy=f"{busy.filter(is_slow).height}",
            lowest=first["mean"] * unit,
            usual=first["usual"] * unit,
            ratio=first["mean"] / first["usual"],
            waiting=evidence.devices if (is_waited := evidence.run.measured(Nccl).members.height > 0) else None,
        )
        if is_waited:
            of_worst = pl.when(pl.col("device") == losses.worst["device"]).then(wall * evidence.devices).otherwise(0)
            losses = Losses(losses.devices.with_columns(cost=of_worst))
        return replace(finding, losses=losses)


_FAMILIES = r"(?i)gemm|gemv|matmul|attention|convolution|\bconv"
"""Families of kernels that tensor cores can do."""


class IdleTensorCores(FindingRule, kind="idle-tensor-cores", needs=(rule.TENSOR_ACTIVE,)):
    largest_use = Threshold("largest mean activity of tensor cores in such kernels", 0.05, "kernels that use them reach more")
    fewest_samples = Threshold("fewest samples in such kernels on a device", 20, "means of fewer are chance", "")
    least = Threshold.least_share(0.05, "less is not worth another precision")

    def judge(self, evidence: Evidence) -> Finding | None:
        metric = pl.col("metric")
        sampled = evidence.tables["sampled_kernels"].filter(metric.str.contains("(?i)tensor")).filter(metric == metric.first())
        families = evidence.tables["kernels"].select(name="kernel", family="family").unique("name")
        idle = sampled.join(families, on="name", how="left").filter(
            pl.col("level") == "kernel",
            pl.col("samples") >= self.fewest_samples.value,
            pl.col("mean") <= 100 * self.largest_use.value,
            pl.any_horizontal(pl.col("family", "name").str.contains(_FAMILIES)),
        )
        by_device = idle.group_by(evidence.index).agg(count=pl.len(), cost=pl.col("time_ns").sum()).sort("device")
        losses = self.costly(evidence.throughout(by_device).at_most(evidence.column("kernels_ns")), evidence)
        if not losses:
            return None
        longest = idle.sort("time_ns", "name", descending=[True, False]).row(0, named=True)
        mean = float((idle["mean"] * idle["time_ns"]).sum()) / max(int(idle["time_ns"].sum()), 1) / 100
        return self.finding(
            losses, kernels=idle["name"].n_unique(), active=mean, name=short(longest["name"]), longest=longest["time_ns"]
        )


# -- kernels themselves ------------------------------------------------------------------------
_LENGTH = pl.col("end") - pl.col("start")
_BLOCKS, _THREADS = pl.col("blocks").cast(pl.Float64), pl.col("threads").cast(pl.Float64)
_WARP = 32
_REGISTERS_OF_WARP = 256
"""Registers are given to warps in such portions."""
_MATRIX = r"^(?:Grouped GEMM|GEMM|GEMV|Convolution (?:forward|data|weight)|.*[Aa]ttention)"
_ATTENTION, _ATTENTION_IN_FP32 = "(?i)fmha_cutlass[fb]_b?f16|flash", "(?i)fmha_cutlass[fb]_f32"
"""Names of kernels of attention in half and in full precision, which their families do not say."""
_FASTER = 16
"""How much faster tensor cores are than other units with fp32 at most: 312 against 19.5 TFLOPS (A100)."""
_CASTS = r"float16\w*_copy|unrolled_.*direct_copy"
"""Names of kernels of PyTorch that copy into another type, and do that element by element."""


def _kernels(evidence: Evidence, *conditions: pl.Expr) -> pl.DataFrame:
    """Kernels but NCCL's that meet conditions, in the order of time: columns of `MeasuredRun.operations`, and `device`."""
    kernels = evidence.run.operations.lazy().filter(pl.col("number") == event_types.KERNEL, *conditions).collect()
    return evidence.rows.located(kernels).filter(pl.col("device") >= 0)


def _values(evidence: Evidence, families: str, names: str = "$^", but: str = "$^") -> list[int]:
    """Values of kernels whose family or name matches a pattern, but those whose name matches another one."""
    name = pl.col("kernel")
    is_such = (pl.col("family").str.contains(families) | name.str.contains(names)) & ~name.str.contains(but)
    such = set(evidence.tables["kernels"].filter(is_such)["kernel"])
    return [value for value, text in evidence.run.events.names(event_types.KERNEL).items() if text in such]


class _KernelRule(FindingRule, texts="kernel-rule"):
    """A rule about some kernels: columns of `_kernels`, and what each costs."""

    needs = (rule.ANY_WORK,)
    is_of_kernels = True
    names_sizes = False
    """Whether the text says with how many blocks and threads the kernel is launched that loses most."""

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        events, sums = losses.of_devices(self.events(evidence)).filter(pl.col("cost") > 0), pl.col("cost", "length").sum()
        by_size = events.with_columns(length=_LENGTH).group_by(*_KERNEL, "blocks", "threads").agg(sums)
        by_kernel = by_size.group_by(_KERNEL).agg(sums)
        first = by_kernel.sort("cost", *_KERNEL, descending=[True, False, False]).row(0, named=True)
        sizes = by_size.filter(pl.col(name) == first[name] for name in _KERNEL)
        most = sizes.sort("cost", "blocks", "threads", descending=[True, False, False]).row(0, named=True)
        blocks, threads = (counted(int(most[f"{name}s"] or 0), name) for name in ("block", "thread"))
        part = f", {time(most['cost'])} of it" if sizes.height > 1 else ""
        return self.finding(
            losses,
            kernels=by_kernel.height,
            spent=int(by_kernel["length"].sum()),
            name=short(evidence.kernel_name(*(first[name] for name in _KERNEL))),
            most=first["cost"],
            sizes=f"{part} with {blocks} of {threads}" if self.names_sizes else "",
        )


class LayoutChanges(_KernelRule, kind="layout-changes"):
    least = Threshold.least_share(0.05, "some conversions are in every model")

    def events(self, evidence: Evidence) -> pl.DataFrame:
        values = _values(evidence, "^(?:Transpose and layout|Cast and quantize)", _CASTS)
        return _kernels(evidence, pl.col("value").is_in(values)).with_columns(cost=_LENGTH)


def _matrix_kernels(evidence: Evidence) -> list[list[int]]:
    """Values of kernels of matrices that use tensor cores, and of those in fp32."""
    kinds = (("tf32|bf16|fp16|fp8|fp4", _ATTENTION), ("fp32", _ATTENTION_IN_FP32))
    return [_values(evidence, f"{_MATRIX}.* (?:{of})(?: |$)", names) for of, names in kinds]


def _only_fp32(evidence: Evidence) -> str | None:
    is_mixed, is_full = map(bool, _matrix_kernels(evidence))
    return "all kernels of matrices are in fp32: whether they need to be is not known" if is_full and not is_mixed else None


class FullPrecision(
    _KernelRule,
    kind="full-precision",
    needs=(rule.ANY_WORK, rule.Need("kernels of matrices in TF32 or half precision", _only_fp32)),
):
    in_tf32: str
    """The advice where other kernels run in TF32."""
    tensor_part = Threshold("least part of the time of these kernels in TF32 or half precision", 0.05, "else it is not used")
    least = Threshold.least_share(0.05, "less is not worth another precision")

    def events(self, evidence: Evidence) -> pl.DataFrame:
        on_tensor_cores, full = _matrix_kernels(evidence)
        kernels = _kernels(evidence, pl.col("value").is_in([*on_tensor_cores, *full])).with_columns(cost=_LENGTH)
        is_full = pl.col("value").is_in(full)
        of_tensor_cores = pl.col("cost").filter(~is_full).sum().over("device")
        is_mixed = of_tensor_cores >= self.tensor_part.value * pl.col("cost").sum().over("device")
        return kernels.filter(is_mixed, is_full).with_columns((pl.col("cost") * (1 - 1 / _FASTER)).round().cast(pl.Int64))

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """Where TF32 is in use already, the advice does without it."""
        advice = self.in_tf32 if _values(evidence, f"{_MATRIX}.* tf32(?: |$)") else None
        return replace(super().describe(losses, evidence), advice=advice)


class UnfusedKernels(_KernelRule, kind="unfused-kernels"):
    # One kernel for a chain may move less than the longest one of it does, and be shorter.
    is_bound = False
    fewest = Threshold("fewest such kernels on a device, but the longest of each chain", 100, "fewer are chance", "")
    least = Threshold.least_share(0.05, "some neighbours are in every program")

    def events(self, evidence: Evidence) -> pl.DataFrame:
        values, casts = _values(evidence, "^Element-wise", but="(?i)multi_tensor"), _values(evidence, "$^", _CASTS)
        is_kernel, is_element_wise = pl.col("number") == event_types.KERNEL, pl.col("value").is_in(values)
        is_link = is_kernel & pl.col("value").is_in([*values, *casts])
        chained = evidence.run.operations.with_columns(chain=is_link.rle_id().over("row")).filter(is_link)
        # Casts alone, as of many parameters, are no chain.
        kernels = evidence.rows.located(chained.filter(is_element_wise.any().over("row", "chain")))
        kernels = kernels.filter(pl.col("device") >= 0)
        is_longest = pl.int_range(pl.len()).over("row", "chain") == _LENGTH.arg_max().over("row", "chain")
        # A kernel again does the same to something else.
        stays = is_longest | (pl.col("value") == pl.col("value").shift().over("row", "chain")).fill_null(value=False)
        # What they wait for pages is that of unified memory.
        waits = evidence.run.page_waits.inside(*(kernels[name].to_numpy() for name in ("device", "start", "end")))
        return kernels.with_columns(cost=pl.when(stays).then(0).otherwise(_LENGTH - pl.Series(waits)))


# -- kernels that use a part of the GPU -------------------------------------------------------------


class FewBlocks(_KernelRule, kind="few-blocks", needs=(rule.GPU_SIZE,)):
    largest_part = Threshold("largest part of the multiprocessors, times that of a warp", 0.9, "above, little can be won")
    shortest = Threshold("shortest kernel", 50_000, "a shorter one is mostly latency, with any number of blocks", "ns")
    least = Threshold.least_share(0.05, "less is not worth another kernel")
    names_sizes = True

    def events(self, evidence: Evidence) -> pl.DataFrame:
        run, sizes = evidence.run, evidence.run.events.gpu_sizes
        # Of GPUs of several kinds the smallest: that is used best.
        fewest = min(size.multiprocessors for size in sizes)
        part = (_BLOCKS / fewest).clip(upper_bound=1) * (_THREADS / _WARP).clip(upper_bound=1)
        kernels = _kernels(evidence, part <= self.largest_part.value, self.shortest.value <= _LENGTH)
        # With blocks below a warp a multiprocessor holds fewer warps than it can: as many as blocks.
        held = min([1.0, *(size.blocks / size.warps for size in sizes if size.warps)])
        part = part * pl.when(_THREADS < _WARP).then(held).otherwise(1.0)
        device, start, end = (kernels[name].to_numpy().astype(np.int64) for name in ("device", "start", "end"))
        # Several such kernels at once may well use all of the GPU.
        alone = time_where(run.on_devices, run.on_devices.counts[KERNEL] == 1, (device, start, end))
        # More blocks wait for pages that move as long. Where faults were not recorded, this wait may be longer.
        alone = np.maximum(alone - run.page_moves.inside(device, start, end), 0)
        return kernels.with_columns(cost=(pl.Series(alone) * (1 - part)).round().cast(pl.Int64))


class TailWaves(_KernelRule, kind="tail-waves", needs=(rule.GPU_SIZE, rule.EQUAL_GPUS)):
    fewest = Threshold("fewest such kernels on a device", 10, "fewer are chance", "")
    least = Threshold.least_share(0.1, "some are in every program, and less can't be avoided")
    or_large = True

    def events(self, evidence: Evidence) -> pl.DataFrame:
        (size,) = evidence.run.events.gpu_sizes
        warps = (_THREADS / _WARP).ceil()
        registers = (pl.col("registers") * _WARP / _REGISTERS_OF_WARP).ceil() * _REGISTERS_OF_WARP * warps
        limits = (size.warps / warps, size.registers / registers, size.shared_memory / pl.col("shared_memory"))
        resident = pl.min_horizontal(*(limit.floor() for limit in limits), pl.lit(float(size.blocks))).clip(lower_bound=1)
        waves = _BLOCKS / (resident * size.multiprocessors)
        tail = _LENGTH * (1 - waves / waves.ceil())
        is_known = pl.all_horizontal(pl.col(list(LAUNCH_SIZES)).is_not_null())
        return _kernels(evidence, is_known & (waves > 1)).with_columns(cost=tail.round().cast(pl.Int64))
