"""Checks of traces of nsys2prv, which guarantee more than other traces: states without gaps, times of messages, and the account
of what was written, OUT.json, recomputed from the trace."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.paraver.blocks import Block, Indices
from nsys2prv.paraver.record_checks import NO_STATE, ROW, CheckedTrace, RecordCheck, StateOrder, TraceRule
from nsys2prv.paraver.trace_files import companion, shown
from nsys2prv.sources.registry import type_of
from nsys2prv.timeline.labels import readable
from nsys2prv.timeline.records import ranges_from_json, ranges_of_types_from_json
from nsys2prv.vocabulary import row_names
from nsys2prv.vocabulary.event_types import CRITICAL_PATH, LARGEST_LABELLED_NUMBER, TAG_CRITICAL_PATH, Role

_NUMBER = re.compile("[0-9]{1,10}")
_PATH = "critical_path"
_MOST_WINDOWS = 1000
"""OUT.json lists at most as many windows of time."""
_MOST_GAPS = 10_000
"""Gaps in states that are kept: more than these are violations, though they may be between windows."""


class CompleteStates(StateOrder):
    """Threads and streams have states from 0 to the end; only between windows of a chosen time there are none.

    Where OUT.json lists the windows, these are the gaps. Elsewhere a gap is between two windows if all rows with states have
    it, and no record lies inside."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._gaps = pl.DataFrame(schema=dict.fromkeys(("previous", "begin", "rows", "line", *ROW), pl.Int64))
        # Time of the last record so far, and of the last one before that time, ns.
        self._before = (0, 0)
        self._windows, self._listed_until = _windows(self.trace.summary)

    def follow(self, block: Block, places: Indices, previous: Indices) -> None:
        super().follow(block, places, previous)
        previous = np.maximum(previous, 0)
        after_gap = np.flatnonzero(block.time[places] > previous)
        gaps = None
        if len(after_gap):
            ends = pl.Series(previous[after_gap])
            gaps = block.records[places[after_gap]].select("line", *ROW, previous=ends, begin="time")
        if self._windows is not None:
            if gaps is not None:
                listed = gaps.join(self._windows, on=["previous", "begin"], how="semi")
                unlisted = pl.col("previous") >= self._listed_until if self._listed_until is not None else pl.lit(False)
                self._report(gaps.join(listed, on="line", how="anti").filter(~unlisted))
        elif len(block):
            if gaps is not None:
                times = block.records.select(begin="time", before=pl.col("time").shift(1, fill_value=self._before[0]).cum_max())
                before = pl.DataFrame([self._before], schema=times.schema, orient="row")
                self._take(gaps, pl.concat([before, times]).unique("begin", keep="first", maintain_order=True))
            last = int(np.argmax(block.time))
            if block.time[last] > self._before[0]:
                self._before = int(block.time[last]), int(block.time[:last].max(initial=self._before[0]))

    def _take(self, gaps: pl.DataFrame, times: pl.DataFrame) -> None:
        """Keep gaps without records inside; `times` has the first record of each time, and the time of the one before it."""
        empty = gaps.join(times, on="begin", how="left", maintain_order="left")
        is_empty = pl.col("before") <= pl.col("previous")
        self._report(empty.filter(~is_empty))
        common = empty.filter(is_empty).group_by("previous", "begin", maintain_order=True)
        counted = common.agg(pl.len().cast(pl.Int64).alias("rows"), *(pl.col(name).first() for name in ("line", *ROW)))
        by_times = pl.concat([self._gaps, counted]).group_by("previous", "begin", maintain_order=True)
        self._gaps = by_times.agg(pl.col("rows").sum(), *(pl.col(name).first() for name in ("line", *ROW)))
        if self._gaps.height > _MOST_GAPS:
            self._report(self._gaps)
            self._gaps = self._gaps.clear()

    def _report(self, gaps: pl.DataFrame) -> None:
        problem = "task {task} thread {thread} has no state from {previous} ns to {begin} ns"
        self.violations(TraceRule.COMPLETE, gaps, problem)

    def finish(self) -> None:
        rows = [
            (number, thread + 1) for number, task in enumerate(self.trace.header.tasks, 1) for thread in range(task.threads)
        ]
        last = dict(zip(rows, self._last.tolist(), strict=True))
        self._report(self._gaps.filter(pl.col("rows") < int((self._last != NO_STATE).sum())))
        end = self.trace.header.end
        for (task, thread), time in last.items():
            if NO_STATE < time < end:
                self._add(f"task {task} thread {thread} has no state from {time} ns to the end, {end} ns")
        for task, thread in self._rows_with_states():
            if last[task, thread] == NO_STATE:
                self._add(f"task {task} thread {thread} has no state")

    def _add(self, problem: str) -> None:
        self.log.add(TraceRule.COMPLETE, self.trace.path, None, problem)

    def _rows_with_states(self) -> Iterator[tuple[int, int]]:
        """Task and thread of each row that is a thread or a stream, as far as names say so."""
        names, header = self.trace.names, self.trace.header
        nodes, tasks, threads = (names.get(level, ()) for level in ("NODE", "TASK", "THREAD"))
        if (len(nodes), len(tasks), len(threads)) != (len(header.cpus_per_node), len(header.tasks), header.rows):
            return
        for number, (task, task_name) in enumerate(zip(header.tasks, tasks, strict=True), start=1):
            is_node = 1 <= task.node <= len(nodes) and task_name == row_names.node_task_name(nodes[task.node - 1])
            for thread in range(task.threads):
                name = threads[task.first_row + thread]
                is_device = row_names.device_of_metrics(name) is not None
                if not is_device and (not is_node or row_names.parse_stream_name(name)):
                    yield number, thread + 1


def _windows(summary: Mapping[str, Any] | None) -> tuple[pl.DataFrame | None, int | None]:
    """Times between the windows that OUT.json lists, and from where on it does not list all; None: not known."""
    trace = (summary or {}).get("trace", {})
    windows, origin = trace.get("windows_ns"), trace.get("origin_ns")
    if not windows or origin is None or not all(len(window) == 2 for window in windows):
        return None, None
    edges = [(before[1] - origin, after[0] - origin) for before, after in pairwise(windows)]
    until = windows[-1][1] - origin if len(windows) >= _MOST_WINDOWS else None
    return pl.DataFrame(edges, schema={"previous": pl.Int64, "begin": pl.Int64}, orient="row"), until


class MessageTimes(RecordCheck):
    """Messages have one time when they are sent, and their receivers wait before they arrive."""

    def update(self, block: Block) -> None:
        for is_wrong, problem in (
            (pl.col("logical_send") != pl.col("physical_send"), "is sent at {logical_send} ns and at {physical_send} ns"),
            (
                pl.col("logical_recv") > pl.col("physical_recv"),
                "arrives at {physical_recv} ns, before its receiver waits for it at {logical_recv} ns",
            ),
        ):
            self.violations(TraceRule.MESSAGES, block.messages.filter(is_wrong), f"a message {problem}")


class Account(RecordCheck):
    """OUT.json agrees with the trace: numbers of objects and records, names, and events by type."""

    def __post_init__(self) -> None:
        self._starts: Counter[int] = Counter()  # starts of intervals by type
        self._points: Counter[int] = Counter()  # events by type
        self._path_lines = self._path_time = 0  # lines and time (ns) of the critical path
        self._summary = self.trace.summary or {}

    def update(self, block: Block) -> None:
        types, pairs = block.pair_types, block.edge_pairs
        starts = np.bincount(types.place[pairs[block.pair_value[pairs] != 0]], minlength=len(types.numbers))
        self._points.update(dict(zip(types.numbers.tolist(), types.rows.tolist(), strict=True)))
        self._starts.update(dict(zip(types.numbers.tolist(), starts.tolist(), strict=True)))
        if _PATH in self._summary:
            self._path_lines += int((block.message_columns["tag"] == TAG_CRITICAL_PATH).sum())
            of_path = block.pairs_of(types.numbers == CRITICAL_PATH.number)
            ends = np.where(block.pair_value[of_path] == 0, 1, -1)
            self._path_time += int((ends * block.time[block.pair_record[of_path]]).sum())

    def finish(self) -> None:
        path = companion(self.trace.path, ".json")
        for problem in chain(
            self._objects(), self._names(), self._rows_of_tables(), self._events(), self._critical_path(), self._types()
        ):
            self.log.add(TraceRule.ACCOUNT, path, None, problem)

    def _objects(self) -> Iterator[str]:
        header, counts = self.trace.header, self._summary["trace"]
        numbers = {
            "records": self.counts["states"] + self.counts["event_lines"] + self.counts["messages"],
            "length_ns": header.end,
            "nodes": len(header.cpus_per_node),
            "tasks": len(header.tasks),
            "rows": header.rows,
        }
        for name, number in numbers.items():
            if counts.get(name, number) != number:
                yield f"trace.{name} is {counts[name]}, and that of the trace {number}"
        nodes, tasks = self._summary.get("nodes"), self._summary.get("tasks")
        if nodes is not None and [node.get("cpus") for node in nodes] != list(header.cpus_per_node):
            yield "the CPUs of its nodes are not those of the header"
        threads = [task.threads for task in header.tasks]
        if tasks is not None and [len(task.get("threads", ())) for task in tasks] != threads:
            yield "the numbers of threads of its tasks are not those of the header"

    def _names(self) -> Iterator[str]:
        tasks = self._summary.get("tasks", ())
        levels: dict[str, list[str]] = {
            "NODE": [node.get("name", "") for node in self._summary.get("nodes", ())],
            "TASK": [task.get("name", "") for task in tasks],
            "THREAD": [name for task in tasks for name in task.get("threads", ())],
        }
        for level, names in levels.items():
            if names and level in self.trace.names and tuple(map(readable, names)) != self.trace.names[level]:
                yield f"its names of level {level} are not those of the .row"
        if self.trace.has_labels and "event_types" in self._summary:
            listed = [(entry.get("number"), entry.get("label")) for entry in self._summary["event_types"]]
            labels = {number: label for number, label in listed if number is not None and number <= LARGEST_LABELLED_NUMBER}
            if labels != {number: kind.label for number, kind in self.trace.labels.types.items()}:
                yield "its event types are not those of the .pcf"

    def _tables(self) -> Iterator[Mapping[str, Any]]:
        return (table for report in self._summary.get("reports", ()) for table in report.get("tables", ()))

    def _rows_of_tables(self) -> Iterator[str]:
        """Rows that were read are written or left out, with a reason."""
        for table in self._tables():
            sources = table.get("sources", ())
            for source in sources:
                rows, written, left_out = source.get("rows", 0), source.get("written", 0), _total(source, "left_out")
                if rows != written + left_out:
                    yield f"source {shown(source.get('title', ''))} has {rows} rows, {written} written and {left_out} left out"
            rows, read, left_out = (
                table.get("rows", 0),
                sum(source.get("rows", 0) for source in sources),
                _total(table, "left_out"),
            )
            if rows != read + left_out:
                yield f"table {shown(table.get('table', ''))} has {rows} rows, {read} read and {left_out} left out"

    def _events(self) -> Iterator[str]:
        entries = [entry for table in self._tables() for kind in ("sources", "derived") for entry in table.get(kind, ())]
        if any("events" not in entry for entry in entries):
            # Versions before 0.2 did not count them.
            return
        written: Counter[int] = Counter()
        for entry in entries:
            if _total(entry, "events") < entry.get("written", 0):
                yield f"source {shown(entry.get('title', ''))} has {entry['written']} rows written in fewer events"
            written.update({int(number): count for number, count in entry["events"].items() if _NUMBER.fullmatch(number)})
        written.update({CRITICAL_PATH.number: self._summary.get(_PATH, {}).get("segments", 0)})
        for number in sorted({*written, *self._starts}):
            kind = type_of(number)
            role = kind.role if kind is not None else None
            if role is Role.INTERVAL:
                in_trace = self._starts[number]
            elif role is Role.ATTRIBUTE or number not in written:
                # What lasts as long as an interval of another source is counted there, and is on the lines of others, too.
                continue
            else:
                in_trace = self._points[number]
            if in_trace != written[number]:
                yield f"{written[number]} events of type {number} were written, and the trace has {in_trace}"

    def _critical_path(self) -> Iterator[str]:
        path = self._summary.get(_PATH, {})
        if path.get("lines", self._path_lines) != self._path_lines:
            yield f"{_PATH}.lines is {path['lines']}, and the trace has {self._path_lines}"
        total = _total(path, "total_ns")
        if "total_ns" in path and total != self._path_time:
            yield f"the times of {_PATH}.total_ns add up to {total} ns, and those in the trace to {self._path_time} ns"

    def _types(self) -> Iterator[str]:
        trace, rows = self._summary["trace"], self.trace.header.rows
        if differing := self._points.keys() ^ set(trace.get("types", self._points)):
            yield f"trace.types are not those of the trace: {min(differing)} is in one of them only"
        on_rows = ranges_of_types_from_json(trace.get("rows_of_types", ()), rows)
        if on_rows is None or ranges_from_json(trace.get("rows_of_messages", ()), rows) is None:
            yield f"trace.rows_of_types or trace.rows_of_messages has other rows than 1 to {rows}"
        elif absent := on_rows.keys() - self._points.keys():
            yield f"trace.rows_of_types has {min(absent)}, which is not in the trace"


def _total(entry: Mapping[str, Any], key: str) -> int:
    return sum(entry.get(key, {}).values())


def own_checks(trace: CheckedTrace) -> list[type[RecordCheck]]:
    """Checks of a trace of nsys2prv; `CompleteStates` is in the place of `StateOrder`."""
    return [CompleteStates, MessageTimes, *([Account] if trace.summary is not None else [])]
