"""The page of a comparison: the same style, drawings and tables as the page of one run."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import polars as pl

from nsys2prv.efficiency.comparison_tables import GPU, TABLES
from nsys2prv.efficiency.efficiency_options import ScalingKind
from nsys2prv.efficiency.gate import gate_order
from nsys2prv.efficiency.metrics import DEVICE_TREE, HOST_TREE
from nsys2prv.efficiency.outputs import comparison_text as texts
from nsys2prv.efficiency.outputs.page import plot as plots
from nsys2prv.efficiency.outputs.page.template import notebook_html, pack, rendered_page
from nsys2prv.efficiency.result_tables import Frames
from nsys2prv.vocabulary.wording import percent, signed_time, time

_CELLS, _MOST_ROWS = 20_000, 10
"""Cells of one table, and rows of one drawing of changes."""
_LESS, _MORE = "#12a37f", "#d1495b"
_KINDS = (
    ("family", "Kernel families"),
    ("kernel", "Kernels"),
    ("memory", "Copies and memsets"),
    ("CUDA call", "CUDA calls, per host thread"),
    ("MPI call", "MPI calls, per host thread"),
    ("OS call", "OS calls, per process"),
)
_FACTORS = (("scalability", "scalability of useful time"), ("scaling_efficiency", "scaling efficiency"))


def comparison_page(head: Mapping[str, Any], frames: Frames) -> str:
    """A `ComparisonResult` as one HTML file, which loads nothing else."""
    runs = frames["runs"]
    packed = {table.name: pack(table, frames[table.name], _CELLS) for table in TABLES if frames[table.name].height}
    content = {
        **comparison_first_screen(head, frames),
        "head": head,
        "title": " and ".join(map(texts.named, head["runs"])),
        "has_gpus": runs["per"][0] == GPU,
        "per": f"{texts.time_span(runs)}, {texts.time_of_changes(runs)}",
        "changes": [(run, _changed(frames["changes"].filter(run=run["run"]))) for run in head["runs"][1:]],
        **_iterations(head, frames["iteration_lengths"]),
        "scaling": _scaling(runs),
        "tables": packed,
    }
    return rendered_page("comparison.html.j2", content, {"maps": {}, "places": {}, "time": None}, packed, "comparison.css")


def comparison_first_html(head: Mapping[str, Any], frames: Frames) -> str:
    """The first screen alone, as a notebook shows it."""
    return notebook_html("comparison_notebook.html.j2", comparison_first_screen(head, frames), "rows.css", "comparison.css")


def comparison_first_screen(head: Mapping[str, Any], frames: Frames) -> dict[str, Any]:
    """What the template `comparison_first.html.j2` shows."""
    runs, wall_time = frames["runs"], frames["wall_time"]
    return {
        "sentences": texts.comparison_sentences(frames),
        "runs": head["runs"],
        "gate": gate_order(frames["gate"]),
        "wall": _wall_time(head, wall_time),
        "wall_of": texts.wall_time_title(runs),
        "not_compared": head["not_compared"],
        "causes": [(run, _diverging(wall_time.filter(run=run["run"]), "title")) for run in head["runs"][1:]],
        "numbers": [*texts.size_cells(runs), *texts.scaling_cells(runs)],
        "tree": texts.tree_rows(frames["metrics"], runs["run"].to_list()),
    }


def _wall_time(head: Mapping[str, Any], wall: pl.DataFrame) -> plots.Figure:
    """A bar for each run, all on one scale."""
    parts = wall.unique("part", keep="first", maintain_order=True)
    colours = dict(zip(parts["part"], plots.colours_of_parts(parts.select("part", "group").rows()), strict=True))
    totals = dict(wall.group_by("run").agg(pl.col("value_ns").sum()).iter_rows())
    longest = max(totals.values(), default=0) or 1
    shown = texts.shown_wall_time(wall)
    rows = []
    for run in head["runs"]:
        pieces = []
        for row in shown.filter(run=run["run"]).iter_rows(named=True):
            title = f"{run['run']}: {row['title']} {time(row['value_ns'])} ({percent(row['share'])})"
            pieces.append(plots.Piece(row["value_ns"] / longest, colours[row["part"]], title))
        rows.append(plots.BarRow(texts.named(run), tuple(pieces), time(totals.get(run["run"], 0))))
    titles = dict(shown.select("title", "part").iter_rows())
    return plots.Figure(rows=rows, colours={title: colours[part] for title, part in titles.items()})


def _diverging(rows: pl.DataFrame, name: str) -> list[plots.BarRow]:
    """Differences as bars from the middle: to the left what takes less time, to the right what takes more; those of less than
    0.5 % of the largest have none."""
    size = pl.col("difference_ns").abs()
    widest = max(rows["difference_ns"].abs(), default=0) or 1
    rows = rows.filter(size >= 0.005 * widest).sort(size, descending=True, maintain_order=True)
    bars = []
    for row in rows.head(_MOST_ROWS).iter_rows(named=True):
        difference, half = row["difference_ns"], abs(row["difference_ns"]) / widest / 2
        before, after = time(row["value_ns"] - difference), time(row["value_ns"])
        bar = plots.Piece(half, _LESS if difference < 0 else _MORE, f"{row[name]}: {before} before, {after} after")
        space = plots.Piece(0.5 - half if difference < 0 else 0.5, "transparent", "")
        bars.append(plots.BarRow(row[name], (space, bar), signed_time(difference), f"{before} to {after}"))
    return bars


def _changed(changes: pl.DataFrame) -> list[tuple[str, list[plots.BarRow]]]:
    """Kernels, copies and calls that changed most in a run, by kind."""
    times = changes.rename({"after_ns": "value_ns"})
    kinds = ((title, _diverging(times.filter(what=kind), "name")) for kind, title in _KINDS)
    return [(title, rows) for title, rows in kinds if rows]


def _iterations(head: Mapping[str, Any], lengths: pl.DataFrame) -> dict[str, Any]:
    """A line for each run, and numbers of its usual iterations."""
    if lengths.is_empty():
        return {"iterations": None, "usual_iterations": []}
    longest = max(lengths["length_ns"].drop_nulls(), default=1)
    axes = plots.PlotAxis(0, max(*lengths["iteration"], 1), "iteration"), plots.time_axis(0, longest, "length")
    plot = plots.Plot("Length of each iteration of the runs", *axes, 200)
    labels = {run["run"]: texts.named(run) for run in head["runs"]}
    numbers = []
    for run, colour, of_run in plots.coloured(lengths, "run"):
        plot.line(of_run["iteration"], of_run["length_ns"], colour, 2, labels[run])
        usual = of_run.filter(pl.col("kind").is_null())["length_ns"]
        if usual.len():
            numbers.append((labels[run], usual.len(), *(usual.quantile(share, "linear") or 0 for share in (0.5, 0.95, 1.0))))
    return {"iterations": plots.Figure(plot), "usual_iterations": numbers}


def _scaling(runs: pl.DataFrame) -> list[plots.Figure]:
    """Speedup and efficiencies over the number of devices, where the runs have several."""
    ordered = runs.filter(pl.col("size") > 0).sort("size", maintain_order=True)
    if ordered["size"].n_unique() < 2 or not runs["useful_scalability"].count():
        return []
    drawn = []
    if ScalingKind.WEAK.value not in ordered["scaling"]:
        drawn.append(_plot("Speedup", ordered, {"ideal": ordered["size"] / runs["size"][0], "measured": ordered["speedup"]}))
    root = (DEVICE_TREE if runs["per"][0] == GPU else HOST_TREE).efficiencies[0]
    lines = {title: ordered[column] for column, title in ((root.name, root.title), *_FACTORS)}
    return [*drawn, _plot("Efficiencies", ordered, {**lines, "ideal": pl.Series([1.0] * ordered.height)})]


def _plot(title: str, runs: pl.DataFrame, lines: Mapping[str, pl.Series]) -> plots.Figure:
    """Lines over the sizes of runs, which are in their order."""
    sizes, per = runs["size"], runs["per"][0]
    ticks = tuple((float(size), f"{size:,}") for size in sizes.unique(maintain_order=True))
    most = max((value for values in lines.values() for value in values.drop_nulls()), default=1.0)
    x = plots.PlotAxis(sizes[0], sizes[-1], texts.PLURALS[per], is_log=True, named=ticks)
    y = plots.PlotAxis(0, most * 1.05, "speedup" if title == "Speedup" else "")
    plot = plots.Plot(f"{title} over the number of {texts.PLURALS[per]}", x, y, 220)
    for (name, values), line in zip(lines.items(), cycle(plots.LINES), strict=False):
        colour = plots.GREY if name == "ideal" else line
        plot.line(sizes, values, colour, 1 if name == "ideal" else 2, name)
        shown = pl.DataFrame({"at": sizes, "value": values}).drop_nulls().head(0 if name == "ideal" else sizes.len())
        titles = [f"{at:,} {per if at == 1 else texts.PLURALS[per]}: {name} {value:.3f}" for at, value in shown.iter_rows()]
        if titles:
            plot.points(shown["at"], shown["value"], colour, titles)
    return plots.Figure(plot, title=title)
