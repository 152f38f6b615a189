"""The critical path of a run: from its last moment back over what determined each, as segments, totals and tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import changes
from nsys2prv.efficiency.graph.bounds import LATENCY, OpenWaits, UncertainRun
from nsys2prv.efficiency.graph.cuda_waits import BlockedCalls, EventEdges
from nsys2prv.efficiency.graph.host_waits import waits_in_os
from nsys2prv.efficiency.graph.replay import BLOCK, HELD, REMOVED, EdgeKind, Edges, Replay, Step, as_changed, replay, replays
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import NONE, Mask, Spans
from nsys2prv.efficiency.measured_run import CAUSES, LAUNCH, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.recording_checks import DeviceClocks
from nsys2prv.efficiency.result_tables import SPAN, Column, OnConsole, OnPage, Table
from nsys2prv.execution.process import Stop, run_all
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

MOST_SEGMENTS = 2_000
"""Segments that have a row each: the longest."""
MOST_MOMENTS = 20_000_000
"""Moments that are replayed, of all changes of findings together."""

SEGMENT_SCHEMA = {"begin": pl.Int64, "end": pl.Int64, "row": pl.Int32, "kind": pl.Int8, "label": pl.Int32, "cause": pl.Int8}
"""Columns of segments: times, row, place in KINDS, label (-1: no name), and of hosts a place in HOST_CAUSES (-1: no host)."""

_KINDS = (
    "kernel, graph, copy, collective, transfer, host, launch latency, synchronization latency, stream order, event wait, "
    "wait for a late rank, message, wake-up, launch queue, before the path, after the path, unknown wait"
)
KINDS = tuple(_KINDS.split(", "))
"""Kinds of segments; a collective whose other members are not known is no transfer, and an unknown wait is in a call of the OS
in which a thread waits, when nothing says for what."""
_KERNEL, _GRAPH, _COPY, _COLLECTIVE, _TRANSFER, _HOST = range(6)
_BEFORE, _AFTER, _UNKNOWN_WAIT = range(14, 17)
_WORK_KINDS = (_KERNEL, _GRAPH, _COLLECTIVE, _TRANSFER)
_NAME_OF_EDGE = {
    EdgeKind.DEVICE_WORK: "kernel",
    EdgeKind.COLLECTIVE: "transfer",
    EdgeKind.ARRIVAL: "wait for a late rank",
    EdgeKind.LAUNCH: "launch latency",
    EdgeKind.SYNCHRONIZATION: "synchronization latency",
    EdgeKind.BLOCKED_CALL: "host",
    EdgeKind.STAGING: "host",
}
"""Kinds of segments that are not called as the edges are."""
_KIND_OF_EDGE = np.array([KINDS.index(_NAME_OF_EDGE.get(kind, kind.text)) for kind in EdgeKind], dtype=np.int8)
_KIND_OF_WORK = {event_types.GRAPH_EXECUTION: _GRAPH, event_types.MEMORY_OPERATION: _COPY, event_types.NCCL_KERNEL: _COLLECTIVE}
HOST_CAUSES = (*CAUSES, "host", "creating the context")
"""What a host thread does on the path: the categories of calls, or none of these, or in calls the last one."""

CRITICAL_PATH = Table(
    "critical_path",
    "Longest segments of the critical path",
    "a time in which the critical path is on one row and in one thing",
    (
        *SPAN,
        Column.text("task", "name of the task"),
        Column.text("row", "name of the row: a stream or a thread"),
        Column.text("kind", f"one of {', '.join(KINDS)}"),
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
        Column.text("by", "the division: `kind`, `family` and `kernel` (only kernels), `task`, `host cause` (only hosts)"),
        Column.text("name", "of the part"),
        Column.ns("total_ns", "sum of its segments"),
        Column.share("share", "`total_ns` / length of the path"),
        Column.count("segments", "its segments"),
    ),
    when="the critical path",
    page=OnPage("path", cells=4_000),
    console=OnConsole(("by", ("name", "critical path"), "total_ns", "share")),
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


def path_end(built: BuiltGraph, replayed: Replay) -> tuple[int, int]:
    """The last moment of the path (-1: there is none), and when the window ends in a replay, ns. Of what comes after the last
    moment nothing is known to change: it takes as long as was measured."""
    graph, until = built.graph, built.context.events.length
    behind = int(np.searchsorted(graph.time, until, side="right"))
    is_counted, time = built.counted_rows[graph.row[:behind]], replayed.time[:behind]
    if not is_counted.any():
        return -1, until
    latest = int(time.max(where=is_counted, initial=0))
    # Of several that are last, the last one in the order of moments.
    last = int(np.flatnonzero(is_counted & (time == latest))[-1])
    return last, latest + until - int(graph.time[behind - 1 - np.argmax(is_counted[::-1])])


def path_segments(built: BuiltGraph, replayed: Replay) -> pl.DataFrame:
    """Segments of the critical path (SEGMENT_SCHEMA), from the first to the last: edges in which the same row does the same
    thing are one. They follow each other without a hole from the start of the window to its end, so their lengths add up to its
    length in the replay."""
    last, end = path_end(built, replayed)
    if last < 0:
        return pl.DataFrame(schema=SEGMENT_SCHEMA)
    path, graph, time = replayed.path(last), built.graph, replayed.time
    first = int(path.source[0]) if len(path) else last
    path = path.only(time[path.target] > time[path.source])
    label, kind = path.label, _KIND_OF_EDGE[path.kind]
    for event_type, kind_of_work in _KIND_OF_WORK.items():
        kind[(kind == _KERNEL) & built.labels.is_of(event_type)[label]] = kind_of_work
    # What starts within a long launch waits for the call, which creates the context or loads code.
    run, edges, length = built.context, ("row", "start", "end"), pl.col("end") - pl.col("start")
    long = Spans(run.calls.filter(pl.Series(run.launches_work), length >= changes.LONG_LAUNCH).select(edges))
    within = long.inside(path.source_row, path.begin, path.end, path.kind == EdgeKind.LAUNCH)
    is_call = 2 * within > path.end - path.begin
    row, label, kind[is_call] = np.where(is_call, path.source_row, path.row), np.where(is_call, NONE, label), _HOST
    cause = np.where(kind == _HOST, built.labels.causes.astype(np.int8)[label], np.int8(NONE))
    cause[is_call] = LAUNCH
    creates = Spans(run.context_creations.select(edges))
    cause[creates.inside(row, path.end - 1, path.end, kind == _HOST) > 0] = HOST_CAUSES.index("creating the context")
    # Who woke the thread is not known: else the path went on there.
    kind[(kind == _HOST) & waits_in_os(built.labels)[label]] = _UNKNOWN_WAIT
    is_first = differ_from_before(row, kind, label, cause)
    before, after = (0, graph.row[first], _BEFORE, NONE, NONE), (time[last], graph.row[last], _AFTER, NONE, NONE)
    parts = zip(before, (time[path.source], row, kind, label, cause), after, strict=True)
    columns = [np.concatenate([[low], of_path[is_first], [high]]) for low, of_path, high in parts]
    schema = {name: dtype for name, dtype in SEGMENT_SCHEMA.items() if name != "end"}
    segments = pl.DataFrame(columns, schema=schema, orient="col")
    # Each ends where the next one begins.
    until = segments["begin"].shift(-1, fill_value=end).alias("end")
    return segments.insert_column(1, until).filter(pl.col("end") > pl.col("begin"))


def segment_rows(built: BuiltGraph, segments: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `critical_path`, in the order of time: the longest segments."""
    length = pl.col("end") - pl.col("begin")
    # A sort by several columns takes much memory.
    longest = segments.filter(length >= length.top_k(MOST_SEGMENTS).min())
    ordered = longest.top_k(MOST_SEGMENTS, by=[length, "begin"], reverse=[False, True]).sort("begin", "end")
    names = built.labels.frame["name"]
    return ordered.select(
        begin_ns="begin",
        end_ns="end",
        length_ns=length,
        **_names_of_rows(built, ordered["row"]),
        kind=_name(KINDS, "kind"),
        name=names.gather(ordered["label"] % len(names)),
    )


def _names_of_rows(built: BuiltGraph, row: pl.Series) -> dict[str, pl.Expr]:
    rows = built.context.events.rows
    task = built.context.task_names(pl.lit(pl.Series(rows.task[row.to_numpy()])))
    return {"task": task, "row": pl.lit(pl.Series(rows.names, dtype=pl.String)).gather(pl.lit(row))}


def _name(names: Sequence[str], column: str) -> pl.Expr:
    return pl.lit(pl.Series(names)).gather(pl.col(column).cast(pl.UInt32))


class PathTotals:
    """Sums of segments of a path (SEGMENT_SCHEMA) of a run: columns `row`, `kind`, `label`, `cause`, `total_ns`, `segments`;
    and the `length` of the path, ns."""

    def __init__(self, built: BuiltGraph, segments: pl.DataFrame) -> None:
        self._built = built
        key, length = ("row", "kind", "label", "cause"), pl.col("end") - pl.col("begin")
        self.sums = segments.group_by(key).agg(total_ns=length.sum(), segments=pl.len().cast(pl.Int64))
        self.length = int(self.sums["total_ns"].sum())

    def on_rows(self, rows: Mask) -> int:
        """Time on some rows, ns."""
        return int(self.sums["total_ns"].filter(pl.Series(rows[self.sums["row"].to_numpy()])).sum())

    @property
    def unexplained(self) -> int:
        """Time in waits of unknown cause, ns: of streams for more than what lies between two operations, and of threads that
        neither launch work nor call MPI."""
        is_uncounted = pl.Series(~self._built.counted_rows[self.sums["row"].to_numpy()])
        waits = (pl.col("total_ns") - LATENCY * pl.col("segments")).clip(lower_bound=0)
        of_streams = self.sums.filter(pl.col("kind") == KINDS.index("stream order")).select(waits.sum()).item()
        on_threads = pl.col("kind").is_in([_HOST, _UNKNOWN_WAIT])
        return int(of_streams + self.sums.filter(on_threads & is_uncounted)["total_ns"].sum())

    def rows(self) -> pl.DataFrame:
        """Columns of the table `critical_path_totals`."""
        rows = _names_of_rows(self._built, self.sums["row"])
        named = self.sums.with_columns(**rows).join(changes.names_of_work(self._built), on="label", how="left")
        is_kernel = pl.col("kind").is_in(_WORK_KINDS) & pl.col("kernel").is_not_null()
        kernels, hosts = named.filter(is_kernel), named.filter(pl.col("kind") == _HOST)
        parts = {
            "kind": (named, _name(KINDS, "kind")),
            "task": (named, pl.col("task")),
            "family": (kernels, pl.col("family")),
            "kernel": (kernels, pl.col("kernel")),
            "host cause": (hosts, _name(HOST_CAUSES, "cause")),
        }
        totals = pl.concat(
            segments.group_by(name=name).agg(pl.col("total_ns", "segments").sum()).with_columns(by=pl.lit(by))
            .sort("total_ns", "name", descending=[True, False], nulls_last=True)
            for by, (segments, name) in parts.items()
        )  # fmt: skip
        return totals.with_columns(share=pl.col("total_ns") / max(self.length, 1))


class Gain(NamedTuple):
    """By how much a run is shorter with a change, ns: `saved` in a replay (`is_replayed`), or the bound of the critical path;
    what may be saved as well, because it may be a wait for what is not known (`unexplained`); and what is saved `at_least`,
    where waits for what may keep its pace, such as a timer or a camera, end when they did."""

    saved: int
    unexplained: int
    is_replayed: bool
    at_least: int = 0


def _shorter(steps: Sequence[Step], edges: Edges, stop: Stop) -> list[float]:
    """By how much edges of the path are shorter with each change alone, ns; infinite where one goes: another path may count."""
    stop.check()
    weights = [step(edges, edges.weight) for step in steps]
    return [math.inf if (weight == REMOVED).any() else int((edges.weight - weight).sum()) for weight in weights]


@dataclass(frozen=True)
class MeasuredGraph:
    """The graph of a run with its measured critical path: the edges of the `path`, and its `totals`."""

    built: BuiltGraph
    path: Edges
    totals: PathTotals

    @cached_property
    def waits(self) -> OpenWaits:
        """Waits for what is not known."""
        return OpenWaits(self.built)

    def gains(self, steps: Sequence[Step], least: int) -> list[Gain]:
        """What each change alone gains; what gains less than `least`, or is too much to replay, has its bound.

        No run gets shorter by more than its critical path does: this bound needs no replay. The changes with the largest bounds
        are replayed. A graph does not know everything: what the path spends in waits of unknown cause may vanish, too."""
        length, on_path = self.built.context.events.length, np.isin(self.waits.number, self.path.number)
        unexplained = max(self.totals.unexplained, int(self.waits.wait[on_path].sum()))
        parts = (self.path.only(slice(low, low + BLOCK)) for low in range(0, len(self.path), BLOCK))
        of_parts = run_all(partial(_shorter, steps, part) for part in parts)
        bounds = [int(max(min(bound, length), 0)) for bound in np.sum([[0.0] * len(steps), *of_parts], axis=0)]
        order = sorted(range(len(steps)), key=lambda place: -bounds[place])
        few = order[: MOST_MOMENTS // max(len(self.built.graph.time), 1)]
        replayed = [place for place in few if bounds[place] + unexplained >= least]
        gains = dict(zip(replayed, run_all(partial(self._replayed, steps[place]) for place in replayed), strict=True))
        return [gains.get(place, Gain(bound, unexplained, False)) for place, bound in enumerate(bounds)]

    def _replayed(self, step: Step, stop: Stop) -> Gain:
        stop.check()
        waits, length = self.waits, self.built.context.events.length
        variants = (as_changed, partial(waits.variant, how=HELD), waits.variant) if len(waits.number) else (as_changed,)
        # Only times are needed, and they are large.
        replayed = replays(self.built.graph, [step], variants, with_edges=False)
        shorter = [max(length - path_end(self.built, of_variant)[1], 0) for of_variant in replayed]
        # Without such waits it is the same in all variants.
        saved, at_least, most = shorter if len(shorter) > 1 else shorter * 3
        return Gain(saved, max(most - saved, 0), True, at_least)


@dataclass(frozen=True)
class CriticalPath(Measurement):
    """The critical path of a run. `graph` is None where nothing happened, or times of devices contradict those of their hosts,
    which edges of the graph compare; `ideal_length`, the length of the window with an ideal network, ns, likewise, and where it
    is not known."""

    graph: MeasuredGraph | None = None
    ideal_length: int | None = None


def critical_path(run: MeasuredRun) -> CriticalPath:
    """Build the graph of a run, and find its critical path."""
    if run.measured(DeviceClocks).contradictions:
        return CriticalPath()
    built = BuiltGraph(run, run.measured(Nccl), run.measured(EventEdges), run.measured(BlockedCalls))
    measured = replay(built.graph)
    path = measured.path(path_end(built, measured)[0])
    segments = path_segments(built, measured)
    del measured
    totals = PathTotals(built, segments)
    if not totals.length:
        return CriticalPath(warnings=built.warnings)
    longest = segment_rows(built, segments)
    del segments
    ideal_length, warnings = _with_ideal_network(built)
    tables: dict[Table, Any] = {
        CRITICAL_PATH: longest,
        CRITICAL_PATH_TOTALS: totals.rows(),
        CRITICAL_PATH_ROWS: _rows_beside(built, totals),
    }
    return CriticalPath(MeasuredGraph(built, path, totals), ideal_length, tables=tables, warnings=[*built.warnings, *warnings])


def _with_ideal_network(built: BuiltGraph) -> tuple[int | None, list[str]]:
    """The length with an ideal network, or None, and a warning between what it is."""
    ideal = [changes.ideal_network]
    if not len(built.graph.of_kind(*changes.TRANSFERS)):
        return None, []
    if not len(built.open_ends):
        return path_end(built, replay(built.graph, ideal))[1], []
    bounds = UncertainRun(built).bounds(ideal)
    lengths = [time(path_end(built, bound)[1]) for bound in (bounds.least, bounds.most) if bound is not None]
    between = f". With an ideal network the window takes {' to '.join(dict.fromkeys(lengths))}" if lengths else ""
    return None, [f"transfer and serialization efficiency are not decidable: {'; '.join(bounds.reasons)}{between}"]


def _rows_beside(built: BuiltGraph, totals: PathTotals) -> pl.DataFrame:
    """Columns of the table `critical_path_rows`."""
    slack = pl.DataFrame({"place": built.graph.row, "slack": built.graph.slacks()}).group_by("place").agg(
        least_slack_ns=pl.col("slack").min(), mean_slack_ns=pl.col("slack").sum() / pl.len()
    )  # fmt: skip
    beside = slack.filter(pl.Series(built.counted_rows[slack["place"].to_numpy()]))
    on_path = totals.sums.group_by(place="row").agg(on_path_ns=pl.col("total_ns").sum())
    rows = beside.with_columns(**_names_of_rows(built, beside["place"])).join(on_path, on="place", how="left")
    rows = rows.with_columns(pl.col("on_path_ns").fill_null(0))
    return rows.sort("on_path_ns", "least_slack_ns", "place", descending=[True, False, False])
