"""NVTX ranges: by their names, as regions (all ranges of a name), as iterations (the n-th range of a name of each task, or what
repeats in the run), and as a tree of ranges inside of each other."""

import re
from collections.abc import Sequence

import polars as pl

from nsys2prv.efficiency.activity_times import times_in_ranges, trees
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.metrics import TREE_COLUMNS
from nsys2prv.efficiency.result_tables import DEVICE, EFFICIENCY_COLUMNS, Column, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import RANGES, RunEvents, base_types
from nsys2prv.efficiency.window import RunIterations, iteration_kinds
from nsys2prv.errors import UsageError
from nsys2prv.sources.nvtx.nvtx_ranges import DEFAULT_DOMAIN, is_called
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import did_you_mean, short

MOST_REGIONS = 500
"""Regions that have a row: those that take most time."""
MOST_ROWS, MOST_TREES = 100_000, 10_000
"""Rows of tables of iterations, and iterations with efficiencies: the first ones."""
MOST_NODES = 1_000
"""Nodes of the tree that have a row: those with most time."""
MOST_LEVELS = 12
"""Ranges that are nested more deeply are part of the one around them."""
_NO_PARENT = -1
_DOMAIN = re.compile(r"NVTX pushpop ranges (.*) domain")
_TEXT_SCHEMA = {"number": pl.Int32, "base": pl.Int32, "value": pl.Int64, "text": pl.String, "domain": pl.String}

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
    page=OnPage("regions", columns=("region", "domain", "count", "tasks", "total_ns", "mean_ns", EFFICIENCY_COLUMNS)),
    console=OnConsole(("region", "count", "total_ns", EFFICIENCY_COLUMNS), spare=("count",)),
)
ITERATIONS = Table(
    "iterations",
    "Iterations",
    "one iteration",
    (
        Column.text(
            "region",
            "text of the NVTX range with `--per-iteration`, and an iteration lasts as long as the range; else how iterations "
            "were found: `nvtx NAME`, with # for numbers that differ, `period of kernels` or `period of copies`, and one "
            "begins with its first work on a device and ends where the next begins",
        ),
        Column.count("iteration", "0, 1, ...; at most the first 100,000, and efficiencies of the first 10,000"),
        Column.moment("begin_ns", "first start over tasks"),
        Column.moment("end_ns", "last end over tasks"),
        Column.count("tasks", "tasks that have it"),
        Column.ns("shortest_ns", "shortest over tasks"),
        Column.ns("longest_ns", "longest over tasks"),
        Column.text("kind", "`warm-up`; longer than usual: `slow`, or with far more operations, `other work`; null for others"),
        *TREE_COLUMNS,
    ),
    page=OnPage("regions", columns=("iteration", "begin_ns", "shortest_ns", "longest_ns", EFFICIENCY_COLUMNS),
        worst_first="longest_ns", cells=20_000),
    console=OnConsole(("iteration", ("begin_ns", "start"), ("longest_ns", "length"), "kind", EFFICIENCY_COLUMNS),
        spare=("begin_ns",)),
)  # fmt: skip
TASK_ITERATIONS = Table(
    "task_iterations",
    "Iterations of each task",
    "one iteration of one task on one device",
    (
        Column.count("iteration", "0, 1, ..., the same number on all tasks"),
        Column.text("task", "name of the task"),
        DEVICE,
        Column.moment("begin_ns", "start of its first work there"),
        Column.moment("end_ns", "where the next one begins; of the last one: end of its last work"),
        Column.ns("length_ns", "its length"),
        Column.number("ratio", "length / median over tasks"),
    ),
    when="Iterations that were found; with `--per-iteration` those of the ranges named",
    page=OnPage("regions", worst_first="length_ns", cells=4_000),
)
NVTX_TREE = Table(
    "nvtx_tree",
    "NVTX ranges inside of each other",
    "push/pop ranges of one name inside of the same ranges",
    (
        Column.count("node", "0, 1, ..., a node before those inside of it, and those with most time first"),
        Column.count("parent", "the node of the range around it; null for the outermost"),
        Column.count("level", "0 for the outermost"),
        Column.text("range", "text of the ranges, `#` for its numbers"),
        Column.count("count", "number of ranges"),
        Column.ns("total_ns", "sum of their lengths over all host threads"),
        Column.ns("own_ns", "of it, in no range that has a row inside of this one"),
        Column.share("share", "`total_ns` / sum of the outermost"),
    ),
    when="NVTX push/pop ranges",
    page=OnPage("regions"),
    console=OnConsole(("range", "level", "count", "total_ns", "own_ns", "share"), spare=("level",), of_hosts=True),
)


def range_texts(events: RunEvents) -> pl.DataFrame:
    """Texts of NVTX ranges: columns `number` (event type), `base` (the event type that it is a lane of), `value`, `text`, and
    `domain` (null: the default one)."""
    rows = [
        (number, base, value, text, match[1] if (match := _DOMAIN.fullmatch(events.types[number].label)) else None)
        for number, base in base_types(list(events.types), RANGES).items()
        for value, text in events.names(number).items()
        if value
    ]
    return pl.DataFrame(rows, schema=_TEXT_SCHEMA, orient="row")


def named_ranges(events: RunEvents, requested: Sequence[str]) -> pl.DataFrame:
    """Ranges chosen by name: columns `number` (event type), `value`, `slot` (0, 1, ... for each text and domain), `region` (the
    text) and `domain`; a UsageError when no range has a name that is requested.

    Names are NAME or NAME@DOMAIN; `*` and `?` match anything, and the pattern `*` may fit none. A name with an @ in it also
    matches a range of exactly that name."""
    ranges = range_texts(events)
    text, domain = pl.col("text"), pl.col("domain").fill_null(DEFAULT_DOMAIN)
    called = ranges.select(is_called(name, text, domain).alias(name) for name in dict.fromkeys(requested))
    for name in called.columns:
        if name != "*" and not called[name].any():
            names = ranges["text"].unique().sort()
            raise UsageError(f"no NVTX range is called {short(name)}{did_you_mean(name, names, 'inspect --nvtx')}")
    matches = ranges.filter(pl.any_horizontal(pl.lit(value=False), *called)).with_row_index("slot")
    first = pl.col("slot").min().over("text", "domain")
    return matches.select("number", "value", "domain", slot=first.rank("dense").cast(pl.Int64) - 1, region="text")


def ranges_of_tasks(run: MeasuredRun, requested: Sequence[str]) -> pl.DataFrame:
    """Ranges chosen by name: columns `slot`, `region`, `domain` of `named_ranges`, `task` (an index), `begin`, `end` (ns)."""
    ranges = run.frame(RANGES).join(named_ranges(run.events, requested), on=["number", "value"], how="inner")
    return run.events.rows.located(ranges).select("slot", "region", "domain", "task", "end", begin="start")


def iterations_in_window(run: MeasuredRun) -> pl.DataFrame:
    """Iterations of tasks and devices that lie in the window, as of `RunIterations`, from its start."""
    moved = run.window.iterations.iterations.with_columns(pl.col("begin", "end") - run.events.offset)
    return moved.filter((pl.col("begin") >= 0) & (pl.col("end") <= run.events.length))


def nvtx_regions(run: MeasuredRun) -> Measurement:
    """The table `regions`, those that take most time first."""
    inside, length = ranges_of_tasks(run, run.options.regions), pl.col("end") - pl.col("begin")
    sums = inside.group_by("slot", "region", "domain").agg(
        count=pl.len(), total_ns=length.sum(), mean_ns=length.mean(), max_ns=length.max(), tasks=pl.col("task").n_unique()
    )
    by_slot = sums.sort("total_ns", "slot", descending=[True, False]).head(MOST_REGIONS)
    of_slots = trees(run, *times_in_ranges(run, inside.join(by_slot, on="slot", how="semi")))
    return Measurement(tables={REGIONS: by_slot.join(of_slots, on="slot", how="left", maintain_order="left")})


def range_iterations(run: MeasuredRun) -> Measurement:
    """The table `iterations` of the ranges that `--per-iteration` names."""
    name = run.options.per_iteration or ""
    numbered = ranges_of_tasks(run, [name]).sort("begin", "end").with_columns(slot=pl.int_range(pl.len()).over("task"))
    lengths = RunIterations(numbered.rename({"slot": "number"}).with_columns(operations=1), None).lengths
    longest, ranges = lengths["longest"].to_numpy(), lengths["operations"].to_numpy()
    lengths = lengths.with_columns(slot="number", kind=iteration_kinds(longest, longest, ranges), region=pl.lit(name))
    return Measurement(tables={ITERATIONS: _with_trees(run, lengths, numbered)})


def _with_trees(run: MeasuredRun, iterations: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Iterations (`slot`, `begin`, `end`, `shortest`, `longest`) with trees from their times on each task (`slot`, `task`,
    `begin`, `end`), as columns of the table `iterations`."""
    columns = iterations.rename({name: f"{name}_ns" for name in ("begin", "end", "shortest", "longest")})
    of_slots = trees(run, *times_in_ranges(run, ranges))
    return columns.with_columns(iteration="slot").join(of_slots, on="slot", how="left", maintain_order="left")


def run_iterations(run: MeasuredRun) -> Measurement:
    """The tables `task_iterations` and, unless `--per-iteration` names ranges, `iterations`."""
    iterations, inside = run.window.iterations, iterations_in_window(run)
    length = pl.col("end") - pl.col("begin")
    of_tasks = inside.head(MOST_ROWS).select(
        run.task_names(pl.col("task")).alias("task"),
        run.device_names(pl.col("device")).alias("device"),
        iteration="number",
        begin_ns="begin",
        end_ns="end",
        length_ns=length,
        ratio=length / length.median().over("number"),
    )
    if run.options.per_iteration is not None:
        return Measurement(tables={TASK_ITERATIONS: of_tasks})
    numbers = inside["number"].unique().sort()
    measured = inside.filter(pl.col("number").is_in(numbers.head(MOST_TREES).implode()))
    lengths = iterations.lengths.filter(pl.col("number").is_in(numbers.head(MOST_ROWS).implode())).with_columns(
        pl.col("begin", "end") - run.events.offset, slot="number", region=pl.lit(iterations.how)
    )
    table = _with_trees(run, lengths, measured.select("task", "begin", "end", slot="number"))
    return Measurement(tables={TASK_ITERATIONS: of_tasks, ITERATIONS: table})


def nvtx_tree(run: MeasuredRun) -> Measurement:
    """The table `nvtx_tree`."""
    names = range_texts(run.events).filter(pl.col("base") == event_types.NVTX_PUSHPOP)
    names = names.select("number", "value", text=pl.col("text").str.replace_all(r"[0-9]+", "#"))
    names = names.with_columns(name=pl.col("text").rank("dense").cast(pl.Int32))
    start, end = pl.col("start"), pl.col("end")
    # Of equal ranges, the one whose text comes first is around the other.
    ranges = run.frame(RANGES).join(names, on=["number", "value"], how="inner")
    inner = ranges.sort("row", "start", "end", "name", descending=[False, False, True, False])
    inner = inner.select("start", "end", "name", around="row", outer=pl.lit(_NO_PARENT, pl.Int64))
    levels: list[pl.DataFrame] = []
    while inner.height and len(levels) < MOST_LEVELS:
        # What ends later than all before it that are inside of the same range is in none of them.
        inner = inner.with_columns(is_outer=(end > end.cum_max().shift(1).over("around")).fill_null(value=True))
        sums = inner.filter("is_outer").group_by("outer", "name").agg(count=pl.len(), total=(end - start).sum())
        path = pl.int_range(pl.len(), dtype=pl.Int64) + sum(level.height for level in levels)
        levels.append(sums.sort("outer", "name").with_columns(path=path))
        inner = inner.join(levels[-1], on=["outer", "name"], how="left", maintain_order="left")
        inner = inner.select(
            "start", "end", "name", "is_outer",
            around=pl.col("is_outer").cum_sum(),
            outer=pl.when("is_outer").then("path").forward_fill(),
        ).filter(~pl.col("is_outer"))  # fmt: skip
    if not levels:
        return Measurement()
    # A range is no longer than the one around it, and its path comes later: nodes with most time have those around them.
    nodes = pl.concat(levels).sort("total", "path", descending=[True, False]).head(MOST_NODES)
    return Measurement(tables={NVTX_TREE: _tree_rows(nodes.join(names.unique("name"), on="name", maintain_order="left"))})


def _tree_rows(nodes: pl.DataFrame) -> list[dict[str, object]]:
    """Rows of the table `nvtx_tree`: each node before those inside of it."""
    inside = nodes.rows_by_key("outer", named=True, unique=False, include_key=False)
    total = sum(node["total"] for node in inside[_NO_PARENT])
    rows: list[dict[str, object]] = []

    def add(node: dict[str, int], parent: int | None, level: int) -> None:
        below, number = inside.get(node["path"], []), len(rows)
        rows.append({
            "node": number, "parent": parent, "level": level, "range": node["text"], "count": node["count"],
            "total_ns": node["total"], "own_ns": max(node["total"] - sum(child["total"] for child in below), 0),
            "share": node["total"] / total if total else None,
        })  # fmt: skip
        for child in below:
            add(child, number, level + 1)

    for outermost in inside[_NO_PARENT]:
        add(outermost, None, 0)
    return rows
