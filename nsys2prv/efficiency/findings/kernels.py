"""Rules about kernels themselves: those that use a part of the GPU, change layouts or precision, or could be fused."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, least_share
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.efficiency.measured_run import KERNEL
from nsys2prv.errors import counted
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import short, time

_NAME = ["number", "value"]
_COST = pl.col("cost").cast(pl.Float64).round().cast(pl.Int64)
_LENGTH = pl.col("end") - pl.col("start")
_BLOCKS, _THREADS = (
    pl.reduce(operator.mul, [pl.col(f"{of}_{axis}").cast(pl.Float64) for axis in "xyz"]) for of in ("grid", "block")
)
_WARP = 32
_REGISTERS_OF_WARP = 256
"""Registers are given to warps in such portions."""
_MATRIX = r"^(?:Grouped GEMM|GEMM|GEMV|Convolution (?:forward|data|weight)|.*[Aa]ttention)"
_OF_TENSOR_CORES = "tf32|bf16|fp16|fp8|fp4"


def _kernels(evidence: Evidence) -> pl.DataFrame:
    """Kernels but NCCL's, in the order of time: columns of `MeasuredRun.operations`, and `device`."""
    kernels = evidence.run.operations.filter(pl.col("number") == event_types.KERNEL)
    return evidence.rows.located(kernels).filter(pl.col("device") >= 0)


def _values(evidence: Evidence, families: str, but: str = "^$") -> list[int]:
    """Values of kernels whose family matches a pattern, but those whose name matches another one."""
    is_of_families = pl.col("family").str.contains(families) & ~pl.col("kernel").str.contains(but)
    names = set(evidence.tables["kernels"].filter(is_of_families)["kernel"])
    labels = evidence.run.events.types.get(event_types.KERNEL)
    return [value for value, name in ((labels and labels.values) or {}).items() if name in names]


class _KernelRule(FindingRule):
    """A rule about some kernels.

    Attributes
    ----------
    what
        What is wrong with them, behind their number.
    """

    needs = (rule.ANY_WORK,)
    view = "1-gpu-kernels/kernel_average"
    what: str

    def kernels(self, evidence: Evidence) -> pl.DataFrame:
        """Columns of `_kernels` of those that cost something, and `cost`, ns."""
        raise NotImplementedError

    def losses(self, evidence: Evidence) -> Losses:
        return Losses.of_events(evidence.run, self.kernels(evidence).with_columns(_COST))

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        by_kernel = _by_kernel(self.kernels(evidence), losses).sort("cost", *_NAME, descending=[True, False, False])
        first = by_kernel.row(0, named=True)
        spent = Number("time of these kernels", int(by_kernel["length"].sum()), "ns")
        name = short(evidence.kernel_name(*(first[name] for name in _NAME)))
        text = (
            f"{counted(losses.occurrences, 'execution')} of {counted(by_kernel.height, 'kernel')} {losses} {self.what}; they "
            f"take {spent} together and lose {time(losses.cost)} of it at most, {name} {time(first['cost'])}{self.sizes(first)}"
        )
        numbers = (Number("executions", losses.occurrences), Number("different kernels", by_kernel.height), spent)
        return Finding(text, losses, (*numbers, Number("loss of the one that loses most", first["cost"], "ns")))

    def sizes(self, _kernel: Mapping[str, Any]) -> str:
        """How the kernel that loses most is launched, where that is what is wrong."""
        return ""


def _by_kernel(kernels: pl.DataFrame, losses: Losses) -> pl.DataFrame:
    """On the devices of losses: `number`, `value`, sums of `cost` and `length`, ns, and sizes of the first launch."""
    sums = _COST.sum(), _LENGTH.sum().alias("length")
    sizes = _BLOCKS.first().alias("blocks"), _THREADS.first().alias("threads")
    of_devices = kernels.filter(pl.col("device").is_in(losses.indices))
    return of_devices.group_by(_NAME, maintain_order=True).agg(*sums, *sizes)


class LayoutChanges(_KernelRule, kind="layout-changes"):
    least = least_share(0.05, "some conversions are in every model")
    what = "change layouts or convert"

    def kernels(self, evidence: Evidence) -> pl.DataFrame:
        values = _values(evidence, "^(?:Transpose and layout|Cast and quantize)")
        return _kernels(evidence).filter(pl.col("value").is_in(values)).with_columns(cost=_LENGTH)


class FullPrecision(_KernelRule, kind="full-precision"):
    tensor_part = Threshold(
        "least part of the time of all these kernels in TF32 or half precision", 0.1, "else the program does not mean to use it"
    )
    least = least_share(0.05, "less is not worth another precision")
    what = "compute in fp32 while others of their kind use tensor cores"

    def kernels(self, evidence: Evidence) -> pl.DataFrame:
        on_tensor_cores, full = (_values(evidence, f"{_MATRIX}.* (?:{of})(?: |$)") for of in (_OF_TENSOR_CORES, "fp32"))
        kernels = _kernels(evidence).filter(pl.col("value").is_in([*on_tensor_cores, *full])).with_columns(cost=_LENGTH)
        is_full = pl.col("value").is_in(full)
        of_tensor_cores = pl.col("cost").filter(~is_full).sum().over("device")
        is_mixed = of_tensor_cores >= self.tensor_part.value * pl.col("cost").sum().over("device")
        return kernels.filter(is_mixed).filter(is_full)


class UnfusedKernels(_KernelRule, kind="unfused-kernels"):
    fewest = Threshold("fewest such kernels on a device, but the longest of each chain", 100, "fewer are chance", "")
    least = least_share(0.05, "some neighbours are in every program")
    what = "follow another element-wise kernel of their stream"

    def kernels(self, evidence: Evidence) -> pl.DataFrame:
        values = _values(evidence, "^Element-wise", "(?i)multi_tensor")
        is_element_wise = (pl.col("number") == event_types.KERNEL) & pl.col("value").is_in(values)
        work = evidence.run.operations.with_columns(chain=pl.struct("row", is_element_wise).rle_id().over("row"))
        kernels = evidence.rows.located(work.filter(is_element_wise)).filter(pl.col("device") >= 0)
        is_longest = pl.int_range(pl.len()).over("row", "chain") == _LENGTH.arg_max().over("row", "chain")
        return kernels.with_columns(cost=pl.when(is_longest).then(0).otherwise(_LENGTH))


# -- kernels that use a part of the GPU -------------------------------------------------------------


class FewBlocks(_KernelRule, kind="few-blocks", needs=(rule.GPU_SIZE,)):
    largest_part = Threshold("largest part of the multiprocessors, times that of a warp", 0.5, "above, little can be won")
    shortest = Threshold("shortest kernel", 50_000, "a shorter one is mostly latency, with any number of blocks", "ns")
    least = least_share(0.05, "less is not worth another kernel")
    what = "use a small part of the GPU"

    def kernels(self, evidence: Evidence) -> pl.DataFrame:
        run, sizes = evidence.run, evidence.run.events.gpu_sizes
        # Of GPUs of several kinds the smallest: that is used best.
        fewest = min(size.multiprocessors for size in sizes if size.multiprocessors)
        part = (_BLOCKS / fewest).clip(upper_bound=1) * (_THREADS / _WARP).clip(upper_bound=1)
        kernels = _kernels(evidence).filter(part <= self.largest_part.value, self.shortest.value <= _LENGTH)
        device, start = (kernels[name].to_numpy().astype(np.int64) for name in ("device", "start"))
        # Several such kernels at once may well use all of the GPU.
        counts = run.on_devices.counts[KERNEL]
        is_alone = pl.Series(counts[run.on_devices.place(device, start)] == 1)
        return kernels.with_columns(cost=_LENGTH * (1 - part)).filter(is_alone)

    def sizes(self, kernel: Mapping[str, Any]) -> str:
        blocks, threads = int(kernel["blocks"]), int(kernel["threads"])
        return f" with {counted(blocks, 'block')} of {counted(threads, 'thread')}"


class TailWaves(_KernelRule, kind="tail-waves", needs=(rule.GPU_SIZE, rule.EQUAL_GPUS)):
    fewest = Threshold("fewest such kernels on a device", 10, "fewer are chance", "")
    least = least_share(0.1, "some are in every program, and less can't be avoided")
    what = "have a last wave that leaves multiprocessors idle"

    def kernels(self, evidence: Evidence) -> pl.DataFrame:
        (size,) = evidence.run.events.gpu_sizes
        warps = (_THREADS / _WARP).ceil()
        registers = (pl.col("registers") * _WARP / _REGISTERS_OF_WARP).ceil() * _REGISTERS_OF_WARP * warps
        shared = pl.col("static_shared_memory") + pl.col("dynamic_shared_memory")
        limits = (size.warps / warps, size.registers / registers, size.shared_memory / shared)
        resident = pl.min_horizontal(*(limit.floor() for limit in limits), pl.lit(float(size.blocks))).clip(lower_bound=1)
        waves = _BLOCKS / (resident * size.multiprocessors)
        tail = _LENGTH * (1 - waves / waves.ceil())
        return _kernels(evidence).with_columns(cost=pl.when(waves > 1).then(tail)).drop_nulls("cost")
