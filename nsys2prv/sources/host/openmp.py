"""OpenMP: parallel regions, worksharing, synchronization, tasks, locks, as OMPT tells them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.enumerations import labelled, labels_of
from nsys2prv.sources.source import UNNAMED, RowKind, Source, TableSource
from nsys2prv.vocabulary import event_types

_PARALLEL, _TASK = str(event_types.OPENMP_PARALLEL_ID), str(event_types.OPENMP_TASK_ID)


@dataclass(frozen=True)
class _Construct:
    """One OPENMP_EVENT_KIND_* table.

    Attributes
    ----------
    table
        What follows OPENMP_EVENT_KIND_ in its name.
    event_type
        Event type.
    kind, labels
        Column that tells kinds apart, and the ENUM table with their labels; without one all have the name of the event.
    task
        Column with the task that an event is of.
    has_region
        Whether it names the parallel region.
    state
        Paraver state meanwhile.
    """

    table: str
    event_type: int
    kind: str = ""
    labels: str = ""
    task: str = ""
    has_region: bool = False
    state: int | None = None


_WAITING = event_types.STATE_SYNCHRONIZATION
_CONSTRUCTS = (
    _Construct("THREAD", event_types.OPENMP_THREAD, "threadType", "ENUM_OPENMP_THREAD"),
    _Construct("PARALLEL", event_types.OPENMP_PARALLEL, has_region=True, task="parentTaskId"),
    _Construct("TASK", event_types.OPENMP_TASK, "kind", "ENUM_OPENMP_TASK_FLAG", "taskId", has_region=True),
    _Construct("MASTER", event_types.OPENMP_MASTER, task="taskId", has_region=True),
    _Construct("WORKSHARE", event_types.OPENMP_WORKSHARE, "kind", "ENUM_OPENMP_WORK", "taskId", has_region=True),
    _Construct("REDUCTION", event_types.OPENMP_REDUCTION, task="taskId", has_region=True),
    _Construct("CRITICAL_SECTION", event_types.OPENMP_CRITICAL_SECTION, "kind", "ENUM_OPENMP_MUTEX"),
    _Construct("SYNC_REGION", event_types.OPENMP_SYNC_REGION, "kind", "ENUM_OPENMP_SYNC_REGION", "taskId", True, _WAITING),
    _Construct(
        "SYNC_REGION_WAIT", event_types.OPENMP_SYNC_REGION_WAIT, "kind", "ENUM_OPENMP_SYNC_REGION", "taskId", True, _WAITING
    ),
    _Construct("MUTEX_WAIT", event_types.OPENMP_MUTEX_WAIT, "kind", "ENUM_OPENMP_MUTEX", "taskId", state=_WAITING),
    _Construct("MUTEX_RELEASED", event_types.OPENMP_MUTEX_RELEASED, "kind", "ENUM_OPENMP_MUTEX", "taskId"),
    _Construct("LOCK_INIT", event_types.OPENMP_LOCK_INIT, "kind", "ENUM_OPENMP_MUTEX"),
    _Construct("LOCK_DESTROY", event_types.OPENMP_LOCK_DESTROY, "kind", "ENUM_OPENMP_MUTEX"),
    _Construct("TASK_CREATE", event_types.OPENMP_TASK_CREATE, task="newTaskId"),
    _Construct(
        "TASK_SCHEDULE", event_types.OPENMP_TASK_SCHEDULE, "priorTaskStatus", "ENUM_OPENMP_TASK_STATUS", "nextTaskId", True
    ),
    _Construct("CANCEL", event_types.OPENMP_CANCEL, task="taskId"),
    _Construct("DISPATCH", event_types.OPENMP_DISPATCH, "kind", "ENUM_OPENMP_DISPATCH", "taskId", True),
    _Construct("FLUSH", event_types.OPENMP_FLUSH),
)
"""From the outermost to the innermost: constructs of equal extent nest in this order."""


def _source(construct: _Construct) -> TableSource:
    title = event_types.TYPES[construct.event_type].label
    told = ("nameId", construct.kind, construct.task, "parallelId" if construct.has_region else "")

    def frame(report: Report) -> pl.LazyFrame:
        names = report.strings.lazy().rename({"value": "name"})
        rows = source.scan(report).join(names, left_on="nameId", right_on="id", how="left", maintain_order="left")
        label = pl.col("name").fill_null(UNNAMED)
        if construct.kind:
            kinds = labels_of(report, construct.labels)
            label = labelled(construct.kind, kinds, f"{title.removeprefix('OpenMP ')}, kind").fill_null(label)
        attributes = [pl.col(construct.task).alias(_TASK)] if construct.task else []
        if construct.has_region:
            attributes.append(pl.col("parallelId").alias(_PARALLEL))
        return rows.select(
            "globalTid",
            "start",
            "end",
            *attributes,
            label=label,
            type=pl.lit(construct.event_type, pl.Int64),
            state=pl.lit(construct.state, pl.Int64),
        )

    source = TableSource(
        name="openmp",
        title=title,
        table=f"OPENMP_EVENT_KIND_{construct.table}",
        required=("start", "end", "globalTid"),
        optional=tuple(filter(None, told)),
        row=RowKind.THREAD,
        types=(
            construct.event_type,
            *((event_types.OPENMP_TASK_ID,) if construct.task else ()),
            *((event_types.OPENMP_PARALLEL_ID,) if construct.has_region else ()),
        ),
        frame=frame,
        assumption="A row is on the thread that runs the construct; what takes no time begins and ends at once; numbers of"
        " kinds are those of the ENUM table.",
    )
    return source


TABLES: tuple[Source, ...] = tuple(map(_source, _CONSTRUCTS))
