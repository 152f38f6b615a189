"""What stands in the tables of a real report stands in its trace: counted again with SQL that shares nothing with nsys2prv."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import polars as pl
import pytest

from .conftest import Translated


class Event(NamedTuple):
    """One interval: what kind of activity, label, begin and end in ns."""

    kind: str
    label: str
    begin: int
    end: int


# kind of activity -> event types it has in a trace: numbers, or (first number, number beyond the last, distance).
TYPES: dict[str, tuple[int | tuple[int, ...], ...]] = {
    "kernel": (63000006,),
    "NCCL kernel": (63000007,),
    "memory operation": (63000001,),
    "CUDA call": (63000000,),
    "graph": (63000008,),
    "push/pop range": (9500, (9600, 9600 + 100 * 1000, 100), (96100000, 96200000)),
    "start/end range": (9004, (90040001, 90140000)),
    "range on the GPU": (
        9006,
        9590,
        (9650, 9650 + 100 * 1000, 100),
        (90060001, 90070001),
        (95900001, 95910001),
        (96500000, 96600000),
        (970000001, 1070000001),
    ),
    "MPI call": ((50000001, 50000006),),
    "OpenACC other": (66000000,),
    "OpenACC data": (66000001,),
    "OpenACC launch": (66000002,),
    "OS call": (65100000, 61000000, 40000004),
}

# Intervals that are made of those of other types; tests of their own look at them.
MADE_OF_OTHERS = frozenset({9508})

_STRING = "(select value from StringIds where id = {})"
_NVTX = f"""
    select coalesce(event.text, {_STRING.format("event.textId")}, '') as label, event.start, event.end, event.eventType,
      event.globalTid, coalesce(created.text, {_STRING.format("created.textId")}) as domain
    from NVTX_EVENTS event left join (select * from NVTX_EVENTS where eventType = 75) created
      on created.domainId = event.domainId and created.globalTid >> 24 = event.globalTid >> 24
"""
_MPI_TABLES = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
_OPENACC_TABLES = {"OpenACC other": "OTHER", "OpenACC data": "DATA", "OpenACC launch": "LAUNCH"}
_COPY_DIRECTIONS = (
    "Host-to-Device",
    "Device-to-Host",
    "Host-to-Array",
    "Array-to-Host",
    "Array-to-Array",
    "Array-to-Device",
    "Device-to-Array",
    "Device-to-Device",
    "Host-to-Host",
    "Peer-to-Peer",
    "Unified Host-to-Device",
    "Unified Device-to-Host",
    "Unified Device-to-Device",
)
"""Of copyKind 1, 2, ..."""


def in_report(database: sqlite3.Connection) -> Iterator[Event]:
    """Every interval of the tables of one report, in the report's own time."""
    tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}

    def rows(table: str, sql: str) -> Iterator[tuple]:  # type: ignore[type-arg]
        return iter(database.execute(sql) if table in tables else ())

    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    names = f"{_STRING.format('shortName')}, {_STRING.format('demangledName')}"
    for short, long, begin, end in rows(kernels, f"select {names}, start, end from {kernels}"):
        yield Event("NCCL kernel" if short.startswith("nccl") else "kernel", long, begin, end)
    copies = "CUPTI_ACTIVITY_KIND_MEMCPY"
    for copy, begin, end in rows(copies, f"select copyKind, start, end from {copies}"):
        yield Event("memory operation", f"CUDA memcpy {_COPY_DIRECTIONS[copy - 1]}", begin, end)
    memsets = "CUPTI_ACTIVITY_KIND_MEMSET"
    for begin, end in rows(memsets, f"select start, end from {memsets}"):
        yield Event("memory operation", "CUDA memset", begin, end)
    calls = "CUPTI_ACTIVITY_KIND_RUNTIME"
    # A call with its call chain is there twice.
    once = f"select {_STRING.format('nameId')}, start, end from {calls} where eventClass is not 67"
    for name, begin, end in rows(calls, once):
        yield Event("CUDA call", re.sub(r"(_pts[dz])?_v[0-9]{4,}$", "", name), begin, end)
    graphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    for begin, end in rows(graphs, f"select start, end from {graphs}"):
        yield Event("graph", "", begin, end)
    os_calls = "OSRT_API"
    for name, begin, end in rows(os_calls, f"select {_STRING.format('nameId')}, start, end from {os_calls}"):
        yield Event("OS call", name, begin, end)
    for kind, suffix in _OPENACC_TABLES.items():
        table = f"CUPTI_ACTIVITY_KIND_OPENACC_{suffix}"
        for begin, end in rows(table, f"select start, end from {table}"):
            yield Event(kind, "", begin, end)
    # One call can have a row per request, or one per direction.
    for table in _MPI_TABLES:
        once = f"select {_STRING.format('textId')}, start, max(end) from {table} group by globalTid, start, textId"
        for name, begin, end in rows(table, once):
            yield Event("MPI call", name, begin, end)
    session_end = "(select max(duration) from ANALYSIS_DETAILS)" if "ANALYSIS_DETAILS" in tables else "null"
    nvtx = f"select label, start, coalesce(end, {session_end}), eventType, domain from ({_NVTX}) where eventType in (59, 60)"
    for label, begin, end, event_type, domain in rows("NVTX_EVENTS", nvtx):
        if event_type == 60:
            yield Event("start/end range", label, begin, end)
        else:
            is_call = domain == "MPI" and label.startswith("MPI_")
            yield Event("MPI call" if is_call else "push/pop range", operator(label), begin, end)
    yield from _on_gpu(database, tables)


_WORK_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
_ON_GPU = f"""
    with work as materialized ({{work}}),
    calls as materialized (
      select globalTid, correlationId, min(start) as start from CUPTI_ACTIVITY_KIND_RUNTIME
      group by globalTid >> 24, correlationId
    ),
    launched as materialized (
      select calls.globalTid, calls.start as called, work.* from work
      join calls on calls.correlationId = work.correlationId and calls.globalTid >> 24 = work.globalPid >> 24
    )
    select label, min(launched.start), max(launched.end)
    from (select row_number() over () as number, * from ({_NVTX}) where eventType in (59, 60)) range
    join launched on launched.globalTid = range.globalTid and called >= range.start
      and (called < range.end or range.end is null)
    where eventType = 60 or domain is null or not (domain = 'MPI' and label like 'MPI_%')
    group by range.number, deviceId, contextId, streamId
"""
"""Label, begin and end of the work that was launched in each range, on each stream."""


def _on_gpu(database: sqlite3.Connection, tables: set[str]) -> Iterator[Event]:
    """Ranges on the streams that they launched work on."""
    work = [f"CUPTI_ACTIVITY_KIND_{name}" for name in _WORK_TABLES if f"CUPTI_ACTIVITY_KIND_{name}" in tables]
    if work and {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"} <= tables:
        columns = "start, end, deviceId, contextId, streamId, globalPid, correlationId"
        sql = _ON_GPU.format(work=" union all ".join(f"select {columns} from {table}" for table in work))
        for label, begin, end in database.execute(sql):
            yield Event("range on the GPU", operator(label), begin, end)


def operator(label: str) -> str:
    """Name of a range of PyTorch's autograd without its numbers; any other name as it is."""
    return re.sub(r"(, (seq|op_id) = [0-9]+)+$", "", label)


@lru_cache(maxsize=1)
def in_reports(translated: Translated) -> list[Event]:
    """Every interval of the tables of some reports."""
    events = []
    for path in translated.databases:
        with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
            events += list(in_report(database))
    return [event._replace(label=_as_label(event.label)) for event in events]


@lru_cache(maxsize=1)
def in_trace(translated: Translated) -> list[Event]:
    """Every interval of the trace that is of one of TYPES; other kinds of activity have tests of their own."""
    intervals = translated.trace.named(translated.trace.intervals().filter(~pl.col("type").is_in(MADE_OF_OTHERS)))
    kinds = {number: kind for number in intervals["type"].unique() for kind in TYPES if _is_of_kind(number, kind)}
    return [
        Event(kinds[number], _without_mark(name), begin, end)
        for number, name, begin, end in intervals.select("type", "name", "begin", "end").iter_rows()
        if number in kinds
    ]


def _is_of_kind(number: int, kind: str) -> bool:
    return any(number == one if isinstance(one, int) else number in range(*one) for one in TYPES[kind])


def _as_label(name: str) -> str:
    """A name of a report as a label writes it: one line, no square brackets, and of a long one its begin and end."""
    line = " ".join(name.translate(str.maketrans("[]", "()")).split()) or "(blank)"
    return line if len(line) <= 240 else f"{line[:150]} ... {line[-70:]}"


def _without_mark(label: str) -> str:
    """A label without the mark that tells long names with the same begin and end apart."""
    return re.sub(r"^(.{150} \.\.\. .{70}) #[0-9a-f]{8}$", r"\1", label)


NAMED = (
    "kernel", "NCCL kernel", "memory operation", "CUDA call", "OS call", "MPI call", "push/pop range", "start/end range",
    "range on the GPU",
)  # fmt: skip
"""Kinds whose label is a name out of the report."""


def counts_and_durations(events: list[Event]) -> dict[tuple[str, str], tuple[int, int]]:
    """kind, and name where it has one -> (number of intervals, sum of their durations in ns)."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, label, begin, end in events:
        key = (kind, label if kind in NAMED else "")
        count, time = found.get(key, (0, 0))
        found[key] = (count + 1, time + end - begin)
    return found


def test_each_name_has_as_many_intervals_and_as_much_time_as_in_its_table(translated: Translated) -> None:
    assert counts_and_durations(in_trace(translated)) == counts_and_durations(in_reports(translated))


def test_names_that_differ_have_labels_that_differ(translated: Translated) -> None:
    names = "select count(distinct value) from StringIds where id in (select demangledName from CUPTI_ACTIVITY_KIND_KERNEL)"
    if len(translated.databases) > 1 or not any(event.kind.endswith("kernel") for event in in_trace(translated)):
        pytest.skip("names of kernels are counted in one report that has some")
    assert translated.trace.intervals([63000006, 63000007])["value"].n_unique() == translated.query(names)[0][0]


def test_each_interval_lies_where_the_report_has_it(translated: Translated) -> None:
    if len(translated.databases) > 1:
        pytest.skip("the reports are moved against each other")
    found, expected = in_trace(translated), in_reports(translated)
    # Time 0 of the trace is an event of the report that may be of another kind: the first interval tells the distance.
    offset = min(event.begin for event in found) - min(event.begin for event in expected)
    moved = [event._replace(begin=event.begin + offset, end=event.end + offset) for event in expected]
    kinds = {event.kind for event in expected} - {"graph", "OpenACC other", "OpenACC data", "OpenACC launch"}
    found, moved = ([event for event in events if event.kind in kinds] for events in (found, moved))
    assert Counter(found) == Counter(moved)


def test_each_mark_is_there(translated: Translated) -> None:
    expected: Counter[str] = Counter()
    for path in translated.databases:
        with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
            if database.execute("select 1 from sqlite_master where name = 'NVTX_EVENTS'").fetchone():
                marks = database.execute(f"select label from ({_NVTX}) where eventType = 34")
                expected.update(_as_label(label) for (label,) in marks)
    marks_found = translated.trace.named(translated.trace.events([9005]).filter(pl.col("value") != 0))
    assert Counter(map(_without_mark, marks_found["name"])) == expected
