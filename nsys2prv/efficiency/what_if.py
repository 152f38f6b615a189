"""What if: the graph of a run is replayed with other durations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.clock_accuracy import LengthInterval, length_interval
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph import changes, path
from nsys2prv.efficiency.graph.bounds import CLOCKS, LOADING, NOT_TYPICAL, ReplayBounds, UncertainRun
from nsys2prv.efficiency.graph.replay import EdgeKind, Replay, replay
from nsys2prv.efficiency.graph.run_graph import IS_LOADING, BuiltGraph, graph_of_run, times_of_loading
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measure import measured_window
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import Column, Filled, Table, at_moments, frames_by_name
from nsys2prv.efficiency.results import Results
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.what_if_options import WhatIfOptions, scalings
from nsys2prv.efficiency.window import RunIterations
from nsys2prv.errors import NoDevices, UsageError
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import scratch_folder
from nsys2prv.execution.progress import progress_bar
from nsys2prv.run.session import seen_by_workers
from nsys2prv.vocabulary import __version__
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.terminal import grid
from nsys2prv.vocabulary.wording import short, time

_MEASURED = Column.ns("measured_ns", "as measured")
_NEAR, _HARDLY, _OF_CHANGE = 0.1, 0.01, 0.5
"""Part of what was measured, at most, by which bounds differ where one number is given beside them; the part by which they may
do so in any case, and else the part of the change."""
_TIMES = (
    Column.moment("begin_ns", "where it begins in the measured run"),
    Column.moment("end_ns", "where it ends there"),
    _MEASURED,
    Column.ns("replayed_ns", "with the changes; null where its ends are far apart: docs/efficiency.md (What if) says when"),
    Column.ns("least_ns", "the least that it can be; where `replayed_ns` is exact it is the same; null: nothing is known"),
    Column.ns("most_ns", "the most that it can be, likewise"),
)
"""Of a part of the run, and of an iteration."""

LENGTHS = Table(
    "what_if",
    "Length of the run with the changes",
    "a part of the run",
    (
        Column.text("part", "`window`: all that was measured; `steady`: the iterations without warm-up, where there are some"),
        *_TIMES,
        Column.text("reason", "why it is not exact; null where it is"),
        Column.ns("difference_ns", "replayed - measured; null likewise"),
        Column.number("speedup", "measured / replayed; null likewise, and where the latter is 0"),
    ),
)
ITERATIONS = Table(
    "what_if_iterations",
    "Iterations with the changes",
    "one iteration over all devices",
    (Column.count("iteration", "its number, from 0"), *_TIMES, Column.count("warm_up", "1: it belongs to the warm-up")),
    when="iterations",
)
PATH_TOTALS = Table(
    "what_if_path_totals",
    "What the critical path consists of",
    "one name of one of several divisions",
    (*path.CRITICAL_PATH_TOTALS.columns[:2], _MEASURED, Column.ns("replayed_ns", "with the changes, host time as measured")),
)
SCENARIOS = Table(
    "what_if_scenarios",
    "The run in standard scenarios, one change at a time",
    "a scenario",
    (Column.text("scenario", "the change, as an option of the command"), *LENGTHS.columns[3:]),
    when="no change requested",
)
TABLES = (LENGTHS, ITERATIONS, PATH_TOTALS, path.CRITICAL_PATH, SCENARIOS)
"""All tables of a what-if; `critical_path` is that with the changes."""
STANDARD = (
    WhatIfOptions(ideal_network=True),
    WhatIfOptions(no_late_ranks=True),
    WhatIfOptions(no_launch_cost=True),
    WhatIfOptions(data_loading=0),
    WhatIfOptions(scale=scalings("*=0.5")),
)
"""Options of the scenarios of a run for which no change is requested."""

NOT_MATCHED = "sends and receives of NCCL can't be matched: who waits for whom in them is not known"
NO_TRANSFERS = "no transfers between ranks were recorded, or they can't be matched: what a network takes is not known"
FORMAT = "nsys2prv-what-if"
VERSION = 1
HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this format: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("inputs", "list of texts", "reports"),
    ("title", "text", "name of the run, for headings"),
    ("changes", "list of texts", "what is changed, as options of the command"),
    ("iterations", "text", "how iterations were found; null where there are none"),
    ("warnings", "list of texts", "what is odd, missing, or was assumed"),
    ("tables", "object", "as above"),
)
"""Keys of the JSON: key, type, meaning."""


class WhatIfResult(Results):
    """A run with changes: `result.what_if`, `.what_if_iterations`, `.what_if_path_totals` and `.critical_path`."""

    def __repr__(self) -> str:
        return f"<WhatIfResult of {self.head['title']}: {' '.join(self.head['changes']) or 'no change'}>"

    def as_text(self, rows: int = 10, *, width: int | None = None) -> str:
        """A summary for a terminal, with so many rows of each table, in lines of `width` characters (None: as they are)."""
        scenarios, totals = self.tables[SCENARIOS.name], self.tables[PATH_TOTALS.name]
        lengths, heading = (scenarios, "scenario") if scenarios.height else (self.tables[LENGTHS.name], "length")
        of_what = lengths.columns[0]
        cells = [
            [row[of_what], time(row["measured_ns"]), _interval(row), "-" if row["speedup"] is None else f"{row['speedup']:.3f}"]
            for row in lengths.iter_rows(named=True)
        ]
        lines = [
            f"{short(self.head['title'])}: {' '.join(self.head['changes']) or 'one change at a time'}",
            "",
            *grid([heading, "measured", "replayed", "speedup"], cells, frozenset({0}), width),
            *(f"  not exact: {reason}" for reason in lengths["reason"].drop_nulls().unique(maintain_order=True)),
        ]
        parts = {"Iterations": self.tables[ITERATIONS.name].rename({"iteration": "name"})}
        for division in ("kind", "task", "kernel", "host cause"):
            parts[f"Critical path by {division}, measured and with the changes"] = totals.filter(by=division)
        for title, part in parts.items():
            more = f" ({part.height - rows} more)" if part.height > rows else ""
            cells = [
                [short(str(row["name"])), time(row["measured_ns"]), _interval(row)]
                for row in part.head(max(rows, 0)).iter_rows(named=True)
            ]
            if cells:
                lines += ["", f"{title}{more}", *grid(["", "measured", "replayed"], cells, frozenset({0}), width)]
        return printable_lines(lines)


def _interval(row: Mapping[str, Any]) -> str:
    """A replayed time, and between what it is, where that is known."""
    least, most = (row.get(name, row["replayed_ns"]) for name in ("least_ns", "most_ns"))
    if least is None:
        return "not known"
    if least == most:
        return time(least)
    between = f"{time(least)} to {'not known' if most is None else time(most)}"
    return between if row["replayed_ns"] is None else f"{time(row['replayed_ns'])} ({between})"


def what_if(arguments: Sequence[str | Path], options: WhatIfOptions | None = None) -> WhatIfResult:
    """Replay a run, of reports (files, folders, globs), with other durations: a UsageError when a change fits nothing of the
    run, NoDevices when no process uses a GPU."""
    arguments, options = seen_by_workers(arguments, options or WhatIfOptions())
    with memory.limited(memory.bytes_of_process(options.memory, 0)), scratch_folder(options.scratch) as folder:
        return replayed_events(read_events(arguments, options, folder, with_dependencies=True), options)


def replayed_events(events: RunEvents, options: WhatIfOptions) -> WhatIfResult:
    """The run of some events with changes; errors as of `what_if`."""
    if not events.rows.devices:
        raise NoDevices(events.inputs)
    with progress_bar("replaying", shown=options.progress):
        # As for `efficiency`: not what the profiler does before and after the program.
        run = MeasuredRun(events, EfficiencyOptions(time=options.time, per_iteration=options.per_iteration))
        window, recorded, interval = measured_window(run), events.length, length_interval(events)
        built = graph_of_run(run.in_window(window))
        events = built.context.events
        interval = interval.of_part(events.length, recorded)
        if options.changes:
            replayed, parts = _replayed(UncertainRun(built), window.iterations, interval, options)
            of_parts = {LENGTHS: parts.drop_nulls("part"), ITERATIONS: parts.drop_nulls("iteration")}
            tables = {**of_parts, **_path_tables(built, replayed)}
        else:
            tables = {SCENARIOS: _scenarios(UncertainRun(built), window.iterations, interval)}
    frames, notes = frames_by_name(tables, TABLES), [changes.PAGES_ALONE] if built.context.moves_pages.any() else []
    if options.data_loading is not None and times_of_loading(built.context, pl.lit(value=True)).is_empty():
        notes.append("no time of this run is known as loading of data: the change has nothing to change")
    pairs = built.labels.is_pair[built.graph.of_kind(EdgeKind.ARRIVAL).label]
    if (options.no_late_ranks or not options.changes) and pairs.any():
        notes.append("without late ranks, waits in sends and receives of NCCL stay: who receives waits for what is sent")
    head = {
        "format": FORMAT,
        "version": VERSION,
        "nsys2prv": __version__,
        "inputs": list(events.inputs),
        "title": events.title,
        "changes": options.changes,
        "iterations": window.iterations.how,
        "warnings": [*events.warnings, *window.warnings, *built.warnings, *notes],
    }
    return WhatIfResult(head, {table.name: at_moments(table, frames[table.name], events.offset) for table in TABLES})


def _replayed(
    uncertain: UncertainRun, iterations: RunIterations, interval: LengthInterval, options: WhatIfOptions
) -> tuple[Replay, pl.DataFrame]:
    """A run with changes: its replay, and columns of the tables LENGTHS and ITERATIONS of its parts and iterations."""
    built, bounds = uncertain.built, _bounds(uncertain, options)
    parts = _parts(built.context.events, iterations)
    limits = [_lengths(built, parts, bound) for bound in (bounds.replayed, bounds.least, bounds.most) if bound is not None]
    # What takes less by so much makes no part shorter by more, whatever else it waits for.
    least, most = np.maximum(np.min(limits, axis=0), parts["measured_ns"] - bounds.saved), np.max(limits, axis=0)
    if not bounds.replayed.growth:
        # What makes nothing longer does not make the run longer.
        most[0] = min(most[0], parts["measured_ns"][0])
    # No part takes longer than all of it.
    most = np.minimum(most, most[0])
    columns = {"replayed_ns": (limits[0], bounds.least), "least_ns": (least, bounds.least), "most_ns": (most, bounds.most)}
    parts = parts.with_columns(
        pl.lit(None if bound is None else pl.Series(values), pl.Int64).alias(name) for name, (values, bound) in columns.items()
    )
    change = pl.max_horizontal((pl.col(bound) - pl.col("measured_ns")).abs() for bound in ("least_ns", "most_ns"))
    widest = (_OF_CHANGE * change).clip(_HARDLY * pl.col("measured_ns"), _NEAR * pl.col("measured_ns"))
    is_wide = (pl.col("most_ns") - pl.col("least_ns")).fill_null(0) > widest
    # The first and the last event of a part can be of different clocks.
    length, is_part, reasons = built.context.events.length, pl.col("part").is_not_null(), "; ".join(bounds.reasons)
    more = pl.lit(None if interval.most is None else interval.most - length, pl.Int64)
    shortest = (pl.col("least_ns") - (length - interval.least)).clip(lower_bound=0)
    parts = parts.with_columns(
        replayed_ns=pl.when(~is_wide).then("replayed_ns"),
        least_ns=pl.when(is_part).then(shortest).otherwise("least_ns"),
        most_ns=pl.when(is_part).then(pl.col("most_ns") + more).otherwise("most_ns"),
    )
    is_exact = (pl.col("least_ns") == pl.col("most_ns")).fill_null(value=False)
    return bounds.replayed, parts.with_columns(
        reason=pl.when(~is_exact).then(pl.lit(reasons or CLOCKS, pl.String)),
        difference_ns=pl.col("replayed_ns") - pl.col("measured_ns"),
        speedup=pl.when(pl.col("replayed_ns") != 0).then(pl.col("measured_ns") / pl.col("replayed_ns")),
    )


def _scenarios(uncertain: UncertainRun, iterations: RunIterations, interval: LengthInterval) -> pl.DataFrame:
    """Columns of the table SCENARIOS: the length of the run in each; what fits nothing of it has the reason alone."""
    rows = []
    for options in STANDARD:
        try:
            row = _replayed(uncertain, iterations, interval, options)[1].row(0, named=True)
        except UsageError as error:
            row = {"measured_ns": uncertain.built.context.events.length, "reason": str(error)}
        rows.append({**row, "scenario": " ".join(options.changes)})
    return SCENARIOS.frame(rows)


def _bounds(uncertain: UncertainRun, options: WhatIfOptions) -> ReplayBounds:
    """The replay with options and its bounds; what compares ranks needs all of them."""
    built, steps, ranks = uncertain.built, [], [int(rank.partition("=")[0]) for rank in options.rank]
    if options.scale:
        steps.append(changes.scaled_work(built, options.scale))
    if ranks:
        steps.append(changes.median_of_ranks(built, ranks))
    if options.data_loading is not None:
        steps.append(changes.loading_times(built, options.data_loading))
    if options.no_launch_cost:
        steps.append(changes.no_launch_cost(built))
    if options.ideal_network:
        steps.append(changes.ideal_network)
    if options.no_late_ranks:
        steps.append(changes.no_late_ranks(built, steps))
    events, unknown = built.context.events, []
    lacks_ranks = events.missing_ranks > 0 or (built.open_collectives > 0 and not events.has_all_ranks)
    if (options.no_late_ranks and built.open_collectives) or (ranks and lacks_ranks):
        unknown = [NOT_TYPICAL]
    elif options.no_late_ranks and len(built.open_ends):
        unknown = [NOT_MATCHED]
    elif options.ideal_network and not len(built.graph.of_kind(*changes.TRANSFERS)):
        unknown = [NO_TRANSFERS]
    loading, perhaps = options.data_loading, []
    if loading is not None and loading < 1 and times_of_loading(built.context, ~IS_LOADING).height:
        perhaps.append(changes.loading_times(built, loading, which=~IS_LOADING))
    if loading is not None and 0 < loading < 1 and uncertain.waits_for_loading:
        perhaps.append(changes.loading_times(built, 0))
    bounds = uncertain.bounds(steps, loads=loading is None, perhaps=perhaps, unknown=unknown)
    if loading is not None and loading > 1 and bounds.least is not None:
        return bounds._replace(most=None, reasons=[*bounds.reasons, LOADING])
    return bounds


def _path_tables(built: BuiltGraph, replayed: Replay) -> Filled:
    """The critical path with the changes, and of what it and the measured one consist."""
    paths = {"replayed_ns": path.path_segments(built, replayed), "measured_ns": path.path_segments(built, replay(built.graph))}
    parts = (
        path.PathTotals(built, segments).rows().select("by", "name", pl.col("total_ns").alias(column))
        for column, segments in paths.items()
    )
    totals = pl.concat(parts, how="diagonal").group_by("by", "name", maintain_order=True).sum()
    return {PATH_TOTALS: totals, path.CRITICAL_PATH: path.segment_rows(built, paths["replayed_ns"])}


def _parts(events: RunEvents, iterations: RunIterations) -> pl.DataFrame:
    """The window, its steady part and iterations: `part` or `iteration`, `warm_up`, `begin_ns`, `end_ns`, and `measured_ns`."""
    offset, steady = events.offset, iterations.steady
    spans = [("window", offset, offset + events.length), *([("steady", *steady)] if steady is not None else [])]
    of_run = pl.DataFrame(spans, schema={"part": pl.String, "begin": pl.Int64, "end": pl.Int64}, orient="row")
    numbered = iterations.lengths.select("begin", "end", iteration="number", warm_up=pl.col("is_warm_up").cast(pl.Int64))
    parts = pl.concat([of_run, numbered], how="diagonal")
    begin, end = pl.col("begin"), pl.col("end")
    return parts.with_columns(begin_ns=begin - offset, end_ns=end - offset, measured_ns=end - begin)


def _lengths(built: BuiltGraph, parts: pl.DataFrame, replayed: Replay) -> Numbers:
    """Lengths of parts of the run in a replay, ns: from when all is done that was measured until a part begins to when all is
    done that was until it ends. The first part is the window."""
    graph, is_counted = built.graph, built.counted_rows[built.graph.row]
    times = np.concatenate([parts["begin_ns"], parts["end_ns"]])
    before = np.searchsorted(graph.time, times, side="right") - 1
    # The last place is for what is before all moments.
    latest = (np.maximum.accumulate(np.where(is_counted, time, 0)) for time in (replayed.time, graph.time))
    replayed_until, measured_until = (np.append(until, 0)[before] for until in latest)
    begin, end = np.split(times + replayed_until - measured_until, 2)
    return np.append(path.path_end(built, replayed)[1], (end - begin)[1:])
