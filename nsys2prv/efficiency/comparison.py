"""Runs side by side: trees, how useful time scales, kernels matched by name and by family, and what changed most."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

import nsys2prv
from nsys2prv.efficiency import result_tables
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import Efficiency, measure, tree_table
from nsys2prv.errors import NotEfficiency, UsageError

MOST_CHANGES = 200
"""Changes that are told for each run: the largest."""
MOST_KERNELS = 500
"""Kernels that are matched: those that take most time in any run."""

_IDLE = "idle"


@dataclass(frozen=True)
class Comparison:
    """Runs side by side: `head` has the keys of `schema.COMPARISON_HEAD` but `tables`."""

    head: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame]

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` writes."""
        return {**self.head, "tables": {name: table.to_dict(as_series=False) for name, table in self.tables.items()}}


def compare(runs: Sequence[str | Path], options: EfficiencyOptions | None = None) -> Comparison:
    """Lay runs side by side; the first is what the others are compared with.

    Parameters
    ----------
    runs
        One argument per run: a report, a folder or a glob of the reports of the run, a trace, or what
        `efficiency --json` wrote.
    options
        How each of them is measured.

    Raises
    ------
    UsageError
        When there are fewer than two runs, or they were measured with different readings of NCCL.
    Nsys2prvError
        As of `measure`.
    """
    if len(runs) < 2:
        raise UsageError("compare: two runs or more are needed; give a report, a folder of reports or a trace for each")
    options = options or EfficiencyOptions()
    return compare_measured([_measured(run, options) for run in runs], [str(run) for run in runs])


def compare_measured(measured: Sequence[Efficiency], inputs: Sequence[str]) -> Comparison:
    """The same for runs that are measured; `inputs` are what the user named."""
    readings = sorted({one.head["nccl"] for one in measured})
    if len(readings) > 1:
        raise UsageError(
            f"compare: NCCL kernels count as {' in some runs and as '.join(readings)} in others; measure all of them with the "
            f"same --nccl"
        )
    names = [_letters(place) for place in range(len(measured))]
    tables: dict[str, Any] = {
        "runs": _runs(names, measured),
        "metrics": _metrics(names, measured, readings[0]),
        "matched": _matched(names, measured),
        "changes": _changes(names, measured),
    }
    head = {
        "format": result_tables.COMPARISON_FORMAT,
        "version": result_tables.COMPARISON_VERSION,
        "nsys2prv": nsys2prv.__version__,
        "runs": [
            {"run": name, "input": given, "title": one.head["title"]}
            for name, given, one in zip(names, inputs, measured, strict=True)
        ],
        "nccl": readings[0],
        "warnings": [
            f"{name}: {warning}" for name, one in zip(names, measured, strict=True) for warning in one.head["warnings"]
        ],
    }
    return Comparison(head, result_tables.checked(tables, result_tables.COMPARISON_TABLES))


def read_efficiency(path: Path) -> Efficiency:
    """Efficiency numbers that `--json` wrote.

    Raises
    ------
    NotEfficiency
        When the file is another one, or one of a newer version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotEfficiency(path, f"it can't be read ({error.strerror or error})") from error
    except ValueError as error:
        raise NotEfficiency(path, "it is no JSON") from error
    if not isinstance(content, dict) or content.get("format") != result_tables.FORMAT:
        raise NotEfficiency(path, f"its format is not {result_tables.FORMAT}")
    if content.get("version") != result_tables.VERSION:
        raise NotEfficiency(
            path, f"it has version {content.get('version')} of the format, and version {result_tables.VERSION} is read"
        )
    try:
        given = content.pop("tables")
        tables = {table.name: _read_table(table, given[table.name]) for table in result_tables.TABLES}
        if tables["run"].height != 1:
            raise ValueError(f"the table run has {tables['run'].height} rows")
        return Efficiency({key: content[key] for key, _, _ in result_tables.HEAD if key != "tables"}, tables)
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise NotEfficiency(path, f"a table or a key of it is missing or damaged ({error})") from error


def _read_table(table: result_tables.Table, given: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """A table of a document, which may have further columns."""
    return pl.DataFrame([pl.Series(name, given[name], dtype=dtype) for name, dtype in table.schema.items()])


def _measured(run: str | Path, options: EfficiencyOptions) -> Efficiency:
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


def _runs(names: Sequence[str], measured: Sequence[Efficiency]) -> list[dict[str, Any]]:
    first = measured[0].tables["run"].row(0, named=True)
    found = []
    for name, one in zip(names, measured, strict=True):
        run = one.tables["run"].row(0, named=True)
        total = _ratio(first["useful_ns"], run["useful_ns"])
        per_device = _ratio(first["useful_ns"] * run["devices"], run["useful_ns"] * first["devices"])
        efficiency = run["device_parallel_efficiency"]
        found.append(
            {
                "run": name,
                "title": one.head["title"],
                **run,
                "speedup": _ratio(first["elapsed_ns"], run["elapsed_ns"]),
                "useful_scalability": total,
                "useful_scalability_per_device": per_device,
                "global_efficiency": None if total is None else efficiency * total,
                "global_efficiency_per_device": None if per_device is None else efficiency * per_device,
            }
        )
    return found


def _metrics(names: Sequence[str], measured: Sequence[Efficiency], reading: str) -> list[dict[str, Any]]:
    first: Mapping[str, Any] = measured[0].tables["run"].row(0, named=True)
    found = []
    for name, one in zip(names, measured, strict=True):
        for row in tree_table(one.tables["run"].row(0, named=True), reading):
            before, value = first[row["metric"]], row["value"]
            change = value - before if value is not None and before is not None else None
            told = {key: row[key] for key in ("nccl", "tree", "metric", "title", "parent", "level", "value")}
            found.append({"run": name, **told, "change": change})
    return found


def _matched(names: Sequence[str], measured: Sequence[Efficiency]) -> pl.DataFrame:
    frames = []
    for name, one in zip(names, measured, strict=True):
        kernels, families = one.tables["kernels"], one.tables["families"]
        of_run: list[pl.Expr | str] = [pl.lit(name).alias("run"), "count", "total_ns", "mean_ns", "share"]
        frames.append(kernels.select(pl.lit("kernel").alias("level"), pl.col("kernel").alias("name"), "family", *of_run))
        frames.append(families.select(pl.lit("family").alias("level"), pl.col("family").alias("name"), "family", *of_run))
    found = pl.concat(frames)
    what = ["level", "name"]
    largest = found.group_by(what).agg(largest=pl.col("total_ns").max(), runs=pl.len().cast(pl.Int64))
    kept = largest.sort("largest", "name", descending=[True, False]).group_by("level", maintain_order=True).head(MOST_KERNELS)
    first = found.filter(pl.col("run") == names[0]).select(*what, before="total_ns", before_mean="mean_ns")
    joined = found.join(kept, on=what, how="inner").join(first, on=what, how="left")
    return joined.with_columns(
        mean_ratio=pl.when(pl.col("before_mean") > 0).then(pl.col("mean_ns") / pl.col("before_mean")),
        scalability=pl.when(pl.col("total_ns") > 0).then(pl.col("before") / pl.col("total_ns")),
    ).sort("level", "largest", "name", "run", descending=[False, True, False, False])


def _changes(names: Sequence[str], measured: Sequence[Efficiency]) -> pl.DataFrame:
    """What takes another share of the time of a device, or of a thread, than in the first run."""
    before = _times(measured[0]).rename({"time": "before_ns"})
    what = ["what", "name"]
    frames = []
    for name, one in zip(names[1:], measured[1:], strict=True):
        after = _times(one).rename({"time": "after_ns"})
        both = before.join(after, on=what, how="full", coalesce=True).with_columns(
            pl.col("before_ns", "after_ns").fill_null(0.0)
        )
        changed = both.with_columns(
            run=pl.lit(name),
            difference_ns=pl.col("after_ns") - pl.col("before_ns"),
            ratio=pl.when(pl.col("before_ns") > 0).then(pl.col("after_ns") / pl.col("before_ns")),
        ).filter(pl.col("difference_ns") != 0)
        largest = pl.col("difference_ns").abs()
        frames.append(changed.sort(largest, *what, descending=[True, False, False]).head(MOST_CHANGES))
    return pl.concat(frames)


def _times(one: Efficiency) -> pl.DataFrame:
    """Columns `what`, `name`, `time` (ns per device; of calls per host thread)."""
    tables = one.tables
    run = tables["run"].row(0, named=True)
    devices, threads = max(run["devices"], 1), max(run["threads"], 1)
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
        _part("CUDA call", threads, tables["cuda_calls"].select("total_ns", name="call")),
        _part("MPI call", threads, tables["mpi_calls"].select("total_ns", name="call")),
    ]
    return pl.concat(frames)


_NOT_CAUSES = ("from_ns", "to_ns", "total_ns")


def _part(what: str, by: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.lit(what).alias("what"), pl.col("name").cast(pl.String), time=pl.col("total_ns").cast(pl.Float64) / by
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
