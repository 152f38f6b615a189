"""NVTX ranges as regions (all ranges of one name) and as iterations (the n-th range of a name of each task)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import RegionTimes, Trees
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.metrics import TREE_COLUMNS
from nsys2prv.efficiency.result_tables import EFFICIENCY_COLUMNS, Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import RANGES, RunEvents, base_types
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.efficiency.window.usual_lengths import iteration_kinds
from nsys2prv.errors import UsageError
from nsys2prv.execution.merging import Sums
from nsys2prv.vocabulary.name_rules import fits
from nsys2prv.vocabulary.wording import did_you_mean_any, short

MOST_REGIONS = 500
"""Regions that have a row: those that take most time."""

_EVERY = "*"
_DOMAIN = re.compile(r"NVTX pushpop ranges (.*) domain")

_KNOWN_SCHEMA = {"number": pl.Int32, "value": pl.Int64, "text": pl.String, "domain": pl.String}
_REGION_SCHEMA = dict.fromkeys(("slot", "task", "count", "total", "longest"), pl.Int64)
_ITERATION_SCHEMA = dict.fromkeys(("iteration", "start", "end", "tasks", "shortest", "longest"), pl.Int64)

REGIONS = Table(
    "regions",
    "NVTX regions",
    "ranges of one name and domain",
    (
        Column.text("region", "text of the range"),
        Column.text("domain", "its NVTX domain"),
        Column.count("count", "ranges of this name"),
        Column.count("tasks", "tasks that have some"),
        Column.ns("total_ns", "sum of their lengths"),
        Column.mean_ns("mean_ns", "mean length"),
        Column.ns("max_ns", "longest"),
        *TREE_COLUMNS,
    ),
    when="`--regions`; a device counts while a task that uses it is in the region, E is the longest such time of a device",
    by_nccl_policy=True,
    order=220,
    page=OnPage("regions", place=5, columns=("region", "domain", "count", "tasks", "total_ns", "mean_ns", EFFICIENCY_COLUMNS)),
    console=OnConsole(("region", "count", "total_ns", EFFICIENCY_COLUMNS), place=30, spare=("count",)),
)
ITERATIONS = Table(
    "iterations",
    "Iterations",
    "one iteration",
    (
        Column.text(
            "region",
            "text of the NVTX range with `--per-iteration`, and an iteration lasts as long as the range; else how iterations "
            "were found: `nvtx NAME`, with # for numbers that differ, or `period of kernels`, and one begins with its first "
            "work on a device and ends where the next begins",
        ),
        Column.count(
            "iteration", "0, 1, ...; of more than 100,000 that were found the first ones, and efficiencies of the first 10,000"
        ),
        Column.moment("begin_ns", "first start over tasks"),
        Column.moment("end_ns", "last end over tasks"),
        Column.count("tasks", "tasks that have it"),
        Column.ns("shortest_ns", "shortest over tasks"),
        Column.ns("longest_ns", "longest over tasks"),
        Column.text("kind", "`warm-up`: left out of the steady part; `slow`: longer than usual; null for the others"),
        *TREE_COLUMNS,
    ),
    by_nccl_policy=True,
    order=240,
    page=OnPage("regions", place=1, columns=("iteration", "begin_ns", "shortest_ns", "longest_ns", EFFICIENCY_COLUMNS),
        worst_first="longest_ns", cells=20_000),
    console=OnConsole(("iteration", ("begin_ns", "start"), ("longest_ns", "length"), "kind", EFFICIENCY_COLUMNS), place=32,
        spare=("begin_ns",)),
)  # fmt: skip


class NamedRanges:
    """Ranges chosen by name.

    Parameters
    ----------
    events
        The run.
    requested
        NAME or NAME@DOMAIN each; `*` and `?` match anything. A name with an @ in it also matches a range of exactly that name.

    Attributes
    ----------
    names
        Text and domain of the ranges chosen; their places are the slots.
    slots
        Columns `number` (event type), `value`, `slot`.

    Raises
    ------
    UsageError
        When no range has a name that is requested; the pattern `*` may fit none.
    """

    def __init__(self, events: RunEvents, requested: Sequence[str]) -> None:
        rows: list[tuple[int, int, str, str | None]] = []
        for number, names in events.types.items():
            if not base_types([number], RANGES):
                continue
            found = _DOMAIN.fullmatch(names.label)
            domain = found[1] if found else None
            rows += [(number, value, text, domain) for value, text in (names.values or {}).items() if value]
        known = pl.DataFrame(rows, schema=_KNOWN_SCHEMA, orient="row")
        called = {name: known.select(_is_called(name)).to_series() for name in requested}
        for name in requested:
            if name != _EVERY and not called[name].any():
                names = known["text"].unique().sort()
                raise UsageError(f"no NVTX range is called {short(name)}{did_you_mean_any(name, names, 'inspect --nvtx')}")
        chosen = known.filter(pl.any_horizontal(*called.values()))
        self.names = list(dict.fromkeys(chosen.select("text", "domain").iter_rows()))
        slots = {name: slot for slot, name in enumerate(self.names)}
        of_chosen = [slots[name] for name in chosen.select("text", "domain").iter_rows()]
        self.slots = chosen.select("number", "value", slot=pl.Series(of_chosen, dtype=pl.Int64))


def _is_called(requested: str) -> pl.Expr:
    name, at, of_domain = requested.rpartition("@")
    is_called = fits(pl.col("text"), requested)
    if at:
        is_called |= fits(pl.col("text"), name) & fits(pl.col("domain").fill_null("default"), of_domain)
    return is_called


class _RangeMeter(TableMeter):
    """What regions and iterations have in common."""

    def __init__(self, context: SweepContext, trees: Trees, names: Sequence[str]) -> None:
        self._context = context
        self._trees = trees
        self._chosen = NamedRanges(context.events, names)
        self._times = RegionTimes(context)


class Regions(_RangeMeter):
    """Times and lengths of all ranges of each name chosen."""

    def __init__(self, context: SweepContext, trees: Trees, names: Sequence[str]) -> None:
        super().__init__(context, trees, names)
        self._lengths = Sums(_REGION_SCHEMA, ["slot", "task"], largest=["longest"])

    def update(self, chunk: TimeChunk) -> None:
        if self._chosen.slots.is_empty():
            return
        inside = chunk.inside[RANGES.name].join(self._chosen.slots, on=["number", "value"], how="inner")
        if inside.is_empty():
            return
        inside = self._context.events.rows.located(inside)
        self._times.update(chunk, *(inside[name].to_numpy() for name in ("slot", "task", "start", "end")))
        length = pl.col("until") - pl.col("begin")
        started = inside.filter(pl.col("begin") >= chunk.begin)
        self._lengths.add(started.with_columns(count=pl.lit(1), total=length, longest=length))

    def tables(self) -> Filled:
        """The table `regions`, those that take most time first."""
        by_slot = (
            self._lengths.rows.group_by("slot")
            .agg(pl.col("count", "total").sum(), pl.col("longest").max(), tasks=pl.col("task").n_unique())
            .sort("total", "slot", descending=[True, False])
            .head(MOST_REGIONS)
        )
        found = self._trees.of_slots(self._times.devices, self._times.threads, by_slot["slot"].to_list())
        rows = [
            {
                "region": self._chosen.names[slot][0],
                "domain": self._chosen.names[slot][1],
                "count": count,
                "tasks": tasks,
                "total_ns": total,
                "mean_ns": total / count,
                "max_ns": longest,
                **found.get(slot, {}),
            }
            for slot, count, total, longest, tasks in by_slot.iter_rows()
        ]
        return {REGIONS: rows}


class Iterations(_RangeMeter):
    """Times in the n-th range of a name of each task."""

    def __init__(self, context: SweepContext, trees: Trees, name: str) -> None:
        super().__init__(context, trees, [name])
        self._name = name
        self._so_far = np.zeros(len(context.events.rows.tasks), dtype=np.int64)
        self._open: pl.DataFrame | None = None
        self._lengths = Sums(_ITERATION_SCHEMA, ["iteration"], smallest=["start", "shortest"], largest=["end", "longest"])

    def update(self, chunk: TimeChunk) -> None:
        rows = self._context.events.rows
        started = chunk.started[RANGES.name].join(self._chosen.slots, on=["number", "value"], how="semi").sort("start", "end")
        task = rows.task[started["row"].to_numpy()]
        numbered = started.select(
            "start", "end", task=pl.Series(task, dtype=pl.Int64), before=pl.Series(self._so_far[task], dtype=pl.Int64)
        ).with_columns(iteration=pl.col("before") + pl.int_range(pl.len()).over("task"))
        np.add.at(self._so_far, task, 1)
        inside = numbered.select("iteration", "task", "start", "end")
        length = pl.col("end") - pl.col("start")
        self._lengths.add(inside.with_columns(tasks=pl.lit(1), shortest=length, longest=length))
        if self._open is not None:
            inside = pl.concat([self._open, inside])
        self._open = inside.filter(pl.col("end") > chunk.end)
        begin, end = inside["start"].clip(lower_bound=chunk.begin), inside["end"].clip(upper_bound=chunk.end)
        self._times.update(chunk, inside["iteration"].to_numpy(), inside["task"].to_numpy(), begin.to_numpy(), end.to_numpy())

    def tables(self) -> Filled:
        """The table `iterations`."""
        found = self._trees.of_slots(self._times.devices, self._times.threads)
        kinds = iteration_kinds(self._lengths.rows.sort("iteration")["longest"].to_numpy())
        rows = [
            {
                "kind": kind,
                "region": self._name,
                "iteration": slot,
                "begin_ns": begin,
                "end_ns": end,
                "tasks": tasks,
                "shortest_ns": shortest,
                "longest_ns": longest,
                **found.get(slot, {}),
            }
            for kind, (slot, begin, end, tasks, shortest, longest) in zip(
                kinds, self._lengths.rows.sort("iteration").iter_rows(), strict=True
            )
        ]
        return {ITERATIONS: rows}
