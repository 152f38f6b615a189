"""What matters first: the sentence, the bar of wall time, and the four numbers."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.measured import measured
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.meters.absent_tables import STARVED
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import Verdict, verdict
from nsys2prv.vocabulary.wording import percent


def of(result: EfficiencyResult) -> Verdict:
    return verdict(result.head, result.tables)


def alone(**options: Any) -> ReportBuilder:
    """Computes for 500 of 1,000 ns; the host is in no call for 350 before it launches the second kernel."""
    report = ReportBuilder(**options).gpu(0)
    report.kernel("first", 100, 400, launch=(0, 100))
    report.kernel("second", 800, 1_000, launch=(750, 800))
    return report


def test_the_sentence_has_the_share_the_window_and_the_largest_loss_and_what_is_not_known_says_why(tmp_path: Path) -> None:
    found = of(measured(tmp_path, alone()))

    assert found.sentence == (
        "1 GPU computed 50.0 % of 1.000 µs (the whole run); "
        "largest part of the rest: launch-starved (host computing or off its CPU), 35.0 %"
    )
    assert [(part.name, part.value, part.share) for part in found.bar] == [
        ("compute", 500, 0.5), ("start_up", 100, 0.1), ("starved_launch", 50, 0.05), ("starved_host", 350, 0.35),
    ]  # fmt: skip
    tiles = {tile.name: tile for tile in found.tiles}
    assert list(tiles) == ["gpu_busy", "exposed_communication", "load_balance", "tensor_active"]
    assert (percent(tiles["gpu_busy"].value), tiles["gpu_busy"].level) == ("50.0 %", "fair")
    unknown = {name: tile.note for name, tile in tiles.items() if tile.value is None and tile.level is None}
    assert unknown == {
        "exposed_communication": "no NCCL kernels",
        "load_balance": "one GPU",
        "tensor_active": "no samples: record with --gpu-metrics-devices=all",
    }


def test_parts_add_up_and_the_largest_is_no_further_loss_beside_what_costs_most(slow_gpu: EfficiencyResult) -> None:
    found = of(slow_gpu)
    assert sum(part.share for part in found.bar) == pytest.approx(1)
    assert min(part.share for part in found.bar if part.name != "other") >= 0.005
    saved = r"; it would be (at most )?\S+ ms \(\d+\.\d %\) shorter without: [A-Z].+gpu\d+:D\d"
    finding = r"; largest part of the rest: start-up[^;]+" + saved
    assert re.search(finding, found.sentence)


def scheduled(report: ReportBuilder) -> ReportBuilder:
    """The thread is off its CPU for 250 of the 350 ns in which the host is in no call."""
    return report.on_cpu(0, 450).on_cpu(700, 1_000)


def test_where_scheduling_was_recorded_the_loss_is_the_host_off_its_cpu(tmp_path: Path) -> None:
    found = of(measured(tmp_path, scheduled(alone())))

    assert found.sentence == (
        "1 GPU computed 50.0 % of 1.000 µs (the whole run); largest part of the rest: launch-starved (host off its CPU), 25.0 %"
    )
    assert [(part.title, part.value) for part in found.bar if part.group == STARVED] == [
        ("launch-starved (launching)", 50),
        ("launch-starved (host off its CPU)", 250),
        ("launch-starved (host computing)", 100),
    ]
    assert sum(part.share for part in found.bar) == pytest.approx(1)


def test_where_scheduling_was_recorded_of_some_processes_the_rest_is_either(tmp_path: Path) -> None:
    first, other = (alone(rank=rank, ranks=2, pid=1000 + rank, host=f"node{rank}") for rank in (0, 1))
    found = of(measured(tmp_path, scheduled(first), other))
    assert [(part.title, part.value) for part in found.bar if part.group == STARVED] == [
        ("launch-starved (launching)", 50),
        ("launch-starved (host off its CPU)", 125),
        ("launch-starved (host computing)", 50),
        ("launch-starved (host computing or off its CPU)", 175),
    ]


def test_a_gpu_without_work_computes_nothing(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.copy(100, 1_000, 10, launch=(0, 100))
    found = of(measured(tmp_path, report))
    assert found.sentence.startswith(
        "1 GPU computed 0.0 % of 1.000 µs (the whole run); largest part of the rest: copies and memsets, 90"
    )
    assert percent(found.tiles[0].value) == "90.0 %"


def test_the_call_that_takes_most_of_a_run_without_gpus_is_named(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.api_call("cudaMalloc_v3020", 0, 300)
    report.api_call("cudaFree_v3020", 310, 410)
    assert of(measured(tmp_path, report)).sentence.endswith("CUDA calls (75.0 % in cudaMalloc), 97.6 %")


def test_a_part_that_is_not_decidable_says_what_is_missing(tmp_path: Path) -> None:
    """The second kernel was launched before, and its stream waits for an event, of which it is not recorded where it is."""
    report = ReportBuilder().gpu(0)
    report.kernel("k(int)", 100, 200, launch=(0, 5))
    report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 200, 400, stream=20, launch=(10, 15))
    report.api_call("cudaStreamWaitEvent_v3020", 16, 18)
    report.kernel("k(int)", 400, 500, launch=(20, 25))
    titles = {part.name: part.title for part in of(measured(tmp_path, report)).bar}
    assert titles["undecided_3"] == "not decidable (NCCL runs, CUDA events were not recorded)"


def test_tiles_are_the_numbers_of_the_tables(slow_gpu: EfficiencyResult) -> None:
    busy, exposed, balance, tensor = of(slow_gpu).tiles
    devices, run = slow_gpu.tables["devices"], slow_gpu.tables["run"]
    assert busy.value == pytest.approx(devices["active_share"].mean())
    assert exposed.value == pytest.approx((devices["nccl_alone_ns"] / devices["elapsed_ns"]).mean())
    assert balance.value == run["load_balance"][0]
    samples = slow_gpu.tables["sampled_bins"].filter(pl.col("metric") == "Tensor Active", pl.col("samples") > 0)
    assert tensor.value is not None
    assert tensor.value * 100 == pytest.approx((samples["mean"] * samples["samples"]).sum() / samples["samples"].sum())


def test_clocks_that_leave_the_length_open_are_in_the_sentence(slow_gpu: EfficiencyResult) -> None:
    length = slow_gpu.head["window"]["length_ns"]
    head = {**slow_gpu.head, "length_interval": {"least_ns": length // 2, "most_ns": None}}
    assert "(the whole run; clocks allow " in verdict(head, slow_gpu.tables).sentence
    assert " to more)" in verdict(head, slow_gpu.tables).sentence
    assert "clocks" not in of(slow_gpu).sentence.split(";")[0]
