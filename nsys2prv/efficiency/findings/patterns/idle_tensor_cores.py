"""Idle tensor cores: matrix multiplications, convolutions and attention that hardly use them."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import percent, short, time

LARGEST_USE = Threshold(
    "largest mean activity of tensor cores in such kernels", 0.05, "0 to 1", "kernels that use them reach more"
)
FEWEST_SAMPLES = Threshold("fewest samples in such kernels on a device", 20, "", "means of fewer are chance")
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "less is not worth another precision")

_FAMILIES = r"(?i)gemm|gemv|matmul|attention|convolution|\bconv"
"""Families of kernels that tensor cores can do."""


def _judge(evidence: Evidence) -> Finding | None:
    """Devices on which such kernels take long without tensor cores."""
    sampled = evidence.tables["sampled_kernels"]
    metric = next((name for name in sampled["metric"].unique(maintain_order=True) if name and _is_tensor(name)), None)
    found = sampled.filter(
        (pl.col("metric") == (metric or ""))
        & (pl.col("level") == "kernel")
        & (pl.col("samples") >= FEWEST_SAMPLES.value)
        & (pl.col("mean") <= 100 * LARGEST_USE.value)
    )
    families = evidence.tables["kernels"].select(name="kernel", family="family").unique("name")
    idle = found.join(families, on="name", how="left").filter(
        pl.col("family").str.contains(_FAMILIES) | pl.col("name").str.contains(_FAMILIES)
    )
    by_device = idle.group_by("device").agg(pl.col("time_ns").sum(), kernels=pl.len()).sort("device")
    devices = [
        stats
        for name, lost, kernels in by_device.select("device", "time_ns", "kernels").iter_rows()
        if evidence.costs_share(stats := evidence.whole_device(evidence.device_index(name), kernels, lost), LEAST_LOST)
    ]
    if not devices:
        return None
    longest = idle.sort("time_ns", "name", descending=[True, False]).row(0, named=True)
    lost = sum(stats.cost for stats in devices)
    mean = float((idle["mean"] * idle["time_ns"]).sum()) / max(int(idle["time_ns"].sum()), 1) / 100
    text = (
        f"{counted(idle['name'].n_unique(), 'kernel')} of matrix multiplications, convolutions or attention take {time(lost)} "
        f"with tensor cores active in {percent(mean)} of the time; most time of these takes {short(longest['name'])}"
    )
    numbers = (
        Number("such kernels", idle["name"].n_unique()),
        Number("mean activity of tensor cores in them", mean, SHARE),
        Number("time of the one that takes most", longest["time_ns"], NANOSECONDS),
    )
    return Finding(text, devices, numbers)


def _is_tensor(metric: str) -> bool:
    return "tensor" in metric.lower()


RULE = FindingRule(
    kind="idle-tensor-cores",
    title="Idle tensor cores: matrix multiplications do not use them",
    sees="kernels of matrix multiplications, convolutions and attention in which tensor cores are hardly active",
    needs=(needs.TENSOR_ACTIVE,),
    cost="time of these kernels: how much faster they become depends on precision and size",
    view="2-gpu-metrics/tensor_per_gemm",
    advice="Lower precision (TF32, BF16, FP16, FP8), sizes that are multiples of 8 or 16, library kernels for this GPU. Where "
    "double precision is needed, tensor cores of data-centre GPUs can do it too.",
    thresholds=(LARGEST_USE, FEWEST_SAMPLES, LEAST_LOST),
    judge=_judge,
)
