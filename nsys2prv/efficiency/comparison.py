"""Runs side by side: trees, how useful time scales, kernels matched by name and by family, and what changed most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency.compared_times import iteration_lengths, wall_time
from nsys2prv.efficiency.comparison_basis import ComparisonBasis, comparison_basis
from nsys2prv.efficiency.comparison_tables import (
    CHANGES,
    FORMAT,
    ITERATION_LENGTHS,
    MATCHED,
    METRICS,
    RUNS,
    TABLES,
    VERSION,
    WALL_TIME,
)
from nsys2prv.efficiency.efficiency_options import CompareOptions, EfficiencyOptions, ScalingKind
from nsys2prv.efficiency.gate import check_conditions, judge
from nsys2prv.efficiency.gate_table import GATE
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.metrics import tree_rows
from nsys2prv.efficiency.result_tables import Filled, frames_by_name
from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult, read_efficiency
from nsys2prv.efficiency.run_labels import check_labels, labels_of, names_of, path_labels
from nsys2prv.efficiency.window import WARM_UP
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.printable import as_utf8
from nsys2prv.vocabulary.version import __version__

MOST_CHANGES = 200
"""Changes of each run that have a row: the largest."""
MOST_KERNELS = 500
"""Kernels that are matched: those that take most time in any run."""

_IDLE = "idle"


def compare(runs: Sequence[str | Path | EfficiencyResult], options: EfficiencyOptions | None = None) -> ComparisonResult:
    """Compare runs with the first of them.

    Parameters
    ----------
    runs
        One argument per run: a report, a folder or a glob of the reports of the run, a trace, what
        `efficiency --json-file` wrote, or a result.
    options
        How each of them is measured.

    Raises
    ------
    UsageError
        When there are fewer than two runs, or NCCL kernels do not count as the same in all of them.
    Nsys2prvError
        As of `measure`.
    """
    if len(runs) < 2:
        raise UsageError("compare: two runs or more are needed; give a report, a folder of reports or a trace for each")
    options = options or CompareOptions()
    asked = options if isinstance(options, CompareOptions) else CompareOptions()
    letters = list(map(_letters, range(len(runs))))
    check_labels(asked.label, letters)
    # Before runs are measured, which takes time.
    labels = asked.label or path_labels([_inputs(run) for run in runs])
    check_conditions(asked.fail_if, RUNS.columns, names_of(letters, labels))
    measured = [_measured(run, options) for run in runs]
    return compare_measured(measured, [_inputs(run) for run in runs], asked)


def compare_measured(
    measured: Sequence[EfficiencyResult], inputs: Sequence[Sequence[str]], options: CompareOptions
) -> ComparisonResult:
    """Compare measured runs; `inputs` are the paths of each as they were given."""
    policies = sorted({one.head["nccl"] for one in measured})
    if len(policies) > 1:
        raise UsageError(
            f"compare: NCCL kernels count as {' in some runs and as '.join(policies)} in others; measure all of them with the "
            f"same --nccl"
        )
    runs = {_letters(place): one for place, one in enumerate(measured)}
    labels = dict(zip(runs, options.label or labels_of(inputs, measured), strict=True))
    basis = comparison_basis(_rows_of_run(runs))
    rows = _runs(runs, labels, options.scaling, basis)
    tables: Filled = {
        RUNS: rows,
        METRICS: _metrics(runs),
        WALL_TIME: wall_time(runs, rows[0]["basis"], basis),
        ITERATION_LENGTHS: iteration_lengths(runs),
        MATCHED: () if basis.is_of_hosts else _matched(runs, rows),
        CHANGES: _changes(runs, {row["run"]: row["share"] for row in rows}, basis),
        GATE: judge(options.fail_if, rows, runs, names_of(runs, labels.values()), RUNS.columns),
    }
    head = {
        "format": FORMAT,
        "version": VERSION,
        "nsys2prv": __version__,
        "runs": [
            {"run": name, "label": labels[name], "input": ", ".join(given), "title": one.head["title"]}
            for (name, one), given in zip(runs.items(), inputs, strict=True)
        ],
        "nccl": policies[0],
        "not_compared": basis.not_compared,
        "warnings": [f"{name}: {warning}" for name, one in runs.items() for warning in one.head["warnings"]],
    }
    return ComparisonResult(head, frames_by_name(tables, TABLES))


def _inputs(run: str | Path | EfficiencyResult) -> list[str]:
    return list(run.head["inputs"]) if isinstance(run, EfficiencyResult) else [str(run)]


def _measured(run: str | Path | EfficiencyResult, options: EfficiencyOptions) -> EfficiencyResult:
    if isinstance(run, EfficiencyResult):
        return run
    path = Path(run)
    if path.suffix == ".json":
        return read_efficiency(path)
    return measure([run], replace(options, regions=(), per_iteration=None))


def _letters(place: int) -> str:
    """A, B, ... Z, AA, AB, ...

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    rest, last = divmod(place, 26)
    return (_letters(rest - 1) if rest else "") + chr(ord("A") + last)


_Runs = Mapping[str, EfficiencyResult]
"""Results by the letters of their runs, the first one first."""


def _rows_of_run(runs: _Runs) -> dict[str, dict[str, Any]]:
    return {name: one.tables["run"].row(0, named=True) for name, one in runs.items()}


@dataclass(frozen=True)
class _Extent:
    """What of a run is compared: E, sum U, and the share of the whole run that it is (1, or 1 / number of iterations)."""

    elapsed: float
    useful: float
    share: float


def _iterations(one: EfficiencyResult) -> pl.DataFrame:
    """Iterations without warm-up."""
    return one.tables["iterations"].filter(pl.col("kind").fill_null("") != WARM_UP)


def _extents(runs: _Runs, rows: Mapping[str, Mapping[str, Any]], useful: str) -> tuple[str, dict[str, _Extent]]:
    """`run` or `iteration`, and what of each run is compared: iterations, where all runs have them and not equally many."""
    iterations = {name: _iterations(one) for name, one in runs.items()}
    numbers = {table.height for table in iterations.values()}
    if len(numbers) == 1 or 0 in numbers:
        return "run", {name: _Extent(run["elapsed_ns"], run[useful], 1.0) for name, run in rows.items()}
    return "iteration", {
        name: _Extent(_mean_length(table), float(table[useful].to_numpy().mean()), 1 / table.height)
        for name, table in iterations.items()
    }


def _mean_length(iterations: pl.DataFrame) -> float:
    begin, end = iterations["begin_ns"].to_numpy().min(), iterations["end_ns"].to_numpy().max()
    return float(end - begin) / iterations.height


def _scaling(wanted: ScalingKind, total: float | None, per_device: float | None) -> ScalingKind:
    """Strong or weak; where neither is named, the one in which useful time changes less."""
    if wanted != ScalingKind.AUTO:
        return wanted
    if not total or not per_device:
        return ScalingKind.STRONG
    return ScalingKind.STRONG if abs(math.log(total)) <= abs(math.log(per_device)) else ScalingKind.WEAK


def _runs(runs: _Runs, labels: Mapping[str, str], wanted: ScalingKind, over: ComparisonBasis) -> list[dict[str, Any]]:
    rows = _rows_of_run(runs)
    size_of_first = rows["A"][over.size]
    basis, extents = _extents(runs, rows, over.useful)
    before = extents["A"]
    found = []
    for name, run in rows.items():
        of_run, iterations = extents[name], _iterations(runs[name])
        total = _ratio(before.useful, of_run.useful) if over.is_same_work else None
        per_one = _ratio(before.useful * run[over.size], of_run.useful * size_of_first) if over.is_same_work else None
        scaling = _scaling(wanted, total, per_one)
        efficiency, speedup = run[over.efficiency], _ratio(before.elapsed, of_run.elapsed)
        of_ideal = _of_ideal(speedup, scaling, size_of_first, run[over.size]) if over.is_same_work else None
        found.append(
            {
                "run": name,
                "label": labels[name],
                "title": as_utf8(str(runs[name].head["title"])),
                **run,
                "iterations": iterations.height or None,
                "iteration_ns": _mean_length(iterations) if iterations.height else None,
                "basis": basis,
                "scaling": scaling.value,
                "per": over.per,
                "size": run[over.size],
                "share": of_run.share,
                "idle_ns": run["elapsed_ns"] * run["devices"] - run["active_ns"],
                "speedup": speedup,
                "scaling_efficiency": of_ideal,
                "scalability": total if scaling == ScalingKind.STRONG else per_one,
                "useful_scalability": total,
                "useful_scalability_per_device": per_one,
                "global_efficiency": _product(efficiency, total),
                "global_efficiency_per_device": _product(efficiency, per_one),
            }
        )
    # The first run is on the scale of the others.
    found[0]["scaling"] = found[1]["scaling"] if len(found) > 1 else found[0]["scaling"]
    return found


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _of_ideal(speedup: float | None, scaling: ScalingKind, first: int, size: int) -> float | None:
    if speedup is None or scaling == ScalingKind.WEAK or not size:
        return speedup
    return speedup * first / size


def _metrics(runs: _Runs) -> list[dict[str, Any]]:
    rows = _rows_of_run(runs)
    found = []
    for name, run in rows.items():
        for row in tree_rows(run):
            before, value = rows["A"][row["metric"]], row["value"]
            change = value - before if value is not None and before is not None else None
            columns = {key: row[key] for key in METRICS.schema if key in row}
            found.append({"run": name, **columns, "change": change})
    return found


def _matched(runs: _Runs, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    frames = []
    for name, one in runs.items():
        kernels, families = one.tables["kernels"], one.tables["families"]
        of_run: list[pl.Expr | str] = [pl.lit(name).alias("run"), "count", "total_ns", "mean_ns", "share"]
        frames.append(kernels.select(pl.lit("kernel").alias("level"), pl.col("kernel").alias("name"), "family", *of_run))
        frames.append(families.select(pl.lit("family").alias("level"), pl.col("family").alias("name"), "family", *of_run))
    found = pl.concat(frames)
    what = ["level", "name"]
    largest = found.group_by(what).agg(largest=pl.col("total_ns").max(), runs=pl.len().cast(pl.Int64))
    kept = largest.sort("largest", "name", descending=[True, False]).group_by("level", maintain_order=True).head(MOST_KERNELS)
    first = found.filter(pl.col("run") == "A").select(*what, before="total_ns", before_mean="mean_ns")
    joined = found.join(kept, on=what, how="inner").join(first, on=what, how="left")
    # Sums of each run for one iteration, and of one device, where these are compared.
    first_row = rows[0]
    factors = {
        row["run"]: first_row["share"]
        / row["share"]
        * (row["size"] / max(first_row["size"], 1) if row["scaling"] == ScalingKind.WEAK else 1)
        for row in rows
    }
    factor = pl.col("run").replace_strict(factors, return_dtype=pl.Float64)
    return joined.with_columns(
        mean_ratio=pl.when(pl.col("before_mean") > 0).then(pl.col("mean_ns") / pl.col("before_mean")),
        scalability=pl.when(pl.col("total_ns") > 0).then(pl.col("before") / pl.col("total_ns") * factor),
    ).sort("level", "largest", "name", "run", descending=[False, True, False, False])


def _changes(runs: _Runs, shares: Mapping[str, float], over: ComparisonBasis) -> pl.DataFrame:
    """Items whose time per device, or per thread, differs from the first run; of runs so many of whose parts are compared."""
    times = {run: _times_of_hosts(one, over) if over.is_of_hosts else _times(one) for run, one in runs.items()}
    before, *others = (of_run.with_columns(pl.col("time") * shares[run]) for run, of_run in times.items())
    what = ["what", "name"]
    frames = []
    for name, after in zip(list(runs)[1:], others, strict=True):
        both = before.join(after, on=what, how="full", coalesce=True).fill_null(0.0)
        both = both.rename({"time": "before_ns", "time_right": "after_ns"})
        changed = both.with_columns(
            run=pl.lit(name),
            difference_ns=pl.col("after_ns") - pl.col("before_ns"),
            ratio=pl.when(pl.col("before_ns") > 0).then(pl.col("after_ns") / pl.col("before_ns")),
        ).filter(pl.col("difference_ns") != 0)
        largest = pl.col("difference_ns").abs()
        frames.append(changed.sort(largest, *what, descending=[True, False, False]).head(MOST_CHANGES))
    return pl.concat(frames)


def _times(one: EfficiencyResult) -> pl.DataFrame:
    """Columns `what`, `name`, `time` (ns per device; of calls per host thread)."""
    tables = one.tables
    run = tables["run"].row(0, named=True)
    devices = max(run["devices"], 1)
    total = pl.col("total_ns").sum()
    causes = [column for column in tables["gaps"].columns if column.endswith("_ns") and column not in _NOT_CAUSES]
    gaps = tables["gaps"].select(pl.col(causes).sum()).unpivot(variable_name="name", value_name="total_ns")
    whole = {"useful": run["useful_ns"], "communication": run["communication_ns"],
             _IDLE: run["elapsed_ns"] * run["devices"] - run["active_ns"]}  # fmt: skip
    frames = [
        _part("devices", devices, pl.DataFrame({"name": list(whole), "total_ns": list(whole.values())})),
        _part("family", devices, tables["families"].select("total_ns", name="family")),
        _part("kernel", devices, tables["kernels"].select("total_ns", name="kernel")),
        _part("gaps", devices, gaps.with_columns(pl.col("name").str.strip_suffix("_ns").str.replace_all("_", " "))),
        _part("memory", devices, tables["memory_operations"].group_by(name="operation").agg(total)),
    ]
    return pl.concat([*frames, *_calls(one)])


def _calls(one: EfficiencyResult) -> list[pl.DataFrame]:
    threads = max(one.tables["run"]["threads"][0], 1)
    return [
        _part(what, threads, one.tables[name].select("total_ns", name="call"))
        for what, name in (("CUDA call", "cuda_calls"), ("MPI call", "mpi_calls"))
    ]


def _times_of_hosts(one: EfficiencyResult, over: ComparisonBasis) -> pl.DataFrame:
    """Columns `what`, `name`, `time` (ns per host thread; of calls of the OS per process, all of whose threads they are of).

    Where all runs have MPI, most calls of the OS are waits inside of MPI and of its helper threads: only those that read and
    write count.
    """
    counted = pl.col("kind") == "io" if over.has_mpi else pl.lit(value=True)
    calls = one.tables["os_calls"].filter(counted).select("total_ns", name="call")
    return pl.concat([*_calls(one), _part("OS call", max(one.tables["tasks"].height, 1), calls)])


_NOT_CAUSES = ("from_ns", "to_ns", "total_ns")


def _part(what: str, by: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.lit(what).alias("what"), pl.col("name").cast(pl.String), time=pl.col("total_ns").cast(pl.Float64) / by
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
