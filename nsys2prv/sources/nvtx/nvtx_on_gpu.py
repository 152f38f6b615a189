"""NVTX ranges on the GPU: where the work ran that was launched inside a range.

A range lies on each stream that it launched work on, from the start of the first kernel, copy, memset or graph execution
there to the end of the last one. Work belongs to a range when the API call that launched it started inside the range, on the
thread of the range. Ranges are half open: a call that starts when one ends, as with times in whole units, is in the next one.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, plan_windows
from nsys2prv.execution.memory import WIDE_PIECE_ROWS
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.exports import Report
from nsys2prv.sources.communication import nccl
from nsys2prv.sources.correlate import CALLS_TABLE, with_calls
from nsys2prv.sources.cuda.kernels import GRAPH_EXECUTIONS, KERNELS
from nsys2prv.sources.cuda.memory_operations import COPIES, MEMSETS
from nsys2prv.sources.lanes import LANE_OF_TYPE, Lanes, NestedLanes
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.sources.source import RowKind, Source, with_absent
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role

NVTX_RANGE_ON_GPU = EventType(9006, "NVTX startend ranges on the GPU", Role.INTERVAL, event_types.NVTX_VALUES, lanes=90060001)
NCCL_REGION_ON_GPU = EventType(9590, "NCCL regions on the GPU", Role.INTERVAL, event_types.NCCL_VALUES, lanes=95900001)
NVTX_PUSHPOP_ON_GPU = EventType(
    9650,
    "NVTX pushpop ranges on the GPU {} domain",
    Role.INTERVAL,
    event_types.NVTX_VALUES,
    step=100,
    members=1_000,
    overflow=96500000,
    lanes=970000001,
)


ON_GPU = {
    event_types.NVTX_PUSHPOP: NVTX_PUSHPOP_ON_GPU,
    event_types.NCCL_REGION: NCCL_REGION_ON_GPU,
    event_types.NVTX_RANGE: NVTX_RANGE_ON_GPU,
}
"""Event type on the GPU of each event type of ranges on the host."""

_WORK = (KERNELS, COPIES, MEMSETS, GRAPH_EXECUTIONS)
_HOST = (nvtx_ranges.PUSHPOP, nccl.REGIONS, nvtx_ranges.STARTEND)
_KEY = list(RowKind.STREAM.key)
_Schema = dict[str, type[pl.DataType]]
_NAMED: _Schema = {"type": pl.Int64, "series": pl.String, "label": pl.String}
_ATTRIBUTES: _Schema = {str(kind): pl.String if kind.values else pl.Int64 for kind in nvtx_ranges.AUTOGRAD_TYPES}

_PAIRS = 1_000_000
"""Ranges and streams that may have to do with each other which are looked at at once."""
_MOST_EDGES = 1_000_000
"""Ranges up to which launches between two edges of ranges are merged: of more ranges, few launches are."""
_NEVER = 2**62
"""End of a range that was never closed, ns: after all calls."""


def project(ranges: ExternalSort, launches: ExternalSort) -> Iterator[pl.DataFrame]:
    """Where the work ran that was launched inside ranges.

    Parameters
    ----------
    ranges
        By `hostStart`: columns `range` (a distinct number), `globalTid`, `hostStart`, `hostEnd` (ns), and any others.
    launches
        By `callStart`: columns `callTid`, `callStart` (ns), and of the work that the call launched the key columns of
        RowKind.STREAM, `start`, `end` (ns).

    Yields
    ------
    For each range and each stream that it launched work on: the columns of the range, the key columns of the stream, `start`
    and `end` of the work.
    """
    still_open: list[pl.DataFrame] = []
    so_far: list[pl.DataFrame] = []
    for window in plan_windows([(ranges, 1), (launches, 1)]):
        loaded, called = [*still_open, *ranges.load(window)], launches.load(window)
        ranges.drop_before(window.end)
        launches.drop_before(window.end)
        if not loaded:
            continue
        open_ranges = pl.concat(loaded)
        if called:
            so_far.append(_extents(open_ranges, pl.concat(called)))
        is_open = pl.lit(False) if window.end is None else pl.col("hostEnd") > window.end
        still_open = [open_ranges.filter(is_open)]
        if so_far:
            extents = pl.concat(so_far).group_by("range", *_KEY, maintain_order=True)
            merged = extents.agg(pl.col("start").min(), pl.col("end").max())
            yield merged.join(open_ranges.filter(~is_open), on="range", how="inner", maintain_order="left")
            so_far = [merged.join(still_open[0], on="range", how="semi", maintain_order="left")]


def _extents(ranges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Columns `range`, the key of a stream, `start` and `end` of what these launches brought there, where there is some."""
    ordered = launches.sort("callTid", *_KEY, "callStart")
    tids, thread = np.unique(ordered["callTid"].to_numpy(), return_inverse=True)
    is_new = pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in ("callTid", *_KEY)).fill_null(True)
    is_first = ordered.select(is_new).to_series().to_numpy()
    # From one thread to one stream leads a route; those of a thread are neighbours.
    route = np.cumsum(is_first) - 1
    thread_of_route = thread[is_first]
    times, time = np.unique(ordered["callStart"].to_numpy(), return_inverse=True)
    by_thread, by_route = _Calls(thread, time, times), _Calls(route, time, times)

    on_threads = ranges.filter(pl.col("globalTid").is_in(tids))
    thread_of_range = np.searchsorted(tids, on_threads["globalTid"].to_numpy())
    begin, end = on_threads["hostStart"].to_numpy(), on_threads["hostEnd"].to_numpy()
    # Most ranges launch nothing, and need not be looked for on each route.
    first, behind = by_thread.slices(thread_of_range, begin, end)
    launching = np.flatnonzero(first < behind)
    first_route = np.searchsorted(thread_of_route, thread_of_range[launching])
    routes = np.searchsorted(thread_of_route, thread_of_range[launching], side="right") - first_route
    start, stop = ordered["start"].to_numpy(), ordered["end"].to_numpy()
    extents = [pl.DataFrame(schema=dict.fromkeys(("range", *_KEY, "start", "end"), pl.Int64))]
    for batch in _batches(routes):
        pair_range = np.repeat(launching[batch], routes[batch])
        before = np.cumsum(routes[batch]) - routes[batch]
        pair_route = np.arange(len(pair_range)) + np.repeat(first_route[batch] - before, routes[batch])
        first, behind = by_route.slices(pair_route, begin[pair_range], end[pair_range])
        hit = first < behind
        first, behind = first[hit], behind[hit]
        work = {"start": _least(start, first, behind), "end": -_least(-stop, first, behind)}
        extents.append(pl.DataFrame([on_threads["range"].gather(pair_range[hit]), *ordered[_KEY][first], *pl.DataFrame(work)]))
    return pl.concat(extents)


def _merged(launches: pl.DataFrame, edges: np.ndarray) -> pl.DataFrame:
    """Launches as for `project`, with neighbours merged that are in the same ranges: of one thread and one stream, with no edge
    of a range between them. Edges are sorted."""
    if launches.is_empty():
        return launches
    part = np.searchsorted(edges, launches["callStart"].to_numpy(), side="right")
    first = np.flatnonzero(differ_from_before(part, *(launches[name].to_numpy() for name in ("callTid", *_KEY))))
    return launches[first].with_columns(
        start=pl.Series(np.minimum.reduceat(launches["start"].to_numpy(), first)),
        end=pl.Series(np.maximum.reduceat(launches["end"].to_numpy(), first)),
    )


class _Calls:
    """Calls in the order of what they belong to (`of`: 0, 1, ...) and of their time (a place in `times`)."""

    def __init__(self, of: np.ndarray, time: np.ndarray, times: np.ndarray) -> None:
        self._times = times
        self._order = np.sort(self._joined(of, time))

    def _joined(self, of: np.ndarray, time: np.ndarray) -> np.ndarray:
        joined: np.ndarray = of * (len(self._times) + 1) + time
        return joined

    def slices(self, of: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First call that belongs to each of `of` and is from `begin` to before `end`, and the one behind the last."""
        first = self._joined(of, np.searchsorted(self._times, begin, side="left"))
        behind = self._joined(of, np.searchsorted(self._times, end, side="left"))
        return np.searchsorted(self._order, first), np.searchsorted(self._order, behind)


def _batches(sizes: np.ndarray) -> Iterator[slice]:
    """Stretches that are about `_PAIRS` in size."""
    edges = np.flatnonzero(np.diff(np.cumsum(sizes) // _PAIRS, prepend=0)) + 1
    for begin, end in itertools.pairwise([0, *edges.tolist(), len(sizes)]):
        if begin < end:
            yield slice(begin, end)


def _least(values: np.ndarray, first: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """The least of ``values[first:behind]`` for each of many slices, none of them empty.

    The least of 1, 2, 4, ... neighbours is found for all places; two such stretches cover a slice."""
    power = np.frexp(behind - first)[1] - 1
    least = np.empty(len(first), dtype=values.dtype)
    for step in range(int(power.max(initial=-1)) + 1):
        if step:
            half = 2 ** (step - 1)
            values = np.minimum(values[:-half], values[half:])
        of_step = power == step
        least[of_step] = np.minimum(values[first[of_step]], values[behind[of_step] - 2**step])
    return least


class InLanes:
    """A step that gives projected ranges the column `LANE_OF_TYPE`: ranges of several threads may overlap on a stream.

    Called with pieces in the order of start; of ranges that start together the longest first, of equal ones the outer first."""

    def __init__(self) -> None:
        self._places = pl.DataFrame(schema={**dict.fromkeys((*_KEY, "type"), pl.Int64), "series": pl.String, "place": pl.Int64})
        # Start/end ranges do not nest on the host either.
        self._flat, self._nested = Lanes("place"), NestedLanes("place")

    def __call__(self, ranges: pl.DataFrame) -> pl.DataFrame:
        what = [*_KEY, "type", "series"]
        new = ranges.select(what).unique(maintain_order=True)
        new = new.join(self._places, on=what, how="anti", nulls_equal=True, maintain_order="left")
        numbers = pl.int_range(self._places.height, self._places.height + new.height, eager=True)
        self._places = pl.concat([self._places, new.with_columns(place=numbers)])
        placed = ranges.join(self._places, on=what, how="left", nulls_equal=True, maintain_order="left")
        is_flat = pl.col("type") == NVTX_RANGE_ON_GPU
        parts = [self._nested(placed.filter(~is_flat)), self._flat(placed.filter(is_flat))]
        return pl.concat(parts).rename({"lane": LANE_OF_TYPE}).drop("place")


def _gather(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    tables = [partial(_launched, table=source.table) for source in _WORK if report.has_rows(source.table)]
    if not tables or not report.has_rows(CALLS_TABLE):
        return
    ranges = ExternalSort(["hostStart"], folder / "ranges")
    edges: list[np.ndarray] = []
    for source in _HOST:
        for piece in report.pieces(partial(_ranges, source=source), WIDE_PIECE_ROWS):
            timed = piece.drop_nulls(["globalTid", "start"])
            numbers = pl.int_range(ranges.rows, ranges.rows + timed.height, eager=True)
            ranges.add(timed.rename({"start": "hostStart", "end": "hostEnd"}).with_columns(range=numbers))
            if ranges.rows <= _MOST_EDGES:
                edges += [timed["start"].to_numpy(), timed["end"].to_numpy()]
    if not ranges.rows:
        return
    between = np.sort(np.concatenate(edges)) if ranges.rows <= _MOST_EDGES else None
    launches = ExternalSort(["callStart"], folder / "launches")
    for piece in with_calls(report, tables, folder / "calls", ("globalTid", "start")):
        called = piece.drop_nulls("callStart").drop("correlationId")
        launches.add(called if between is None else _merged(called, between))
    # Of ranges that are equal on the GPU the outer one comes first: it began first, or ended last.
    order = ["start", "shortness", "hostStart", "hostShortness"]
    projected = ExternalSort(order, folder / "projected")
    for extents in project(ranges, launches):
        projected.add(extents.drop("range").with_columns(shortness=-pl.col("end"), hostShortness=-pl.col("hostEnd")))
    in_lanes = InLanes()
    for window in projected.windows():
        if window.height:
            yield in_lanes(window).select(*_KEY, "start", "end", *_NAMED, *_ATTRIBUTES, LANE_OF_TYPE)


def _ranges(report: Report, source: Source) -> pl.LazyFrame:
    """Ranges of the host, with their types on the GPU."""
    return (
        with_absent(source.frame(report), {**_NAMED, **_ATTRIBUTES})
        .filter(pl.col("type").is_in(list(ON_GPU)))
        .select(
            "globalTid",
            "start",
            pl.max_horizontal(pl.col("end").fill_null(_NEVER), "start"),
            pl.col("type").replace_strict(ON_GPU, return_dtype=pl.Int64),
            *(name for name in (*_NAMED, *_ATTRIBUTES) if name != "type"),
        )
    )


def _launched(report: Report, table: str) -> pl.LazyFrame:
    """Work on streams that a call may have launched: the driver's own has no correlation id."""
    scanned = report.scan_events(table, (*_KEY, "start", "end"), ("correlationId",), None)
    return scanned.filter(pl.col("correlationId") > 0).drop_nulls()


def _frame(report: Report) -> pl.LazyFrame:
    """What the survey needs: each stream that has work, and each name of a range."""
    text_attributes = [name for name, dtype in _ATTRIBUTES.items() if dtype == pl.String]
    what = [*_NAMED, *text_attributes]
    schema = {**RowKind.STREAM.key_schema, **{name: dtype for name, dtype in {**_NAMED, **_ATTRIBUTES}.items() if name in what}}
    tables = [source.table for source in _WORK if report.has_rows(source.table)]
    if not tables or not report.has_rows(CALLS_TABLE):
        return pl.LazyFrame(schema=schema)
    # Found once, though needed twice: there are many ranges.
    names = report.collect(pl.concat([_ranges(report, source).select(what) for source in _HOST]).unique()).lazy()
    streams = pl.concat([report.scan(table, _KEY) for table in tables]).drop_nulls().unique()
    # One name is enough to have all streams in a frame of such rows.
    return pl.concat([streams.join(names.head(1), how="cross"), names], how="diagonal").select(list(schema))


RANGES = Source(
    name="nvtx-gpu",
    title="NVTX ranges on the GPU",
    table=nvtx_ranges.PUSHPOP.table,
    required=nvtx_ranges.PUSHPOP.required,
    optional=nvtx_ranges.PUSHPOP.optional,
    row=RowKind.STREAM,
    types=(*ON_GPU.values(), *nvtx_ranges.AUTOGRAD_TYPES),
    frame=_frame,
    only={"eventType": (nvtx_ranges.PUSHPOP_RANGE, nvtx_ranges.STARTEND_RANGE)},
    stream=_gather,
    outer_first=True,
    extra_tables=tuple(source.table for source in _WORK),
    derived=True,
    assumption="All kernels of a graph that is traced node by node have the correlation id of the call that launched it.",
)
