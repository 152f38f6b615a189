"""Waits of the host for devices, streams and events, and the records of events.

The name of the API call that a wait belongs to gives its kind: `syncType` means other things in each version of nsys, and its
ENUM does not follow. Where no call is known the ids give it: a wait for an event names the event, one for a stream names the
stream, one of a stream for an event names both, and one for all work of a device names none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.execution.row_order import Merging
from nsys2prv.exports import Report
from nsys2prv.exports.columns import process_of
from nsys2prv.sources.correlate import CALLS_TABLE, with_calls
from nsys2prv.sources.cuda.api_calls import call_names
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import DEVICE_ROW, F, RowKind, Source, applicable, device_row
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet, numbered
from nsys2prv.vocabulary.name_rules import first_match

SYNC_DEVICE = "Device or context synchronize"
SYNC_STREAM = "Stream synchronize"
SYNC_EVENT = "Event synchronize"
SYNC_WAIT_EVENT = "Stream waits for event"
SYNC_EVENT_QUERY = "Event query"
SYNC_STREAM_QUERY = "Stream query"
SYNC_OTHER = "In another call"
_SYNCHRONIZATIONS = (
    SYNC_DEVICE, SYNC_STREAM, SYNC_EVENT, SYNC_WAIT_EVENT, SYNC_EVENT_QUERY, SYNC_STREAM_QUERY, SYNC_OTHER,
)  # fmt: skip
SYNCHRONIZATION = EventType(
    63000700,
    "CUDA synchronization",
    Role.INTERVAL,
    ValueSet("synchronization", numbered(dict(enumerate(_SYNCHRONIZATIONS))), first=20),
    lanes=637000001,
)
SYNC_STREAM_ID = EventType(63000701, "CUDA synchronization stream", Role.ATTRIBUTE, unit="stream id")
SYNC_CONTEXT_ID = EventType(63000702, "CUDA synchronization context", Role.ATTRIBUTE, unit="context id")
CUDA_EVENT_ID = EventType(63000703, "CUDA synchronization event", Role.ATTRIBUTE, unit="event id")
EVENT_SYNC_ID = EventType(63000704, "CUDA event synchronization id", Role.ATTRIBUTE, unit="id of the record that it waits for")
SYNC_DEVICE_ID = EventType(63000705, "CUDA synchronization device", Role.ATTRIBUTE, unit="device of the process + 1")
CUDA_EVENT_RECORD = EventType(63000710, "CUDA event record", Role.MARK, unit="event id")
RECORD_SYNC_ID = EventType(63000711, "CUDA event record synchronization id", Role.ATTRIBUTE, unit="id of the record")
SINCE_RECORD_CALL = EventType(63000712, "CUDA event record, time since its call", Role.ATTRIBUTE, unit="ns")

TABLE = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"

# What a call waits for, by its name.
_KINDS = (
    (r"(?i)WaitEvent", SYNC_WAIT_EVENT),
    (r"(?i)EventSynchronize", SYNC_EVENT),
    (r"(?i)EventQuery", SYNC_EVENT_QUERY),
    (r"(?i)StreamSynchronize", SYNC_STREAM),
    (r"(?i)StreamQuery", SYNC_STREAM_QUERY),
    (r"(?i)(Device|Ctx|Context|Thread)Synchronize", SYNC_DEVICE),
)
_IDS = {
    SYNC_STREAM_ID: "streamId",
    SYNC_CONTEXT_ID: "contextId",
    CUDA_EVENT_ID: "eventId",
    EVENT_SYNC_ID: "eventSyncId",
    SYNC_DEVICE_ID: "deviceId",
}
_WAITS: dict[str, Any] = {
    "name": "synchronization",
    "table": TABLE,
    "required": ("start", "end", "globalPid", "deviceId"),
    "optional": ("correlationId", "streamId", "contextId", "eventId", "eventSyncId"),
    "types": (SYNCHRONIZATION, *_IDS),
}


def _kinds_of_calls(report: Report) -> pl.DataFrame:
    """Columns `callNameId`, `label`: what a call of each name waits for."""
    return call_names(report).select(callNameId="id", label=first_match(pl.col("label"), _KINDS, SYNC_OTHER))


def _kind_of_ids() -> pl.Expr:
    has_event, has_stream = applicable("eventId").is_not_null(), applicable("streamId").is_not_null()
    return (
        pl.when(has_event & has_stream)
        .then(pl.lit(SYNC_WAIT_EVENT))
        .when(has_event)
        .then(pl.lit(SYNC_EVENT))
        .when(has_stream)
        .then(pl.lit(SYNC_STREAM))
        .otherwise(pl.lit(SYNC_DEVICE))
    )


def _id(event_type: EventType, column: str) -> pl.Expr:
    """An id as an attribute, null where it does not apply."""
    number = applicable(column)
    if event_type is SYNC_DEVICE_ID:
        number = number + 1
    elif event_type in (EVENT_SYNC_ID, RECORD_SYNC_ID):
        # What waits for no event has 0.
        number = pl.when(pl.col(column) > 0).then(number)
    return number.alias(str(event_type.number))


def _waits(key: pl.Expr | str, label: pl.Expr | str, *, state: bool) -> list[pl.Expr | str]:
    """Columns of the frames of both sources."""
    return [
        key,
        "start",
        "end",
        pl.lit(SYNCHRONIZATION, pl.Int64).alias("type"),
        label,
        *(_id(event_type, column) for event_type, column in _IDS.items()),
        *([pl.lit(event_types.STATE_SYNCHRONIZATION, pl.Int64).alias("state")] if state else []),
    ]


def _waits_of_threads(report: Report) -> pl.LazyFrame:
    """For the survey: any thread with calls that wait, and any kind of wait."""
    calls = report.scan(CALLS_TABLE, ("globalTid", "nameId"))
    if not report.tables.row_count(TABLE):
        calls = calls.clear()
    kinds = _kinds_of_calls(report).lazy()
    waits = calls.join(kinds, left_on="nameId", right_on="callNameId", how="left", maintain_order="left")
    absent = [pl.lit(None, pl.Int64).alias(column) for column in ("start", "end", *_IDS.values())]
    return waits.with_columns(*absent, pl.col("label").fill_null(SYNC_OTHER)).select(_waits("globalTid", "label", state=True))


def _on_threads(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    kinds = _kinds_of_calls(report)
    for piece in with_calls(report, ON_THREADS.scan, folder, ("globalTid", "nameId")):
        called = piece.filter(pl.col("callTid").is_not_null()).join(kinds, on="callNameId", how="left", maintain_order="left")
        yield called.with_columns(pl.col("label").fill_null(SYNC_OTHER)).select(
            _waits(pl.col("callTid").alias("globalTid"), "label", state=True)
        )


_WORD, _BIT = pl.col("correlationId") // 32, pl.lit(2, pl.Int64).pow(pl.col("correlationId") % 32)
"""Place of a correlation id among bits: ids count calls, so this takes hardly more than a bit per call."""


def _bits_of_calls(report: Report) -> pl.LazyFrame:
    """Columns `process`, `word`, `bits`: which correlation ids the calls have."""
    calls = report.scan_events(CALLS_TABLE, ("globalTid", "correlationId"), (), None).filter(pl.col("correlationId") > 0)
    return calls.select(process=process_of(pl.col("globalTid")), word=_WORD, bits=_BIT).pipe(_merged)


def _merged(words: F) -> F:
    return words.group_by("process", "word").agg(pl.col("bits").bitwise_or())


def _waits_of_no_call(report: Report) -> pl.LazyFrame:
    """For the survey: devices with waits of no known call. They are few, and the others must not get empty rows."""
    words = Merging(_merged, pl.DataFrame(schema=dict.fromkeys(("process", "word", "bits"), pl.Int64)), PIECE_ROWS)

    def waits(of_report: Report) -> pl.LazyFrame:
        scanned = ON_DEVICES.scan(of_report).with_columns(process=process_of(pl.col("globalPid")), word=_WORD)
        is_known = (pl.col("bits") // _BIT % 2 == 1).fill_null(False)
        with_bits = scanned.join(words.rows.lazy(), on=["process", "word"], how="left", maintain_order="left")
        return with_bits.filter(~is_known).select(*RowKind.DEVICE.key, "streamId", "eventId").unique()

    pieces: Iterator[pl.DataFrame] = iter(())
    if report.tables.row_count(TABLE):
        if report.has(CALLS_TABLE, "globalTid", "correlationId"):
            for piece in report.pieces(_bits_of_calls, PIECE_ROWS):
                words.add(piece)
        pieces = report.pieces(waits, PIECE_ROWS)
    distinct = pl.concat([pl.DataFrame(schema=waits(report).collect_schema()), *pieces]).unique()
    absent = [pl.lit(None, pl.Int64).alias(column) for column in ("start", "end", "contextId", "eventSyncId")]
    return distinct.lazy().with_columns(absent).select(*_of_devices())


def _of_devices() -> list[pl.Expr | str]:
    return [pl.col("deviceId"), device_row(), *_waits("globalPid", _kind_of_ids().alias("label"), state=False)]


def _on_devices(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    for piece in with_calls(report, ON_DEVICES.scan, folder, ("globalTid",)):
        yield piece.filter(pl.col("callTid").is_null()).select(*_of_devices())


ON_THREADS = Source(**_WAITS, title="CUDA synchronization", row=RowKind.THREAD, frame=_waits_of_threads, stream=_on_threads)

ON_DEVICES = Source(
    **_WAITS,
    title="CUDA synchronization (the call is not known)",
    row=RowKind.DEVICE,
    frame=_waits_of_no_call,
    stream=_on_devices,
    in_order=lambda: Lanes(DEVICE_ROW),
)


def _records(report: Report) -> pl.LazyFrame:
    absent = pl.lit(None, pl.Int64)
    return EVENT_RECORDS.scan(report).select(_record(absent, absent))


def _record(time: pl.Expr, since_call: pl.Expr) -> list[pl.Expr | str]:
    return [
        *(name for name in RowKind.STREAM.key if name != "streamId"),
        applicable("streamId").alias("streamId"),
        time.alias("start"),
        time.alias("end"),
        pl.lit(CUDA_EVENT_RECORD, pl.Int64).alias("type"),
        pl.col("eventId").alias("value"),
        pl.col("correlationId").alias(str(event_types.CORRELATION_ID)),
        _id(RECORD_SYNC_ID, "eventSyncId"),
        since_call.alias(str(SINCE_RECORD_CALL)),
    ]


def _gathered_records(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    # Only new schemas have a time of the device, and 0 there where it was not recorded.
    time = pl.coalesce(pl.when(pl.col("timestamp") > 0).then("timestamp"), "callStart")
    for piece in with_calls(report, EVENT_RECORDS.scan, folder, ("start",)):
        # The times of host and device differ by some microseconds.
        yield piece.select(_record(time, (time - pl.col("callStart")).clip(lower_bound=0)))


EVENT_RECORDS = Source(
    name="cuda-events",
    title="CUDA event records",
    table="CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    required=("globalPid", "deviceId", "contextId", "streamId", "eventId"),
    optional=("timestamp", "correlationId", "eventSyncId"),
    row=RowKind.STREAM,
    types=(CUDA_EVENT_RECORD, event_types.CORRELATION_ID, RECORD_SYNC_ID, SINCE_RECORD_CALL),
    frame=_records,
    stream=_gathered_records,
    times=_records,
    assumption=(
        "A record is on its stream when the device reached it, where the table has that time; else at the start of the "
        "call that recorded it. A time of 0 is none."
    ),
)
