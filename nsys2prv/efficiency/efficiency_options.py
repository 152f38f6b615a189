"""Options of a measurement."""

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsys2prv.run.options import MEASURE, SELECT, ReadOptions, TimeRange, one_of, option, texts, time_range
from nsys2prv.vocabulary.wording import short

ALL, STEADY, CHOSEN = "all", "steady", "chosen"
"""Windows of a run: the whole program, its iterations without those of the warm-up, and one given by its times."""


@dataclass(frozen=True)
class WindowChoice:
    """Which part of a run is measured: ALL, STEADY, or CHOSEN with its times."""

    name: str = ALL
    times: TimeRange | None = None

    def __str__(self) -> str:
        return self.name


def window_choice(value: str | WindowChoice | TimeRange | Sequence[str | int | None]) -> WindowChoice:
    """Which part of a run is measured: `all`, `steady`, or BEGIN:END.

    >>> window_choice("steady"), window_choice("1us:2us").times
    (WindowChoice(name='steady', times=None), TimeRange(begin=1000, end=2000))
    """
    if isinstance(value, WindowChoice):
        return value
    if isinstance(value, str) and value in (ALL, STEADY):
        return WindowChoice(value)
    if isinstance(value, str) and ":" not in value:
        raise ValueError(f"not one of {ALL}, {STEADY}, or a time range such as 1.5s:2s")
    return WindowChoice(CHOSEN, time_range(value))


class NcclPolicy(str, enum.Enum):
    """What NCCL kernels count as: communication, as in views of BSC, or useful, as in TALP."""

    COMMUNICATION = "communication"
    USEFUL = "useful"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class EfficiencyOptions(ReadOptions):
    """What to measure."""

    nccl: NcclPolicy = option(
        NcclPolicy.COMMUNICATION,
        "What NCCL kernels count as: communication (as in BSC's views) or useful (as in TALP).",
        "POLICY",
        one_of(NcclPolicy),
        group=MEASURE,
    )
    window: WindowChoice = option(
        WindowChoice(),
        "Part of the run to measure: all, steady (iterations without warm-up), or BEGIN:END in times of the trace, as for "
        "--time.",
        "WINDOW",
        window_choice,
        group=SELECT,
    )
    regions: tuple[str, ...] = option(
        (),
        "Efficiencies of NVTX ranges: NAME or NAME@DOMAIN, with the wildcards * and ?; '*' takes all. May be repeated.",
        "NVTX",
        texts,
        group=MEASURE,
    )
    per_iteration: str | None = option(
        None, "Efficiencies of each iteration, which is the n-th NVTX range of this name.", "NAME", group=MEASURE
    )
    no_critical_path: bool = option(False, "Do not look for the critical path: saves its time.", group=MEASURE)
    bins: int = option(100, "Bins of the tables over time.", "N", least=1, most=10_000, group=MEASURE)


class ScalingKind(str, enum.Enum):
    """How runs of several sizes are compared: with the same work in all (strong), or on each device (weak)."""

    AUTO = "auto"
    STRONG = "strong"
    WEAK = "weak"

    def __str__(self) -> str:
        return self.value


CONDITION = re.compile(
    r"(?P<metric>\w+)\s*(?P<sign>[<>]=?)\s*"
    r"(?=[A.0-9])(?P<number>(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,2})?)?"
    r"(?P<first>(?(number)\s*\*\s*)A)?"
)
"""A condition of `--fail-if`: a metric, a sign, and a number, or run A's value, or a number times it."""


def gate_conditions(conditions: str | Iterable[str]) -> tuple[str, ...]:
    """Conditions on one line each, if they are such; they are never run as code.

    >>> gate_conditions("speedup  < 0.95*A")
    ('speedup < 0.95*A',)
    """
    lines = tuple(" ".join(text.split()) for text in texts(conditions))
    for line in lines:
        if CONDITION.fullmatch(line) is None:
            raise ValueError(
                f"'{short(line)}' is not METRIC < BOUND (or <=, >, >=), where BOUND is a number (of times: ns), or a multiple "
                f"of run A's value: 'elapsed_ns > 2e9', 'device_parallel_efficiency < 0.95*A'"
            )
    return lines


@dataclass(frozen=True)
class CompareOptions(EfficiencyOptions):
    """How runs are measured and compared."""

    scaling: ScalingKind = option(
        ScalingKind.AUTO,
        "Whether runs on more devices do the same work together (strong) or on each device (weak). auto: what useful time is "
        "nearer to.",
        "SCALING",
        one_of(ScalingKind),
        group=MEASURE,
    )
    label: tuple[str, ...] = option(
        (),
        "What a run is called: once for each run, in their order (default: what differs in their paths).",
        "TEXT",
        texts,
        group=MEASURE,
    )
    fail_if: tuple[str, ...] = option(
        (),
        "Fail (exit code 15) where this is true of a run after the first: METRIC < BOUND (or <=, >, >=), where BOUND is a "
        "number or a multiple of run A's value, such as 'device_parallel_efficiency < 0.95*A'. May be repeated.",
        "CONDITION",
        gate_conditions,
        group=MEASURE,
    )


COMPARE_OPTIONS = (
    *("label", "scaling", "fail_if", "nccl", "window", "align", "unrelated", "kernel_families", "nsys", "scratch"),
    *("workers", "scheduler", "memory"),
)
"""Options that apply to a comparison: the runs are measured as a whole."""
