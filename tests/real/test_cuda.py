"""CUDA beyond calls, kernels and copies, on real reports: counted again with SQL that shares nothing with nsys2prv."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import polars as pl
import pytest
from support.real_reports import REPORTS
from support.whole_trace import row_of

from .conftest import Translated

Translation = Callable[[str], Translated]

SYNCHRONIZATION, EVENT_RECORD, GRAPH_MADE, CUDA_OVERHEAD, PROFILER_OVERHEAD = 63000700, 63000710, 63000120, 63000600, 63000601
MEMORY_OF_KIND, MEMORY_TOTAL, ALLOCATED, FREED = (63000300, 63000320), 63000320, 63000322, 63000323
PAGE_FAULTS, FAULT_COUNT, FAULT_LANES = 63000400, 63000401, (634000001, 634100001)
MEMORY_OPERATION, MEMORY_SIZE, SOURCE_DEVICE, DESTINATION_DEVICE, THROUGHPUT = 63000001, 63000002, 63000502, 63000503, 63000504

_CALL = """
    left join (select correlationId, globalTid, nameId, min(start) as called from CUPTI_ACTIVITY_KIND_RUNTIME
               group by correlationId, globalTid >> 24) call
      on call.correlationId = event.correlationId and call.globalTid >> 24 = event.globalPid >> 24
    left join StringIds on StringIds.id = call.nameId
"""

# What stands in the name of a call -> what the trace calls the wait.
_WAITS = {
    "WaitEvent": "Stream waits for event",
    "EventSynchronize": "Event synchronize",
    "EventQuery": "Event query",
    "StreamSynchronize": "Stream synchronize",
    "DeviceSynchronize": "Device or context synchronize",
    "CtxSynchronize": "Device or context synchronize",
}


def has_table(translated: Translated, table: str) -> bool:
    return bool(translated.query(f"select 1 from sqlite_master where name = '{table}'"))


def waits_in_trace(translated: Translated) -> pl.DataFrame:
    trace = translated.trace
    labels = trace.labels.types
    waits = trace.intervals([SYNCHRONIZATION]).select(
        "task", "thread", "begin", "end", label=pl.col("value").replace_strict(labels[SYNCHRONIZATION].values or {})
    )
    rows = waits.select(row_of(trace.header, waits["task"], waits["thread"])).to_series()
    return waits.with_columns(row=pl.Series([trace.names["THREAD"][row] for row in rows], dtype=pl.String))


@pytest.mark.parametrize(
    "report", ["cloverleaf-3.13", "openacc-mpas", "no-metadata-2020", "pytorch-nccl-2gpu", "pytorch-uvm", "mpi-openacc-4gpu"]
)
def test_waits_by_the_name_of_their_call_have_their_numbers_and_times(translation: Translation, report: str) -> None:
    translated = translation(report)
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    by_call = translated.query(
        f"select value, count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_SYNCHRONIZATION event {_CALL} group by value"
    )
    for call, count, time in by_call:
        kind = next(kind for part, kind in _WAITS.items() if part in call)
        counts[kind] += count
        times[kind] += time
    found = waits_in_trace(translated).group_by("label").agg(pl.len(), time=(pl.col("end") - pl.col("begin")).sum())
    assert dict(found.select("label", "len").iter_rows()) == counts
    assert dict(found.select("label", "time").iter_rows()) == times


@pytest.mark.parametrize("report", ["pytorch-nccl-2gpu", "mpi-openacc-4gpu", "pytorch-uvm"])
def test_waits_lie_on_the_rows_of_the_threads_that_called(translation: Translation, report: str) -> None:
    translated = translation(report)
    expected = Counter(
        dict(
            translated.query(
                f"""select call.globalTid & 16777215, count(*) from CUPTI_ACTIVITY_KIND_SYNCHRONIZATION event {_CALL}
                    group by 1"""
            )
        )
    )
    tids = waits_in_trace(translated)["row"].str.extract(r"tid (\d+)$").cast(pl.Int64)
    assert Counter(tids) == expected


def test_a_wait_whose_call_was_not_recorded_lies_on_the_device(translation: Translation) -> None:
    # syncType and its ENUM would make it a wait for an event; it names neither an event nor a stream.
    waits = waits_in_trace(translation("tensorrt-3.1"))
    assert Counter(waits.select("label", "row").rows()).keys() == {
        ("Stream synchronize", next(row for row in waits["row"] if not row.startswith("Metrics"))),
        ("Device or context synchronize", "Metrics GPU0"),
    }


@pytest.mark.parametrize("report", ["cuda-graphs", "pytorch-uvm", "mpi-openacc-4gpu"])
def test_events_are_recorded_at_their_calls_on_their_streams(translation: Translation, report: str) -> None:
    translated = translation(report)
    trace = translated.trace
    records = trace.events([EVENT_RECORD])
    rows = records.select(row_of(trace.header, records["task"], records["thread"])).to_series()
    names = trace.names["THREAD"]
    found = Counter(
        (int(re.findall(r"\.S(\d+)", names[row])[0]), value, time)
        for row, (value, time) in zip(rows, records.select("value", "time").rows(), strict=True)
    )
    told = translated.query(
        f"select streamId, eventId, called from CUPTI_ACTIVITY_KIND_CUDA_EVENT event {_CALL} order by called, streamId"
    )
    offset = records["time"].min() - min(called for *_, called in told)  # type: ignore[operator]
    assert found == Counter((stream, event, called + offset) for stream, event, called in told)


def test_graphs_are_made_on_the_host(translation: Translation) -> None:
    translated = translation("cuda-graphs")
    values = translated.trace.labels.types[GRAPH_MADE].values or {}
    found = Counter(values[value] for value in translated.trace.intervals([GRAPH_MADE])["value"])
    told = translated.query("select value, count(*) from CUDA_GRAPH_EVENTS join StringIds on id = nameId group by value")
    assert found == dict(told)
    executions = translated.trace.events([63000101])
    assert executions.filter(pl.col("value") == 2).height == 3  # instantiated once, run twice


def test_overhead_is_there_but_for_threads_that_do_nothing_else(translation: Translation) -> None:
    for name in ("cuda-graphs", "pytorch-uvm", "one-process-4gpu"):
        translated = translation(name)
        rows = [row.rpartition(" ") for row in translated.trace.names["THREAD"]]
        tids = {int(number) for what, _, number in rows if what.endswith("tid")}
        for table, number in (("PROFILER_OVERHEAD", PROFILER_OVERHEAD), ("CUPTI_ACTIVITY_KIND_OVERHEAD", CUDA_OVERHEAD)):
            if has_table(translated, table):
                told = translated.query(f"select globalTid & 16777215, end - start from {table}")
                found = translated.trace.intervals([number])
                kept = [time for tid, time in told if tid in tids]
                assert (found.height, (found["end"] - found["begin"]).sum()) == (len(kept), sum(kept))


def test_memory_in_use_follows_its_table(translation: Translation) -> None:
    translated = translation("pytorch-uvm")
    sums = translated.query(
        """select globalPid, deviceId, sum(change) over (partition by globalPid, deviceId order by start, rowid) as running
           from (select rowid, *, case memoryOperationType when 0 then bytes else -bytes end as change
                 from CUDA_GPU_MEMORY_USAGE_EVENTS) order by start, rowid"""
    )
    totals = translated.trace.events([MEMORY_TOTAL])["value"].to_list()
    assert totals == [running for *_, running in sums]
    assert (max(totals), totals[-1]) == (max(running for *_, running in sums), sums[-1][2])
    kinds = translated.query(
        """select label, max(running), sum(last * running), count(*) from (
             select label, sum(change) over (partition by memKind order by start, usage.rowid) as running,
               row_number() over (partition by memKind order by start desc, usage.rowid desc) = 1 as last
             from (select rowid, *, case memoryOperationType when 0 then bytes else -bytes end as change
                   from CUDA_GPU_MEMORY_USAGE_EVENTS) usage join ENUM_CUDA_MEM_KIND on id = memKind) group by label"""
    )
    labels = translated.trace.labels.types
    of_kind = translated.trace.events(list(range(*MEMORY_OF_KIND)))
    found = of_kind.group_by("type", maintain_order=True).agg(pl.col("value").max(), last=pl.col("value").last(), rows=pl.len())
    assert sorted((labels[number].label.lower(), *rest) for number, *rest in found.iter_rows()) == sorted(
        (f"gpu memory in use: {label.lower()}", *rest) for label, *rest in kinds
    )


def test_allocations_and_frees_are_there_with_their_sizes(translation: Translation) -> None:
    translated = translation("pytorch-uvm")
    for operation, number in ((0, ALLOCATED), (1, FREED)):
        told = translated.query(
            f"select count(*), sum(bytes) from CUDA_GPU_MEMORY_USAGE_EVENTS where memoryOperationType = {operation}"
        )
        found = translated.trace.events([number])
        assert [(found.height, found["value"].sum())] == told


def test_page_faults_have_their_numbers_and_times(translation: Translation) -> None:
    translated = translation("pytorch-uvm")
    labels = translated.trace.labels.types
    numbers = [number for number in labels if number == PAGE_FAULTS or FAULT_LANES[0] <= number < FAULT_LANES[1]]
    faults = translated.trace.intervals(numbers)
    found = {
        (labels[PAGE_FAULTS].values or {})[value]: (count, time)
        for value, count, time in faults.group_by("value").agg(pl.len(), (pl.col("end") - pl.col("begin")).sum()).iter_rows()
    }
    told = translated.query(
        """select label, count(*), sum(end - start) from CUDA_UM_GPU_PAGE_FAULT_EVENTS
           join ENUM_CUDA_UNIF_MEM_ACCESS_TYPE on id = faultAccessType group by label"""
    )
    assert found == {label: (count, time) for label, count, time in told}
    count = translated.query("select sum(numberOfPageFaults) from CUDA_UM_GPU_PAGE_FAULT_EVENTS")[0][0]
    assert translated.trace.events([FAULT_COUNT])["value"].sum() == count
    # On no row do two of one type overlap: each has the length that the table tells.
    ordered = faults.sort("type", "begin")
    overlap = ordered.filter(pl.col("begin") < pl.col("end").shift(1).over("type", "task", "thread"))
    assert overlap.is_empty()


def test_migrations_tell_their_cause(translation: Translation) -> None:
    translated = translation("pytorch-uvm")
    begun = translated.trace.events([63000407]).filter(pl.col("value") > 0)["value"]
    told = translated.query(
        "select migrationCause + 1, count(*) from CUPTI_ACTIVITY_KIND_MEMCPY where migrationCause > 0 group by 1"
    )
    assert Counter(begun) == dict(told)


def test_copies_between_devices_name_both(translation: Translation) -> None:
    translated = translation("mpi-openacc-4gpu")
    ends = [
        translated.trace.events([number]).filter(pl.col("value") > 0).sort("line")["value"].to_list()
        for number in (SOURCE_DEVICE, DESTINATION_DEVICE)
    ]
    told = translated.query(
        "select srcDeviceId + 1, dstDeviceId + 1, count(*) from CUPTI_ACTIVITY_KIND_MEMCPY where copyKind = 10 group by 1, 2"
    )
    assert Counter(zip(*ends, strict=True)) == {(source, destination): count for source, destination, count in told}


def test_throughput_of_copies(translation: Translation) -> None:
    for name in ("cloverleaf-3.13", "v100x8/report1"):
        if name not in REPORTS:
            pytest.skip(f"no report {name}")
        translated = translation(name)
        told = translated.query("select cast(round(bytes * 1e9 / (end - start)) as integer) from CUPTI_ACTIVITY_KIND_MEMCPY")
        found = translated.trace.events([THROUGHPUT]).filter(pl.col("value") > 0)["value"]
        assert sorted(found) == sorted(rate for (rate,) in told if rate)
