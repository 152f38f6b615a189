"""Runs side by side: trees, how useful time scales, kernels matched by name and by family, and what changed most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency.comparison_tables import (
    CHANGES,
    FORMAT,
    GATE,
    GPU,
    ITERATION_LENGTHS,
    MATCHED,
    METRICS,
    PROCESS,
    RUNS,
    TABLES,
    VERSION,
    WALL_TIME,
)
from nsys2prv.efficiency.efficiency_options import CompareOptions, ScalingKind
from nsys2prv.efficiency.gate import check_conditions, judge
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.metrics import tree_rows
from nsys2prv.efficiency.result_tables import Filled, frames_by_name
from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult, read_efficiency
from nsys2prv.efficiency.run_labels import check_labels, labels_of
from nsys2prv.efficiency.verdict import BarPart, wall_time_of_hosts, wall_time_parts
from nsys2prv.efficiency.window import WARM_UP
from nsys2prv.errors import UsageError
from nsys2prv.exports.paths import check_are_reports
from nsys2prv.vocabulary.printable import as_utf8
from nsys2prv.vocabulary.version import __version__
from nsys2prv.vocabulary.wording import listed

MOST_CHANGES = 200
"""Changes of each run that have a row: the largest."""
MOST_KERNELS = 500
"""Kernels that are matched: those that take most time in any run."""

Results = Mapping[str, EfficiencyResult]
"""Results by the letters of their runs, the first one first."""
Row = Mapping[str, Any]
_NOT_CAUSES = ("from_ns", "to_ns", "total_ns")
"""Columns of `gaps` that are times, and no causes."""


def compare(runs: Sequence[str | Path | EfficiencyResult], options: CompareOptions | None = None) -> ComparisonResult:
    """Compare runs with the first of them.

    Parameters
    ----------
    runs
        One argument per run: a report, a folder or a glob of the reports of the run, what `efficiency --json-file` wrote, or a
        result.
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
        raise UsageError("compare: two runs or more are needed; give a report or a folder of reports for each")
    options = options or CompareOptions()
    # Before runs are measured, which takes time.
    check_are_reports(run for run in runs if not isinstance(run, EfficiencyResult))
    check_labels(options.label, list(map(_letters, range(len(runs)))))
    check_conditions(options.fail_if)
    inputs = [list(run.head["inputs"]) if isinstance(run, EfficiencyResult) else [str(run)] for run in runs]
    return compare_measured([_measured(run, options) for run in runs], inputs, options)


def compare_measured(
    measured: Sequence[EfficiencyResult], inputs: Sequence[Sequence[str]], options: CompareOptions
) -> ComparisonResult:
    """Compare measured runs; `inputs` are the paths of each as they were given."""
    policies = sorted({result.head["nccl"] for result in measured})
    if len(policies) > 1:
        raise UsageError(
            f"compare: NCCL kernels count as {' in some runs and as '.join(policies)} in others; measure all of them with the "
            f"same --nccl"
        )
    results = {_letters(place): result for place, result in enumerate(measured)}
    labels = dict(zip(results, options.label or labels_of(inputs, measured), strict=True))
    by = _compared_by(results)
    runs = _run_rows(results, labels, options.scaling, by)
    first, *later = ((row, result.head) for row, result in zip(runs, measured, strict=True))
    tables: Filled = {
        RUNS: runs,
        METRICS: _metric_rows(results),
        WALL_TIME: _wall_time_rows(results, runs[0]["basis"], by),
        ITERATION_LENGTHS: _iteration_lengths(results),
        MATCHED: () if by.is_of_hosts else _matched(results, runs),
        CHANGES: _changes(results, {row["run"]: row["share"] for row in runs}, by),
        GATE: judge(options.fail_if, first, later),
    }
    head = {
        "format": FORMAT,
        "version": VERSION,
        "nsys2prv": __version__,
        "runs": [
            {"run": run, "label": labels[run], "input": ", ".join(paths), "title": result.head["title"]}
            for (run, result), paths in zip(results.items(), inputs, strict=True)
        ],
        "nccl": policies[0],
        "not_compared": by.not_compared,
        "warnings": [f"{run}: {warning}" for run, result in results.items() for warning in result.head["warnings"]],
    }
    return ComparisonResult(head, frames_by_name(tables, TABLES))


def _measured(run: str | Path | EfficiencyResult, options: CompareOptions) -> EfficiencyResult:
    if isinstance(run, EfficiencyResult):
        return run
    if Path(run).suffix == ".json":
        return read_efficiency(Path(run))
    return measure([run], replace(options, regions=(), per_iteration=None))


def _letters(place: int) -> str:
    """A, B, ... Z, AA, AB, ...

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    before, last = divmod(place, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


# -- the runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparedBy:
    """Columns of the table `run` that all runs of a comparison have and are compared by.

    Attributes
    ----------
    per
        GPU or PROCESS.
    size, useful, efficiency
        How many there are, their useful time, and the efficiency that is the root of their tree.
    has_mpi
        Whether all runs have MPI calls.
    is_same_work
        Whether useful times are those of the same work: not of a run on GPUs and one on hosts, and not where the time of hosts
        that is no MPI call is not known to be work.
    not_compared
        What can't be compared, in one sentence; None: everything can.
    """

    per: str
    size: str
    useful: str
    efficiency: str
    has_mpi: bool
    is_same_work: bool = True
    not_compared: str | None = None

    @property
    def is_of_hosts(self) -> bool:
        """Whether processes of hosts are compared."""
        return self.per == PROCESS


def _row_of_run(result: EfficiencyResult) -> dict[str, Any]:
    return result.tables["run"].row(0, named=True)


def _compared_by(results: Results) -> ComparedBy:
    """What runs are compared by: their GPUs, or where a run has none, their processes."""
    rows = {run: _row_of_run(result) for run, result in results.items()}
    has_mpi = all(row["mpi_parallel_efficiency"] is not None for row in rows.values())
    with_gpus = [run for run, row in rows.items() if row["devices"]]
    without = [run for run in rows if run not in with_gpus]
    if not without:
        return ComparedBy(GPU, "devices", "useful_ns", "device_parallel_efficiency", has_mpi)
    not_compared = (
        f"{_using(with_gpus)} GPUs and {_using(without)} none: efficiencies of GPUs, kernels, copies, idle GPUs and useful "
        f"time can't be compared; what is compared is of hosts: wall time, and calls of CUDA, MPI and the OS"
    )
    is_same_work = has_mpi and not with_gpus
    columns = ("processes", "host_useful_ns", "host_parallel_efficiency")
    return ComparedBy(PROCESS, *columns, has_mpi, is_same_work, not_compared if with_gpus else None)


def _using(runs: list[str]) -> str:
    return f"{listed(runs)} {'uses' if len(runs) == 1 else 'use'}"


def _usual_iterations(result: EfficiencyResult) -> pl.DataFrame:
    """Iterations without warm-up."""
    return result.tables["iterations"].filter(pl.col("kind").fill_null("") != WARM_UP)


def _mean_length(iterations: pl.DataFrame) -> float | None:
    if iterations.is_empty():
        return None
    begin, end = iterations["begin_ns"].to_numpy().min(), iterations["end_ns"].to_numpy().max()
    return float(end - begin) / iterations.height


def _run_rows(results: Results, labels: Mapping[str, str], kind: ScalingKind, by: ComparedBy) -> list[dict[str, Any]]:
    """Rows of `runs`. Iterations are compared where all runs have them and not equally many."""
    iterations = {run: _usual_iterations(result) for run, result in results.items()}
    numbers = {table.height for table in iterations.values()}
    is_by_iteration = len(numbers) > 1 and 0 not in numbers
    rows: list[dict[str, Any]] = []
    first: Row = {}
    for run, result in results.items():
        row, usual = _row_of_run(result), iterations[run]
        mean_length = _mean_length(usual)
        elapsed, useful, share = row["elapsed_ns"], row[by.useful], 1.0
        if is_by_iteration:
            elapsed, useful, share = mean_length, float(usual[by.useful].to_numpy().mean()), 1 / usual.height
        first = first or {"elapsed": elapsed, "useful": useful, "size": row[by.size]}
        total = _ratio(first["useful"], useful) if by.is_same_work else None
        per_device = _ratio(first["useful"] * row[by.size], useful * first["size"]) if by.is_same_work else None
        scaling = _scaling(kind, total, per_device)
        speedup = _ratio(first["elapsed"], elapsed)
        rows.append(
            {
                "run": run,
                "label": labels[run],
                "title": as_utf8(str(result.head["title"])),
                **row,
                "iterations": usual.height or None,
                "iteration_ns": mean_length,
                "basis": "iteration" if is_by_iteration else "run",
                "scaling": scaling.value,
                "per": by.per,
                "size": row[by.size],
                "share": share,
                "idle_ns": row["elapsed_ns"] * row["devices"] - row["active_ns"],
                "speedup": speedup,
                "scaling_efficiency": _of_ideal(speedup, scaling, first["size"], row[by.size]) if by.is_same_work else None,
                "scalability": total if scaling == ScalingKind.STRONG else per_device,
                "useful_scalability": total,
                "useful_scalability_per_device": per_device,
                "global_efficiency": _product(row[by.efficiency], total),
                "global_efficiency_per_device": _product(row[by.efficiency], per_device),
            }
        )
    # The first run is on the scale of the others.
    rows[0]["scaling"] = rows[1]["scaling"]
    return rows


def _scaling(kind: ScalingKind, total: float | None, per_device: float | None) -> ScalingKind:
    """Strong or weak; where neither is named, the one in which useful time changes less."""
    if kind != ScalingKind.AUTO:
        return kind
    if not total or not per_device:
        return ScalingKind.STRONG
    return ScalingKind.STRONG if abs(math.log(total)) <= abs(math.log(per_device)) else ScalingKind.WEAK


def _of_ideal(speedup: float | None, scaling: ScalingKind, first: int, size: int) -> float | None:
    """A speedup over the one that the scaling allows, from the sizes of the first run and of this one."""
    return speedup if speedup is None or scaling == ScalingKind.WEAK or not size else speedup * first / size


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _product(efficiency: float | None, scalability: float | None) -> float | None:
    return None if efficiency is None or scalability is None else efficiency * scalability


# -- what is compared -----------------------------------------------------------------------------------------------------


def _metric_rows(results: Results) -> list[dict[str, Any]]:
    first, rows = _row_of_run(results["A"]), []
    for run, result in results.items():
        for row in tree_rows(_row_of_run(result)):
            before, value = first[row["metric"]], row["value"]
            change = value - before if value is not None and before is not None else None
            rows.append({"run": run, **{key: row[key] for key in METRICS.schema if key in row}, "change": change})
    return rows


def _wall_time_rows(results: Results, basis: str, by: ComparedBy) -> list[dict[str, Any]]:
    """What the wall time of each run went to: each part that any run has."""
    parts = {run: {part.name: part for part in _wall_time_parts(result, basis, by)} for run, result in results.items()}
    # As the first run calls it that has it.
    titles = {part.name: part for of_run in reversed(parts.values()) for part in of_run.values()}
    names = dict.fromkeys(name for of_run in parts.values() for name in of_run)
    nothing = BarPart("", "", "", 0.0, 0.0)
    return [
        {
            "run": run,
            "part": name,
            "title": titles[name].title,
            "group": titles[name].group,
            "value_ns": of_run.get(name, nothing).value,
            "share": of_run.get(name, nothing).share,
            "difference_ns": of_run.get(name, nothing).value - parts["A"].get(name, nothing).value,
        }
        for run, of_run in parts.items()
        for name in names
    ]


def _wall_time_parts(result: EfficiencyResult, basis: str, by: ComparedBy) -> Sequence[BarPart]:
    """Parts of the run, or of its mean iteration."""
    tables, of_iterations = result.tables, result.tables["absent_iterations"]
    if by.is_of_hosts:
        return wall_time_of_hosts(tables, with_mpi=by.has_mpi)
    if basis == "run" or of_iterations.is_empty():
        return wall_time_parts(tables)
    usual = of_iterations.filter(pl.col("iteration").is_in(_usual_iterations(result)["iteration"].implode()))
    means = pl.col("elapsed_ns", "compute_ns", *PART_COLUMNS).mean()
    of_devices = usual.group_by("device", maintain_order=True).agg(means)
    return wall_time_parts({**tables, "absent_time": of_devices, "absent_parts": tables["absent_parts"].clear()})


def _iteration_lengths(results: Results) -> pl.DataFrame:
    columns = ("iteration", pl.col("longest_ns").alias("length_ns"), "kind")
    return pl.concat(
        result.tables["iterations"].select(pl.lit(run, pl.String).alias("run"), *columns) for run, result in results.items()
    )


def _matched(results: Results, runs: Sequence[Row]) -> pl.DataFrame:
    """Kernels and families of all runs, those first that take most time in one."""
    numbers = ("count", "total_ns", "mean_ns", "share")
    rows = pl.concat(
        result.tables[table].select(
            pl.lit(level).alias("level"), pl.col(level).alias("name"), "family", pl.lit(run).alias("run"), *numbers
        )
        for run, result in results.items()
        for level, table in (("kernel", "kernels"), ("family", "families"))
    )
    what = ["level", "name"]
    largest = rows.group_by(what).agg(largest=pl.col("total_ns").max(), runs=pl.len().cast(pl.Int64))
    largest = (
        largest.sort("largest", "name", descending=[True, False]).group_by("level", maintain_order=True).head(MOST_KERNELS)
    )
    first = rows.filter(pl.col("run") == "A").select(*what, before="total_ns", before_mean="mean_ns")
    # Sums of each run for one iteration, and of one device, where these are compared.
    sizes = {row["run"]: row["size"] / max(runs[0]["size"], 1) if row["scaling"] == ScalingKind.WEAK else 1 for row in runs}
    factors = {row["run"]: runs[0]["share"] / row["share"] * sizes[row["run"]] for row in runs}
    factor = pl.col("run").replace_strict(factors, return_dtype=pl.Float64)
    return (
        rows.join(largest, on=what, how="inner")
        .join(first, on=what, how="left")
        .with_columns(
            mean_ratio=pl.when(pl.col("before_mean") > 0).then(pl.col("mean_ns") / pl.col("before_mean")),
            scalability=pl.when(pl.col("total_ns") > 0).then(pl.col("before") / pl.col("total_ns") * factor),
        )
        .sort("level", "largest", "name", "run", descending=[False, True, False, False])
    )


def _changes(results: Results, shares: Mapping[str, float], by: ComparedBy) -> pl.DataFrame:
    """What takes another time per device, or per thread, than in the first run; of runs so many of whose parts are compared."""
    times = {run: _times(result, by).with_columns(pl.col("time") * shares[run]) for run, result in results.items()}
    before = times.pop("A").rename({"time": "before_ns"})
    what = ["what", "name"]
    difference = pl.col("after_ns") - pl.col("before_ns")
    ratio = pl.when(pl.col("before_ns") > 0).then(pl.col("after_ns") / pl.col("before_ns"))
    return pl.concat(
        before.join(after.rename({"time": "after_ns"}), on=what, how="full", coalesce=True)
        .fill_null(0.0)
        .with_columns(run=pl.lit(run), difference_ns=difference, ratio=ratio)
        .filter(pl.col("difference_ns") != 0)
        .sort(pl.col("difference_ns").abs(), *what, descending=[True, False, False])
        .head(MOST_CHANGES)
        for run, after in times.items()
    )


def _times(result: EfficiencyResult, by: ComparedBy) -> pl.DataFrame:
    """Columns `what`, `name`, `time`: ns per device, of calls per host thread, of calls of the OS per process, all of whose
    threads they are of.

    Where all runs have MPI, most calls of the OS are waits inside of MPI and of its helper threads: only those that read and
    write count.
    """
    tables, run = result.tables, _row_of_run(result)
    devices, threads, processes = run["devices"], run["threads"], tables["tasks"].height
    parts = [
        (what, threads, tables[table].select("total_ns", name="call"))
        for what, table in (("CUDA call", "cuda_calls"), ("MPI call", "mpi_calls"))
    ]
    if by.is_of_hosts:
        counted = tables["os_calls"].filter((pl.col("kind") == "io") if by.has_mpi else pl.lit(value=True))
        parts.append(("OS call", processes, counted.select("total_ns", name="call")))
    else:
        idle = run["elapsed_ns"] * devices - run["active_ns"]
        spent = {"useful": run["useful_ns"], "communication": run["communication_ns"], "idle": idle}
        causes = [name for name in tables["gaps"].columns if name.endswith("_ns") and name not in _NOT_CAUSES]
        gaps = tables["gaps"].select(pl.col(causes).sum()).unpivot(variable_name="name", value_name="total_ns")
        cause = pl.col("name").str.strip_suffix("_ns").str.replace_all("_", " ")
        copies = tables["memory_operations"].group_by(name="operation").agg(pl.col("total_ns").sum())
        parts += [
            ("devices", devices, pl.DataFrame({"name": list(spent), "total_ns": list(spent.values())})),
            ("family", devices, tables["families"].select("total_ns", name="family")),
            ("kernel", devices, tables["kernels"].select("total_ns", name="kernel")),
            ("gaps", devices, gaps.with_columns(cause)),
            ("memory", devices, copies),
        ]
    name, total = pl.col("name").cast(pl.String), pl.col("total_ns").cast(pl.Float64)
    return pl.concat(
        frame.select(pl.lit(what).alias("what"), name, time=total / max(number, 1)) for what, number, frame in parts
    )
