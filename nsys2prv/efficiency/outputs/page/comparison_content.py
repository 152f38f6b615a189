"""The page of a comparison: the same style, drawings and tables as the page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from nsys2prv.efficiency.comparison_basis import GPU, counted_per, plural
from nsys2prv.efficiency.comparison_tables import TABLES
from nsys2prv.efficiency.efficiency_options import ScalingKind
from nsys2prv.efficiency.gate_table import FAILS, PASSES, gate_order, worded
from nsys2prv.efficiency.metrics import DEVICE_TREE, HOST_TREE
from nsys2prv.efficiency.outputs.comparison_sections import (
    scaling_rows,
    shown_wall_time,
    signed_time,
    size_rows,
    time_of_changes,
    wall_time_title,
)
from nsys2prv.efficiency.outputs.page.plot import LINES, BarRow, Piece, Plot, PlotAxis, colours_of_parts, legend, time_axis
from nsys2prv.efficiency.outputs.page.template import (
    environment,
    hashes,
    json_in_html,
    notebook_style,
    pack,
    part,
    script_of_page,
)
from nsys2prv.efficiency.result_tables import Table
from nsys2prv.efficiency.verdict import FAIR, GOOD, POOR, level
from nsys2prv.vocabulary.wording import percent, time

_CELLS = 20_000
"""Cells of one table."""
_MOST_ROWS = 10
"""Rows of one drawing of changes."""
_LEAST_CHANGE = 0.005
"""Least change that has a row, of the largest."""
_LESS, _MORE = "#12a37f", "#d1495b"
_KINDS = (
    ("family", "Kernel families"),
    ("kernel", "Kernels"),
    ("memory", "Copies and memsets"),
    ("CUDA call", "CUDA calls, per host thread"),
    ("MPI call", "MPI calls, per host thread"),
    ("OS call", "OS calls, per process"),
)
_FACTORS = (
    ("scalability", "scalability of useful time"),
    ("scaling_efficiency", "scaling efficiency"),
)
_LEVELS = {FAILS: POOR, PASSES: GOOD}


def comparison_page(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> str:
    """A `ComparisonResult` as one HTML file, which loads nothing else."""
    shown = [table for table in TABLES if frames[table.name].height]
    packed = {table.name: pack(table, frames[table.name], _CELLS, _not_shown(table)) for table in shown}
    scripts = [script_of_page("page.js")]
    title = " and ".join(map(_named, head["runs"]))
    of_tables = {name: one.packed for name, one in packed.items()}
    island = {"maps": {}, "places": {}, "time": None, "title": title, "tables": of_tables}
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            **comparison_first_screen(head, frames),
            head=head,
            title=title,
            has_gpus=frames["runs"]["per"][0] == GPU,
            per=f"{_per(frames['runs'])}, {time_of_changes(frames['runs'])}",
            changes=[_changed(one, frames["changes"]) for one in head["runs"][1:]],
            iterations=_iterations(head, frames["iteration_lengths"]),
            scaling=_scaling(frames["runs"]),
            tables=packed,
            island=json_in_html(island),
            scripts=scripts,
            style=Markup(part("first_screen.css") + part("rows.css") + part("page.css") + part("comparison.css")),
            allowed_scripts=hashes(scripts),
        )
    )


def comparison_first_screen(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """What the template `comparison_first.html.j2` shows."""
    wall, entries = _wall_time(head, frames["wall_time"])
    return {
        "sentences": [_sentence(head, frames, row) for row in frames["runs"].iter_rows(named=True)][1:],
        "runs": head["runs"],
        "gate": [
            {**row, "level": _LEVELS.get(row["result"], FAIR), "is": worded(row["value"], row["unit"]),
             "limit": worded(row["bound"], row["unit"])}
            for row in gate_order(frames["gate"])
        ],
        "wall": wall,
        "wall_legend": legend(entries),
        "wall_of": wall_time_title(frames["runs"]),
        "not_compared": head["not_compared"],
        "causes": [_differences(frames["wall_time"], one) for one in head["runs"][1:]],
        "numbers": _numbers(frames["runs"]),
        "tree": _tree(frames["metrics"], [one["run"] for one in head["runs"]]),
    }  # fmt: skip


def comparison_first_html(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> str:
    """The first screen alone, as a notebook shows it: no script, no link, and a style that touches nothing else."""
    template = environment().get_template("comparison_notebook.html.j2")
    return template.render(
        **comparison_first_screen(head, frames),
        style=notebook_style("first_screen.css", "rows.css", "comparison.css"),
    )


def _not_shown(table: Table) -> tuple[str, ...]:
    return ("nccl",) if table.by_nccl_policy else ()


def _named(run: Mapping[str, Any]) -> str:
    return f"{run['run']} {run['label']}"


def _per(runs: pl.DataFrame) -> str:
    return "one iteration" if "iteration" in runs["basis"] else "the measured window"


def _sentence(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], row: Mapping[str, Any]) -> str:
    """What a run is against the first, and what that is due to."""
    first = frames["runs"].row(0, named=True)
    per_iteration = row["basis"] == "iteration"
    column = "iteration_ns" if per_iteration else "elapsed_ns"
    names = {run["run"]: _named(run) for run in head["runs"]}
    before, after = time(first[column]), time(row[column])
    what = " per iteration" if per_iteration else ""
    said = f"{names[row['run']]} takes {after}{what}, {names[first['run']]} {before}"
    if row["size"] != first["size"] and row["scaling_efficiency"] is not None:
        gpus = f"{row['size']:,} instead of {first['size']:,} {plural(row['per'])}"
        said += f" ({gpus}: {row['scaling']} scaling efficiency {percent(row['scaling_efficiency'])})"
    elif row["speedup"]:
        said += f" (speedup {row['speedup']:.2f})"
    differences = frames["wall_time"].filter(pl.col("run") == row["run"]).sort(pl.col("difference_ns").abs(), descending=True)
    if differences.height and (most := differences.row(0, named=True))["difference_ns"]:
        said += f"; changed most: {most['title']}, {signed_time(most['difference_ns'])}"
    return said


def _numbers(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of the small table: a title and a text for each run."""
    rows: list[tuple[str, list[str]]] = [
        (title[0].upper() + title[1:], [form(value) for value in runs[column]])
        for title, (column, form) in size_rows(runs).items()
    ]
    if runs["iterations"].count() and runs["per"][0] == GPU:
        rows.append(("Iterations", ["–" if value is None else f"{value:,}" for value in runs["iterations"]]))
        rows.append(("Mean iteration", ["–" if value is None else time(value) for value in runs["iteration_ns"]]))
    for column, title in scaling_rows(runs).items():
        rows.append(
            (title.strip()[0].upper() + title.strip()[1:], ["–" if value is None else f"{value:.3f}" for value in runs[column]])
        )
    return [{"title": title, "values": values} for title, values in rows]


def _tree(metrics: pl.DataFrame, runs: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the trees: a cell for each run."""
    found = []
    for _, rows in metrics.group_by("metric", maintain_order=True):
        of_run = {row["run"]: row for row in rows.iter_rows(named=True)}
        one = next(iter(of_run.values()))
        cells = []
        for run in runs:
            value, change = (of_run[run][name] if run in of_run else None for name in ("value", "change"))
            cells.append(
                {
                    "percent": "–" if value is None else percent(value),
                    "width": 0 if value is None else min(value, 1) * 100,
                    "grade": level(value),
                    "change": _points(change) if run != runs[0] else "",
                }
            )
        found.append({"metric": one["metric"], "title": one["title"], "level": one["level"], "cells": cells})
    return found


def _points(change: float | None) -> str:
    """A difference of efficiencies in percentage points.

    >>> _points(-0.0123), _points(None)
    ('−1.2', '')
    """
    return "" if change is None else f"{change * 100:+.1f}".replace("-", "−")


def _wall_time(head: Mapping[str, Any], wall: pl.DataFrame) -> tuple[list[BarRow], list[tuple[str, str, str]]]:
    """A bar for each run, all on one scale, and the legend."""
    parts = wall.unique("part", keep="first", maintain_order=True)
    colours = dict(zip(parts["part"], colours_of_parts(parts.select("part", "group").rows()), strict=True))
    totals = dict(wall.group_by("run").agg(pl.col("value_ns").sum()).iter_rows())
    longest = max(totals.values(), default=0) or 1
    shown = shown_wall_time(wall).unique("part", keep="first", maintain_order=True)
    rows = []
    for run in head["runs"]:
        own, total = wall.filter(pl.col("run") == run["run"]), totals.get(run["run"], 0)
        pieces = tuple(
            Piece(row["value_ns"] / longest, colours[row["part"]],
                  f"{run['run']}: {row['title']} {time(row['value_ns'])} ({percent(row['share'])})")
            for row in own.iter_rows(named=True)
            if row["part"] in shown["part"]
        )  # fmt: skip
        rows.append(BarRow(_named(run), pieces, time(total)))
    return rows, [(part, title, colours[part]) for part, title in shown.select("part", "title").iter_rows()]


def _differences(wall: pl.DataFrame, run: Mapping[str, Any]) -> dict[str, Any]:
    """What the difference in wall time of a run consists of."""
    rows = wall.filter(pl.col("run") == run["run"]).select("title", "value_ns", "difference_ns")
    return {"run": run, "rows": _diverging(rows.sort(pl.col("difference_ns").abs(), descending=True), "title")}


def _diverging(rows: pl.DataFrame, name: str) -> list[BarRow]:
    """Differences as bars from the middle: to the left what takes less time, to the right what takes more."""
    widest = float(rows["difference_ns"].abs().max() or 1)  # type: ignore[arg-type]
    rows = rows.filter(pl.col("difference_ns").abs() >= _LEAST_CHANGE * widest).head(_MOST_ROWS)
    found = []
    for row in rows.iter_rows(named=True):
        difference, after = row["difference_ns"], row["value_ns"]
        half = abs(difference) / widest / 2
        title = f"{row[name]}: {time(after - difference)} before, {time(after)} after"
        bar = Piece(half, _LESS if difference < 0 else _MORE, title)
        space = Piece(0.5 - half if difference < 0 else 0.5, "transparent", "")
        found.append(BarRow(row[name], (space, bar), signed_time(difference), f"{time(after - difference)} to {time(after)}"))
    return found


def _changed(run: Mapping[str, Any], changes: pl.DataFrame) -> dict[str, Any]:
    """Kernels, copies and calls that changed most in a run, by kind."""
    own = changes.filter(pl.col("run") == run["run"]).with_columns(value_ns=pl.col("after_ns"))
    kinds = [
        {"title": title, "rows": rows}
        for kind, title in _KINDS
        if (rows := _diverging(own.filter(pl.col("what") == kind), "name"))
    ]
    return {"run": run, "kinds": kinds}


def _iterations(head: Mapping[str, Any], lengths: pl.DataFrame) -> dict[str, Any] | None:
    """A line for each run, and numbers of their usual iterations."""
    if lengths.is_empty():
        return None
    most, longest = int(lengths["iteration"].max()), float(lengths["length_ns"].max())  # type: ignore[arg-type]
    plot = Plot(
        "Length of each iteration of the runs", PlotAxis(0, max(most, 1), "iteration"), time_axis(0, longest, "length"), 200
    )
    numbers, entries = [], []
    for place, run in enumerate(head["runs"]):
        own = lengths.filter(pl.col("run") == run["run"])
        if own.is_empty():
            continue
        colour = LINES[place % len(LINES)]
        plot.line(own["iteration"].to_list(), own["length_ns"].to_list(), colour, 2, _named(run))
        entries.append((run["run"], _named(run), colour))
        usual = own.filter(pl.col("kind").is_null())["length_ns"]
        if usual.len():
            median, p95, longest_usual = (time(float(usual.quantile(share, "linear") or 0)) for share in (0.5, 0.95, 1.0))
            numbers.append({"run": run, "count": usual.len(), "median": median, "p95": p95, "longest": longest_usual})
    return {"drawn": plot.html(), "legend": legend(entries), "numbers": numbers}


def _scaling(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Speedup and efficiencies over the number of devices, where the runs have several."""
    ordered = runs.filter(pl.col("size") > 0).sort("size", maintain_order=True)
    if ordered["size"].n_unique() < 2 or not runs["useful_scalability"].count():
        return []
    sizes, per = ordered["size"].to_list(), str(runs["per"][0])
    ticks = tuple((float(number), f"{number:,}") for number in dict.fromkeys(sizes))
    x = PlotAxis(sizes[0], sizes[-1], plural(per), is_log=True, named=ticks)
    drawn = []
    if ScalingKind.WEAK.value not in ordered["scaling"]:
        ideal = [number / runs["size"][0] for number in sizes]
        drawn.append(_lines("Speedup", per, x, sizes, {"ideal": ideal, "measured": ordered["speedup"].to_list()}))
    lines = {title: ordered[column].to_list() for column, title in _factors(per)}
    drawn.append(_lines("Efficiencies", per, x, sizes, {**lines, "ideal": [1.0] * len(sizes)}))
    return drawn


def _factors(per: str) -> tuple[tuple[str, str], ...]:
    """Columns of efficiencies over the number of GPUs or processes, and their titles."""
    root = DEVICE_TREE.efficiencies[0] if per == GPU else HOST_TREE.efficiencies[0]
    return ((root.name, root.title), *_FACTORS)


def _lines(
    title: str, per: str, x: PlotAxis, sizes: Sequence[int], lines: Mapping[str, Sequence[float | None]]
) -> dict[str, Any]:
    most = max((value for values in lines.values() for value in values if value is not None), default=1.0)
    y = "speedup" if title == "Speedup" else ""
    plot = Plot(f"{title} over the number of {plural(per)}", x, PlotAxis(0, most * 1.05, y), 220)
    entries = []
    for place, (name, values) in enumerate(lines.items()):
        colour = "#8c8c8c" if name == "ideal" else LINES[place % len(LINES)]
        numbers = [float("nan") if value is None else value for value in values]
        plot.line(sizes, numbers, colour, 1 if name == "ideal" else 2, name)
        known = [(at, value) for at, value in zip(sizes, values, strict=True) if value is not None and name != "ideal"]
        titles = [f"{counted_per(at, per)}: {name} {value:.3f}" for at, value in known]
        plot.points([at for at, _ in known], [value for _, value in known], colour, titles)
        entries.append((name, name, colour))
    return {"title": title, "drawn": plot.html(), "legend": legend(entries)}
