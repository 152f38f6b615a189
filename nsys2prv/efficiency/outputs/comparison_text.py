"""A comparison of runs as text: for a terminal, and in Markdown for a merge request on GitHub or GitLab.

Both show the same sections, which are tables of texts. In Markdown, texts from outside are shown as they are and do nothing."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import polars as pl

from nsys2prv.efficiency.comparison_tables import GPU, NOT_DECIDABLE, PROCESS, RUNS
from nsys2prv.efficiency.efficiency_options import ScalingKind
from nsys2prv.efficiency.gate import gate_order, gate_sentence
from nsys2prv.efficiency.outputs.text import cell
from nsys2prv.efficiency.result_tables import Frames
from nsys2prv.vocabulary.markdown import as_code, markdown_table
from nsys2prv.vocabulary.terminal import grid, is_too_wide, styled_lines, wrapped_lines
from nsys2prv.vocabulary.wording import percent, ranked_warnings, short, signed_time, time, worded

_LONGEST_TEXT, _INDENT = 200, 4
PLURALS = {GPU: "GPUs", PROCESS: "processes"}
_LEAST_CHANGE = 0.0005
"""Least change of a length that is one in words."""
_LIKE = 1.1
"""Number of iterations relative to that of another run up to which both may count the same."""


@dataclass(frozen=True)
class Section:
    """A table of texts, with headings, where letters of runs have their labels behind them.

    The first columns, as many as `names`, are words, the others numbers; the last of the words may be foreign, which are names
    from the reports. A detail is long and can be folded. A narrow terminal shows as many columns as `least`; 0: all."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    is_foreign: bool = False
    is_detail: bool = False
    least: int = 0


def comparison_sections(head: Mapping[str, Any], tables: Frames, rows: int) -> Iterator[Section]:
    """Sizes, trees and scaling side by side; wall time by cause; what changed most in each run; families and kernels; so many
    rows of each."""
    runs, names = tables["runs"], tables["runs"]["run"].to_list()
    headings = [f"{run['run']} {short(run['label'], 24)}" for run in head["runs"]]
    trees = (
        ["  " * row["level"] + row["title"], *(percent(value) for value, _ in row["cells"])]
        for row in tree_rows(tables["metrics"], names)
    )
    yield Section("", ["", *headings], [*size_cells(runs), *trees, *scaling_cells(runs)])
    if cells := _wall_time(tables["wall_time"]):
        columns = ["cause", *names, *(f"difference {run}" for run in names[1:])]
        yield Section(f"Wall time by cause, {wall_time_title(runs)}", columns, cells, least=1 + len(names))
    for run in names[1:]:
        changes = tables["changes"].filter(run=run).select("what", "name", "before_ns", "after_ns", "difference_ns").head(rows)
        if cells := [[what, short(name), *map(time, times), signed_time(by)] for what, name, *times, by in changes.iter_rows()]:
            title = f"What changed most in {run}, {time_of_changes(runs)}"
            yield Section(title, ["what", "", "before", "after", "difference"], cells, 2, is_foreign=True)
    for level, title in (("family", "Families compared"), ("kernel", "Kernels compared")):
        if cells := _matched_cells(tables["matched"].filter(pl.col("level") == level), names, rows):
            columns = ["mean duration", *names, *(f"scalability {run}" for run in names[1:])]
            yield Section(title, columns, cells, is_foreign=True, is_detail=True, least=1 + len(names))


def named(run: Mapping[str, Any]) -> str:
    """Letter and label of a run."""
    return f"{run['run']} {run['label']}"


def comparison_sentences(tables: Frames, name: Callable[[Mapping[str, Any]], str] = named) -> list[str]:
    """The verdict: what each run but the first is against it, and what changed most; `name` has what runs are called."""
    first, *later = tables["runs"].iter_rows(named=True)
    column, per = ("iteration_ns", " per iteration") if first["basis"] == "iteration" else ("elapsed_ns", "")
    sentences = []
    for run in later:
        change = run[column] / first[column] - 1 if first[column] else 0.0
        than = f"{percent(abs(change))} {'more' if change > 0 else 'less'} than" if abs(change) >= _LEAST_CHANGE else "as"
        sentence = f"{name(run)} takes {time(run[column])}{per}, {than} {name(first)} ({time(first[column])})"
        if run["size"] != first["size"] and run["scaling_efficiency"] is not None:
            sentence += f", on {run['size']:,} instead of {first['size']:,} {PLURALS[run['per']]}"
            sentence += f": {run['scaling']} scaling efficiency {percent(run['scaling_efficiency'])}"
        # What changed the other way explains no change.
        is_other_way = ((pl.col("difference_ns") > 0) != (change > 0)) & (abs(change) >= _LEAST_CHANGE)
        differences = tables["wall_time"].filter(run=run["run"]).sort(is_other_way, -pl.col("difference_ns").abs())
        if differences.height and (most := differences.row(0, named=True))["difference_ns"]:
            mean = "" if run["per"] == GPU else " (mean over host threads)"
            sentence += f"; changed most: {most['title']}, {signed_time(most['difference_ns'])}{mean}"
        sentences.append(sentence)
    return sentences


def time_of_changes(runs: pl.DataFrame) -> str:
    """What the times of `changes` are per, for headings."""
    return "per device (calls: per host thread)" if runs["per"][0] == GPU else "per host thread (OS calls: per process)"


def time_span(runs: pl.DataFrame) -> str:
    """What of each run is compared, for headings."""
    return "one iteration" if "iteration" in runs["basis"] else "the measured window"


def wall_time_title(runs: pl.DataFrame) -> str:
    """What the times of `wall_time` are of, for headings: `of one iteration, mean over devices`."""
    return f"of {time_span(runs)}, mean over {'devices' if runs['per'][0] == GPU else 'host threads'}"


def shown_wall_time(wall: pl.DataFrame) -> pl.DataFrame:
    """Rows of `wall_time` that outputs show: of parts that take a thousandth of the longest wall time in a run or more."""
    return wall.filter(pl.col("value_ns").max().over("part") > 0.001 * pl.col("value_ns").sum().over("run").max())


def _wall_time(wall: pl.DataFrame) -> list[list[str]]:
    """Each cause with its time in all runs, the share of their wall times, and the difference of all but the first."""
    cells = []
    for (cause, _), rows in shown_wall_time(wall).partition_by("title", "part", maintain_order=True, as_dict=True).items():
        shares = [f"{time(value)} {percent(share):>7}" for value, share in rows.select("value_ns", "share").iter_rows()]
        cells.append([str(cause), *shares, *map(signed_time, rows["difference_ns"][1:])])
    return cells


def size_cells(runs: pl.DataFrame) -> list[list[str]]:
    """Rows of devices or processes, times and iterations: a title, and a text for each run."""
    columns = {"GPUs": "devices"} if (runs["devices"] > 0).any() else {}
    if runs["per"][0] == GPU:
        columns |= {"time": "elapsed_ns", "useful time": "useful_ns"}
        counts = runs["iterations"].drop_nulls().to_list()
        # Very different numbers of equal work: one repeats several steps of another.
        if counts and (runs["basis"][0] == "iteration" or max(counts) <= _LIKE * min(counts)):
            columns |= {"iterations": "iterations", "mean iteration": "iteration_ns"}
    else:
        columns |= {"processes": "processes", "host threads": "threads", "time": "elapsed_ns"}
        if runs["mpi_parallel_efficiency"].null_count() == 0:
            columns["time outside of MPI"] = "host_useful_ns"
    declared = {column.name: column for column in RUNS.columns}
    return [[title, *(cell(declared[name], value) for value in runs[name])] for title, name in columns.items()]


def tree_rows(metrics: pl.DataFrame, runs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of the trees: `metric`, `title`, `level`, and `cells`, the value of each run with its change."""
    for (metric, title, level), rows in metrics.group_by("metric", "title", "level", maintain_order=True):
        values = {run: cell for run, *cell in rows.select("run", "value", "change").iter_rows()}
        yield {"metric": metric, "title": title, "level": level, "cells": [values.get(run, (None, None)) for run in runs]}


def scaling_cells(runs: pl.DataFrame) -> list[list[str]]:
    """Rows that say how runs scale, those with a meaning for this kind of scaling: a title, and a text for each run."""
    per, size = ", per iteration" if "iteration" in runs["basis"] else "", runs["per"][0]
    rows = {"speedup": f"speedup{per}"}
    is_scaled = runs["size"].n_unique() > 1 and runs["useful_scalability"].count() > 0
    if is_scaled and ScalingKind.WEAK.value in runs["scaling"]:
        rows = {
            "scaling_efficiency": f"weak scaling efficiency (time of A / time{per})",
            "scalability": f"  scalability of useful time per {'device' if size == GPU else PROCESS}",
            "global_efficiency_per_device": "  global efficiency",
        }
    elif is_scaled:
        rows |= {
            "scaling_efficiency": f"strong scaling efficiency (speedup / {PLURALS[size]})",
            "scalability": "  scalability of useful time",
            "global_efficiency": "  global efficiency",
        }
    elif runs["useful_scalability"].count():
        # Not of several sizes: both kinds of scaling are the same.
        rows |= {"scalability": "change of useful time (A / run)", "global_efficiency": "global efficiency"}
    kinds = [["scaling", *runs["scaling"]]] if is_scaled else []
    return [*kinds, *([title, *map(_factor, runs[column])] for column, title in rows.items())]


def _matched_cells(matched: pl.DataFrame, names: Sequence[str], rows: int) -> list[list[str]]:
    """Mean durations in all runs and scalability in all but the first, of the names that take most time."""
    cells = []
    for (name,), of_name in islice(matched.group_by("name", maintain_order=True), rows):
        means, factors = (dict(of_name.select("run", column).iter_rows()) for column in ("mean_ns", "scalability"))
        shown = [time(means[run]) if run in means else "-" for run in names]
        cells.append([short(str(name)), *shown, *(_factor(factors.get(run)) for run in names[1:])])
    return cells


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def comparison_as_text(head: Mapping[str, Any], tables: Frames, rows: int, width: int | None) -> str:
    """A summary of a `ComparisonResult`, with so many rows of each table and run.

    On a terminal of this width (characters; None: any) longer lines are broken, and tables are made narrower as `grid`
    does it, or have less in them."""
    longest = _LONGEST_TEXT if width is None else max(min(_LONGEST_TEXT, width - _INDENT), _INDENT)
    listed = []
    for run in head["runs"]:
        # The title of a run of one report is the name of its file.
        names = [name for name in ("label", "title", "input") if name != "title" or run["title"] not in run["input"]]
        listed.append(f"{run['run']}  {', '.join(short(run[name], longest) for name in names)}")
    lines = wrapped_lines([*comparison_sentences(tables), "", *listed], width)
    if GPU in tables["runs"]["per"]:
        lines.append(f"(NCCL kernels count as {head['nccl']})")
    if head["not_compared"] is not None:
        lines += ["", *wrapped_lines([head["not_compared"]], width)]
    for section in comparison_sections(head, tables, rows):
        words = frozenset(range(section.names))
        is_narrow = section.least and is_too_wide(section.columns, section.rows, words, width)
        shown = slice(section.least if is_narrow else None)
        cells = [row[shown] for row in section.rows]
        lines += ["", *([section.title] if section.title else []), *grid(section.columns[shown], cells, words, width)]
    if tables["gate"].height:
        results = [f"  {row['result']}: {gate_sentence(row)}" for row in gate_order(tables["gate"])]
        lines += ["", "Gate", *wrapped_lines(results, width)]
    return styled_lines(lines, colors=False)


def comparison_as_markdown(head: Mapping[str, Any], tables: Frames, rows: int) -> str:
    """A summary of a `ComparisonResult` in Markdown, the gate first, with so many rows of each table and run."""
    lines = ["### Comparison of runs", ""]
    lines += [f"- {sentence}" for sentence in comparison_sentences(tables, lambda run: f"{run['run']} {as_code(run['label'])}")]
    lines += ["", *(f"- {run['run']}: {as_code(run['label'])} ({as_code(run['input'])})" for run in head["runs"])]
    if head["not_compared"] is not None:
        lines += ["", head["not_compared"]]
    lines += ["", *_gate(tables["gate"])] if tables["gate"].height else []
    for section in comparison_sections(head, tables, rows):
        lines += ["", *_section(section)]
    if warnings := ranked_warnings(head["warnings"]):
        lines += ["", *_folded(f"Warnings ({len(warnings)})", [f"- {as_code(text)}" for text in warnings])]
    return "\n".join(lines) + "\n"


def _gate(gate: pl.DataFrame) -> Iterator[str]:
    worst = gate_order(gate)[0]["result"]
    verdict = f"is {worst}" if worst == NOT_DECIDABLE else worst
    yield from (f"**The gate {verdict}** ({gate.filter(result=worst).height} of {gate.height})", "")
    cells = []
    for row in gate.iter_rows(named=True):
        numbers = [worded(row[name], row["unit"]) for name in ("value", "bound")]
        cells.append([row["result"], row["run"], as_code(row["condition"]), *numbers, as_code(row["reason"] or "")])
    yield from markdown_table(["result", "run", "fails if", "value", "bound", "reason"], cells, words=(0, 1, 2, 5))


def _section(section: Section) -> list[str]:
    rows = []
    for row in section.rows:
        # Blanks in front are kept.
        words = [re.sub("^ +", lambda blanks: "&nbsp;" * 2 * len(blanks[0]), cell) for cell in row[: section.names]]
        if section.is_foreign:
            words[-1] = as_code(row[section.names - 1])
        rows.append([*words, *row[section.names :]])
    table = markdown_table([_heading(column) for column in section.columns], rows, range(section.names))
    if section.is_detail:
        return _folded(section.title, table)
    return [f"**{section.title}**", "", *table] if section.title else table


def _heading(text: str) -> str:
    """A heading: the letter of a run has its label behind it."""
    letter, blank, label = text.partition(" ")
    return f"{letter} {as_code(label)}" if blank and letter.isupper() else text


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>"]
