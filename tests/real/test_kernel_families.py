"""Families of kernels of the real reports: counted again with SQL, and nothing that has a family stands without."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from nsys2prv.vocabulary.name_rules import families

from .conftest import Translated

KERNEL_FAMILY = 63000121
# What an analyst calls a product of matrices, an attention or a communication, however it is written.
_MUST_HAVE_A_KIND = (
    r"(?i)gemm|gemv|nvjet|matmul|flash|attention|nccl|softmax|layer_?norm|batch_?norm|conv|at::native|cub::|triton_"
)


@pytest.fixture
def kernels(translated: Translated) -> pl.DataFrame:
    """Name, number of launches and time of each kernel."""
    if not translated.query("select 1 from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_KERNEL'"):
        pytest.skip("no kernels")
    rows = translated.query("""
        select value, count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_KERNEL
        join StringIds on StringIds.id = demangledName group by demangledName
    """)
    return pl.DataFrame(rows, schema={"name": pl.String, "launches": pl.Int64, "time": pl.Int64}, orient="row")


def test_families_have_the_launches_and_the_time_of_their_kernels(translated: Translated, kernels: pl.DataFrame) -> None:
    launches: Counter[str] = Counter()
    time: Counter[str] = Counter()
    for family, count, length in kernels.join(families(kernels["name"]), on="name").select("family", "launches", "time").rows():
        launches[family] += count
        time[family] += length
    labels = translated.trace.labels.types[KERNEL_FAMILY].values or {}
    found = translated.trace.intervals([KERNEL_FAMILY]).with_columns(family=pl.col("value").replace_strict(labels))
    told = found.group_by("family").agg(pl.len(), time=(pl.col("end") - pl.col("begin")).sum()).rows()
    assert {family: count for family, count, _ in told} == launches
    # Clocks of hosts that drift stretch or shorten an interval by some ns.
    assert {family: length for family, _, length in told} == pytest.approx(time, rel=1e-4)


def test_no_gemm_attention_or_communication_stands_without_a_family(kernels: pl.DataFrame) -> None:
    found = families(kernels["name"]).filter(pl.col("kind").is_null(), pl.col("name").str.contains(_MUST_HAVE_A_KIND))
    assert found["name"].to_list() == []
