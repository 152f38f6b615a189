"""Options of a measurement."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from nsys2prv.run.option_values import texts
from nsys2prv.run.read_options import ReadOptions, one_of, option

BINS = 100
"""Bins of the tables over time."""


class NcclPolicy(str, enum.Enum):
    """What NCCL kernels count as: communication, as in views of BSC, or useful, as in TALP."""

    COMMUNICATION = "communication"
    USEFUL = "useful"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class EfficiencyOptions(ReadOptions):
    """What to measure. Of a trace, only `time`, `ranks`, `scratch` and `progress` of `ReadOptions` apply."""

    nccl: NcclPolicy = option(
        NcclPolicy.COMMUNICATION,
        "What NCCL kernels count as: communication (as in BSC's views) or useful (as in TALP).",
        "POLICY",
        one_of(NcclPolicy),
    )
    regions: tuple[str, ...] = option(
        (),
        "Efficiencies of NVTX ranges: NAME or NAME@DOMAIN, with the wildcards * and ?; '*' takes all. May be repeated.",
        "NVTX",
        texts,
    )
    per_iteration: str | None = option(
        None, "Efficiencies of each iteration, which is the n-th NVTX range of this name.", "NAME[@DOMAIN]"
    )
    no_critical_path: bool = option(False, "Do not look for the critical path: saves its time.")
    bins: int = option(BINS, "Bins of the tables over time.", "N", least=1, most=10_000)


COMPARE_OPTIONS = (
    *("nccl", "align", "unrelated", "kernel_families", "nsys", "cache", "scratch"),
    *("workers", "scheduler", "memory"),
)
"""Options that apply to a comparison: the runs are measured as a whole."""
