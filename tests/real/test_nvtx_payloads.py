"""What events of NVTX say, and the calls behind NCCL's kernels, against SQL that shares nothing with nsys2prv."""

from collections import Counter
from collections.abc import Callable

import polars as pl
import pytest
from support import few_of
from support.whole_trace import WholeTrace

from nsys2prv.vocabulary.name_rules import families

from .conftest import Translated

NVTX_REPORTS = few_of(("nvtx-2022.4.2", "nvtx-2023.4.4", "nvtx-2024.2.3", "sched"), {"nvtx-2022.4.2", "sched"})


def labelled(trace: WholeTrace, number: int) -> pl.DataFrame:
    """Pairs of a type whose value is not 0, with names."""
    return trace.named(trace.events([number]).filter(pl.col("value") != 0))


@pytest.mark.parametrize("report", NVTX_REPORTS)
def test_each_category_is_named_by_its_process_and_domain(report: str, translation: Callable[[str], Translated]) -> None:
    translated = translation(report)
    expected = Counter(
        label
        for (label,) in translated.query(
            """select named.text from NVTX_EVENTS event join (select * from NVTX_EVENTS where eventType = 33) named
                 on named.category = event.category and ifnull(named.domainId, 0) = ifnull(event.domainId, 0)
                 and named.globalTid >> 24 = event.globalTid >> 24
               where event.eventType in (34, 59, 60)"""
        )
    )
    assert sum(expected.values()) == 134
    assert Counter(labelled(translated.trace, 9510)["name"]) == expected


@pytest.mark.parametrize("report", NVTX_REPORTS)
def test_each_number_that_an_event_carries_is_in_the_trace(report: str, translation: Callable[[str], Translated]) -> None:
    translated = translation(report)
    integers = "coalesce(int64Value, uint64Value, int32Value, uint32Value)"
    expected = Counter(
        value for (value,) in translated.query(f"select {integers} from NVTX_EVENTS where ifnull({integers}, 0) != 0")
    )
    reals = Counter(
        round(value * 1e6)
        for (value,) in translated.query(
            "select coalesce(doubleValue, floatValue) from NVTX_EVENTS where coalesce(doubleValue, floatValue) is not null"
        )
    )
    assert Counter(labelled(translated.trace, 9511)["value"]) == expected
    assert Counter(labelled(translated.trace, 9512)["value"]) == reals == Counter([3_250_000, 1_500_000])


@pytest.mark.thorough
def test_kernels_of_nccl_have_the_call_that_launched_them(translation: Callable[[str], Translated]) -> None:
    translated = translation("pytorch-nccl-2gpu")
    offset = _offset(translated)
    expected = Counter(
        (begin + offset, end + offset)
        for begin, end in translated.query(
            """select kernel.start, kernel.end from CUPTI_ACTIVITY_KIND_KERNEL kernel
                 join StringIds name on name.id = kernel.demangledName and name.value like 'nccl%'
                 join CUPTI_ACTIVITY_KIND_RUNTIME call on call.correlationId = kernel.correlationId
                   and call.globalTid >> 24 = kernel.globalPid >> 24
               where exists (select 1 from NVTX_EVENTS region join StringIds function on function.id = region.textId
                 where function.value = 'ncclGroupEnd' and region.globalTid = call.globalTid
                   and region.start <= call.start and region.end >= call.end)"""
        )
    )
    spans = translated.trace.intervals([9508])
    assert sum(expected.values()) == 64
    assert Counter(spans.select("begin", "end").rows()) == expected
    # Each group has sends and receives.
    assert set(labelled(translated.trace, 9508)["name"]) == {"ncclGroupEnd"}


def _offset(translated: Translated) -> int:
    """Added to times of the report to get those of the trace: the first region of NCCL is in both."""
    first = "select min(start) from NVTX_EVENTS where textId in (select id from StringIds where value like 'nccl%')"
    return int(labelled(translated.trace, 9500)["time"].min()) - translated.query(first)[0][0]  # type: ignore[arg-type]


# What an analyst calls a product of matrices, an attention or a communication, however it is written.
_MUST_HAVE_A_KIND = (
    r"(?i)gemm|gemv|nvjet|matmul|flash|attention|nccl|softmax|layer_?norm|batch_?norm|conv|at::native|cub::|triton_"
)


def test_no_gemm_attention_or_communication_stands_without_a_family(translated: Translated) -> None:
    if not translated.query("select 1 from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_KERNEL'"):
        pytest.skip("no kernels")
    names = translated.query("select value from StringIds where id in (select demangledName from CUPTI_ACTIVITY_KIND_KERNEL)")
    found = families(pl.Series("name", [name for (name,) in names], pl.String).unique())
    unknown = found.filter(pl.col("kind").is_null(), pl.col("name").str.contains(_MUST_HAVE_A_KIND))
    assert unknown["name"].to_list() == []
