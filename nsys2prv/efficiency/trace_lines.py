"""Lines of a Paraver trace as rows of collections: starts and ends are paired, and what is on a line with them is attached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.kept_trace import LinesRead
from nsys2prv.efficiency.run_events import (
    HOST,
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    METRICS,
    MPI_COLLECTIVES,
    NO_VALUE,
    ON_DEVICES,
    ON_HOSTS,
    STREAM,
    Collection,
    RunRows,
    base_types,
    calling_rows,
    distinct_numbers,
    in_types,
    narrow,
    on_first_rows,
)
from nsys2prv.efficiency.trace_types import BY_STATE, TraceTypes
from nsys2prv.errors import TraceError
from nsys2prv.execution.keys import Distinct
from nsys2prv.execution.progress import progress_bar
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.fields import Flags
from nsys2prv.paraver.interval_pairs import match_ends, pair_intervals
from nsys2prv.paraver.trace_reader import Trace
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.vocabulary import event_types


@dataclass(frozen=True)
class RowsOfTrace:
    """Rows of a trace that are measured.

    Attributes
    ----------
    chosen
        Rows of the ranks chosen.
    of_file
        Of each row of the file its row among those chosen; -1: not chosen.
    first
        Of each row that is chosen the first one of its stream.
    """

    chosen: RunRows
    of_file: Numbers
    first: Numbers


@dataclass(frozen=True)
class _Selected:
    """What is measured of a block of records.

    Attributes
    ----------
    records, end
        Number of records, and time of the last end, ns.
    numbers
        Event types that occur.
    intervals, callers
        Whole intervals as rows of collections, and the rows of threads that call CUDA or MPI in them.
    edges, points, states, launches, messages
        Starts and ends that are not both in the block, with their attributes; samples and marks with theirs; what streams do
        by their states (None: events have it); lines from calls to what they start; messages between ranks (None: not
        requested).
    """

    records: int
    end: int
    numbers: set[int]
    intervals: list[tuple[Collection, pl.DataFrame]]
    callers: set[int]
    edges: pl.DataFrame
    points: pl.DataFrame
    states: pl.DataFrame | None
    launches: pl.DataFrame
    messages: pl.DataFrame | None


class LineReader:
    """Reads the lines of a trace once.

    Parameters
    ----------
    trace, rows, types
        The trace, its rows and its event types.
    collections
        What is read of it.
    window
        The time that is chosen.
    read
        Gets what is read.
    """

    def __init__(
        self,
        trace: Trace,
        rows: RowsOfTrace,
        types: TraceTypes,
        collections: Sequence[Collection],
        window: TimeSelection,
        read: LinesRead,
    ) -> None:
        self._trace = trace
        self._row_of = rows.of_file
        self._first_row = rows.first
        self._kind = {kind: rows.chosen.of_kind(kind) for kind in (HOST, STREAM, METRICS)}
        self._types = types
        self._collections = collections
        self._attributes = {int(number) for one in collections for number in one.columns}
        self._window = window
        self._read = read
        self._open: pl.DataFrame | None = None

    def read(self, *, progress: bool | None) -> None:
        """Read all lines; raises TraceError at the first one that is wrong.

        `progress` is as of `progress_bar`.
        """
        with progress_bar("reading", "line", shown=progress) as bar:
            for found in self._trace.read(self._select):
                if isinstance(found, str):
                    raise TraceError(self._trace.path, found)
                self._take(found)
                bar.update(found.records)

    def close(self, window: TimeSelection) -> None:
        """Intervals without an end last to the end of the trace, or to that of the time chosen."""
        self._window = window
        if self._open is not None and self._open.height:
            self._add(self._narrowed(self._open.with_columns(end=pl.lit(self._read.end, pl.Int64))))

    def _select(self, block: Block) -> _Selected | str:
        """What is measured of a block; or what is wrong with it. Other threads call this, for blocks ahead."""
        if (problem := self._trace.foreign_row(block)) is not None:
            return problem
        row = self._row_of[block.rows(self._trace.header)]
        last = (block.time[block.of_events], block.state_column("end"), block.message_column("physical_recv"))
        # With the number of today of each type that occurs on these rows.
        found, is_chosen = block.pair_types, row >= 0
        places = np.arange(len(found.numbers)) if is_chosen.all() else np.unique(found.place[is_chosen[block.pair_record]])
        types = found.numbers[places].tolist()
        numbers = {number: self._types.today(number) for number in types}
        bases = {number: self._types.base(number) for number in numbers.values()}
        edges = self._pairs(block, row, {old: new for old, new in numbers.items() if bases[new] in self._types.intervals})
        pairs = match_ends([edges["row"].to_numpy(), edges["type"].to_numpy()], (edges["value"] != 0).to_numpy())
        found_edges = self._with_attributes(block, edges[np.concatenate([pairs.starts, pairs.left])])
        started, left = found_edges.head(len(pairs.starts)), found_edges.tail(len(pairs.left))
        intervals = self._narrowed(started.with_columns(edges["time"].gather(pairs.ends).alias("end")))
        callers = {row for collection, kept in intervals if collection is ON_HOSTS for row in calling_rows(kept)}
        return _Selected(
            len(block),
            max(int(times.max(initial=0)) for times in last),
            set(bases),
            intervals,
            callers,
            left,
            self._points(block, row, {old: new for old, new in numbers.items() if bases[new] in self._types.samples}),
            self._states(block, row) if self._types.by_state else None,
            self._launch_lines(block, row),
            self._rank_messages(block, row) if MPI_COLLECTIVES in self._collections else None,
        )

    def _take(self, found: _Selected) -> None:
        self._read.end = max(self._read.end, found.end)
        self._read.numbers |= found.numbers
        edges = found.edges if self._open is None else pl.concat([self._open, found.edges], how="diagonal")
        paired = pair_intervals(edges, ["row", "type"])
        self._open = paired.open
        self._add(self._narrowed(paired.closed))
        self._add(found.intervals, found.callers)
        for collection in self._collections:
            if collection.samples and found.points.height:
                self._add(self._of_collection(self._window.clip(found.points), collection))
        if found.states is not None:
            self._add(self._of_collection(self._window.clip(found.states), ON_DEVICES))
        self._read.launches.add(found.launches)
        if found.messages is not None:
            self._read.messages.add(found.messages)

    def _pairs(self, block: Block, row: Numbers, types: Mapping[int, int]) -> pl.DataFrame:
        """Pairs of some types on rows that are chosen: record, row, type (with its number of today), time, value."""
        found = block.pair_types
        pairs = block.pairs_of(found.which(types.__contains__))
        record = block.pair_record[pairs]
        if (row < 0).any():
            pairs = pairs[row[record] >= 0]
            record = block.pair_record[pairs]
        numbers = np.array([types.get(number, number) for number in found.numbers.tolist()], dtype=np.int64)
        columns = {"record": record, "row": row[record], "type": numbers[found.place[pairs]], "time": block.time[record]}
        return pl.DataFrame({**columns, "value": block.pair_value[pairs]})

    def _with_attributes(self, block: Block, pairs: pl.DataFrame) -> pl.DataFrame:
        """Pairs with the attributes that are on their lines, by number, in place of the column `record`."""
        found, record = block.pair_types, pairs["record"].to_numpy()
        now = np.array([self._types.today(number) for number in found.numbers.tolist()], dtype=np.int64)
        columns = {name: pairs[name] for name in pairs.columns if name != "record"}
        for attribute in self._attributes.intersection(now.tolist()):
            places = block.pairs_of(now == attribute)
            of_lines, is_there = np.zeros(len(block), np.int64), np.zeros(len(block), dtype=bool)
            # Of several on a line the first counts: numpy keeps what is written last.
            of_lines[block.pair_record[places][::-1]] = block.pair_value[places][::-1]
            is_there[block.pair_record[places]] = True
            known, values = is_there[record], pl.Series(of_lines[record])
            if known.any():
                columns[str(attribute)] = values if known.all() else values.zip_with(pl.Series(known), NO_VALUE)
        return pl.DataFrame(columns)

    def _points(self, block: Block, row: Numbers, types: Mapping[int, int]) -> pl.DataFrame:
        """Samples and marks on rows of the kind that they belong to, with the attributes that are on their lines."""
        if not types:
            return pl.DataFrame()
        found = self._pairs(block, row, types)
        points = [found.clear().drop("record")]
        for one in (one for one in self._collections if one.samples and found.height):
            of_kind = pl.col("type").is_in(
                [number for number in types.values() if self._types.samples[self._types.base(number)] is one]
            )
            pairs = found.filter(of_kind & pl.Series(self._kind[one.on][found["row"].to_numpy()]))
            # Samples of metrics are many, and have no attributes.
            points.append(self._with_attributes(block, pairs) if one.attributes and pairs.height else pairs.drop("record"))
        return pl.concat(points, how="diagonal").rename({"time": "start", "type": "number"}).with_columns(end="start")

    def _states(self, block: Block, row: Numbers) -> pl.DataFrame:
        of_states = row[block.of_states]
        is_stream = pl.Series((of_states >= 0) & self._kind[STREAM][of_states])
        found = block.states.with_columns(row=pl.Series(of_states)).filter(is_stream)
        return found.join(BY_STATE, on="state", maintain_order="left").rename({"begin": "start"})

    def _launch_lines(self, block: Block, row: Numbers) -> pl.DataFrame:
        """Lines from a host thread to a stream, whatever their tags: other tools have others. Only those of the critical path
        are no launches."""
        called, arrived = block.time[block.of_messages], block.message_column("physical_recv")
        origin, end = self._window.origin, self._window.ends[-1]
        # Calls before the selected time are not known of reports either.
        inside = (called >= origin) & (arrived >= origin) & (arrived <= end)
        is_launch = inside & (block.message_column("tag") != event_types.TAG_CRITICAL_PATH)
        places, sender, receiver = self._between(block, row, is_launch, STREAM)
        columns = {
            "time": called[places] - origin,
            "row": sender,
            "to_time": arrived[places] - origin,
            "to_row": self._first_row[receiver],
        }
        return in_types(columns, LAUNCH_SCHEMA)

    def _rank_messages(self, block: Block, row: Numbers) -> pl.DataFrame:
        """Lines between host threads that have no tag of nsys2prv: messages of MPI."""
        sent, arrived = block.time[block.of_messages], block.message_column("physical_recv")
        origin, end = self._window.origin, self._window.ends[-1]
        inside = (sent >= origin) & (sent <= end) & (arrived >= origin) & (arrived <= end)
        is_message = inside & ~np.isin(block.message_column("tag"), list(event_types.OWN_TAGS))
        places, sender, receiver = self._between(block, row, is_message, HOST)
        columns = {
            "time": sent[places] - origin,
            "row": sender,
            # A receive that started before the selected time is cut there.
            "to_begin": np.maximum(block.message_column("logical_recv")[places] - origin, 0),
            "to_time": arrived[places] - origin,
            "to_row": receiver,
            "size": block.message_column("size")[places],
        }
        return in_types(columns, MESSAGE_SCHEMA)

    def _between(self, block: Block, row: Numbers, chosen: Flags, kind: str) -> tuple[Numbers, Numbers, Numbers]:
        """Of the messages of a block that are chosen, those from a host thread to a row of a kind: places among the messages,
        rows of senders and of receivers."""
        sender, receiver = row[block.of_messages], self._row_of[block.rows_of_receivers(self._trace.header)]
        chosen = chosen & (sender >= 0) & (receiver >= 0) & self._kind[HOST][sender] & self._kind[kind][receiver]
        places = np.flatnonzero(chosen)
        return places, sender[places], receiver[places]

    def _narrowed(self, found: pl.DataFrame) -> list[tuple[Collection, pl.DataFrame]]:
        """Intervals as rows of the collections that they belong to."""
        if found.is_empty():
            return []
        shaped = self._window.clip(found.rename({"time": "start", "type": "number"}))
        if self._types.aliases:
            # On rows of streams the number of these calls means that something runs; the states have what.
            on_streams = pl.Series(self._kind[STREAM][shaped["row"].to_numpy()])
            shaped = shaped.filter(~(pl.col("number").is_in(list(self._types.aliases)) & on_streams))
            shaped = shaped.with_columns(pl.col("number").replace(self._types.aliases))
        numbers = distinct_numbers(shaped)
        kinds = [one for one in self._collections if not one.samples and base_types(numbers.numbers.tolist(), one)]
        return [each for one in kinds for each in self._of_collection(shaped, one, numbers)]

    def _of_collection(
        self, placed: pl.DataFrame, collection: Collection, numbers: Distinct | None = None
    ) -> list[tuple[Collection, pl.DataFrame]]:
        if placed.is_empty():
            return []
        # Only now: starts and ends are paired on the rows of the file, on which nothing overlaps.
        return [(collection, on_first_rows(narrow(placed, collection, numbers), self._first_row))]

    def _add(self, found: Sequence[tuple[Collection, pl.DataFrame]], callers: Iterable[int] | None = None) -> None:
        """Add rows of collections; `callers` are those in them, None: they are not known."""
        for collection, kept in found:
            self._read.collections[collection.name].add(kept)
            if callers is None and collection is ON_HOSTS:
                self._read.callers |= calling_rows(kept)
        self._read.callers.update(callers or ())
