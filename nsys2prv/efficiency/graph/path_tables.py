"""Tables of the critical path: its longest segments, its totals, and how close each row is to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import changes
from nsys2prv.efficiency.graph.build import BuiltGraph, GraphBuilder
from nsys2prv.efficiency.graph.event_waits import EventEdges
from nsys2prv.efficiency.graph.gains import MeasuredGraph
from nsys2prv.efficiency.graph.launch_queue import BlockedCalls
from nsys2prv.efficiency.graph.moment_slack import slacks
from nsys2prv.efficiency.graph.path_segments import KINDS, SEGMENT_SCHEMA, PathReader
from nsys2prv.efficiency.graph.path_totals import PathTotals
from nsys2prv.efficiency.graph.replay import as_measured, replay
from nsys2prv.efficiency.graph.replay_bounds import replay_bounds
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.execution.merging import Merging
from nsys2prv.execution.threads import run_all
from nsys2prv.vocabulary.wording import time

MOST_SEGMENTS = 2_000
"""Segments that have a row each: the longest."""
_PENDING_ROWS = 50_000
_KEY = ["row", "kind", "label", "cause"]

_KIND = Column.text("kind", f"one of {', '.join(KINDS)}")

CRITICAL_PATH = Table(
    "critical_path",
    "Longest segments of the critical path",
    "a time in which the critical path is on one row and in one thing",
    (
        Column.moment("begin_ns", "from the start of the trace"),
        Column.moment("end_ns", "from the start of the trace"),
        Column.ns("length_ns", "its length"),
        Column.text("task", "name of the task"),
        Column.text("row", "name of the row: a stream or a thread"),
        _KIND,
        Column.text("name", "kernel, copy, or call in which it is; null where there is none"),
    ),
    when="the critical path",
    page=OnPage("path", cells=4_000),
)
CRITICAL_PATH_TOTALS = Table(
    "critical_path_totals",
    "What the critical path consists of",
    "one name of one of several divisions",
    (
        Column.text(
            "by", "what divides the path: `kind`, `family` and `kernel` (only kernels), `task`, `host cause` (only hosts)"
        ),
        Column.text("name", "of the part"),
        Column.ns("total_ns", "sum of its segments"),
        Column.share("share", "`total_ns` / length of the path"),
        Column.count("segments", "its segments"),
    ),
    when="the critical path",
    order=600,
    page=OnPage("path", cells=4_000),
    console=OnConsole(("by", ("name", "critical path"), "total_ns", "share"), place=80),
)
CRITICAL_PATH_ROWS = Table(
    "critical_path_rows",
    "Rows beside the critical path",
    "one row: a stream, or a thread that launches work or calls MPI",
    (
        Column.text("task", "name of the task"),
        Column.text("row", "name of the row"),
        Column.ns("on_path_ns", "time in which the critical path is on it"),
        Column.ns("least_slack_ns", "how much later what is closest to the path could be without a longer run; 0 on the path"),
        Column.mean_ns("mean_slack_ns", "mean over the starts and ends of all that is on the row"),
    ),
    when="the critical path",
    page=OnPage("path", cells=4_000),
)
TABLES = (CRITICAL_PATH_TOTALS, CRITICAL_PATH, CRITICAL_PATH_ROWS)


class CriticalPath(TableMeter):
    """Builds the graph of the run, and fills the tables of its critical path.

    Parameters
    ----------
    nccl
        Updated with the same chunks.
    event_waits
        Of the run; others may follow them too.
    folder
        For the files of the graph.

    Attributes
    ----------
    ideal_length
        After `tables`: length of the window with an ideal network, ns; None: nothing happened, or it is not known.
    graph
        Likewise the graph.
    """

    def __init__(self, context: SweepContext, nccl: Nccl, event_waits: EventEdges, blocked: BlockedCalls, folder: Path) -> None:
        self._builder = GraphBuilder(context, folder, nccl, event_waits, blocked)
        self._folder = folder
        self._warnings: list[str] = []
        self._is_updated = False
        self.ideal_length: int | None = None
        self.graph: MeasuredGraph | None = None

    def update(self, chunk: TimeChunk) -> None:
        self._builder.update(chunk)
        self._is_updated = True

    def tables(self) -> Filled:
        """The tables of the measured run."""
        if not self._is_updated:
            return {}
        built = self._builder.finish()
        self._warnings = built.warnings
        # Neither needs the other.
        path, beside = run_all([lambda _: self._along_path(built), lambda _: {CRITICAL_PATH_ROWS: _slack_of_rows(built)}])
        if self.graph is None:
            return {}
        return path | {CRITICAL_PATH_ROWS: _by_row(built, beside[CRITICAL_PATH_ROWS], self.graph.totals.by("row"))}

    def _along_path(self, built: BuiltGraph) -> dict[Table, pl.DataFrame]:
        """The tables of what is on the path; none where it has no length."""
        measured = as_measured(built.graph).with_edges(self._folder)
        reader = PathReader(built, measured)
        totals, longest = PathTotals(), longest_segments()
        for piece in reader.segments():
            totals.add(piece)
            longest.add(piece)
        if not totals.length:
            return {}
        self._replay_ideal_network(built, reader.length)
        self.graph = MeasuredGraph(built, measured, totals, self._folder)
        return {CRITICAL_PATH: segment_rows(built, longest.rows), CRITICAL_PATH_TOTALS: totals.rows(built)}

    def _replay_ideal_network(self, built: BuiltGraph, measured: int) -> None:
        """Find the length with an ideal network, or say between what it is; `measured` is that of the run."""
        change = changes.combined([changes.ideal_network])
        if not len(built.open_ends):
            is_changed = not built.kinds.isdisjoint(changes.TRANSFERS)
            replayed = PathReader(built, replay(built.graph, change, self._folder)).length if is_changed else measured
            self.ideal_length = replayed
            return
        bounds = replay_bounds(built, change, self._folder)
        known = [time(PathReader(built, one).length) for one in (bounds.least, bounds.most) if one is not None]
        self._warnings = [
            *self._warnings,
            "transfer and serialization efficiency are not decidable: "
            + "; ".join(bounds.reasons)
            + (f". With an ideal network the window takes {' to '.join(known)}" if known else ""),
        ]

    @property
    def warnings(self) -> Sequence[str]:
        """What is not in the graph."""
        return self._warnings


def longest_segments() -> Merging:
    """Keeps the longest segments of those that are added; `segment_rows` takes its rows."""
    return Merging(_longest, pl.DataFrame(schema=SEGMENT_SCHEMA), _PENDING_ROWS)


def _longest(segments: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("end") - pl.col("begin")
    # There are many more: only those that are long enough are sorted.
    long = segments.filter(length >= length.top_k(MOST_SEGMENTS).min())
    return long.sort(length, "begin", descending=[True, False]).head(MOST_SEGMENTS)


def segment_rows(built: BuiltGraph, segments: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `critical_path`, in the order of time."""
    rows = built.context.events.rows
    ordered = _longest(segments).sort("begin", "end")
    row = ordered["row"].to_numpy()
    names = (
        pl.lit(built.labels.names()).gather(pl.when(pl.col("label") >= 0).then("label")) if len(built.labels) else pl.lit(None)
    )
    return ordered.select(
        begin_ns="begin",
        end_ns="end",
        length_ns=pl.col("end") - pl.col("begin"),
        task=built.context.task_names(pl.lit(pl.Series(rows.task[row]))),
        row=pl.Series([rows.names[one] for one in row.tolist()], dtype=pl.String),
        kind=pl.lit(pl.Series(KINDS)).gather("kind"),
        name=names,
    )


def _slack_of_rows(built: BuiltGraph) -> pl.DataFrame:
    """Columns `place` (of a row), `least_slack_ns`, `mean_slack_ns` of rows that count."""
    size = len(built.counted_rows)
    least: np.ndarray = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
    sums, counts = np.zeros(size), np.zeros(size)
    for window, slack in slacks(built.graph):
        np.minimum.at(least, window.row, slack)
        sums += np.bincount(window.row, weights=slack, minlength=size)
        counts += np.bincount(window.row, minlength=size)
    there = np.flatnonzero(built.counted_rows & (counts > 0))
    return pl.DataFrame({"place": there, "least_slack_ns": least[there], "mean_slack_ns": sums[there] / counts[there]})


def _by_row(built: BuiltGraph, slack: pl.DataFrame, on_path: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `critical_path_rows`; `slack` is that of `_slack_of_rows`."""
    events, there = built.context.events, slack["place"].to_numpy()
    return (
        slack.join(on_path.select(place="row", on_path_ns="total_ns"), on="place", how="left", maintain_order="left")
        .with_columns(
            pl.col("on_path_ns").fill_null(0),
            task=built.context.task_names(pl.lit(pl.Series(events.rows.task[there]))),
            row=pl.Series([events.rows.names[one] for one in there.tolist()], dtype=pl.String),
        )
        .sort("on_path_ns", "least_slack_ns", "place", descending=[True, False, False])
    )
