"""What if: the graph of a run is replayed with other durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph import changes
from nsys2prv.efficiency.graph.build import BuiltGraph, built_graph
from nsys2prv.efficiency.graph.late_ranks import no_late_ranks
from nsys2prv.efficiency.graph.path_segments import PathReader
from nsys2prv.efficiency.graph.path_tables import CRITICAL_PATH, longest_segments, segment_rows
from nsys2prv.efficiency.graph.path_totals import PathTotals
from nsys2prv.efficiency.graph.replay import Change, Replay, as_measured, replay
from nsys2prv.efficiency.graph.replay_bounds import CLOCKS, NOT_TYPICAL, ReplayBounds, replay_bounds
from nsys2prv.efficiency.graph.run_graph import release, windows_of
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.length_interval import LengthInterval, length_interval
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.measured_window import measured_window
from nsys2prv.efficiency.result_tables import Column, Filled, Table, at_moments, frames_by_name
from nsys2prv.efficiency.results import Results
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.what_if_options import WhatIfOptions
from nsys2prv.efficiency.window import RunIterations
from nsys2prv.errors import NoDevices, UsageError
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import scratch_alone
from nsys2prv.execution.progress import progress_bar
from nsys2prv.run.session import seen_by_workers
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.text_grid import grid
from nsys2prv.vocabulary.version import __version__
from nsys2prv.vocabulary.wording import short, time

_MEASURED = Column.ns("measured_ns", "as measured")
_REPLAYED = Column.ns("replayed_ns", "with the changes; null where nothing is known of it")
_BOUNDS = (
    Column.ns("least_ns", "the least that it can be; where `replayed_ns` is exact it is the same; null likewise"),
    Column.ns("most_ns", "the most that it can be, likewise"),
)

LENGTHS = Table(
    "what_if",
    "Length of the run with the changes",
    "a part of the run",
    (
        Column.text("part", "`window`: all that was measured; `steady`: the iterations without warm-up, where there are some"),
        Column.moment("begin_ns", "where it begins in the measured run"),
        Column.moment("end_ns", "where it ends there"),
        _MEASURED,
        _REPLAYED,
        *_BOUNDS,
        Column.text("reason", "why it is not exact; null where it is"),
        Column.ns("difference_ns", "replayed - measured; null likewise"),
        Column.number("speedup", "measured / replayed; null likewise, and where the latter is 0"),
    ),
)
ITERATIONS = Table(
    "what_if_iterations",
    "Iterations with the changes",
    "one iteration over all devices",
    (
        Column.count("iteration", "its number, from 0"),
        Column.moment("begin_ns", "where it begins in the measured run"),
        Column.moment("end_ns", "where it ends there"),
        _MEASURED,
        _REPLAYED,
        *_BOUNDS,
        Column.count("warm_up", "1: it belongs to the warm-up"),
    ),
    when="iterations",
)
PATH_TOTALS = Table(
    "what_if_path_totals",
    "What the critical path consists of",
    "one name of one of several divisions",
    (
        Column.text(
            "by", "what divides the path: `kind`, `family` and `kernel` (only kernels), `task`, `host cause` (only hosts)"
        ),
        Column.text("name", "of the part"),
        _MEASURED,
        _REPLAYED,
    ),
)
TABLES = (LENGTHS, ITERATIONS, PATH_TOTALS, CRITICAL_PATH)
"""All tables of a what-if; `critical_path` is that with the changes."""

FORMAT = "nsys2prv-what-if"
VERSION = 1
HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this format: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("inputs", "list of texts", "reports, or the trace"),
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
        """A summary for a terminal, with so many rows of each table, fit into lines of `width` characters where that is not
        None."""
        lines = [f"{short(self.head['title'])}: {' '.join(self.head['changes']) or 'no change'}", ""]
        lengths = self.tables[LENGTHS.name]
        cells = [
            [row["part"], time(row["measured_ns"]), _interval(row), _factor(row["speedup"])]
            for row in lengths.iter_rows(named=True)
        ]
        lines += grid(["length", "measured", "replayed", "speedup"], cells, frozenset({0}), width)
        lines += [f"  not exact: {reason}" for reason in lengths["reason"].drop_nulls().unique()]
        iterations = [
            f"  iteration {one['iteration']}: {time(one['measured_ns'])} -> {_interval(one)}"
            for one in self.tables[ITERATIONS.name].head(max(rows, 0)).iter_rows(named=True)
        ]
        if iterations:
            lines += ["", *iterations]
        totals = self.tables[PATH_TOTALS.name]
        for division in ("kind", "task", "kernel", "host cause"):
            part = totals.filter(pl.col("by") == division).head(rows)
            if part.height:
                cells = [
                    [short(row["name"]), time(row["measured_ns"]), time(row["replayed_ns"])]
                    for row in part.iter_rows(named=True)
                ]
                lines += ["", f"Critical path by {division}", *grid(["", "measured", "replayed"], cells, frozenset({0}), width)]
        return printable_lines(lines)


def _interval(row: Mapping[str, Any]) -> str:
    """A replayed time, and between what it is."""
    if row["replayed_ns"] is None:
        return "not known"
    least, most = row["least_ns"], row["most_ns"]
    if least == most:
        return time(least)
    return f"{time(row['replayed_ns'])} ({time(least)} to {'not known' if most is None else time(most)})"


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def what_if(arguments: Sequence[str | Path], options: WhatIfOptions | None = None) -> WhatIfResult:
    """Replay a run with other durations.

    Parameters
    ----------
    arguments
        Reports (files, folders, globs), or one .prv or .prv.gz.

    Raises
    ------
    UsageError
        When nothing is changed, or a change fits nothing of the run.
    NoDevices
        When no process uses a GPU.
    """
    arguments, options = seen_by_workers(arguments, options or WhatIfOptions())
    if not options.changes:
        raise UsageError(
            "whatif: nothing is changed; give --ideal-network, --no-late-ranks, --no-launch-cost, --data-loading, --scale or "
            "--rank"
        )
    own, _ = memory.allotments(options.memory, 0)
    with memory.limited(own), scratch_alone(options.scratch) as folder:
        events = read_events(arguments, options, folder, with_ranges=True, with_dependencies=True)
        if not events.rows.devices:
            raise NoDevices(events.inputs)
        with progress_bar("replaying", shown=options.progress):
            return replayed_events(events, options, folder)


def replayed_events(events: RunEvents, options: WhatIfOptions, folder: Path) -> WhatIfResult:
    """The run of some events with changes; its collections are used up."""
    # As for `efficiency`: not what the profiler does before and after the program.
    window = measured_window(MeasuredRun(events, EfficiencyOptions(time=options.time, per_iteration=options.per_iteration)))
    whole = length_interval(events)
    recorded, iterations, events = events.length, window.iterations, window.cut(events)
    interval = whole.of_part(events.length, recorded)
    built = built_graph(events, folder / "graph")
    measured = as_measured(built.graph)
    change = changes.combined(steps(built, options, folder))
    replayed = replay(built.graph, change, folder)
    bounds = _bounds(built, change, options, folder)
    frames = frames_by_name(_tables(built, measured, replayed, bounds, iterations, interval), TABLES)
    tables = {table.name: at_moments(table, frames[table.name], events.offset) for table in TABLES}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "nsys2prv": __version__,
        "inputs": list(events.inputs),
        "title": events.title,
        "changes": options.changes,
        "iterations": iterations.how,
        "warnings": [*events.warnings, *window.warnings, *built.warnings],
    }
    return WhatIfResult(head, tables)


def _bounds(built: BuiltGraph, change: Change, options: WhatIfOptions, folder: Path) -> ReplayBounds:
    """The bounds of the replay with options; what compares ranks needs all of them."""
    events = built.context.events
    lacks_ranks = events.missing_ranks > 0 or (built.open_collectives > 0 and not events.has_all_ranks)
    if (options.no_late_ranks and built.open_collectives) or (options.rank and lacks_ranks):
        return ReplayBounds(None, None, (NOT_TYPICAL,), is_known=False)
    return replay_bounds(built, change, folder)


def steps(built: BuiltGraph, options: WhatIfOptions, folder: Path) -> list[changes.Step]:
    """The changes of options, one after the other; `folder` is for files of replays that they need.

    Raises
    ------
    UsageError
        When one fits nothing of the run.
    """
    found: list[changes.Step] = []
    if options.scale:
        found.append(changes.scaled_work(built, options.scale))
    if options.rank:
        found.append(changes.median_of_ranks(built, options.median_of))
    if options.data_loading is not None:
        found.append(changes.loading_times(built, options.data_loading))
    if options.no_launch_cost:
        found.append(changes.no_launch_cost(built))
    if options.ideal_network:
        found.append(changes.ideal_network)
    if options.no_late_ranks:
        found.append(no_late_ranks(built, list(found), folder))
    return found


def _tables(
    built: BuiltGraph,
    measured: Replay,
    replayed: Replay,
    bounds: ReplayBounds,
    iterations: RunIterations,
    interval: LengthInterval,
) -> Filled:
    readers = {"measured_ns": PathReader(built, measured), "replayed_ns": PathReader(built, replayed)}
    totals = {name: PathTotals() for name in readers}
    longest = longest_segments()
    for name, reader in readers.items():
        for piece in reader.segments():
            totals[name].add(piece)
            if name == "replayed_ns":
                longest.add(piece)
    key = ["by", "name"]
    of_path = [total.rows(built).select(*key, pl.col("total_ns").alias(name)) for name, total in totals.items()]
    both = of_path[1].join(of_path[0], on=key, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
    return {
        LENGTHS: _lengths(built, replayed, bounds, iterations, interval),
        ITERATIONS: _iterations(built, replayed, bounds, iterations),
        PATH_TOTALS: both.with_columns(pl.col("measured_ns", "replayed_ns").fill_null(0)),
        CRITICAL_PATH: segment_rows(built, longest.rows),
    }


def _lengths(
    built: BuiltGraph, replayed: Replay, bounds: ReplayBounds, iterations: RunIterations, interval: LengthInterval
) -> pl.DataFrame:
    length = built.context.events.length
    parts = [("window", 0, length)]
    if iterations.steady is not None:
        offset = built.context.events.offset
        parts.append(("steady", iterations.steady[0] - offset, iterations.steady[1] - offset))
    found = pl.DataFrame(parts, schema={"part": pl.String, "begin_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    whole = pl.col("part") == "window"

    def lengths(of: Replay) -> pl.Series:
        return found.select(pl.when(whole).then(PathReader(built, of).length).otherwise(_between(built, of, found))).to_series()

    # Its first and its last event can be of different clocks.
    most = pl.lit(None, pl.Int64) if interval.most is None else pl.col("most_ns") + (interval.most - length)
    least = (pl.col("least_ns") - (length - interval.least)).clip(lower_bound=0)
    is_exact = (pl.col("least_ns") == pl.col("most_ns")).fill_null(value=False)
    reasons = "; ".join(bounds.reasons) or CLOCKS
    return (
        _with_replays(found, lengths, replayed, bounds)
        .with_columns(least_ns=least, most_ns=most)
        .with_columns(
            reason=pl.when(is_exact).then(None).otherwise(pl.lit(reasons, pl.String)),
            difference_ns=pl.col("replayed_ns") - pl.col("measured_ns"),
            speedup=pl.when(pl.col("replayed_ns") != 0).then(pl.col("measured_ns") / pl.col("replayed_ns")),
        )
    )


def _iterations(built: BuiltGraph, replayed: Replay, bounds: ReplayBounds, iterations: RunIterations) -> pl.DataFrame:
    offset = built.context.events.offset
    found = iterations.lengths.select(
        begin_ns=pl.col("begin") - offset,
        end_ns=pl.col("end") - offset,
        iteration="number",
        warm_up=pl.col("is_warm_up").cast(pl.Int64),
    )
    return _with_replays(found, lambda of: _between(built, of, found), replayed, bounds)


def _with_replays(
    found: pl.DataFrame, lengths: Callable[[Replay], pl.Series], replayed: Replay, bounds: ReplayBounds
) -> pl.DataFrame:
    """Parts of the run (`begin_ns`, `end_ns`) with their measured lengths, those in a replay, and their bounds."""
    measured = found.with_columns(measured_ns=pl.col("end_ns") - pl.col("begin_ns"))
    if not bounds.is_known:
        return measured.with_columns(pl.lit(None, pl.Int64).alias(name) for name in ("replayed_ns", "least_ns", "most_ns"))
    new = lengths(replayed).alias("replayed_ns")
    of_bounds = [lengths(one) for one in (bounds.least, bounds.most) if one is not None]
    all_replays = pl.DataFrame([new, *(series.alias(f"bound {place}") for place, series in enumerate(of_bounds))])
    most = pl.lit(None, pl.Int64) if bounds.is_open else all_replays.max_horizontal()
    return measured.with_columns(new, least_ns=all_replays.min_horizontal(), most_ns=most)


def _between(built: BuiltGraph, replayed: Replay, parts: pl.DataFrame) -> pl.Series:
    """Times between the places `begin_ns` and `end_ns` of the measured run in a replay, ns."""
    begin, end = (parts[name].to_numpy() for name in ("begin_ns", "end_ns"))
    at = replayed_times(built, replayed, np.concatenate([begin, end]))
    return pl.Series(at[len(begin) :] - at[: len(begin)], dtype=pl.Int64)


def replayed_times(built: BuiltGraph, replayed: Replay, times: Numbers) -> Numbers:
    """When all that was measured until some times is done in a replay, ns.

    Without a change these are the times themselves.
    """
    order = np.argsort(times, kind="stable")
    found: Numbers = np.zeros(len(times), dtype=np.int64)
    latest = measured = 0
    behind = np.searchsorted(built.graph.moments.time, times[order], side="right")
    place = 0
    for inside in windows_of(len(built.graph.moments)):
        counted = built.counted_rows[np.asarray(built.graph.moments.row[inside])]
        new = np.maximum.accumulate(np.where(counted, np.asarray(replayed.time[inside]), latest))
        old = np.maximum.accumulate(np.where(counted, np.asarray(built.graph.moments.time[inside]), measured))
        new, old = np.maximum(new, latest), np.maximum(old, measured)
        while place < len(order) and behind[place] <= inside.stop:
            at = behind[place] - inside.start - 1
            done, until = (int(new[at]), int(old[at])) if at >= 0 else (latest, measured)
            found[order[place]] = done + int(times[order[place]]) - until
            place += 1
        latest, measured = int(new[-1]), int(old[-1])
        release(built.graph.moments.row, built.graph.moments.time, replayed.time)
    for rest in order[place:]:
        found[rest] = latest + int(times[rest]) - measured
    return found
