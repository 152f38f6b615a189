"""Traces for Dimemas: what its translator prv2dim takes, and how Extrae writes it.

prv2dim takes calls of MPI on the first thread of each task, messages inside of them, and collective operations by four
attributes: sizes, communicator, and a mark at the root. It takes neither rows of GPUs nor operations that Dimemas does not
know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.paraver.prv import PrvWriter
from nsys2prv.paraver.trace_format import ParaverFormat
from nsys2prv.paraver.trace_reader import open_trace
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, RecordKind, TimelineHead
from nsys2prv.timeline.rows import Rows, Thread
from nsys2prv.timeline.task_groups import Communicator
from nsys2prv.vocabulary import event_types, mpi_calls

_LAST_KNOWN = mpi_calls.NUMBERS["MPI_Imrecv"]
"""Dimemas knows calls up to this number."""
_SIMULATED = [number for name, number in mpi_calls.NUMBERS.items() if number <= _LAST_KNOWN and "eighbor_" not in name]
"""Calls that Dimemas simulates where they are collective; the others take their time and are no operation."""
_MOST = 2**31 - 1
"""Largest size (bytes) and tag that prv2dim reads."""
_WORLD = 1

_SIZES = (str(event_types.MPI_SEND_SIZE.number), str(event_types.MPI_RECV_SIZE.number))
_ROOT, _COMMUNICATOR = str(event_types.MPI_ROOT.number), str(event_types.MPI_COMMUNICATOR.number)
_OF_OPERATION = (*_SIZES, _ROOT, _COMMUNICATOR)


@dataclass(frozen=True)
class DimemasFormat(ParaverFormat):
    """Writes a trace for prv2dim (`trace.output_format.TraceFormat`)."""

    def fit(self, rows: Rows) -> Rows:
        """The first thread of each task."""
        rows = super().fit(rows)
        threads = rows.table.filter(pl.col("kind") == "thread").unique("task", keep="first", maintain_order=True)
        kept = threads.with_columns(new=pl.int_range(pl.len(), dtype=pl.Int64))
        tasks = tuple(
            replace(rows.tasks[task - 1], threads=(rows.tasks[task - 1].threads[thread - 1],))
            for task, thread in kept.select("task", "thread").iter_rows()
        )
        numbers = kept.select("row", "new")
        return replace(
            rows,
            tasks=tasks,
            table=kept.select(row="new", task=pl.col("new") + 1, thread=pl.lit(1, pl.Int64), kind="kind"),
            keys={
                key: found.join(numbers, on="row", how="inner", maintain_order="left").drop("row").rename({"new": "row"})
                for key, found in rows.keys.items()
            },
        )

    def writer(self, path: Path, head: TimelineHead, *, is_first: bool) -> DimemasWriter:
        """Writes records to a file."""
        return DimemasWriter(path, head, is_first=is_first)

    def write_names(self, base: Path, head: TimelineHead, used: Sequence[UsedType], title: str) -> None:
        """Write the .pcf and the .row, where prv2dim reads the task of a thread from its name."""
        tasks = tuple(
            replace(task, threads=(Thread(f"THREAD 1.{number}.1", "thread"),)) for number, task in enumerate(head.rows.tasks, 1)
        )
        super().write_names(base, replace(head, rows=replace(head.rows, tasks=tasks)), used, title)


class DimemasWriter(PrvWriter):
    """Writes records as prv2dim reads them."""

    def __init__(self, path: Path, head: TimelineHead, *, is_first: bool) -> None:
        super().__init__(path, head, is_first=is_first)
        self._tasks = head.rows.table["task"]
        self._known = [one.number for one in head.communicators]
        self._roots = _roots(head.communicators)

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window."""
        return super().encode([self._adapted(batch) for batch in batches])

    def _adapted(self, batch: RecordBatch) -> RecordBatch:
        if batch.kind is RecordKind.INTERVALS:
            assert batch.ended is not None
            return replace(batch, started=self._operations(batch.started), ended=self._operations(batch.ended))
        if batch.kind is RecordKind.MESSAGES:
            fits = (pl.col("size") <= _MOST) & pl.col("tag").is_between(-_MOST, _MOST)
            return replace(batch, started=batch.started.filter(fits))
        return batch

    def _operations(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Calls with the attributes of collective operations; as other calls where Dimemas does not know the operation."""
        missing = [name for name in _OF_OPERATION if name not in calls.columns]
        # From the disk they come in narrow types, and the keys of `_roots` and limits of sizes are not narrow.
        calls = calls.cast(pl.Int64).with_columns(pl.lit(None, pl.Int64).alias(name) for name in missing)
        is_collective = pl.col("number") == event_types.MPI_COLLECTIVE.number
        # Exports without communicators: all calls are in one of all tasks.
        communicator = pl.col(_COMMUNICATOR).fill_null(_WORLD)
        is_known = is_collective & pl.col("value").is_in(_SIMULATED) & communicator.is_in(self._known)
        root = calls.select(
            communicator=communicator, root=pl.col(_ROOT), task=self._tasks.gather(calls["row"])
        ).join(self._roots, on=["communicator", "root", "task"], how="left", maintain_order="left")["mark"]  # fmt: skip
        return calls.with_columns(
            pl.when(is_collective & ~is_known).then(event_types.MPI_OTHER.number).otherwise("number").alias("number"),
            *(pl.when(is_known).then(pl.col(name).fill_null(0).clip(0, _MOST)).alias(name) for name in _SIZES),
            pl.when(is_known).then(root).alias(_ROOT),
            pl.when(is_known).then(communicator).alias(_COMMUNICATOR),
        )


def _roots(communicators: Iterable[Communicator]) -> pl.DataFrame:
    """Columns `communicator`, `root` (rank in it + 1), `task`, `mark`: a row for each member."""
    rows = [(one.number, place, task, 1) for one in communicators for place, task in enumerate(one.tasks, start=1)]
    return pl.DataFrame(rows, schema=dict.fromkeys(("communicator", "root", "task", "mark"), pl.Int64), orient="row")


@dataclass(frozen=True)
class DimemasAccount:
    """What a trace for Dimemas contains, and what it lacks.

    Attributes
    ----------
    messages, operations
        Messages, and collective operations of each communicator (by its number) as the least and the most that its tasks
        take part in.
    left_out
        Calls and messages that Dimemas does not take, by reason.
    """

    messages: int
    operations: dict[int, tuple[int, int]]
    left_out: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """What OUT.json has of it."""
        operations = [
            {"communicator": number, "least": least, "most": most} for number, (least, most) in self.operations.items()
        ]
        return {"messages": self.messages, "collective_operations": operations, "left_out": self.left_out}

    @property
    def warnings(self) -> list[str]:
        """Where tasks would wait for each other without end."""
        return [
            f"tasks of communicator {number} have {least:,} to {most:,} collective operations: Dimemas waits without end for "
            f"those that are missing"
            for number, (least, most) in self.operations.items()
            if least != most
        ]


UNKNOWN_CALL = "collective calls that Dimemas does not simulate; they take their time"
UNKNOWN_COMMUNICATOR = "collective calls in communicators whose tasks are not known; they take their time"
TOO_LARGE = "messages of 2 GiB and more, or with a tag of more than 31 bits"


def account_of(prv: Path, communicators: Sequence[Communicator], messages: int) -> DimemasAccount:
    """What is in a trace that `DimemasFormat` wrote.

    Parameters
    ----------
    prv
        The trace.
    communicators
        Those of its head.
    messages
        Messages that were to be written.
    """
    trace = open_trace(prv)
    collective = trace.labels.types.get(event_types.MPI_COLLECTIVE.number)
    values = [value for value in (collective.values or {} if collective else {}) if value]
    calls: list[pl.DataFrame] = []
    written, unknown_calls, unknown_communicators = 0, 0, 0
    for block in trace.blocks():
        written += block.messages.height
        of_calls = block.events.filter((pl.col("type") == event_types.MPI_OTHER) & pl.col("value").is_in(values))
        is_known = of_calls["value"].is_in(_SIMULATED)
        unknown_communicators += int(is_known.sum())
        unknown_calls += int((~is_known).sum())
        entered = block.events.filter((pl.col("type") == event_types.MPI_COMMUNICATOR) & (pl.col("value") > 0))
        operations = block.events.filter((pl.col("type") == event_types.MPI_COLLECTIVE) & (pl.col("value") > 0))
        calls.append(entered.join(operations, on="line", how="semi").group_by("task", communicator="value").len())
    empty = pl.DataFrame(schema={"task": pl.Int64, "communicator": pl.Int64, "len": pl.UInt32})
    counts = pl.concat([empty, *calls]).group_by("communicator", "task").agg(pl.col("len").sum())
    of_task = {(number, task): count for number, task, count in counts.iter_rows()}
    found = {
        one.number: [of_task.get((one.number, task), 0) for task in one.tasks]
        for one in communicators
        if one.number in set(counts["communicator"])
    }
    left_out = {UNKNOWN_CALL: unknown_calls, UNKNOWN_COMMUNICATOR: unknown_communicators, TOO_LARGE: messages - written}
    return DimemasAccount(
        written,
        {number: (min(of_tasks), max(of_tasks)) for number, of_tasks in found.items()},
        {reason: count for reason, count in left_out.items() if count},
    )
