"""Runs side by side: trees, how useful time scales, kernels matched by name and by family, and what changed most."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice, product, takewhile
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

import polars as pl

from nsys2prv.efficiency import comparison_tables as tables_of
from nsys2prv.efficiency.comparison_tables import GPU, PROCESS
from nsys2prv.efficiency.efficiency_options import CompareOptions, ScalingKind
from nsys2prv.efficiency.gate import check_conditions, judge
from nsys2prv.efficiency.measure import changed_options, measure
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS
from nsys2prv.efficiency.metrics import tree_rows
from nsys2prv.efficiency.result_tables import Filled, frames_by_name
from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult, read_efficiency
from nsys2prv.efficiency.verdict import BAR_COLUMNS, WINDOW_TITLES, BarPart, wall_time_of_hosts, wall_time_parts
from nsys2prv.efficiency.window import OTHER_WORK, WARM_UP
from nsys2prv.errors import UsageError, counted
from nsys2prv.exports.paths import check_are_reports, find_reports
from nsys2prv.run.ranks import NOT_AMONG_REPORTS
from nsys2prv.vocabulary import __version__
from nsys2prv.vocabulary.printable import as_utf8
from nsys2prv.vocabulary.wording import listed, percent, short

MOST_CHANGES = 200
"""Changes of each run that have a row: the largest."""
MOST_KERNELS = 500
"""Kernels that are matched: those that take most time in any run."""
_SAME_WORK = 1.02
"""Executions of kernels in a run against those in another one up to which both do the same work."""
_MOST_OUTSIDE = 0.01
"""Part of the useful time that may be outside of iterations without a warning."""
_LEAST_COVERED = 0.25
"""Part of the window in iterations, below which calls and copies are not compared by iteration."""
_UNLIKE = 0.1
"""Difference of these parts from which on the iterations of two runs are not compared."""
_OTHER_NUMBER = 1.5
"""Executions of a kernel in an iteration, relative to those in another run, from which on iterations are not compared."""
_FEWEST_ITERATIONS = 4
"""Iterations from which on the last one, of which it is not known how long it lasts, is left out."""
LONGEST_LABEL = 40
"""Characters of a label that is made of a path."""
_SUFFIX = re.compile(r"\.(?:sqlite|nsys-rep|json|html|prv|prv\.gz)$|[_.](?:pqtdir|arwdir)$")
_OF_ALL_RUNS, _OF_READING = ("window", "nccl"), ("align", "unrelated", "kernel_families")
"""Options that change numbers: those that must be the same for all runs that are compared, and others."""
_WILDCARDS = re.compile(r"[*?\[]")

Results = Mapping[str, EfficiencyResult]
"""By the letters of their runs, in their order."""


def compare(runs: Sequence[str | Path | EfficiencyResult], options: CompareOptions | None = None) -> ComparisonResult:
    """Compare runs, each as a report, a folder or a glob of reports, what `efficiency --json-file` wrote, or a result, with the
    first of them.

    Raises a UsageError when there are fewer than two runs, NCCL kernels do not count as the same in all of them, or an option
    asks for another measurement of what was measured before; and a Nsys2prvError as of `measure`."""
    if len(runs) < 2:
        raise UsageError("compare: two runs or more are needed; give a report or a folder of reports for each")
    options = options or CompareOptions()
    # Before runs are measured, which takes time.
    check_are_reports(run for run in runs if not isinstance(run, EfficiencyResult))
    # A, B, ... Z, AA, AB, ...
    letters_of_runs = chain.from_iterable(product(ascii_uppercase, repeat=length) for length in count(1))
    letters = ["".join(several) for several in islice(letters_of_runs, len(runs))]
    _check_labels(options.label, letters)
    check_conditions(options.fail_if)
    inputs = [run.inputs if isinstance(run, EfficiencyResult) else [str(run)] for run in runs]
    before = [
        run if isinstance(run, EfficiencyResult) else read_efficiency(Path(run)) if Path(run).suffix == ".json" else None
        for run in runs
    ]
    for run in (run for run, result in zip(runs, before, strict=True) if result is None):
        find_reports([str(run)])
    _check_options(options, runs, before)
    of_report = replace(options, regions=(), per_iteration=None)
    measured = [result or measure([str(run)], of_report) for run, result in zip(runs, before, strict=True)]
    policies = sorted({result.head["nccl"] for result in measured})
    if len(policies) > 1:
        raise UsageError(
            f"compare: NCCL kernels count as {' in some runs and as '.join(policies)} in others; measure all with one --nccl"
        )
    results = dict(zip(letters, measured, strict=True))
    labels = options.label or _labels(inputs)
    by = _compared_by(results)
    compared = _runs(results, labels, options.scaling, by)
    first, *later = ((row, result.head) for row, result in zip(compared.to_dicts(), measured, strict=True))
    tables: Filled = {
        tables_of.RUNS: compared,
        tables_of.METRICS: _metric_rows(results),
        tables_of.WALL_TIME: _wall_time(results, first[0]["basis"], by),
        tables_of.ITERATION_LENGTHS: pl.concat(
            result.tables["iterations"].select("iteration", "kind", length_ns="longest_ns", run=pl.lit(run, pl.String))
            for run, result in results.items()
        ),
        tables_of.MATCHED: () if by.per == PROCESS else _matched(results, compared),
        tables_of.CHANGES: _changes(results, compared, by),
        tables_of.GATE: [judge(condition, first, run) for condition in options.fail_if for run in later],
    }
    head = {
        "format": tables_of.FORMAT,
        "version": tables_of.VERSION,
        "nsys2prv": __version__,
        "runs": [
            {"run": run, "label": label, "input": ", ".join(paths), "title": result.head["title"]}
            for (run, result), label, paths in zip(results.items(), labels, inputs, strict=True)
        ],
        "nccl": policies[0],
        "not_compared": by.not_compared,
        "warnings": [*_warnings(results), *_outside_warnings(compared), *_window_warnings(results)],
    }
    return ComparisonResult(head, frames_by_name(tables, tables_of.TABLES))


def _warnings(results: Results) -> list[str]:
    """Warnings of all runs, each once, behind the letters of the runs that have it."""
    warnings = dict.fromkeys(warning for result in results.values() for warning in result.head["warnings"])
    letters = (", ".join(run for run, result in results.items() if text in result.head["warnings"]) for text in warnings)
    return list(map("{}: {}".format, letters, warnings))


def _check_options(
    options: CompareOptions, runs: Sequence[str | Path | EfficiencyResult], before: Sequence[EfficiencyResult | None]
) -> None:
    """Raise a UsageError for an option that a run which was measured before does not follow: where there are reports too, of
    those that must be the same for all."""
    requested = changed_options(options)
    for run, result in zip(runs, before, strict=True):
        for name in _OF_ALL_RUNS if None in before else (*_OF_ALL_RUNS, *_OF_READING):
            if result is not None and name in requested and requested[name] != result.head["options"].get(name):
                what = result.head["title"] if run is result else run
                raise UsageError(
                    f"compare: --{name.replace('_', '-')} applies to reports, and {what} was measured before, with another "
                    f"value of it; leave it out, or give the reports of this run"
                )


# -- what runs are called -------------------------------------------------------------------------------------------------


def _check_labels(labels: Sequence[str], letters: Sequence[str]) -> None:
    """Raise a UsageError for labels that the user gave, and that do not tell runs with these letters apart."""
    if labels and len(labels) != len(letters):
        raise UsageError(f"--label: {counted(len(labels), 'label')} for {len(letters):,} runs; give one for each, in order")
    for place, label in enumerate(labels):
        if not label.strip():
            raise UsageError("--label: a label is empty; give a name for each run")
        if label in labels[:place]:
            raise UsageError(f"--label {short(label)}: two runs have this label; give each another one")
        if label in letters and label != letters[place]:
            raise UsageError(f"--label {short(label)}: this is the letter of another run; give another label")


def _labels(inputs: Sequence[Sequence[str]]) -> list[str]:
    """A label for each run, no two the same: parts of the paths that differ, as they were given for each run, else numbers."""
    names = [_readable((_parts(paths) or ["run"])[-1]) for paths in inputs]
    # What was given twice: the same runs under numbers.
    return path_labels(inputs) or (names if _tell_apart(names) else [f"{name} ({n})" for n, name in enumerate(names, 1)])


def path_labels(inputs: Sequence[Sequence[str]]) -> list[str]:
    """What remains of the paths of runs without what all begin and end with; a single part where that is enough; empty where
    it does not tell them apart."""
    runs = list(map(_parts, inputs))
    first = len(_common_start(runs))
    last = len(_common_start([parts[first:][::-1] for parts in runs]))
    if any(len(parts) <= first + last for parts in runs):
        # A folder of another: its own name comes first.
        first = max(first - 1, 0)
    differing = [parts[first : len(parts) - last] for parts in runs]
    joined = ["/".join(parts) for parts in differing]
    columns = zip(*differing, strict=False) if max(map(len, joined)) > LONGEST_LABEL else ()
    labels = list(map(_readable, next((column for column in columns if len(set(column)) == len(column)), joined)))
    return labels if _tell_apart(labels) else []


def _tell_apart(labels: Sequence[str]) -> bool:
    return bool(labels) and all(labels) and len(set(labels)) == len(labels)


def _parts(paths: Sequence[str]) -> list[str]:
    """Parts of the path of a run, without wildcards and suffixes; of several, those that all have in common."""
    several = [[part for part in os.path.abspath(path).split(os.sep) if not _WILDCARDS.search(part)] for path in paths]
    common = _common_start(several)
    return [*common[:-1], _SUFFIX.sub("", common[-1])] if common else []


def _common_start(several: Sequence[Sequence[str]]) -> list[str]:
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*several, strict=False))]


def _readable(text: str) -> str:
    return short(as_utf8(text), LONGEST_LABEL)


_COLUMNS = {
    GPU: ("devices", "useful_ns", "device_parallel_efficiency"),
    PROCESS: ("processes", "host_useful_ns", "host_parallel_efficiency"),
}
"""Columns of the table `run`: how many there are, their useful time, and the efficiency that is the root of their tree."""


class ComparedBy(NamedTuple):
    """What runs are compared by: GPU or PROCESS; whether all have MPI calls; what can't be compared, in one sentence."""

    per: str
    has_mpi: bool
    not_compared: str | None


def _compared_by(results: Results) -> ComparedBy:
    """What runs are compared by: their GPUs, or where a run has none, their processes."""
    has_mpi = all(result.tables["run"]["mpi_parallel_efficiency"].count() for result in results.values())
    with_gpus = [run for run, result in results.items() if result.tables["run"]["devices"][0]]
    without = [run for run in results if run not in with_gpus]
    if not without or not with_gpus:
        return ComparedBy(GPU if with_gpus else PROCESS, has_mpi, None)
    gpus, hosts = (f"{listed(runs)} {'uses' if len(runs) == 1 else 'use'}" for runs in (with_gpus, without))
    not_compared = (
        f"{gpus} GPUs and {hosts} none: efficiencies of GPUs, kernels, copies, idle GPUs and useful time can't be compared; "
        f"what is compared is of hosts: wall time, and calls of CUDA, MPI and the OS"
    )
    return ComparedBy(PROCESS, has_mpi, not_compared)


def _whole_iterations(result: EfficiencyResult) -> pl.DataFrame:
    """Iterations without the last one, which ends with its work and not where the next one begins; all, where these are few."""
    iterations = result.tables["iterations"]
    return iterations.head(-1) if iterations.height >= _FEWEST_ITERATIONS else iterations


def _usual(iterations: pl.DataFrame) -> pl.DataFrame:
    """Iterations without warm-up, and without those of other work."""
    return iterations.filter(~pl.col("kind").fill_null("").is_in([WARM_UP, OTHER_WORK]))


def _mean_length(iterations: pl.DataFrame) -> float | None:
    """Mean time from one iteration to the next, ns: of usual ones, as of `_usual`; None: there are none."""
    iterations = iterations.with_columns(pl.col("kind").fill_null("")).filter(pl.col("kind") != WARM_UP)
    is_other = pl.col("kind") == OTHER_WORK
    usual = pl.col("end_ns").max() - pl.col("begin_ns").min() - pl.col("longest_ns").filter(is_other).sum()
    return iterations.select(usual / (~is_other).sum()).item() if iterations.height else None


def _runs(results: Results, labels: Sequence[str], kind: ScalingKind, by: ComparedBy) -> pl.DataFrame:
    """The table `runs`, and what is compared of each run: `elapsed`, `useful`, `communication` and `active` of the window or of
    the mean of its usual iterations, and `share`, the part of the window that is compared of what was measured as a whole.

    Iterations are compared where all runs have them, and neither equally many of them nor of executions of kernels, and about
    the same part of the useful time is in them (`inside`): else an iteration is other work. What was measured of the whole
    window is that of all its iterations, those of the warm-up included."""
    column_of_size, column_of_useful, root = _COLUMNS[by.per]
    counts = pl.Series([result.tables["iterations"].height for result in results.values()])
    usual = [_usual(_whole_iterations(result)) for result in results.values()]
    lengths = pl.Series([_mean_length(_whole_iterations(result)) for result in results.values()], dtype=pl.Float64)
    spent = {"useful": column_of_useful, "communication": "communication_ns", "active": "active_ns"}
    is_measured = all(of_run.select(spent.values()).drop_nulls().height for of_run in usual)
    executions = [int(result.tables["kernels"]["count"].sum()) for result in results.values()]
    # The same work in different periods: an iteration of the one is a part of that of the other.
    is_same_work = 0 < max(executions) <= _SAME_WORK * min(executions)
    means = {name: pl.Series([of_run[column].mean() for of_run in usual], dtype=pl.Float64) for name, column in spent.items()}
    totals = {name: pl.col(column).cast(pl.Float64) for name, column in {**spent, "elapsed": "elapsed_ns"}.items()}
    measured = pl.concat((result.tables["run"] for result in results.values()), how="vertical_relaxed")
    of_iterations = [result.tables["iterations"][column_of_useful].mean() for result in results.values()]
    inside = pl.Series(of_iterations, dtype=pl.Float64) * counts / measured[column_of_useful]
    are_comparable = counts.n_unique() > 1 and is_measured and not is_same_work
    unlike = _unlike_iterations(results, counts, inside, column_of_size) if are_comparable else None
    is_by_iteration = are_comparable and unlike is None
    measured = measured.with_columns(
        run=pl.Series(list(results)),
        label=pl.Series(labels),
        title=pl.Series([as_utf8(str(result.head["title"])) for result in results.values()]),
        iterations=pl.Series([_usual(run.tables["iterations"]).height or None for run in results.values()], dtype=pl.Int64),
        iteration_ns=lengths,
        basis=pl.lit("iteration" if is_by_iteration else "run"),
        inside=inside,
        covered=lengths * counts / measured["elapsed_ns"],
        unlike=pl.lit(unlike, pl.String),
        per=pl.lit(by.per),
        size=pl.col(column_of_size),
        share=1 / counts if is_by_iteration else pl.lit(1.0),
        idle_ns=pl.col("elapsed_ns") * pl.col("devices") - pl.col("active_ns"),
        **({**means, "elapsed": lengths} if is_by_iteration else totals),
    )
    total, per_device = pl.col("useful_scalability"), pl.col("useful_scalability_per_device")
    size, is_strong = pl.col("size"), pl.col("scaling") == ScalingKind.STRONG.value
    # Without MPI, time of hosts outside of calls is not known to be work; nor is, without all ranks, on how many GPUs runs are.
    lacks_ranks = any(NOT_AMONG_REPORTS in text for result in results.values() for text in result.head["warnings"])
    has_same_work = by.not_compared is None and (by.per == GPU or by.has_mpi)
    has_same_work &= not lacks_ranks or measured["size"].n_unique() == 1
    useful, of_same_work = (pl.when(pl.lit(has_same_work)).then(column) for column in ("useful", "speedup"))
    measured = measured.with_columns(
        speedup=_ratio(pl.col("elapsed").first(), pl.col("elapsed")),
        useful_scalability=_ratio(useful.first(), useful),
        useful_scalability_per_device=_ratio(useful.first() * size, useful * size.first()),
    ).with_columns(scaling=_scaling(kind, total, per_device))
    # The first run is on the scale of the others.
    scaling = pl.when(pl.col("run") == "A").then(pl.col("scaling").shift(-1)).otherwise("scaling")
    return measured.with_columns(scaling=scaling).with_columns(
        scaling_efficiency=pl.when(is_strong & (size > 0)).then(of_same_work * size.first() / size).otherwise(of_same_work),
        scalability=pl.when(is_strong).then(total).otherwise(per_device),
        global_efficiency=pl.col(root) * total,
        global_efficiency_per_device=pl.col(root) * per_device,
    )


def _unlike_iterations(results: Results, counts: pl.Series, inside: pl.Series, column_of_size: str) -> str | None:
    """Why iterations of runs, so many as `counts`, are not the same work: very different parts of the useful time are in them
    (`inside`), or kernels are executed far more often in those of one run; None: they are alike."""
    parts = inside.fill_nan(0.0).fill_null(0.0).to_list()
    if max(parts) - min(parts) > _UNLIKE:
        of_runs = listed([f"{percent(part)} in {run}" for run, part in zip(results, parts, strict=True)])
        return f"of their useful time {of_runs} is in iterations, which are not the same work then"
    first, *others = (
        result.tables["kernels"].select("kernel", number=pl.col("count") / (count * result.tables["run"][column_of_size]))
        for result, count in zip(results.values(), counts, strict=True)
    )
    for other in others:
        # What is executed once, as to try algorithms, is in no iteration.
        common = first.join(other, on="kernel").filter(pl.min_horizontal("number", "number_right") >= 1)
        ratio = (common["number_right"] / common["number"]).median()
        if not isinstance(ratio, float) or not 1 / _OTHER_NUMBER < ratio < _OTHER_NUMBER:
            return "their iterations do not execute the same kernels equally often"
    return None


def _outside_warnings(runs: pl.DataFrame) -> list[str]:
    """Why iterations are not compared; else which runs work outside of them: what is measured of the window has that, too."""
    if runs["unlike"][0] is not None:
        return [f"runs are compared as a whole: {runs['unlike'][0]}"]
    runs = runs.filter(basis="iteration")
    outside = runs.filter(1 - pl.col("inside") > _MOST_OUTSIDE).select("run", 1 - pl.col("inside"))
    short_of_window = runs.filter(pl.col("covered") < _LEAST_COVERED).select("run", "covered")
    return [
        f"{run}: iterations take {percent(share)} of its time: calls and copies, which the rest has as well, are not compared "
        f"(--window steady compares them)"
        for run, share in short_of_window.iter_rows()
    ] + [
        f"{run}: {percent(share)} of the useful time is outside of the iterations: kernels of an iteration are those of "
        f"the window over its iterations (--window steady leaves out what comes before them)"
        for run, share in outside.iter_rows()
    ]


def _window_warnings(results: Results) -> list[str]:
    """Which part of each run is compared, where these differ."""
    windows = {run: WINDOW_TITLES[result.head["window"]["name"]] for run, result in results.items()}
    parts = ", ".join(f"of {run} {window}" for run, window in windows.items())
    return [f"different parts of runs are compared: {parts} (--window)"] if len(set(windows.values())) > 1 else []


def _scaling(kind: ScalingKind, total: pl.Expr, per_device: pl.Expr) -> pl.Expr:
    """Strong or weak; where neither is named, the one in which useful time changes less."""
    is_weak = (total > 0) & (per_device > 0) & (total.log().abs() > per_device.log().abs())
    nearer = pl.when(is_weak).then(pl.lit(ScalingKind.WEAK.value)).otherwise(pl.lit(ScalingKind.STRONG.value))
    return nearer if kind == ScalingKind.AUTO else pl.lit(kind.value)


def _ratio(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    return pl.when(denominator != 0).then(numerator / denominator)


def _metric_rows(results: Results) -> list[dict[str, Any]]:
    runs = {run: result.tables["run"].row(0, named=True) for run, result in results.items()}
    rows = [
        {"run": run, "before": runs["A"][row["metric"]], **row} for run, values in runs.items() for row in tree_rows(values)
    ]
    return [{**row, "change": None if None in (row["value"], row["before"]) else row["value"] - row["before"]} for row in rows]


def _wall_time(results: Results, basis: str, by: ComparedBy) -> pl.DataFrame:
    """What the wall time of each run went to: each part that any run has, as the first run calls it that has it."""
    rows = [(run, *part) for run, result in results.items() for part in _wall_time_parts(result, basis, by)]
    parts = pl.DataFrame(rows, list(tables_of.WALL_TIME.schema.items())[:-1], orient="row")
    if (parts["part"] == "paging").any():
        # How much of the time of kernels waits for pages is a bound, and no difference of bounds is one of times.
        computing = {"part": "compute", "title": "computing, or waiting for pages", "group": parts["group"][0]}
        is_computing = pl.col("part").is_in(["compute", "paging"])
        names = {name: pl.when(is_computing).then(pl.lit(text)).otherwise(name) for name, text in computing.items()}
        parts = parts.with_columns(**names).group_by("run", *computing, maintain_order=True).sum()
    titles = parts.unique("part", keep="first", maintain_order=True)
    of_runs = pl.DataFrame({"run": list(results)}).join(titles.select("part", "title", "group"), how="cross")
    of_runs = of_runs.join(parts.drop("title", "group"), on=["run", "part"], how="left", maintain_order="left")
    of_runs = of_runs.with_columns(pl.col("value_ns", "share").fill_null(0.0))
    return of_runs.with_columns(difference_ns=pl.col("value_ns") - pl.col("value_ns").first().over("part"))


def _wall_time_parts(result: EfficiencyResult, basis: str, by: ComparedBy) -> Sequence[BarPart]:
    """Parts of the run, or of its mean iteration."""
    tables, of_iterations = result.tables, result.tables["absent_iterations"]
    if by.per == PROCESS:
        return wall_time_of_hosts(tables, with_mpi=by.has_mpi)
    if basis == "run" or of_iterations.is_empty():
        return wall_time_parts(tables)
    usual = of_iterations.filter(pl.col("iteration").is_in(_usual(_whole_iterations(result))["iteration"].implode()))
    of_devices = usual.group_by("device", maintain_order=True).agg(pl.col(BAR_COLUMNS).mean())
    return wall_time_parts({**tables, "absent_time": of_devices, "absent_parts": tables["absent_parts"].clear()})


def _matched(results: Results, runs: pl.DataFrame) -> pl.DataFrame:
    """Kernels and families of all runs, those first that take most time in one."""
    numbers = ("count", "total_ns", "mean_ns", "share")
    rows = pl.concat(
        result.tables[table].select("family", *numbers, level=pl.lit(level), name=level, run=pl.lit(run))
        for run, result in results.items()
        for level, table in (("kernel", "kernels"), ("family", "families"))
    )
    what = ["level", "name"]
    sums = rows.group_by(what).agg(largest=pl.col("total_ns").max(), runs=pl.len().cast(pl.Int64))
    largest = sums.sort("largest", "name", descending=[True, False]).group_by("level", maintain_order=True).head(MOST_KERNELS)
    first = rows.filter(pl.col("run") == "A").select(*what, before="total_ns", before_mean="mean_ns")
    # Sums of each run for one iteration, and of one device, where these are compared.
    share, size, is_weak = pl.col("share"), pl.col("size"), pl.col("scaling") == ScalingKind.WEAK.value
    size_factor = pl.when(is_weak).then(size / size.first().clip(1)).otherwise(1.0)
    factors = dict(runs.select("run", share.first() / share * size_factor).iter_rows())
    factor = pl.col("run").replace_strict(factors, return_dtype=pl.Float64)
    mean_ratio = pl.when(pl.col("before_mean") > 0).then(pl.col("mean_ns") / pl.col("before_mean"))
    scalability = pl.when(pl.col("total_ns") > 0).then(pl.col("before") / pl.col("total_ns") * factor)
    rows = rows.join(largest, on=what, how="inner").join(first, on=what, how="left")
    rows = rows.with_columns(mean_ratio=mean_ratio, scalability=scalability)
    return rows.sort("level", "largest", "name", "run", descending=[False, True, False, False])


def _changes(results: Results, runs: pl.DataFrame, by: ComparedBy) -> pl.DataFrame:
    """What takes another time per device, or per thread, than in the first run."""
    # Where a run lasts longer than its iterations, its calls and copies are also those of its start.
    is_whole = runs.filter(pl.col("covered") < _LEAST_COVERED, basis="iteration").is_empty()
    is_compared = pl.lit(is_whole) | ~pl.col("what").is_in(["CUDA call", "MPI call", "memory"])
    times = {row["run"]: _times(results[row["run"]], row, by).filter(is_compared) for row in runs.iter_rows(named=True)}
    before = times.pop("A").rename({"time": "before_ns"})
    what = ["what", "name"]
    ratio = pl.when(pl.col("before_ns") > 0).then(pl.col("after_ns") / pl.col("before_ns"))
    return pl.concat(
        before.join(after.rename({"time": "after_ns"}), on=what, how="full", coalesce=True)
        .fill_null(0.0)
        .with_columns(run=pl.lit(run), difference_ns=pl.col("after_ns") - pl.col("before_ns"), ratio=ratio)
        .filter(pl.col("difference_ns") != 0)
        .sort(pl.col("difference_ns").abs(), *what, descending=[True, False, False])
        .head(MOST_CHANGES)
        for run, after in times.items()
    )


def _times(result: EfficiencyResult, run: Mapping[str, Any], by: ComparedBy) -> pl.DataFrame:
    """Columns `what`, `name`, `time` of what is compared of a run (a row of `_runs`): ns per device, of calls per host thread,
    of calls of the OS per process, all of whose threads they are of.

    Where all runs have MPI, most calls of the OS are waits inside of MPI and of its helper threads: only those that read and
    write count."""
    tables, devices, threads = result.tables, run["devices"], run["threads"]
    total, longest, is_by_iteration = pl.col("total_ns"), tables["iterations"]["longest_ns"].max(), run["basis"] == "iteration"
    # A call that is longer than any iteration is in none.
    of_calls = total - pl.when(pl.col("max_ns") > longest).then("max_ns").otherwise(0) if is_by_iteration else total
    parts = [
        (what, threads, tables[table].select(of_calls, name="call"))
        for what, table in (("CUDA call", "cuda_calls"), ("MPI call", "mpi_calls"))
    ]
    if by.per == PROCESS:
        counted = tables["os_calls"].filter((pl.col("kind") == "io") if by.has_mpi else pl.lit(value=True))
        parts.append(("OS call", tables["tasks"].height, counted.select("total_ns", name="call")))
    else:
        idle = run["elapsed"] * devices - run["active"]
        spent = {"useful": run["useful"], "communication": run["communication"], "idle": idle}
        # Those of iterations are in the table of the wall time: here start-up is among them.
        gaps = tables["gaps"].select(pl.col(CAUSE_COLUMNS).sum()).unpivot(variable_name="name", value_name="total_ns")
        cause = pl.col("name").str.strip_suffix("_ns").str.replace_all("_", " ")
        # These are of what is compared as they are.
        of_devices = pl.DataFrame({"name": list(spent), "total_ns": [time / run["share"] for time in spent.values()]})
        parts += [
            ("devices", devices, of_devices),
            ("family", devices, tables["families"].select("total_ns", name="family")),
            ("kernel", devices, tables["kernels"].select("total_ns", name="kernel")),
            ("gaps", devices, gaps.with_columns(cause).filter(pl.lit(not is_by_iteration))),
            ("memory", devices, tables["memory_operations"].group_by(name="operation").agg(pl.col("total_ns").sum())),
        ]
    name = pl.col("name").cast(pl.String)
    return pl.concat(
        frame.select(pl.lit(what).alias("what"), name, time=total.cast(pl.Float64) / max(number, 1) * run["share"])
        for what, number, frame in parts
    )
