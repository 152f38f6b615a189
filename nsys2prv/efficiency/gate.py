"""A gate: conditions on runs that make a comparison fail, as a job of continuous integration needs them.

A number is compared with all that it can be: where clocks allow several lengths of a run, efficiencies that divide by the
length are intervals. A condition that is true of some of these values and false of others is not decidable, and so is one on
a number that a run does not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency.gate_conditions import FACTOR, SHARE, TIME, Condition, Quantity
from nsys2prv.efficiency.gate_table import FAILS, NOT_DECIDABLE, PASSES, worded
from nsys2prv.efficiency.known_values import Known, known_value
from nsys2prv.efficiency.metrics import DEVICE_TREE, EFFICIENCIES
from nsys2prv.efficiency.result_tables import Column
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.wording import did_you_mean, short

_RESULTS = {True: FAILS, False: PASSES, None: NOT_DECIDABLE}
_LONGEST_REASON = 200
_OF_GPUS = {"idle_ns", *(column.name for column in DEVICE_TREE.columns_of_run), "device_offload_efficiency"}
"""Numbers that a run without GPUs does not have."""
_UNITS = {"0 to 1": (FACTOR, SHARE), "ns": (FACTOR, TIME), "": (FACTOR, SHARE)}
"""Units that amounts may have, by the unit of the metric."""


def check_conditions(conditions: Iterable[Condition], columns: Iterable[Column], names: Mapping[str, str]) -> None:
    """Check names and units of conditions before runs are measured.

    Parameters
    ----------
    columns
        Columns of the table `runs`.
    names
        Letters of the runs, by what a condition may call them: letters and labels.

    Raises
    ------
    UsageError
        When a metric or a run is not known, units don't fit, or no run is left to be checked.
    """
    metrics = {column.name: column for column in columns if column.dtype is not pl.String}
    for one in conditions:
        if one.metric not in metrics:
            _refuse(one, f"there is no metric {short(one.metric)}{did_you_mean(one.metric, metrics)}")
        for name in (one.run, one.other):
            if name is not None and name not in names:
                _refuse(one, f"there is no run {short(name)}{did_you_mean(name, names)}")
        if one.offset.unit not in _UNITS[metrics[one.metric].unit]:
            _refuse(one, _unit_reason(one.metric, one.offset))
        if not _checked_runs(one, names):
            _refuse(one, f"no run is left to compare with {one.other}; name the one to check, such as A.{one.metric}")


def _unit_reason(metric: str, amount: Quantity) -> str:
    if amount.unit == TIME:
        return f"{metric} is no time"
    return f"{metric} is a time, and a percentage is none; multiply a run with it, such as 105%*A"


def _refuse(condition: Condition, why: str) -> None:
    raise UsageError(f"--fail-if '{short(condition.text, 200)}': {why}")


def _checked_runs(condition: Condition, names: Mapping[str, str]) -> list[str]:
    """Letters of the runs that a condition is about: each but the first, and but the one that it is compared with."""
    letters = list(dict.fromkeys(names.values()))
    other = None if condition.other is None else names[condition.other]
    chosen = letters[1:] if condition.run is None else [names[condition.run]]
    return [run for run in chosen if run != other]


def judge(
    conditions: Sequence[Condition],
    rows: Sequence[Mapping[str, Any]],
    measured: Mapping[str, EfficiencyResult],
    names: Mapping[str, str],
    columns: Iterable[Column],
) -> list[dict[str, Any]]:
    """Rows of the table `gate`.

    Parameters
    ----------
    rows
        Those of the table `runs`.
    measured
        The runs by their letters.
    names, columns
        As for `check_conditions`.
    """
    by_run = {str(row["run"]): row for row in rows}
    units = {column.name: column.unit for column in columns}
    found = []
    for one in conditions:
        other = None if one.other is None else names[one.other]
        known = {run: known_value(one.metric, run, by_run, measured) for run in by_run}
        for run in _checked_runs(one, names):
            base = Known.exactly(0.0) if other is None else known[other]
            value, bound = known[run], None if base is None else base.scaled(one.factor.value, one.offset.value)
            reason = None
            if value is None or bound is None:
                is_true, without = None, run if value is None else str(other)
                reason = f"{without} has no {one.metric}{_why_missing(one.metric, measured[without])}"
            elif (is_true := _is_true(value, one.sign, bound)) is None:
                reason = _interval_reason(units[one.metric], {run: value, other: base})
            named = {"condition": one.text, "run": run, "metric": one.metric, "unit": units[one.metric]}
            result = {"result": _RESULTS[is_true], "reason": reason}
            found.append({**named, **_numbers(value, "value"), **_numbers(bound, "bound"), **result})
    return found


def _is_true(value: Known, sign: str, bound: Known) -> bool | None:
    if sign in ("<", "<="):
        return value.is_below(bound, or_equal=sign == "<=")
    return bound.is_below(value, or_equal=sign == ">=")


def _numbers(known: Known | None, name: str) -> dict[str, float | None]:
    names = ("value", "least", "most") if name == "value" else (name, f"least_{name}", f"most_{name}")
    values = (None, None, None) if known is None else (known.value, known.least, known.most)
    # A length of which nothing is known.
    return {name: value if value is None or math.isfinite(value) else None for name, value in zip(names, values, strict=True)}


def _interval_reason(unit: str, values: Mapping[str | None, Known | None]) -> str:
    intervals = [
        f"{run} from {worded(known.least, unit)} to {worded(known.most, unit)}"
        for run, known in values.items()
        if run is not None and known is not None and known.least < known.most
    ]
    return f"the clocks of the hosts allow {' and '.join(intervals)}"


def _why_missing(metric: str, one: EfficiencyResult) -> str:
    """Why a run has no such number, for the end of a sentence."""
    reasons = dict(one.tables["tree"].select("metric", "reason").iter_rows())
    if reasons.get(metric) is not None:
        return f" ({reasons[metric]})"
    if metric in ("iterations", "iteration_ns"):
        return f" (no iterations: {short(str(one.head['iterations'].get('reason')), _LONGEST_REASON)})"
    if metric in _OF_GPUS and not one.tables["run"]["devices"][0]:
        return " (no process uses a GPU)"
    without = EFFICIENCIES[metric].null_without if metric in EFFICIENCIES else ""
    return f" (without {without})" if without else ""
