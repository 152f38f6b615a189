"""How well numbers of a run are known: those that depend on its length as well as clocks of different hosts allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsys2prv.efficiency.clock_accuracy import LengthInterval
from nsys2prv.efficiency.comparison_basis import PROCESS
from nsys2prv.efficiency.metrics import DEVICE_TREE, EFFICIENCIES, HOST_TREE, at_length
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.vocabulary.limits import LONGEST_NS

OF_LENGTH = ("speedup", "scaling_efficiency")
"""Columns of the table `runs` that are the length of the first run over that of a run, times a constant."""
OF_EFFICIENCY = ("global_efficiency", "global_efficiency_per_device")
"""Those that are the parallel efficiency of devices, or of hosts, times a constant."""
_OF_DEVICES = frozenset({"idle_ns", *(column.name for column in DEVICE_TREE.columns)} - {"devices", "elapsed_ns"})
"""Times that a run without GPUs does not have."""

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Known:
    """A number of a run: its value, and the least and most that it can be."""

    value: float
    least: float
    most: float

    @classmethod
    def exactly(cls, value: float) -> Known:
        return cls(value, value, value)

    def scaled(self, factor: float, offset: float = 0.0) -> Known:
        """Multiplied with a factor, and moved."""
        ends = sorted((self.least * factor, self.most * factor)) if factor else [0.0, 0.0]
        return Known(self.value * factor + offset, ends[0] + offset, ends[1] + offset)

    def is_below(self, bound: Known, *, or_equal: bool) -> bool | None:
        """Whether it is below a bound; None where that depends on what the two are."""
        if or_equal:
            return True if not _less(bound.least, self.most) else False if _less(bound.most, self.least) else None
        return True if _less(self.most, bound.least) else False if not _less(self.least, bound.most) else None


def _less(one: float, other: float) -> bool:
    """Whether a number is less than another by more than what computing with them rounds."""
    return one < other and not math.isclose(one, other, rel_tol=_ROUNDING)


Rows = Mapping[str, Mapping[str, Any]]
"""The row of each run in the table `runs`, by its letter; the first run first."""


def known_value(metric: str, run: str, rows: Rows, measured: Mapping[str, EfficiencyResult]) -> Known | None:
    """A number of a run, and what it can be; None where the run has none.

    Parameters
    ----------
    metric
        A column of the table `runs`.
    run
        Letter of the run.
    measured
        The runs.
    """
    row, one, first = rows[run], measured[run], next(iter(rows))
    value = row[metric]
    if value is None or (metric in _OF_DEVICES and not row["devices"]):
        return None
    if metric in EFFICIENCIES:
        return _efficiency(metric, row, one)
    if metric in ("elapsed_ns", "iteration_ns"):
        return _length(metric, row, one)
    if metric in OF_LENGTH and run != first:
        length = "iteration_ns" if row["basis"] == "iteration" else "elapsed_ns"
        before, after = _length(length, rows[first], measured[first]), _length(length, row, one)
        at_measured = before.value / after.value if after.value else 0.0
        ratio = Known(at_measured, before.least / after.most, before.most / after.least if after.least else math.inf)
        return ratio.scaled(value / at_measured if at_measured else 0.0)
    if metric in OF_EFFICIENCY:
        root = HOST_TREE if row["per"] == PROCESS else DEVICE_TREE
        efficiency = _efficiency(root.efficiencies[0].name, row, one)
        return efficiency.scaled(value / efficiency.value if efficiency.value else 0.0)
    return Known.exactly(float(value))


def _interval(one: EfficiencyResult) -> LengthInterval:
    known = one.head["length_interval"]
    return LengthInterval(known["least_ns"], known["most_ns"])


def _length(metric: str, row: Mapping[str, Any], one: EfficiencyResult) -> Known:
    """The length of the run, or the mean one of its iterations, which together are as uncertain as the run."""
    number = row["iterations"] if metric == "iteration_ns" else 1
    length = row[metric] * number
    interval = _interval(one).of_part(round(length), row["elapsed_ns"])
    least = min(interval.least, length)
    most = math.inf if interval.most is None else max(interval.most, length)
    return Known(row[metric], least / number, most / number)


def _efficiency(metric: str, row: Mapping[str, Any], one: EfficiencyResult) -> Known:
    """An efficiency at the measured length, and at the least and the greatest; it only grows or only falls with the length."""
    interval = _interval(one)
    lengths = (interval.least, LONGEST_NS if interval.most is None else interval.most)
    others = [at_length(row, length)[metric] for length in lengths if length != row["elapsed_ns"]]
    values = [row[metric], *(value for value in others if value is not None)]
    return Known(row[metric], min(values), max(values))
