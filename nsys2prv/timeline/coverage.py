"""The account of every row of every table: translated, or left out for a reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.counters import gpu_metrics, plugins
from nsys2prv.sources.nvtx.nvtx_ranges import MARK, PUSHPOP_RANGE, STARTEND_RANGE
from nsys2prv.sources.source import Source, count_rows

NO_TIME = "it has no start time"
NO_VALUE = "it has no value, or is a rate over no time"
INEXACT = "its value is beyond ±2^53, which no tool shows exactly"
NO_ROW_NAMED = "the table names no thread, stream or device"
ROW_NOT_CHOSEN = "its rank or thread was not chosen, or another report samples the same GPU"
NO_OTHER_EVENTS = "its thread has no other events"
SAME_CALL = "another row of the same MPI call"
TOO_SHORT = "shorter than --min-duration"
OUTSIDE = "outside the chosen time"
NOT_SELECTED = "its source was left out with --only or --skip"
NOT_TRANSLATED = "no source translates this table"
NAMES_OF_NVTX = "names of threads, domains and categories, not events"

_TRANSLATED_NVTX = (PUSHPOP_RANGE, STARTEND_RANGE, MARK)


NO_EVENTS: dict[str, str] = {
    r"ENUM_.*|UnwindMethodType": "labels of numbers",
    r"META_DATA_.*|EXPORT_META_DATA": "about the recording and the export",
    r"TARGET_INFO_.*|NIC_ID_MAP|NET_IB_DEVICE_.*|NET_DEVICE_.*": "about the machine, and names of metrics",
    r"StringIds|ThreadNames|PROCESSES|ProcessStreams|ANALYSIS_FILE": "texts and names; output and files of processes",
    r"ANALYSIS_DETAILS|DIAGNOSTIC_EVENT": "about the recording: source of warnings",
    r".*CALLCHAINS|OSRT_ARGUMENTS|OSRT_FILE_ACCESS_DESCRIPTORS": "details of events that refer to them",
    r"MPI_RANKS|MPI_COMMUNICATORS|UCP_WORKERS": "ranks, communicators and workers",
    r"NVTX_PAYLOAD_.*|NVTX_EVENTS_PAYLOAD_SCHEMAS|NVTX_EXPORT_.*|NVTX_SCOPES": "schemas of NVTX payloads, and scopes",
    r"DYNAMIC_NVTXPAYLOAD_.*": "NVTX payloads that are in NVTX_EVENTS too",
    r"GENERIC_EVENT_(TYPES|SOURCES|TYPE_FIELDS|TYPE_FIELD_MAP)|ETW_(PROVIDERS|TASKS)": "types of events of plugins",
    r"GENERIC_EVENT_DATA|PMU_EVENT_COUNTERS|PMU_EVENT_REQUESTS|UNCORE_PMU_EVENT_VALUES|BANDWIDTH_USAGE_VALUES": (
        "values of the events of another table"
    ),
    r"sqlite_.*": "SQLite internals",
}
"""Tables that no source reads as events: what they hold, by a regular expression for their whole names. Their rows are no
events: labels of numbers, the machine, what events refer to."""

LEFT_OUT_TABLES: dict[str, str] = {
    r"OPENGL_.*|KHR_DEBUG_EVENTS": "OpenGL, a graphics API",
    r"VULKAN_.*": "Vulkan, a graphics API",
    r"DX1[12]_.*|DXGI_.*|D3D1[12]_.*|SLI_.*|NVAPI_.*": "Direct3D, a graphics API",
    (
        r"WDDM_.*|ETW_EVENTS.*|MEMORY_TRANSFER_EVENTS|GPU_MEMORY_(BUDGET|USAGE)_EVENTS|DEMOTED_BYTES_EVENTS"
        r"|TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS|NV_LOAD_BALANCE_.*"
    ): "Windows' display driver",
    r"NVVIDEO_.*|GPU_VIDEO_ENGINE_.*|TRACE_PROCESS_EVENT_NVMEDIA": "coding of video",
    r"TEGRA_INTERNAL_API_CALLS": "calls inside the driver of an embedded chip",
}
"""The same of tables whose rows are events that have no place in a trace of computation."""

GPU_METRICS_ROWS = "metrics of GPUs, whose samples are in GPU_METRICS"
NO_FIELDS = "events without a field that can be shown"


def reason_of(table: str) -> str | None:
    """Why a table of events is left out; None when it is not one of LEFT_OUT_TABLES.

    >>> reason_of("VULKAN_API"), reason_of("OSRT_API")
    ('Vulkan, a graphics API', None)
    """
    return next((what for pattern, what in LEFT_OUT_TABLES.items() if re.fullmatch(pattern, table)), None)


def has_events(table: str) -> bool:
    """Whether a table of an export holds events.

    >>> has_events("OSRT_API"), has_events("OSRT_CALLCHAINS"), has_events("ENUM_OPENMP_WORK")
    (True, False, False)
    """
    return not any(re.fullmatch(pattern, table) for pattern in NO_EVENTS)


@dataclass
class SourceCoverage:
    """How many rows of one source are in the trace, and why the others are not."""

    source: Source
    read: int = 0  # rows of the table
    written: int = 0  # events (intervals, marks, samples) in the trace
    clipped: int = 0  # those of them that were cut at an edge of the chosen time
    left_out: Counter[str] = field(default_factory=Counter)  # rows by the reason
    repaired: int = 0  # events with a value that was repaired
    # Events in the trace by type: a row may have several, and an event a part in each range of the chosen time.
    events: Counter[int] = field(default_factory=Counter)

    def leave_out(self, reason: str, rows: int) -> None:
        """Count rows under a reason."""
        if rows:
            self.left_out[reason] += rows

    def keep(self, before: pl.DataFrame, after: pl.DataFrame, reason: str) -> pl.DataFrame:
        """The events after a step, which left the others out for a reason."""
        self.leave_out(reason, count_rows(before) - count_rows(after))
        return after

    def absorb(self, part: SourceCoverage) -> None:
        """Add the numbers of another part of the same table."""
        self.read += part.read
        self.written += part.written
        self.clipped += part.clipped
        self.left_out += part.left_out
        self.repaired += part.repaired
        self.events += part.events

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source.name,
            "title": self.source.title,
            "rows": 0 if self.source.derived else self.read,
            "written": self.written,
            "events": {str(number): count for number, count in sorted(self.events.items())},
            "clipped": self.clipped,
            "left_out": dict(sorted(self.left_out.items())),
            "repaired": self.repaired,
            # Made of events of other sources: no rows of the table.
            "derived": self.source.derived,
        }


def account(
    report: Report, entries: Sequence[SourceCoverage], selected: Sequence[Source], sources: Sequence[Source]
) -> list[dict[str, Any]]:
    """The account of one report, by the coverage of the sources read: tables with events, their rows, those in the trace."""
    read: Counter[str] = Counter()
    for entry in entries:
        read[entry.source.table] += 0 if entry.source.derived else entry.read
    # Each row is counted once: events made of rows of other sources are listed apart.
    return [
        {
            "table": table,
            "rows": rows,
            "sources": [entry.as_json() for entry in entries if entry.source.table == table and not entry.source.derived],
            "derived": [entry.as_json() for entry in entries if entry.source.table == table and entry.source.derived],
            "left_out": left_out,
        }
        for table, rows, left_out in walk(report, read, selected, sources)
    ]


def walk(
    report: Report, read: Mapping[str, int], selected: Sequence[Source], sources: Sequence[Source]
) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Every table with events: its name, its rows, and by reason those that no source read; `read` has the rows that were."""
    for table in sorted(filter(has_events, report.tables.names())):
        rows = report.tables.row_count(table)
        unread = rows - read.get(table, 0)
        if unread and table == "NVTX_EVENTS":
            left_out = _unread_nvtx(report, unread, rows - unread)
        elif unread and table == plugins.TABLE:
            left_out = _unread_generic(report, unread, selected)
        else:
            left_out = {_reason(table, selected, sources): unread}
        if rows:
            yield table, rows, {reason: count for reason, count in left_out.items() if count}


def _reason(table: str, selected: Sequence[Source], sources: Sequence[Source]) -> str:
    unread = next((source.unread_reason for source in selected if source.table == table and source.unread_reason), "")
    # Derived sources read the events of others.
    is_selected = all(source in selected for source in sources if source.table == table and not source.derived)
    return unread or (reason_of(table) or NOT_TRANSLATED if is_selected else NOT_SELECTED)


def _unread_nvtx(report: Report, unread: int, read: int) -> dict[str, int]:
    ranges = report.scan("NVTX_EVENTS", ("eventType",), only={"eventType": _TRANSLATED_NVTX})
    not_taken = report.count(ranges) - read
    return {NAMES_OF_NVTX: unread - not_taken, NOT_SELECTED: not_taken}


def _unread_generic(report: Report, unread: int, selected: Sequence[Source]) -> dict[str, int]:
    is_twice, is_selected = report.has("GPU_METRICS"), gpu_metrics.METRICS_IN_JSON in selected
    of_gpus = plugins.rows_of_gpus(report) if is_twice or not is_selected else 0
    with_plugins = any(source in selected for source in (plugins.EVENTS, plugins.EVENTS_WITH_VALUES))
    left_out = Counter({GPU_METRICS_ROWS if is_twice else NOT_SELECTED: of_gpus})
    left_out[NO_FIELDS if with_plugins else NOT_SELECTED] += unread - of_gpus
    return left_out
