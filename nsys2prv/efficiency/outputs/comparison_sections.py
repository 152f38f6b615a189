"""Tables of a comparison as texts in cells, which the terminal and Markdown show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys2prv.efficiency.efficiency_options import ScalingKind
from nsys2prv.vocabulary.wording import percent, short, time

_LONGEST_HEADING = 24


@dataclass(frozen=True)
class Section:
    """A table of texts.

    Attributes
    ----------
    columns
        Headings: letters of runs have their labels behind them.
    names
        So many of its first columns are words, the others numbers.
    is_foreign
        Whether the last of these are names from the reports.
    is_detail
        Whether it is long and can be folded.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    is_foreign: bool = False
    is_detail: bool = False


def comparison_sections(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int) -> Iterator[Section]:
    """Sizes, trees and scaling side by side; what changed most in each run; families and kernels; so many rows of each."""
    names = tables["runs"]["run"].to_list()
    headings = [f"{one['run']} {short(one['label'], _LONGEST_HEADING)}" for one in head["runs"]]
    yield Section("", ["", *headings], [*_sizes(tables["runs"]), *_trees(tables["metrics"], names), *_scaling(tables["runs"])])
    for run in names[1:]:
        changes = tables["changes"].filter(pl.col("run") == run).head(rows)
        cells = [
            [row["what"], short(row["name"]), time(row["before_ns"]), time(row["after_ns"]), time(row["difference_ns"])]
            for row in changes.iter_rows(named=True)
        ]
        if cells:
            title = f"What changed most in {run}, per device (calls: per host thread)"
            yield Section(title, ["what", "", "before", "after", "difference"], cells, 2, is_foreign=True)
    for level, title in (("family", "Families compared"), ("kernel", "Kernels compared")):
        if cells := _matched_cells(tables["matched"].filter(pl.col("level") == level), names, rows):
            yield Section(
                title,
                ["mean duration", *names, *(f"scalability {run}" for run in names[1:])],
                cells,
                is_foreign=True,
                is_detail=True,
            )


def _sizes(runs: pl.DataFrame) -> list[list[str]]:
    """Devices, times and iterations of each run."""
    sizes = {"GPUs": ("devices", "{:,}".format), "time": ("elapsed_ns", time), "useful time": ("useful_ns", time)}
    body = [[title, *(form(value) for value in runs[column])] for title, (column, form) in sizes.items()]
    if runs["iteration_ns"].count():
        lengths = ["-" if value is None else time(value) for value in runs["iteration_ns"]]
        numbers = ["-" if value is None else f"{value:,}" for value in runs["iterations"]]
        body += [["iterations", *numbers], ["  mean length", *lengths]]
    return body


def _trees(metrics: pl.DataFrame, names: Sequence[str]) -> list[list[str]]:
    body = []
    for (_, title, level), rows in metrics.partition_by("metric", "title", "level", maintain_order=True, as_dict=True).items():
        values = dict(rows.select("run", "value").iter_rows())
        body.append(["  " * level + title, *(percent(values.get(name)) for name in names)])
    return body


def scaling_rows(runs: pl.DataFrame) -> dict[str, str]:
    """Columns of `runs` that say how the runs scale, and their titles: those that have a meaning for this kind of scaling."""
    per = ", per iteration" if "iteration" in runs["basis"] else ""
    if runs["devices"].n_unique() == 1:
        # Not of several sizes: both kinds of scaling are the same.
        return {
            "speedup": f"speedup{per}",
            "scalability": "change of useful time (A / run)",
            "global_efficiency": "global efficiency",
        }
    if ScalingKind.WEAK.value in runs["scaling"]:
        return {
            "scaling_efficiency": f"weak scaling efficiency (time of A / time{per})",
            "scalability": "  scalability of useful time per device",
            "global_efficiency_per_device": "  global efficiency",
        }
    return {
        "speedup": f"speedup{per}",
        "scaling_efficiency": "strong scaling efficiency (speedup / GPUs)",
        "scalability": "  scalability of useful time",
        "global_efficiency": "  global efficiency",
    }


def _scaling(runs: pl.DataFrame) -> list[list[str]]:
    kinds = [["scaling", *runs["scaling"]]] if runs["devices"].n_unique() > 1 else []
    return [*kinds, *([title, *(_factor(value) for value in runs[column])] for column, title in scaling_rows(runs).items())]


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
