"""OpenMP: parallel regions, worksharing, synchronization, tasks, locks, as OMPT reports them."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import labelled
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.source import UNNAMED, RowKind, Source, attributes, with_text
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

_OPENMP_VALUES = ValueSet("openmp")
OPENMP_THREAD = EventType(60000070, "OpenMP thread", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_PARALLEL = EventType(60000001, "OpenMP parallel region", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_WORKSHARE = EventType(60000002, "OpenMP worksharing", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_SYNC_REGION = EventType(60000005, "OpenMP synchronization region", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_SYNC_REGION_WAIT = EventType(
    60000071, "OpenMP wait in synchronization region", Role.INTERVAL, _OPENMP_VALUES, gradient=2
)
OPENMP_TASK = EventType(60000023, "OpenMP task", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_TASK_CREATE = EventType(60000021, "OpenMP task creation", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_TASK_SCHEDULE = EventType(60000073, "OpenMP task scheduling", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_MASTER = EventType(60000056, "OpenMP master region", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_REDUCTION = EventType(60000072, "OpenMP reduction", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_CANCEL = EventType(60000074, "OpenMP cancellation", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_MUTEX_WAIT = EventType(60000009, "OpenMP wait for lock", Role.INTERVAL, _OPENMP_VALUES, gradient=3)
OPENMP_MUTEX_RELEASED = EventType(60000075, "OpenMP lock released", Role.INTERVAL, _OPENMP_VALUES, gradient=3)
OPENMP_CRITICAL_SECTION = EventType(60000050, "OpenMP critical section", Role.INTERVAL, _OPENMP_VALUES, gradient=3)
OPENMP_LOCK_INIT = EventType(60000076, "OpenMP lock created", Role.INTERVAL, _OPENMP_VALUES, gradient=3)
OPENMP_LOCK_DESTROY = EventType(60000077, "OpenMP lock destroyed", Role.INTERVAL, _OPENMP_VALUES, gradient=3)
OPENMP_DISPATCH = EventType(60000078, "OpenMP dispatch", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_FLUSH = EventType(60000079, "OpenMP flush", Role.INTERVAL, _OPENMP_VALUES, gradient=2)
OPENMP_PARALLEL_ID = EventType(60000080, "OpenMP parallel region id", Role.ATTRIBUTE, gradient=2, unit="id")
OPENMP_TASK_ID = EventType(60000028, "OpenMP task id", Role.ATTRIBUTE, gradient=2, unit="id")


def _source(
    table: str,
    event_type: EventType,
    kind: str = "",
    labels: str = "",
    task: str = "",
    has_region: bool = False,
    state: int | None = None,
) -> Source:
    """The source of the table OPENMP_EVENT_KIND_`table`.

    `kind` is its column with the kind, with labels in the ENUM table `labels` (without one the label is the name of the event);
    `task` its column with the task that an event is of."""
    title = event_type.label
    ids = {OPENMP_TASK_ID: task} if task else {}
    if has_region:
        ids[OPENMP_PARALLEL_ID] = "parallelId"

    def frame(report: Report) -> pl.LazyFrame:
        rows = with_text(report, source.scan(report), "nameId", "name")
        label = pl.col("name").fill_null(UNNAMED)
        if kind:
            kinds = enum_labels(report, labels)
            label = labelled(kind, kinds, f"{title.removeprefix('OpenMP ')}, kind").fill_null(label)
        return rows.select(
            *RowKind.THREAD.interval,
            *attributes(ids),
            label=label,
            type=pl.lit(event_type, pl.Int64),
            state=pl.lit(state, pl.Int64),
        )

    source = Source(
        name="openmp",
        title=title,
        table=f"OPENMP_EVENT_KIND_{table}",
        required=("start", "end", "globalTid"),
        optional=tuple(filter(None, ("nameId", kind, *ids.values()))),
        row=RowKind.THREAD,
        types=(event_type, *ids),
        frame=frame,
        assumption="A row is on the thread that runs the construct; what takes no time starts and ends at once; numbers of"
        " kinds are those of the ENUM table.",
    )
    return source


_WAITING = event_types.STATE_SYNCHRONIZATION
TABLES: tuple[Source, ...] = (
    _source("THREAD", OPENMP_THREAD, "threadType", "ENUM_OPENMP_THREAD"),
    _source("PARALLEL", OPENMP_PARALLEL, has_region=True, task="parentTaskId"),
    _source("TASK", OPENMP_TASK, "kind", "ENUM_OPENMP_TASK_FLAG", "taskId", has_region=True),
    _source("MASTER", OPENMP_MASTER, task="taskId", has_region=True),
    _source("WORKSHARE", OPENMP_WORKSHARE, "kind", "ENUM_OPENMP_WORK", "taskId", has_region=True),
    _source("REDUCTION", OPENMP_REDUCTION, task="taskId", has_region=True),
    _source("CRITICAL_SECTION", OPENMP_CRITICAL_SECTION, "kind", "ENUM_OPENMP_MUTEX"),
    _source("SYNC_REGION", OPENMP_SYNC_REGION, "kind", "ENUM_OPENMP_SYNC_REGION", "taskId", True, _WAITING),
    _source("SYNC_REGION_WAIT", OPENMP_SYNC_REGION_WAIT, "kind", "ENUM_OPENMP_SYNC_REGION", "taskId", True, _WAITING),
    _source("MUTEX_WAIT", OPENMP_MUTEX_WAIT, "kind", "ENUM_OPENMP_MUTEX", "taskId", state=_WAITING),
    _source("MUTEX_RELEASED", OPENMP_MUTEX_RELEASED, "kind", "ENUM_OPENMP_MUTEX", "taskId"),
    _source("LOCK_INIT", OPENMP_LOCK_INIT, "kind", "ENUM_OPENMP_MUTEX"),
    _source("LOCK_DESTROY", OPENMP_LOCK_DESTROY, "kind", "ENUM_OPENMP_MUTEX"),
    _source("TASK_CREATE", OPENMP_TASK_CREATE, task="newTaskId"),
    _source("TASK_SCHEDULE", OPENMP_TASK_SCHEDULE, "priorTaskStatus", "ENUM_OPENMP_TASK_STATUS", "nextTaskId", True),
    _source("CANCEL", OPENMP_CANCEL, task="taskId"),
    _source("DISPATCH", OPENMP_DISPATCH, "kind", "ENUM_OPENMP_DISPATCH", "taskId", True),
    _source("FLUSH", OPENMP_FLUSH),
)
"""From the outermost to the innermost: constructs of equal extent nest in this order."""
