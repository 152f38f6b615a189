"""The account of every row of every table: translated, or left out under a reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nsys2prv.reports import Report
from nsys2prv.sources import Source
from nsys2prv.sources.nvtx import MARK, PUSHPOP_RANGE, STARTEND_RANGE

NO_TIME = "no begin is told"
NO_ROW_NAMED = "the table names no thread, stream or device"
ROW_NOT_CHOSEN = "its rank was not chosen, or another report samples the same GPU"
SAME_CALL = "another row of the same MPI call"
TOO_SHORT = "shorter than --min-duration"
OUTSIDE = "outside the chosen time"
NOT_SELECTED = "its source was left out with --only or --skip"
NOT_TRANSLATED = "no source translates this table"
NAMES_OF_NVTX = "names of threads, domains and categories, not events"

_TRANSLATED_NVTX = (PUSHPOP_RANGE, STARTEND_RANGE, MARK)

# Tables that describe events or the machine and hold none of their own.
_NO_EVENTS = re.compile(
    r"ENUM_.*|META_DATA_.*|EXPORT_META_DATA|TARGET_INFO_.*|ANALYSIS_.*|StringIds|ThreadNames|PROCESSES|ProcessStreams"
    r"|.*CALLCHAINS|MPI_RANKS|MPI_COMMUNICATORS|UCP_WORKERS|NVTX_PAYLOAD_.*|GENERIC_EVENT_(TYPES|SOURCES)|NIC_ID_MAP"
    r"|NET_IB_DEVICE_.*|UnwindMethodType|OSRT_FILE_ACCESS_DESCRIPTORS|PMU_EVENT_REQUESTS|DIAGNOSTIC_EVENT|sqlite_.*"
)


def has_events(table: str) -> bool:
    """Whether a table of an export holds events.

    >>> has_events("OSRT_API"), has_events("OSRT_CALLCHAINS"), has_events("ENUM_OPENMP_WORK")
    (True, False, False)
    """
    return _NO_EVENTS.fullmatch(table) is None


@dataclass
class Entry:
    """What became of the rows of one table that belong to one source.

    Attributes
    ----------
    read
        Rows of the table.
    written
        Events (intervals, marks, samples) in the trace.
    clipped
        Those of them that were cut at an edge of the chosen time.
    left_out
        Rows by the reason why they are not in the trace.
    derived
        The events were made of those of other sources: they are no rows of the table.
    """

    source: str
    title: str
    table: str
    derived: bool = False
    read: int = 0
    written: int = 0
    clipped: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, source: Source) -> Entry:
        """An empty entry for a source."""
        return cls(source.name, source.title, source.table, source.derived)

    def leave_out(self, reason: str, rows: int) -> None:
        """Count rows under a reason."""
        if rows:
            self.left_out[reason] += rows

    def absorb(self, part: Entry) -> None:
        """Add what became of another part of the same table."""
        self.read += part.read
        self.written += part.written
        self.clipped += part.clipped
        self.left_out += part.left_out

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "title": self.title,
            "rows": self.read,
            "written": self.written,
            "clipped": self.clipped,
            "left_out": dict(self.left_out),
        }


def account(
    report: Report, entries: Sequence[Entry], selected: Sequence[Source], known: Sequence[Source]
) -> list[dict[str, Any]]:
    """The ledger of one report: every table that holds events, its rows, and what became of them.

    Parameters
    ----------
    report
        The report.
    entries
        What became of the rows that sources took.
    selected, known
        Sources that were asked for, and all that there are.
    """
    tables = []
    for table in sorted(filter(has_events, report.tables.names())):
        rows = report.tables.row_count(table)
        if not rows:
            continue
        of_table = [entry for entry in entries if entry.table == table]
        rest = rows - sum(entry.read for entry in of_table if not entry.derived)
        left_out: dict[str, int] = {}
        if rest:
            left_out[_reason(report, table, selected, known)] = rest
        if table == "NVTX_EVENTS" and rest:
            left_out = _nvtx_rest(report, rest, of_table)
        told = {derived: [entry.as_json() for entry in of_table if entry.derived is derived] for derived in (False, True)}
        tables.append({"table": table, "rows": rows, "sources": told[False], "derived": told[True], "left_out": left_out})
    return tables


def _reason(report: Report, table: str, selected: Sequence[Source], known: Sequence[Source]) -> str:
    if any(source.table == table for source in known) and not any(source.table == table for source in selected):
        return NOT_SELECTED
    return reason_of_rest(table, selected)


def reason_of_rest(table: str, sources: Sequence[Source]) -> str:
    """Why rows of a table are left out that none of the sources gives."""
    return next((source.rest for source in sources if source.table == table and source.rest), NOT_TRANSLATED)


def _nvtx_rest(report: Report, rest: int, entries: Sequence[Entry]) -> dict[str, int]:
    ranges = report.scan("NVTX_EVENTS", ("eventType",), only={"eventType": _TRANSLATED_NVTX})
    events = report.count(ranges)
    not_taken = events - sum(entry.read for entry in entries if not entry.derived)
    left_out = {NAMES_OF_NVTX: rest - not_taken, NOT_SELECTED: not_taken}
    return {reason: count for reason, count in left_out.items() if count}
