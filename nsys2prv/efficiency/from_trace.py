"""Events of a Paraver trace for the measurement: of nsys2prv's traces, and of others as far as they have such events.

Kinds of rows are known by their names. In a trace without events of kernels (Extrae has kernels as states of its stream rows)
the states of streams are read: Running is a kernel, Group Communication one of NCCL, Memory transfer a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.clock_tables import clock_errors
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.kept_trace import KeptTrace, LinesRead
from nsys2prv.efficiency.run_events import (
    HOST,
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    METRICS,
    MPI_COLLECTIVES,
    ON_DEVICES,
    ON_HOSTS,
    STREAM,
    Collection,
    RunEvents,
    RunRows,
    TaskRows,
    TypeNames,
    base_types,
    calling_rows,
    distinct_names,
    narrow,
    on_first_rows,
)
from nsys2prv.errors import NothingToTranslate, TraceError
from nsys2prv.execution.progress import progress_bar
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.interval_pairs import match_ends, pair_intervals
from nsys2prv.paraver.keys import distinct
from nsys2prv.paraver.summary_file import read_summary
from nsys2prv.paraver.trace_files import companion
from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.run.option_values import TimeRange
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.sources.registry import TYPES, renumbered, type_of
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.vocabulary import event_types

_SUFFIXES = (".prv", ".prv.gz")
_CUDA_CALL_LABEL = "CUDA library call"
"""Label of calls of the CUDA library; older versions of Extrae have them under a number that means copies here."""

_BY_STATE = pl.DataFrame(
    {
        "state": [event_types.RUNNING, event_types.STATE_GROUP, event_types.STATE_MEMORY_TRANSFER],
        "number": [event_types.KERNEL, event_types.NCCL_KERNEL, event_types.MEMORY_OPERATION],
        "value": [1, 2, 3],
    }
)
"""Event type and value of what a stream does in a state."""
_NAMES_BY_STATE: dict[int, TypeNames] = {
    event_types.KERNEL: TypeNames("CUDA kernel", {1: "kernel (by state)"}),
    event_types.NCCL_KERNEL: TypeNames("NCCL kernel", {2: "NCCL kernel (by state)"}),
    event_types.MEMORY_OPERATION: TypeNames("CUDA memcpy kernel", {3: "memory transfer (by state)"}),
}
_FOREVER = 1 << 60
"""A time behind every trace, ns."""
_KERNEL_TYPES = (event_types.KERNEL, event_types.NCCL_KERNEL, event_types.GRAPH_EXECUTION)


def is_trace(argument: str | Path) -> bool:
    """Whether a name is that of a trace.

    >>> is_trace("run/OUT.prv.gz"), is_trace("run/report1.sqlite")
    (True, False)
    """
    return str(argument).endswith(_SUFFIXES)


def files_read(arguments: Iterable[str | Path]) -> list[Path]:
    """The arguments, and of traces also the files that are read beside them."""
    suffixes = (".pcf", ".row", ".json")
    paths = list(map(Path, arguments))
    return [*paths, *(companion(path, suffix) for path in paths if is_trace(path) for suffix in suffixes)]


def events_of_trace(path: Path, options: ReadOptions, folder: Path, collections: Sequence[Collection]) -> RunEvents:
    """Read collections of a trace; parameters and errors are those of `event_input.read_events`."""
    # Before the trace is opened: what is kept is of this state of it.
    whole = options.time is None and options.ranks is None
    kept = KeptTrace(options.cache, files_read([path])) if options.cache is not None and whole else None
    return _TraceReading(open_trace(path), options, folder, collections, kept).run_events()


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


class _TraceReading:
    """One run of `events_of_trace`."""

    def __init__(
        self, trace: Trace, options: ReadOptions, folder: Path, collections: Sequence[Collection], kept: KeptTrace | None
    ) -> None:
        self._trace = trace
        self._options = options
        self._folder = folder
        self._kept = kept
        self._kinds = collections
        self._warnings: list[str] = []
        try:
            self._account: Mapping[str, Any] = read_summary(trace.path) or {}
        except TraceError as error:
            self._account = {}
            self._warnings.append(f"{error}; what it has is not used")
        # Time 0 of the trace on the axis of the reports; and the start of the time chosen.
        self._origin = self._account.get("trace", {}).get("origin_ns", 0)
        start = (options.time or TimeRange()).begin or 0
        self._clocks: list[dict[str, Any]] = []
        self._report_clocks: list[dict[str, Any]] = []
        tasks = self._with_clocks(_tasks(trace), self._origin + start)
        chosen = [options.ranks is None or task.rank in options.ranks for task in tasks]
        self._rows = RunRows([task for task, is_chosen in zip(tasks, chosen, strict=True) if is_chosen])
        if not self._rows.names:
            raise NothingToTranslate("none of the ranks chosen has rows")
        # Folded rows of one name are many streams: these are not known, and a row is nearest to one of them.
        is_folded = self._account_options().get("fold_streams") is True
        self._first_row = np.arange(len(self._rows.names)) if is_folded else self._rows.first_of_stream
        in_file = [is_chosen for task, is_chosen in zip(tasks, chosen, strict=True) for _ in task.rows]
        # For each row of the file its row among those chosen; -1: not chosen.
        self._row_of = np.where(in_file, np.cumsum(in_file) - 1, -1)
        # Open at the end: records may lie after the end in the header.
        chosen_time = options.time or TimeRange()
        begin, end = chosen_time.begin or 0, _FOREVER if chosen_time.end is None else chosen_time.end
        self._window = TimeSelection((begin,), (max(end, begin + 1),))
        self._aliases = {
            number: event_types.CUDA_CALL
            for number, names in trace.labels.types.items()
            if names.label == _CUDA_CALL_LABEL and number != event_types.CUDA_CALL
        }
        # An earlier version wrote some types under other numbers.
        self._moved = renumbered({number: names.label for number, names in trace.labels.types.items()})
        self._read = LinesRead.in_folder(folder, collections, max(trace.header.end, 1))
        self._kind = {kind: self._rows.of_kind(kind) for kind in (HOST, STREAM, METRICS)}
        self._by_state = not any(number in trace.labels.types for number in _KERNEL_TYPES)
        self._attributes = {int(number) for one in collections for number in one.columns}
        self._on = {number: one for one in collections if one.samples for number in one.types}
        self._known = {number for one in collections for number in one.types}
        self._intervals = {number for number in self._known if TYPES[number].role is event_types.Role.INTERVAL}
        self._open: pl.DataFrame | None = None
        self._bases_of: dict[int, int] = {}

    def run_events(self) -> RunEvents:
        size = self._trace.path.stat().st_size
        kept = self._kept.take(self._kinds, self._folder / "kept") if self._kept is not None else None
        if kept is not None:
            self._read = kept
            self._window = self._up_to_the_end()
        else:
            self._read_lines()
            if self._kept is not None and (problem := self._kept.keep(self._read)) is not None:
                self._warnings.append(f"{self._trace.path}: {problem}")
        read = self._read
        warnings = self._warnings
        if not self._trace.has_names:
            warnings.append(f"{self._trace.path}: there is no .row beside it, so it is not known which rows are CUDA streams")
        if self._by_state and size:
            warnings.append(
                f"{self._trace.path}: no event type is that of CUDA kernels; what streams do is taken from their states, and "
                f"kernels have no names"
            )
        account = self._account
        reports = account.get("reports", ())
        return RunEvents(
            inputs=(str(self._trace.path),),
            is_trace=True,
            title=self._trace.path.name,
            rows=self._rows,
            begin=self._origin + self._window.origin,
            length=self._window.length,
            types=self._types(),
            collections={name: found for name, found in read.collections.items() if found.rows},
            launches=read.launches if read.launches.rows else None,
            callers=self._rows.using_gpus(read.callers),
            messages=read.messages if read.messages.rows else None,
            ranks_of_run=account.get("run", {}).get("size", 0),
            began=moment.isoformat() if (moment := self._trace.header.moment) else None,
            clocks=self._clocks,
            report_clocks=self._report_clocks,
            recorders=distinct_names(report.get("nsys") for report in reports),
            gpus=distinct_names(gpu.get("name") for report in reports for gpu in report.get("gpus", ())),
            warnings=warnings,
        )

    def _read_lines(self) -> None:
        with progress_bar("reading", "line", shown=self._options.progress) as bar:
            for found in self._trace.read(self._select):
                if isinstance(found, str):
                    raise TraceError(self._trace.path, found)
                self._take(found)
                bar.update(found.records)
        self._window = self._up_to_the_end()
        self._close()

    def _account_options(self) -> Mapping[str, Any]:
        """Options of the translation as OUT.json has them; empty where it has none."""
        options = self._account.get("options")
        return options if isinstance(options, dict) else {}

    def _with_clocks(self, tasks: Sequence[TaskRows], origin: int) -> list[TaskRows]:
        """Tasks with what OUT.json has of their clocks: it may be absent, or of a version that had nothing of them."""
        try:
            reports = self._account.get("reports", ())
            clocks, of_reports = self._account.get("clocks", []), [report["alignment"] for report in reports]
            errors = clock_errors(clocks, of_reports, origin)
            number = {report["path"]: place for place, report in enumerate(reports)}
            of_task = {task["name"]: number[task["report"]] for task in self._account.get("tasks", ()) if task["report"]}
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            account = companion(self._trace.path, ".json")
            self._warnings.append(f"{account}: what it has of clocks is damaged ({error!r}) and is not used; translate again")
            return list(tasks)
        self._clocks, self._report_clocks = clocks, of_reports
        self._warnings += [one["text"] for one in self._account.get("clock_check", ())]
        return [
            replace(task, report=of_task[task.name], clock=errors[of_task[task.name]]) if task.name in of_task else task
            for task in tasks
        ]

    def _up_to_the_end(self) -> TimeSelection:
        found = TimeSelection((0,), (self._read.end,)).intersection(self._window)
        if not found.starts:
            raise NothingToTranslate(f"the trace ends at {self._read.end / 1e9:.6f} s, before the time chosen")
        return found

    def _types(self) -> dict[int, TypeNames]:
        labels = self._trace.labels.types
        types = {self._moved.get(number, number): TypeNames(names.label, names.values) for number, names in labels.items()}
        renamed: dict[int, TypeNames] = {alias: types.pop(number) for number, alias in self._aliases.items()}
        named = {**types, **(_NAMES_BY_STATE if self._by_state else {}), **renamed}
        # Traces of others, and damaged ones, have events of types without a label.
        unnamed = {number for number in self._read.numbers if self._base(number) >= 0} - named.keys()
        return {**named, **{number: TypeNames(f"event type {number}", None) for number in unnamed}}

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
        numbers = {number: self._moved.get(number, number) for number in types}
        bases = {number: self._base(number) for number in numbers.values()}
        edges = self._pairs(block, row, {old: new for old, new in numbers.items() if bases[new] in self._intervals})
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
            self._points(block, row, {old: new for old, new in numbers.items() if bases[new] in self._on}),
            self._states(block) if self._by_state else None,
            self._launch_lines(block.messages),
            self._rank_messages(block.messages) if MPI_COLLECTIVES in self._kinds else None,
        )

    def _take(self, found: _Selected) -> None:
        self._read.end = max(self._read.end, found.end)
        self._read.numbers |= found.numbers
        edges = found.edges if self._open is None else pl.concat([self._open, found.edges], how="diagonal")
        paired = pair_intervals(edges, ["row", "type"])
        self._open = paired.open
        self._add(self._narrowed(paired.closed))
        self._add(found.intervals, found.callers)
        for collection in self._kinds:
            if collection.samples and found.points.height:
                self._add(self._of_collection(self._window.clip(found.points), collection))
        if found.states is not None:
            self._add(self._of_collection(self._window.clip(found.states), ON_DEVICES))
        self._read.launches.add(found.launches)
        if found.messages is not None:
            self._read.messages.add(found.messages)

    def _row(self, places: pl.DataFrame, task: str, thread: str) -> pl.Series:
        """The row of each place among those chosen; -1: it is on none of them."""
        of_file = self._trace.header.rows_at(places[task].to_numpy(), places[thread].to_numpy())
        return pl.Series("row", self._row_of[of_file])

    def _base(self, number: int) -> int:
        """The event type of a collection that a number belongs to; -1: it belongs to none."""
        if number not in self._bases_of:
            kind = type_of(self._aliases.get(number, number))
            self._bases_of[number] = kind.number if kind is not None and kind.number in self._known else -1
        return self._bases_of[number]

    def _pairs(self, block: Block, row: Numbers, types: Mapping[int, int]) -> pl.DataFrame:
        """Pairs of some types on rows that are chosen: record, row, type (with its number of today), time, value."""
        found = block.pair_types
        pairs = block.pairs_of(np.isin(found.numbers, list(types)))
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
        now = np.array([self._moved.get(number, number) for number in found.numbers.tolist()], dtype=np.int64)
        attributes = {}
        for attribute in self._attributes.intersection(now.tolist()):
            places = block.pairs_of(now == attribute)
            of_lines, is_there = np.zeros(len(block), np.int64), np.zeros(len(block), dtype=bool)
            # Of several on a line the first counts: numpy keeps what is written last.
            of_lines[block.pair_record[places][::-1]] = block.pair_value[places][::-1]
            is_there[block.pair_record[places]] = True
            known, values = pl.Series(is_there[record]), pl.Series(of_lines[record])
            if known.any():
                attributes[str(attribute)] = values if known.all() else pl.select(pl.when(known).then(values)).to_series()
        return pairs.drop("record").with_columns(**attributes)

    def _points(self, block: Block, row: Numbers, types: Mapping[int, int]) -> pl.DataFrame:
        """Samples and marks on rows of the kind that they belong to, with the attributes that are on their lines."""
        found = self._pairs(block, row, types)
        points = [found.clear().drop("record")]
        for one in (one for one in self._kinds if one.samples and found.height):
            of_kind = pl.col("type").is_in([number for number in types.values() if self._on[self._base(number)] is one])
            pairs = found.filter(of_kind & pl.Series(self._kind[one.on][found["row"].to_numpy()]))
            # Samples of metrics are many, and have no attributes.
            points.append(self._with_attributes(block, pairs) if one.attributes and pairs.height else pairs.drop("record"))
        return pl.concat(points, how="diagonal").rename({"time": "start", "type": "number"}).with_columns(end="start")

    def _states(self, block: Block) -> pl.DataFrame:
        placed = block.states.with_columns(self._row(block.states, "task", "thread")).filter(pl.col("row") >= 0)
        found = placed.filter(pl.Series(self._kind[STREAM][placed["row"].to_numpy()]))
        return found.join(_BY_STATE, on="state", maintain_order="left").rename({"begin": "start"})

    def _launch_lines(self, messages: pl.DataFrame) -> pl.DataFrame:
        """Lines from a host thread to a stream, whatever their tags: other tools have others. Only those of the critical path
        are no launches."""
        messages = messages.filter(pl.col("tag") != event_types.TAG_CRITICAL_PATH)
        sender, receiver = (self._row(messages, f"{end}_task", f"{end}_thread").to_numpy() for end in ("send", "recv"))
        is_launch = (sender >= 0) & (receiver >= 0)
        is_launch &= self._kind[HOST][sender] & self._kind[STREAM][receiver]
        origin, end = self._window.origin, self._window.ends[-1]
        lines = messages.select("logical_send", "physical_recv", row=pl.Series(sender), to_row=pl.Series(receiver))
        # Calls before the selected time are not known of reports either.
        inside = (pl.col("logical_send") >= origin) & pl.col("physical_recv").is_between(origin, end)
        found = lines.filter(pl.Series(is_launch) & inside)
        shaped = found.select("row", "to_row", time=pl.col("logical_send") - origin, to_time=pl.col("physical_recv") - origin)
        shaped = on_first_rows(shaped, self._first_row, "to_row")
        return shaped.select(pl.col(name).cast(dtype) for name, dtype in LAUNCH_SCHEMA.items())

    def _rank_messages(self, messages: pl.DataFrame) -> pl.DataFrame:
        """Lines between host threads that have no tag of nsys2prv: messages of MPI."""
        sender, receiver = (self._row(messages, f"{end}_task", f"{end}_thread").to_numpy() for end in ("send", "recv"))
        is_message = (sender >= 0) & (receiver >= 0)
        is_message &= self._kind[HOST][sender] & self._kind[HOST][receiver]
        origin = self._window.origin
        lines = messages.select(
            *("size", "tag"),
            time=pl.col("logical_send") - origin,
            row=pl.Series(sender),
            # A receive that started before the selected time is cut there.
            to_begin=(pl.col("logical_recv") - origin).clip(lower_bound=0),
            to_time=pl.col("physical_recv") - origin,
            to_row=pl.Series(receiver),
        )
        chosen = pl.Series(is_message) & ~pl.col("tag").is_in(event_types.OWN_TAGS)
        inside = pl.all_horizontal(pl.col("time", "to_time").is_between(0, self._window.ends[-1] - origin))
        return lines.filter(chosen & inside).select(pl.col(name).cast(dtype) for name, dtype in MESSAGE_SCHEMA.items())

    def _close(self) -> None:
        """Intervals without an end last to the end of the trace."""
        if self._open is not None and self._open.height:
            self._add(self._narrowed(self._open.with_columns(end=pl.lit(self._read.end, pl.Int64))))

    def _narrowed(self, found: pl.DataFrame) -> list[tuple[Collection, pl.DataFrame]]:
        """Intervals as rows of the collections that they belong to."""
        if found.is_empty():
            return []
        shaped = self._window.clip(found.rename({"time": "start", "type": "number"}))
        if self._aliases:
            # On rows of streams the number of these calls means that something runs; the states have what.
            on_streams = pl.Series(self._kind[STREAM][shaped["row"].to_numpy()])
            shaped = shaped.filter(~(pl.col("number").is_in(list(self._aliases)) & on_streams))
            shaped = shaped.with_columns(pl.col("number").replace(self._aliases))
        numbers = distinct(shaped["number"].to_numpy()).numbers.tolist()
        kinds = [one for one in self._kinds if not one.samples and base_types(numbers, one)]
        return [each for one in kinds for each in self._of_collection(shaped, one)]

    def _of_collection(self, placed: pl.DataFrame, collection: Collection) -> list[tuple[Collection, pl.DataFrame]]:
        if placed.is_empty():
            return []
        # Only now: starts and ends are paired on the rows of the file, on which nothing overlaps.
        return [(collection, on_first_rows(narrow(placed, collection), self._first_row))]

    def _add(self, found: Sequence[tuple[Collection, pl.DataFrame]], callers: Iterable[int] | None = None) -> None:
        """Add rows of collections; `callers` are those in them, None: they are not known."""
        for collection, kept in found:
            self._read.collections[collection.name].add(kept)
            if callers is None and collection is ON_HOSTS:
                self._read.callers |= calling_rows(kept)
        self._read.callers.update(callers or ())


def _tasks(trace: Trace) -> list[TaskRows]:
    """Tasks with the names of their rows; without a name in the .row they have the one that Paraver gives them."""
    header, names = trace.header, trace.names
    nodes, tasks, threads = (names.get(level, ()) for level in ("NODE", "TASK", "THREAD"))
    found = []
    for index, task in enumerate(header.tasks):
        node = nodes[task.node - 1] if 1 <= task.node <= len(nodes) else f"node {task.node}"
        name = tasks[index] if index < len(tasks) else f"TASK 1.{index + 1}"
        rows = tuple(
            threads[row] if row < len(threads) else f"THREAD 1.{index + 1}.{row - task.first_row + 1}"
            for row in range(task.first_row, task.first_row + task.threads)
        )
        found.append(TaskRows(name, node, rows))
    return found
