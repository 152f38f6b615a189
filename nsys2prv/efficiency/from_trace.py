"""A Paraver trace as a recording: those of nsys2prv, and those that others wrote as far as their events tell.

Rows are told apart by their names. A trace without events of kernels (Extrae has kernels as states of its stream rows) is
read by the states of streams: Running is a kernel, Group Communication one of NCCL, Memory transfer a copy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tqdm import tqdm

from nsys2prv.efficiency.from_reports import distinct, narrow
from nsys2prv.efficiency.run_events import (
    COLLECTIONS,
    HOST,
    LAUNCH_SCHEMA,
    METRICS,
    ON_DEVICES,
    ON_HOSTS,
    RANGES,
    STREAM,
    Callers,
    Collection,
    RunEvents,
    RunRows,
    TaskRows,
    TypeNames,
    base_types,
    new_collections,
)
from nsys2prv.errors import NothingToTranslate
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.trace_files import companion
from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.run.option_values import TimeRange
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.sources.registry import TYPES
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.vocabulary import event_types

_SUFFIXES = (".prv", ".prv.gz")
_CUDA_CALL_LABEL = "CUDA library call"
"""Older versions of Extrae have calls of the CUDA library under a number that means copies here; the label tells."""

_BY_STATE = {
    event_types.RUNNING: (event_types.KERNEL, 1),
    event_types.STATE_GROUP: (event_types.NCCL_KERNEL, 2),
    event_types.STATE_MEMORY_TRANSFER: (event_types.MEMORY_OPERATION, 3),
}
"""Event type and value that stand for a state of a stream."""
_NAMES_BY_STATE = {
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


def record_trace(path: Path, how: ReadOptions, folder: Path, *, with_ranges: bool = False) -> RunEvents:
    """Read a trace.

    Parameters
    ----------
    path
        A .prv or .prv.gz, with its .pcf and .row beside it.
    how
        Of it, `time`, `ranks` and `progress` count.
    folder
        For intermediate files.
    with_ranges
        Read NVTX ranges too.

    Raises
    ------
    TraceError
        When it can't be read.
    NothingToTranslate
        When nothing is left after the selection.
    """
    return _Reading(open_trace(path), how, folder, with_ranges).recording()


class _Reading:
    """One run of `record_trace`."""

    def __init__(self, trace: Trace, how: ReadOptions, folder: Path, with_ranges: bool) -> None:
        self._trace = trace
        self._how = how
        self._wanted = tuple(one for one in COLLECTIONS if with_ranges or one is not RANGES)
        tasks = _tasks(trace)
        chosen = [how.ranks is None or task.rank in how.ranks for task in tasks]
        self._rows = RunRows([task for task, wanted in zip(tasks, chosen, strict=True) if wanted])
        if not self._rows.names:
            raise NothingToTranslate("none of the ranks chosen has rows")
        in_file = [wanted for task, wanted in zip(tasks, chosen, strict=True) for _ in task.rows]
        # The row in the recording of each row of the file; -1: not chosen.
        self._row_of = np.where(in_file, np.cumsum(in_file) - 1, -1)
        self._window = self._choose_window()
        self._end = max(trace.header.end, 1)
        self._aliases = {
            number: event_types.CUDA_CALL
            for number, names in trace.labels.types.items()
            if names.label == _CUDA_CALL_LABEL and number != event_types.CUDA_CALL
        }
        self._collections = new_collections(folder, self._wanted)
        self._launches = ExternalSort(["to_time"], folder / "launches")
        self._callers = Callers()
        self._kind = {kind: self._rows.of_kind(kind) for kind in (HOST, STREAM, METRICS)}
        self._by_state = not any(number in trace.labels.types for number in _KERNEL_TYPES)
        self._open: pl.DataFrame | None = None
        self._bases: dict[int, int] = {}

    def recording(self) -> RunEvents:
        size = self._trace.path.stat().st_size
        hide = None if self._how.progress is None else not self._how.progress
        with tqdm(desc="reading", unit="line", unit_scale=True, disable=hide, file=sys.stderr, leave=False, delay=0.5) as bar:
            for block in self._trace.blocks():
                self._take(block)
                bar.update(block.records.height)
        self._window = self._up_to_the_end()
        self._close()
        warnings = []
        if not self._trace.has_names:
            warnings.append(f"{self._trace.path}: there is no .row beside it, which tells rows of CUDA streams from others")
        if self._by_state and size:
            warnings.append(
                f"{self._trace.path}: no event type is that of CUDA kernels; what streams do is taken from their states, and "
                f"kernels have no names"
            )
        account = _account(self._trace.path)
        reports = account.get("reports", ())
        return RunEvents(
            inputs=(str(self._trace.path),),
            is_trace=True,
            title=self._trace.path.name,
            rows=self._rows,
            begin=account.get("trace", {}).get("origin_ns", 0) + self._window.origin,
            length=self._window.length,
            types=self._types(),
            collections={name: found for name, found in self._collections.items() if found.rows},
            launches=self._launches if self._launches.rows else None,
            callers=self._callers.with_gpus(self._rows),
            began=_began(self._trace.header.date),
            clocks=account.get("clocks", []),
            recorders=distinct(report.get("nsys") for report in reports),
            gpus=distinct(gpu.get("name") for report in reports for gpu in report.get("gpus", ())),
            warnings=warnings,
        )

    def _choose_window(self) -> TimeSelection:
        """The time that is kept; open behind the trace, whose header may tell an end before that of its records."""
        chosen = self._how.time or TimeRange()
        begin = chosen.begin or 0
        return TimeSelection((begin,), (max(chosen.end if chosen.end is not None else _FOREVER, begin + 1),))

    def _up_to_the_end(self) -> TimeSelection:
        found = TimeSelection((0,), (self._end,)).intersection(self._window)
        if not found.begins:
            raise NothingToTranslate(f"the trace ends at {self._end / 1e9:.6f} s, before the time chosen")
        return found

    def _types(self) -> dict[int, TypeNames]:
        told = self._trace.labels.types
        types = {number: TypeNames(names.label, names.values) for number, names in told.items() if number not in self._aliases}
        types |= {number: types_of for number, types_of in _NAMES_BY_STATE.items() if self._by_state}
        for number, alias in self._aliases.items():
            types[alias] = TypeNames(told[number].label, told[number].values)
        return types

    def _take(self, block: Block) -> None:
        last = (block.events["time"].max(), block.states["end"].max(), block.messages["physical_recv"].max())
        self._end = max([self._end, *(time for time in last if isinstance(time, int))])
        row = self._trace.header.row_of(pl.col("task"), pl.col("thread"))
        pairs = self._placed(block.events.with_columns(row=row))
        kinds = self._known(pairs["type"].unique().to_list())
        self._take_intervals(pairs, kinds)
        samples = next((one for one in self._wanted if one.samples), None)
        if samples is not None:
            numbers = [number for number, base in kinds.items() if base in samples.types]
            found = pairs.filter(pl.col("type").is_in(numbers) & pl.Series(self._kind[METRICS][pairs["row"].to_numpy()]))
            self._add(found.select("row", "value", start="time", end="time", number="type"), samples)
        if self._by_state:
            self._take_states(self._placed(block.states.with_columns(row=row)))
        self._take_messages(block.messages)

    def _placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """With rows of the recording, and without those that are not chosen."""
        rows = pl.Series("row", self._row_of[frame["row"].to_numpy()])
        return frame.with_columns(rows).filter(pl.col("row") >= 0)

    def _known(self, numbers: list[int]) -> dict[int, int]:
        """Event types that some collection wants, with the type that they belong to."""
        for number in numbers:
            if number not in self._bases:
                meant = self._aliases.get(number, number)
                found = [base_types([meant], one) for one in self._wanted]
                self._bases[number] = next((bases[meant] for bases in found if bases), -1)
        return {number: self._bases[number] for number in numbers if self._bases[number] >= 0}

    def _take_intervals(self, pairs: pl.DataFrame, kinds: Mapping[int, int]) -> None:
        numbers = [number for number, base in kinds.items() if TYPES[base].role is event_types.Role.INTERVAL]
        edges = pairs.filter(pl.col("type").is_in(numbers)).select("line", "row", "type", "time", "value")
        for attribute in sorted(
            {one for each in self._wanted for numbers_of in each.attributes.values() for one in numbers_of}
        ):
            told = pairs.filter(pl.col("type") == attribute).unique("line", keep="first", maintain_order=True)
            column = told.select("line", pl.col("value").alias(str(attribute)))
            edges = edges.join(column, on="line", how="left", maintain_order="left")
        if self._open is not None:
            edges = pl.concat([self._open, edges])
        row = ["row", "type"]
        is_begin = pl.col("value") != 0
        # As in `Trace.intervals`: at one depth begins and ends alternate.
        paired = (
            edges.with_columns(depth=pl.when(is_begin).then(1).otherwise(-1).cum_sum().over(row) + (~is_begin).cast(pl.Int64))
            .sort([*row, "depth"], maintain_order=True)
            .with_columns(
                end=pl.col("time").shift(-1),
                closed=(
                    (pl.struct(*row, "depth") == pl.struct(*row, "depth").shift(-1)) & (pl.col("value").shift(-1) == 0)
                ).fill_null(False),
            )
            .filter(is_begin)
        )
        self._open = paired.filter(~pl.col("closed")).sort("line").select(edges.columns)
        self._add_intervals(paired.filter("closed"))

    def _close(self) -> None:
        """What has no end ends with the trace."""
        if self._open is not None and self._open.height:
            self._add_intervals(self._open.with_columns(end=pl.lit(self._end, pl.Int64)))

    def _add_intervals(self, found: pl.DataFrame) -> None:
        shaped = found.rename({"time": "start", "type": "number"})
        if self._aliases:
            # On stream rows the number of these calls says that something runs, and the states say what.
            on_streams = pl.Series(self._kind[STREAM][shaped["row"].to_numpy()])
            shaped = shaped.filter(~(pl.col("number").is_in(list(self._aliases)) & on_streams))
            shaped = shaped.with_columns(pl.col("number").replace(self._aliases))
        for collection in self._wanted:
            if not collection.samples:
                self._add(shaped, collection)

    def _take_states(self, states: pl.DataFrame) -> None:
        on_streams = pl.Series(self._kind[STREAM][states["row"].to_numpy()])
        found = states.filter(pl.col("state").is_in(list(_BY_STATE)) & on_streams)
        numbers = {state: number for state, (number, _) in _BY_STATE.items()}
        values = {state: value for state, (_, value) in _BY_STATE.items()}
        shaped = found.select(
            "row",
            start="begin",
            end="end",
            number=pl.col("state").replace_strict(numbers, return_dtype=pl.Int64),
            value=pl.col("state").replace_strict(values, return_dtype=pl.Int64),
        )
        self._add(shaped, ON_DEVICES)

    def _take_messages(self, messages: pl.DataFrame) -> None:
        row_of = self._trace.header.row_of
        lines = messages.select(
            "logical_send",
            "physical_recv",
            row=row_of(pl.col("send_task"), pl.col("send_thread")),
            to_row=row_of(pl.col("recv_task"), pl.col("recv_thread")),
        )
        sender, receiver = self._row_of[lines["row"].to_numpy()], self._row_of[lines["to_row"].to_numpy()]
        # Whatever its tag: a line from a host thread to a stream is a launch.
        is_launch = (sender >= 0) & (receiver >= 0)
        is_launch &= self._kind[HOST][sender] & self._kind[STREAM][receiver]
        origin, end = self._window.origin, self._window.ends[-1]
        found = lines.with_columns(row=pl.Series(sender), to_row=pl.Series(receiver)).filter(pl.Series(is_launch))
        found = found.filter(pl.col("physical_recv").is_between(origin, end))
        shaped = found.select("row", "to_row", time=pl.col("logical_send") - origin, to_time=pl.col("physical_recv") - origin)
        self._launches.add(shaped.select(pl.col(name).cast(dtype) for name, dtype in LAUNCH_SCHEMA.items()))

    def _add(self, placed: pl.DataFrame, collection: Collection) -> None:
        if placed.is_empty():
            return
        kept = narrow(self._window.clip(placed), collection)
        self._collections[collection.name].add(kept)
        if collection is ON_HOSTS:
            self._callers.add(kept)


def _tasks(trace: Trace) -> list[TaskRows]:
    """Tasks with the names of their rows; those that the .row does not tell have the names that Paraver gives them."""
    header, names = trace.header, trace.names
    nodes, tasks, threads = (names.get(level, ()) for level in ("NODE", "TASK", "THREAD"))
    found = []
    for index, task in enumerate(header.tasks):
        node = nodes[task.node - 1] if task.node <= len(nodes) else f"node {task.node}"
        name = tasks[index] if index < len(tasks) else f"TASK 1.{index + 1}"
        rows = tuple(
            threads[row] if row < len(threads) else f"THREAD 1.{index + 1}.{row - task.first_row + 1}"
            for row in range(task.first_row, task.first_row + task.threads)
        )
        found.append(TaskRows(name, node, rows))
    return found


def _began(date: str) -> str | None:
    """The date of a header, `DD/MM/YYYY at HH:MM`; None when it is another one.

    >>> _began("21/11/2026 at 14:05")
    '2026-11-21T14:05:00'
    """
    try:
        return datetime.strptime(date, "%d/%m/%Y at %H:%M").strftime("%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return None


def _account(path: Path) -> dict[str, Any]:
    """What the .json beside a trace tells; nothing when there is none, or it is another one."""
    account = companion(path, ".json")
    try:
        content = json.loads(account.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and isinstance(content.get("trace"), dict) else {}
