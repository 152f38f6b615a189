"""Tables of a comparison as texts in cells, which the terminal and Markdown show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from nsys2prv.efficiency.comparison_basis import GPU, plural
from nsys2prv.efficiency.efficiency_options import ScalingKind
from nsys2prv.vocabulary.wording import percent, short, time

_LONGEST_HEADING = 24
_LEAST_SHARE = 0.001
"""Least part of the longest wall time that outputs show."""


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
    narrower
        The same with less in it, for a terminal on which it is too wide.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    is_foreign: bool = False
    is_detail: bool = False
    narrower: Section | None = None


def comparison_sections(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int) -> Iterator[Section]:
    """Sizes, trees and scaling side by side; wall time by cause; what changed most in each run; families and kernels; so many
    rows of each."""
    names = tables["runs"]["run"].to_list()
    headings = [f"{one['run']} {short(one['label'], _LONGEST_HEADING)}" for one in head["runs"]]
    yield Section("", ["", *headings], [*_sizes(tables["runs"]), *_trees(tables["metrics"], names), *_scaling(tables["runs"])])
    yield from _wall_time(tables, names)
    for run in names[1:]:
        changes = tables["changes"].filter(pl.col("run") == run).head(rows)
        cells = [
            [row["what"], short(row["name"]), time(row["before_ns"]), time(row["after_ns"]), signed_time(row["difference_ns"])]
            for row in changes.iter_rows(named=True)
        ]
        if cells:
            title = f"What changed most in {run}, {time_of_changes(tables['runs'])}"
            yield Section(title, ["what", "", "before", "after", "difference"], cells, 2, is_foreign=True)
    for level, title in (("family", "Families compared"), ("kernel", "Kernels compared")):
        if cells := _matched_cells(tables["matched"].filter(pl.col("level") == level), names, rows):
            columns = ["mean duration", *names]
            means = Section(title, columns, [row[: len(columns)] for row in cells], is_foreign=True, is_detail=True)
            scalability = [f"scalability {run}" for run in names[1:]]
            yield replace(means, columns=[*columns, *scalability], rows=cells, narrower=means)


def time_of_changes(runs: pl.DataFrame) -> str:
    """What the times of `changes` are per, for headings."""
    return "per device (calls: per host thread)" if runs["per"][0] == GPU else "per host thread (OS calls: per process)"


def wall_time_title(runs: pl.DataFrame) -> str:
    """What the times of `wall_time` are of, for headings: `of one iteration, mean over devices`."""
    whole = "one iteration" if "iteration" in runs["basis"] else "the measured window"
    return f"of {whole}, mean over {'devices' if runs['per'][0] == GPU else 'host threads'}"


def shown_wall_time(wall: pl.DataFrame) -> pl.DataFrame:
    """Rows of `wall_time` that outputs show: of parts that take a thousandth of the longest wall time in a run or more."""
    whole = pl.col("value_ns").sum().over("run")
    return wall.filter(pl.col("value_ns").max().over("part") > _LEAST_SHARE * whole.max())


def _wall_time(tables: Mapping[str, pl.DataFrame], names: Sequence[str]) -> Iterator[Section]:
    """Each cause with its time in all runs, the share of their wall times, and the difference of all but the first."""
    of_parts = shown_wall_time(tables["wall_time"]).partition_by("part", "title", maintain_order=True, as_dict=True)
    if not of_parts:
        return
    times = [[str(title), *map(time, rows["value_ns"])] for (_, title), rows in of_parts.items()]
    shares = [["", *(f" {percent(share):>7}" for share in rows["share"])] for rows in of_parts.values()]
    differences = [list(map(signed_time, rows["difference_ns"][1:])) for rows in of_parts.values()]
    columns, of_differences = ["cause", *names], [f"difference {run}" for run in names[1:]]
    only_times = Section(f"Wall time by cause, {wall_time_title(tables['runs'])}", columns, times)
    bodies = [[*one, *other] for one, other in zip(times, differences, strict=True)]
    without_shares = replace(only_times, columns=[*columns, *of_differences], rows=bodies, narrower=only_times)
    bodies = [
        [*(value + share for value, share in zip(*row, strict=True)), *other]
        for *row, other in zip(times, shares, differences, strict=True)
    ]
    yield replace(without_shares, rows=bodies, narrower=without_shares)


def signed_time(nanoseconds: float) -> str:
    """A difference, with its sign.

    >>> signed_time(-2e6), signed_time(5)
    ('−2.000 ms', '+5 ns')
    """
    return f"{'−' if nanoseconds < 0 else '+'}{time(abs(nanoseconds))}"


def size_rows(runs: pl.DataFrame) -> dict[str, tuple[str, Callable[[float], str]]]:
    """Rows of sizes and times: their titles, columns of `runs` and forms."""
    if runs["per"][0] == GPU:
        return {"GPUs": ("devices", "{:,}".format), "time": ("elapsed_ns", time), "useful time": ("useful_ns", time)}
    has_gpus = {"GPUs": ("devices", "{:,}".format)} if (runs["devices"] > 0).any() else {}
    outside = {"time outside of MPI": ("host_useful_ns", time)} if runs["mpi_parallel_efficiency"].null_count() == 0 else {}
    return {
        **has_gpus,
        "processes": ("processes", "{:,}".format),
        "host threads": ("threads", "{:,}".format),
        "time": ("elapsed_ns", time),
        **outside,
    }


def _sizes(runs: pl.DataFrame) -> list[list[str]]:
    """Devices or processes, times and iterations of each run."""
    body = [[title, *(form(value) for value in runs[column])] for title, (column, form) in size_rows(runs).items()]
    if runs["iteration_ns"].count() and runs["per"][0] == GPU:
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
    if not runs["useful_scalability"].count():
        return {"speedup": f"speedup{per}"}
    one, several = runs["per"][0].replace(GPU, "device"), plural(runs["per"][0])
    if runs["size"].n_unique() == 1:
        # Not of several sizes: both kinds of scaling are the same.
        return {
            "speedup": f"speedup{per}",
            "scalability": "change of useful time (A / run)",
            "global_efficiency": "global efficiency",
        }
    if ScalingKind.WEAK.value in runs["scaling"]:
        return {
            "scaling_efficiency": f"weak scaling efficiency (time of A / time{per})",
            "scalability": f"  scalability of useful time per {one}",
            "global_efficiency_per_device": "  global efficiency",
        }
    return {
        "speedup": f"speedup{per}",
        "scaling_efficiency": f"strong scaling efficiency (speedup / {several})",
        "scalability": "  scalability of useful time",
        "global_efficiency": "  global efficiency",
    }


def _scaling(runs: pl.DataFrame) -> list[list[str]]:
    is_scaled = runs["size"].n_unique() > 1 and runs["useful_scalability"].count() > 0
    kinds = [["scaling", *runs["scaling"]]] if is_scaled else []
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
