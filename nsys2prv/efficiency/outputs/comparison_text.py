"""A comparison of runs for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency.outputs.text import grid
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.wording import percent, short, time

_ROWS = 10
_LONGEST_PATH = 200


def comparison_as_text(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int = _ROWS) -> str:
    """A summary of a `ComparisonResult`, with so many rows of each table and run."""
    names = tables["runs"]["run"].to_list()
    lines = [
        f"{one['run']}  {short(one['title'], _LONGEST_PATH)}: {short(one['input'], _LONGEST_PATH)}" for one in head["runs"]
    ]
    lines += [f"(NCCL kernels count as {head['nccl']})", "", *_trees_compared(tables, names)]
    for level, title in (("family", "Families compared"), ("kernel", "Kernels compared")):
        if cells := _matched_cells(tables["matched"].filter(pl.col("level") == level), names, rows):
            columns = ["mean duration", *names, *(f"scalability {run}" for run in names[1:])]
            lines += ["", title, *grid(columns, cells, frozenset({0}))]
    for run in names[1:]:
        changes = tables["changes"].filter(pl.col("run") == run).head(rows)
        cells = [
            [row["what"], short(row["name"]), time(row["before_ns"]), time(row["after_ns"]), time(row["difference_ns"])]
            for row in changes.iter_rows(named=True)
        ]
        if cells:
            lines += ["", f"What changed most in {run}, per device (calls: per host thread)"]
            lines += grid(["what", "", "before", "after", "difference"], cells, frozenset({0, 1}))
    return printable_lines(lines)


def _trees_compared(tables: Mapping[str, pl.DataFrame], names: Sequence[str]) -> list[str]:
    """Sizes, efficiencies and scalability: a column for each run."""
    runs, metrics = tables["runs"], tables["metrics"]
    sizes = {"GPUs": ("devices", "{:,}".format), "time": ("elapsed_ns", time), "useful time": ("useful_ns", time)}
    factors = {
        "speedup": "speedup, per iteration" if "iteration" in runs["basis"] else "speedup",
        "scalability": "scalability of useful time",
        "useful_scalability": "  of all together",
        "useful_scalability_per_device": "  per device",
        "global_efficiency": "global efficiency",
        "global_efficiency_per_device": "  per device",
    }
    body = [[title, *(form(value) for value in runs[column])] for title, (column, form) in sizes.items()]
    if runs["iteration_ns"].count():
        lengths = ["-" if value is None else time(value) for value in runs["iteration_ns"]]
        numbers = ["-" if value is None else f"{value:,}" for value in runs["iterations"]]
        body += [["iterations", *numbers], ["  mean length", *lengths]]
    for (_, title, level), rows in metrics.partition_by("metric", "title", "level", maintain_order=True, as_dict=True).items():
        values = dict(rows.select("run", "value").iter_rows())
        body.append(["  " * level + title, *(percent(values.get(name)) for name in names)])
    body.append(["scaling", *runs["scaling"]])
    body += [[title, *(_factor(value) for value in runs[column])] for column, title in factors.items()]
    return grid(["", *names], body, frozenset({0}))


def _matched_cells(matched: pl.DataFrame, names: Sequence[str], rows: int) -> list[list[str]]:
    """Mean durations in all runs and scalability in all but the first, of the names that take most time."""
    longest = matched.group_by("name").agg(pl.col("total_ns").max()).sort("total_ns", "name", descending=[True, False])
    cells = []
    for name in longest["name"].head(rows):
        of_run = {row["run"]: row for row in matched.filter(pl.col("name") == name).iter_rows(named=True)}
        means = [time(of_run[run]["mean_ns"]) if run in of_run else "-" for run in names]
        cells.append(
            [short(name), *means, *(_factor(of_run[run]["scalability"]) if run in of_run else "-" for run in names[1:])]
        )
    return cells


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
