"""A run as data frames: its events on the common time axis, its ranks, devices and clocks."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.execution.output_files import make_folder
from nsys2prv.exports.columns import pid_of, tid_of
from nsys2prv.run.collect import Collected, ReportPart, Unfinished
from nsys2prv.run.open import OpenedReport
from nsys2prv.run.session import RunPlan, RunSession
from nsys2prv.sources.registry import SOURCES, unknown_source
from nsys2prv.sources.source import RowKind, Source
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.reader import ReadEvents, Request, TimelinePlan, gives_intervals
from nsys2prv.timeline.rows import Rows
from nsys2prv.vocabulary import row_names
from nsys2prv.vocabulary.event_types import EventType, Role
from nsys2prv.vocabulary.printable import as_utf8

EVENT_SCHEMA = {
    **dict.fromkeys(("rank", "host", "process", "thread", "device", "stream", "row", "start", "end"), pl.Int64),
    **dict.fromkeys(("host", "row", "event_type", "series", "name"), pl.String),
    "value": pl.Float64,
}
"""First columns of `events_frame`."""


def events_frame(session: RunSession, source: str) -> pl.LazyFrame:
    """Events of one source name, of all reports.

    The session is opened with all sources. Events are read in bounded memory and written to Parquet files in its folder, which
    the frame scans: it can be used as long as that folder exists. There is one row per event, in no particular order, with the
    columns that docs/api.md describes; times are ns from the first event of the run, or from the start of the selected time.
    Raises UsageError when there is no such source, and Nsys2prvError when a report breaks off while it is read."""
    sources = tuple(of_name for of_name in SOURCES if of_name.name == source)
    if not sources:
        raise unknown_source([source])

    def rows_to_write(opened: OpenedReport) -> int:
        return sum(survey.rows for survey in opened.surveys if survey.source in sources)

    written = session.read(partial(_WrittenEvents, sources), rows_to_write, "reading")
    if not written.files:
        return pl.LazyFrame(schema=EVENT_SCHEMA)
    present = [column for column in _attributes_of(sources) if column in written.attributes]
    return pl.scan_parquet(written.files, glob=False, hive_partitioning=False).select(*EVENT_SCHEMA, *present)


def ranks_frame(plan: RunPlan) -> pl.DataFrame:
    """Processes of a run, one row each: the columns of `NsysRun.ranks`."""
    rows = [
        {
            "rank": task.rank,
            "host": plan.timeline.rows.nodes[task.node].name,
            "process": task.pid,
            "name": task.name,
            "threads": sum(thread.kind == "thread" for thread in task.threads),
            # Rows of one name are lanes of a stream, or streams with one id of several contexts.
            "streams": len({thread.name for thread in task.threads if thread.kind == "stream"}),
            "report": as_utf8(str(plan.reports[task.report].report.path)),
            "nsys": plan.reports[task.report].identity.tool or None,
        }
        for task in plan.timeline.rows.tasks
        if task.report is not None
    ]
    numbers = dict.fromkeys(("rank", "process", "threads", "streams"), pl.Int64)
    columns = ("rank", "host", "process", "name", "threads", "streams", "report", "nsys")
    return pl.DataFrame(rows, schema={name: numbers.get(name, pl.String) for name in columns})


def devices_frame(plan: RunPlan) -> pl.DataFrame:
    """GPUs that processes of a run use, one row each: the columns of `NsysRun.devices`."""
    devices_of_run: dict[tuple[str, int], dict[str, Any]] = {}
    for report, devices in plan.timeline.rows.devices.items():
        identity = plan.reports[report].identity
        gpus = {gpu.key: gpu for gpu in identity.gpus}
        ranks = {task.pid: task.rank for task in plan.timeline.rows.tasks if task.report == report}
        host = next(plan.timeline.rows.nodes[task.node].name for task in plan.timeline.rows.tasks if task.report == report)
        for (process, device), number in devices.items():
            gpu = gpus.get(identity.gpu_key(process, device))
            description = {"name": gpu.name, "bus": gpu.bus, "uuid": gpu.uuid} if gpu else {}
            row = devices_of_run.setdefault((host, number), {"host": host, "device": number, "ranks": set()})
            row |= {name: value for name, value in description.items() if value}
            rank = ranks.get(pid_of(process))
            row["ranks"] |= {rank} if rank is not None else set()
    rows = [{**row, "ranks": sorted(row["ranks"])} for _, row in sorted(devices_of_run.items())]
    texts = dict.fromkeys(("name", "bus", "uuid"), pl.String)
    return pl.DataFrame(rows, schema={"host": pl.String, "device": pl.Int64, **texts, "ranks": pl.List(pl.Int64)})


def clocks_frame(plan: RunPlan) -> pl.DataFrame:
    """How clocks of hosts were placed on the time axis, where there are several: the columns of `NsysRun.clocks`."""
    rows: list[dict[str, Any]] = []
    for clock in plan.axis.clocks if len(plan.axis.clocks) > 1 else ():
        quality = {"interval": max(clock.error.half_widths), "contradiction": clock.contradiction}
        rows.append({"host": clock.name, "method": clock.method, **quality})
        if (correction := clock.correction) is not None:
            rows[-1] |= {
                "anchors": correction.anchors,
                "offset": round(correction.offset),
                "drift": correction.drift * 1e6,
                "error_median": correction.median,
                "error_95": correction.percentile_95,
                "error_largest": correction.largest,
            }
    numbers = dict.fromkeys(("drift", "error_median", "error_95", "error_largest", "interval", "contradiction"), pl.Float64)
    schema = {"host": pl.String, "method": pl.String, "anchors": pl.Int64, "offset": pl.Int64, **numbers}
    limits = pl.col("interval", "contradiction")
    return pl.DataFrame(rows, schema=schema).with_columns(pl.when(limits.is_finite()).then(limits))


_OTHER_NAMES = {
    **{f"Kernel Grd{axis}": f"grid_{axis.lower()}" for axis in "XYZ"},
    **{f"Kernel Blk{axis}": f"block_{axis.lower()}" for axis in "XYZ"},
    "Kernel Static Shared Memory": "static_shared_memory",
    "Kernel Dynamic Shared Memory": "dynamic_shared_memory",
    "Kernel Local memory reserved for kernel": "local_memory",
    "Kernel Registers/Thread": "registers_per_thread",
    "CUDA kernel family": "family",
}
"""Columns of attributes whose labels are those of another tool, or long."""


def _attributes_of(sources: Sequence[Source]) -> dict[str, EventType]:
    columns: dict[str, EventType] = {}
    for kind in dict.fromkeys(event_type for source in sources for event_type in source.types):
        if kind.role is Role.ATTRIBUTE and not kind.is_series:
            name = _OTHER_NAMES.get(kind.label) or re.sub(r"[^a-z0-9]+", "_", kind.label.lower()).strip("_")
            columns[name if name not in columns and name not in EVENT_SCHEMA else f"{name}_{kind.number}"] = kind
    return columns


class _WrittenEvents(Collected["_EventFiles"]):
    """Files that were written, and attributes that occur in them."""

    def __init__(self, sources: tuple[Source, ...], folder: Path, _reports: Sequence[OpenedReport]) -> None:
        super().__init__(folder, {})
        self.files: list[Path] = []
        self.attributes: set[str] = set()
        self._sources = sources
        self._new_files: Callable[[Source], _EventFiles] | None = None

    def requests(self, opened: OpenedReport, timeline: TimelinePlan, _unfinished: Unfinished) -> list[Request[_EventFiles]]:
        if self._new_files is None:
            make_folder(self.folder)
            attributes = _attributes_of(self._sources)
            names = _places(timeline.rows), _texts(timeline.labels, attributes.values()), attributes
            self._new_files = partial(_EventFiles, self.folder, *names)
        surveys = [survey for survey in opened.surveys if survey.source in self._sources]
        return [Request(survey, partial(self._new_files, survey.source), by_lane=False) for survey in surveys]

    def take(self, _part: ReportPart, read: ReadEvents[_EventFiles], _unfinished: Unfinished) -> None:
        for _, files, _ in read.sinks:
            self.files += files.files
            self.attributes |= files.attributes

    def absorb(self, group: _WrittenEvents) -> None:
        super().absorb(group)
        self.files += group.files
        self.attributes |= group.attributes

    def __getstate__(self) -> dict[str, Any]:
        # Other processes that go on with the files need no names.
        return {**self.__dict__, "_new_files": None}


@dataclass
class _EventFiles:
    """Writes the events of one part of a table: a sink of the reader."""

    folder: Path
    places: pl.DataFrame
    texts: Mapping[int, pl.DataFrame]
    columns: Mapping[str, EventType]
    source: Source
    files: list[Path] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)

    def add(self, placed: pl.DataFrame) -> None:
        types = self.source.types
        # Of a series without the place of the member's name.
        names = {kind.number: re.sub(r":? *\{\}( domain)?", "", kind.label).strip() for kind in types}
        labels = {number: name or self.source.title for number, name in names.items()}
        scales = {event_type.number: 10.0**-event_type.precision for event_type in types}
        added = {event_type.number: _added(event_type) for event_type in types}
        kind = pl.col("type")
        value = pl.col("value") - kind.replace_strict(added, return_dtype=pl.Int64)
        events = placed.select(
            "start",
            "series",
            end=pl.col("end") if gives_intervals(self.source) else pl.lit(None, pl.Int64),
            event_type=kind.replace_strict(labels, return_dtype=pl.String),
            name="label",
            value=pl.when(pl.col("label").is_null()).then(value * kind.replace_strict(scales, return_dtype=pl.Float64)),
        )
        columns = [self._column(placed, column, attribute) for column, attribute in self.columns.items()]
        frame = pl.DataFrame([*self.places[placed["row"]].get_columns(), *events.get_columns(), *columns])
        self.attributes |= {column.name for column in columns if column.null_count() < len(column)}
        self.files.append(self.folder / f"{secrets.token_hex(8)}.parquet")
        frame.select(*EVENT_SCHEMA, *self.columns).write_parquet(self.files[-1], compression="lz4")

    def _column(self, placed: pl.DataFrame, column: str, attribute: EventType) -> pl.Series:
        number = str(attribute.number)
        dtype = pl.String if attribute.values else pl.Float64 if attribute.precision else pl.Int64
        if number not in placed.columns:
            return pl.repeat(None, placed.height, dtype=dtype, eager=True).alias(column)
        values = placed[number].alias("value")
        if attribute.values:
            texts = self.texts[attribute.number]
            values = values.to_frame().join(texts, on="value", how="left", maintain_order="left")["text"]
        elif attribute.precision:
            values = values * 10.0**-attribute.precision
        elif added := _added(attribute):
            values = (values - added).set(values < added, None)
        of_events: pl.Series = values.cast(dtype).alias(column)
        return of_events


def _added(event_type: EventType) -> int:
    """What values of a trace are larger by: 0 is the end of an interval there, so numbers that may be 0 are shifted."""
    return 1 if event_type.unit.endswith(" + 1") else 0


def _texts(labels: Labels, attributes: Iterable[EventType]) -> dict[int, pl.DataFrame]:
    """Columns `value`, `text` of the attributes with texts, by number."""
    used = {used_type.number: used_type.values or {} for used_type in labels.used_with()}
    schema = {"value": pl.Int64, "text": pl.String}
    return {
        attribute.number: pl.DataFrame(list(used.get(attribute.number, {}).items()), schema=schema, orient="row")
        for attribute in attributes
        if attribute.values
    }


def _places(rows: Rows) -> pl.DataFrame:
    """Columns `rank`, `host`, `process`, `thread`, `device`, `stream`, `row` of each row."""
    tids = {
        row: tid_of(tid)
        for (_, kind), keys in rows.keys.items()
        if kind is RowKind.THREAD
        for tid, row in keys.select("globalTid", "row").iter_rows()
    }
    places: list[tuple[Any, ...]] = []
    for task in rows.tasks:
        for thread in task.threads:
            stream = row_names.parse_stream_name(thread.name) if thread.kind == "stream" else None
            device = stream.device if stream else row_names.device_of_metrics(thread.name) if thread.kind == "gpu" else None
            where = (tids.get(len(places)), device, stream.stream if stream else None)
            places.append((task.rank, rows.nodes[task.node].name, task.pid, *where, thread.name))
    names = ("rank", "host", "process", "thread", "device", "stream", "row")
    return pl.DataFrame(places, schema={name: EVENT_SCHEMA[name] for name in names}, orient="row")
