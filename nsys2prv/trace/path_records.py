"""The critical path of a run as records of its trace: where it is at each time, and lines where it goes to another row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency.event_input import events_of_session
from nsys2prv.efficiency.graph.path import HOST_CAUSES, KINDS, path_segments
from nsys2prv.efficiency.graph.replay import replay
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.run_events import MPI_COLLECTIVES, NCCL_CALLS, ON_DEVICES, ON_HOSTS, WAITS
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.run.session import RunSession
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.records import RecordKind, RowsOfTypes
from nsys2prv.trace.write import record_sort
from nsys2prv.vocabulary.event_types import CRITICAL_PATH, CRITICAL_PATH_PARTS, END_LABEL, TAG_CRITICAL_PATH

_NEEDED = (ON_DEVICES, NCCL_CALLS, ON_HOSTS, WAITS, MPI_COLLECTIVES)
"""Collections that the graph of a recording is made of."""
_OF_KIND = {
    "collective": "collective whose members are not known",
    "transfer": "transfer of a collective",
    "wake-up": "wake-up of a thread",
    "launch queue": "full launch queue",
    "unknown wait": "host: OS",
    # Of the host where the cause is not known; each cause has its own part.
    "host": "host: in no call",
}
_OF_CAUSE = {
    "launch": "launching",
    "synchronization": "synchronizing",
    "memory": "copying",
    "allocation": "allocating",
    "other_cuda": "other CUDA calls",
    "mpi": "MPI",
    "os": "OS",
    "host": "in no call",
}
_PART_OF_KIND = [CRITICAL_PATH_PARTS.index(_OF_KIND.get(kind, kind)) for kind in KINDS]
_PART_OF_CAUSE = [CRITICAL_PATH_PARTS.index(f"host: {_OF_CAUSE.get(cause, cause)}") for cause in HOST_CAUSES]


@dataclass(frozen=True)
class CriticalPathRecords:
    """The critical path in a trace: records of where it is (`intervals`), and of where it goes to another row (`lines`); the
    time in each part, ns, by its place in CRITICAL_PATH_PARTS; and the rows that it is on."""

    intervals: ExternalSort
    lines: ExternalSort
    total_ns: Mapping[int, int]
    on_rows: RowsOfTypes

    @property
    def used_types(self) -> list[UsedType]:
        """Its event type, with the labels of the values that it has; none without a path."""
        values = {part + 1: CRITICAL_PATH_PARTS[part] for part in sorted(self.total_ns)}
        used = UsedType(CRITICAL_PATH.number, CRITICAL_PATH.label, CRITICAL_PATH, {0: END_LABEL, **values})
        return [used] if self.total_ns else []

    @property
    def warnings(self) -> list[str]:
        """A warning where a path was asked for and there is none."""
        return [] if self.total_ns else ["no critical path: neither work of GPUs nor MPI was recorded"]

    def as_json(self) -> dict[str, Any]:
        """What OUT.json has of it."""
        return {
            "segments": self.intervals.rows,
            "lines": self.lines.rows,
            "total_ns": {CRITICAL_PATH_PARTS[part]: total for part, total in sorted(self.total_ns.items())},
        }


def critical_path_records(session: RunSession, arguments: Sequence[str | Path], folder: Path) -> CriticalPathRecords:
    """Read what the graph of the run is made of, and make records of its critical path.

    Parameters
    ----------
    session
        Whose events have been collected, from reports that were named so (`arguments`).

    Raises
    ------
    ReportError
        When a report breaks off now that did not before.
    """
    left_out = len(session.left_out)
    events = events_of_session(session, arguments, _NEEDED)
    if len(session.left_out) > left_out:
        # The rows of the others are no longer those of what was collected.
        raise session.left_out[left_out].error
    intervals, on_rows = record_sort(RecordKind.INTERVALS, folder / "path"), RowsOfTypes()
    lines = record_sort(RecordKind.MESSAGES, folder / "path-lines")
    # From the first to the last, without a hole from the start of the run to its end.
    built = graph_of_run(MeasuredRun(events))
    cause, kind = pl.when(pl.col("cause") >= 0).then("cause").cast(pl.UInt32), pl.col("kind").cast(pl.UInt32)
    parts = pl.coalesce(pl.lit(pl.Series(_PART_OF_CAUSE)).gather(cause), pl.lit(pl.Series(_PART_OF_KIND)).gather(kind))
    columns = path_segments(built, replay(built.graph))
    segments = columns.select(pl.col("row").cast(pl.Int64), "end", start="begin", part=parts.cast(pl.Int64))
    path = segments.select("row", "start", "end", number=pl.lit(CRITICAL_PATH.number, pl.Int64), value=pl.col("part") + 1)
    intervals.add(path)
    on_rows.add_events(path)
    moved = segments.with_columns(to_row=pl.col("row").shift(-1)).filter(pl.col("to_row") != pl.col("row"))
    no_bytes, tag = pl.lit(0, pl.Int64), pl.lit(TAG_CRITICAL_PATH, pl.Int64)
    lines.add(moved.select("row", "to_row", time="end", to_time="end", size=no_bytes, tag=tag))
    totals = segments.group_by("part").agg(total=(pl.col("end") - pl.col("start")).sum())
    return CriticalPathRecords(intervals, lines, dict(totals.iter_rows()), on_rows)
