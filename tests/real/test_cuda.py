"""CUDA beyond calls, kernels and copies, on real reports: counted again with SQL that shares nothing with nsys2prv."""

from collections import Counter
from collections.abc import Callable

import polars as pl
import pytest
from support import few_of

from .conftest import Translated

Translation = Callable[[str], Translated]

SYNCHRONIZATION, MEMORY_OF_KIND, MEMORY_TOTAL = 63000700, (63000300, 63000320), 63000320

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


WITH_WAITS = ("cloverleaf-3.13", "openacc-mpas", "no-metadata-2020", "pytorch-nccl-2gpu", "pytorch-uvm", "mpi-openacc-4gpu")


@pytest.mark.parametrize("report", few_of(WITH_WAITS, {"no-metadata-2020", "mpi-openacc-4gpu"}))
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
    waits = translated.trace.named(translated.trace.intervals([SYNCHRONIZATION]))
    found = waits.group_by("name").agg(pl.len(), time=(pl.col("end") - pl.col("begin")).sum())
    assert dict(found.select("name", "len").iter_rows()) == counts
    assert dict(found.select("name", "time").iter_rows()) == times


@pytest.mark.thorough
def test_memory_in_use_follows_its_table(translation: Translation) -> None:
    translated = translation("pytorch-uvm")
    sums = translated.query(
        """select globalPid, deviceId, sum(change) over (partition by globalPid, deviceId order by start, rowid) as running
           from (select rowid, *, case when memKind in (0, 1, 4, 6) then 0 when memoryOperationType = 0 then bytes
                   else -bytes end as change from CUDA_GPU_MEMORY_USAGE_EVENTS) order by start, rowid"""
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
    of_kind = translated.trace.named(translated.trace.events(list(range(*MEMORY_OF_KIND))))
    found = of_kind.group_by("label").agg(pl.col("value").max(), last=pl.col("value").last(), rows=pl.len())
    assert sorted((label.lower(), *rest) for label, *rest in found.iter_rows()) == sorted(
        (f"gpu memory in use: {label.lower()}", *rest) for label, *rest in kinds
    )
