"""A gate: conditions on runs that make a comparison fail, as a job of continuous integration needs them.

A number is compared with all that it can be: where clocks allow several lengths of a run, efficiencies that divide by the
length are intervals. A condition that is true of some of these values and false of others is not decidable, and so is one on
a number that a run does not have."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from nsys2prv.efficiency.comparison_tables import FAILS, NOT_DECIDABLE, PASSES, PROCESS, RUNS
from nsys2prv.efficiency.efficiency_options import CONDITION
from nsys2prv.efficiency.findings.rule import NO_DEVICES
from nsys2prv.efficiency.metrics import DEVICE_TREE, EFFICIENCIES, HOST_TREE, at_length
from nsys2prv.errors import GateFailed, GateNotDecidable, Nsys2prvError, UsageError
from nsys2prv.vocabulary.limits import LONGEST_NS
from nsys2prv.vocabulary.wording import did_you_mean, short, worded

_UNITS = {column.name: column.unit for column in RUNS.columns if column.dtype is not pl.String}
"""Metrics that conditions can be on, with their units."""
_OF_GPUS = {"idle_ns", "device_offload_efficiency", *(column.name for column in DEVICE_TREE.columns_of_run)}
_OF_GPUS -= {"devices", "elapsed_ns"}
"""Numbers that a run without GPUs does not have."""
RESULTS = {FAILS: GateFailed, NOT_DECIDABLE: GateNotDecidable, PASSES: None}
"""Results of a condition, the worst first, and what a command ends with."""

Run = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A row of the table `runs`, and the head of this run."""


def check_conditions(conditions: Iterable[str]) -> None:
    """Raise a UsageError for a metric that does not exist, before runs are measured."""
    for condition in conditions:
        metric = re.split(r"\W", condition)[0]
        if metric not in _UNITS:
            why = f"there is no metric {short(metric)}{did_you_mean(metric, _UNITS)}"
            raise UsageError(f"--fail-if '{short(condition)}': {why}")


def judge(condition: str, first: Run, run: Run) -> dict[str, Any]:
    """A row of the table `gate`: a condition, as of `CompareOptions`, of a run."""
    parts = CONDITION.fullmatch(condition)
    # Options have refused all others.
    assert parts is not None
    metric, factor, name = parts["metric"], float(parts["number"] or 1), run[0]["run"]
    value, base = _interval(metric, run, first), _interval(metric, first, first) if parts["first"] else (1.0, 1.0, 1.0)
    bound = None if base is None else [number * factor if factor else 0.0 for number in base]
    # A length of which nothing is known is null.
    numbers = (number if math.isfinite(number) else None for three in (value, bound) for number in three or [math.inf] * 3)
    columns = zip(("value", "least", "most", "bound", "least_bound", "most_bound"), numbers, strict=True)
    row = {"condition": condition, "run": name, "metric": metric, "unit": _UNITS[metric], **dict(columns)}
    if value is None or base is None or bound is None:
        return {**row, "result": NOT_DECIDABLE, "reason": _why_missing(metric, run if value is None else first)}
    if metric == "iteration_ns" and parts["first"] and run[0]["unlike"] is not None:
        return {**row, "result": NOT_DECIDABLE, "reason": run[0]["unlike"]}
    outcomes = {_holds(number, parts["sign"], limit) for number in value[1:] for limit in bound[1:]}
    if len(outcomes) == 1:
        return {**row, "result": FAILS if outcomes == {True} else PASSES, "reason": None}
    ranges = [
        f"{letter} from {worded(least, _UNITS[metric])} to {worded(most, _UNITS[metric])}"
        for letter, (_, least, most) in ((name, value), ("A", base))
        if least < most
    ]
    return {**row, "result": NOT_DECIDABLE, "reason": f"the clocks of the hosts allow {' and '.join(ranges)}"}


def _holds(number: float, sign: str, limit: float) -> bool:
    """Whether a condition is true of a number, by more than what computing with it rounds."""
    if math.isclose(number, limit, rel_tol=1e-12):
        return sign.endswith("=")
    return number < limit if sign.startswith("<") else number > limit


def _interval(metric: str, run: Run, first: Run) -> tuple[float, float, float] | None:
    """A number of a run, and the least and the most that it can be as clocks are known; None where it has none."""
    row, before, value = run[0], first[0], run[0][metric]
    if value is None or (metric in _OF_GPUS and metric not in EFFICIENCIES and not row["devices"]):
        return None
    values = [value]
    for end, end_of_first in (("least_ns", "most_ns"), ("most_ns", "least_ns")):
        at, first_at = _at_end(run, end), _at_end(first, end_of_first)
        if metric in ("speedup", "scaling_efficiency") and run is not first:
            # The length of the first run over that of this run, times a constant.
            length = "iteration_ns" if row["basis"] == "iteration" else "elapsed_ns"
            speedup = first_at[length] / before[length] if before[length] else 0.0
            values.append(value * speedup * row[length] / at[length] if at[length] else math.inf)
        elif metric in ("global_efficiency", "global_efficiency_per_device"):
            # The root of the tree of a run, times a constant.
            root = (HOST_TREE if row["per"] == PROCESS else DEVICE_TREE).efficiencies[0].name
            values.append(value * (at[root] or 0.0) / row[root] if row[root] else 0.0)
        else:
            values.append(value if at[metric] is None else at[metric])
    return value, min(values), max(values)


def _at_end(run: Run, end: str) -> dict[str, Any]:
    """The row of a run if it took the least or the most that its clocks allow; infinite times: nothing is known of the most."""
    row, length = run[0], run[1]["length_interval"][end]
    efficiencies = at_length(row, LONGEST_NS if length is None else length) if length != row["elapsed_ns"] else row
    elapsed = math.inf if length is None else length
    # All iterations together are as uncertain as the run.
    longer = (elapsed - row["elapsed_ns"]) / (row["iterations"] or 1)
    iteration = None if row["iteration_ns"] is None else max(row["iteration_ns"] + longer, 0.0)
    return {**row, **{name: efficiencies[name] for name in EFFICIENCIES}, "elapsed_ns": elapsed, "iteration_ns": iteration}


def _why_missing(metric: str, run: Run) -> str:
    row, head = run
    why = f"without {without}" if metric in EFFICIENCIES and (without := EFFICIENCIES[metric].null_without) else ""
    if metric in ("iterations", "iteration_ns"):
        why = f"no iterations: {short(str(head['iterations'].get('reason')), 200)}"
    elif metric in _OF_GPUS and not row["devices"]:
        why = NO_DEVICES
    return f"{row['run']} has no {metric}" + (f" ({why})" if why else "")


def gate_order(gate: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of the table: those that fail first."""
    return [row for result in RESULTS for row in gate.filter(pl.col("result") == result).to_dicts()]


def gate_sentence(row: Mapping[str, Any]) -> str:
    """A condition with its numbers, or why it is not decidable."""
    sign = re.sub("[^<>=]", "", row["condition"])
    why = row["reason"] or f"{worded(row['value'], row['unit'])}, fails if {sign} {worded(row['bound'], row['unit'])}"
    return f"{row['run']}: {row['condition']} ({why})"


def gate_error(gate: pl.DataFrame) -> Nsys2prvError | None:
    """What the command ends with: an error where a condition is true or not decidable, else None."""
    rows = gate_order(gate)
    error = RESULTS[rows[0]["result"]] if rows else None
    return error and error([gate_sentence(row) for row in rows if row["result"] == rows[0]["result"]], len(rows))
