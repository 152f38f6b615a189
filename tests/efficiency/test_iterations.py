"""Iterations of small runs with known ones: by NVTX, and by what repeats on devices."""

import random
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from support.measured import events_of
from support.report_builder import ReportBuilder

from nsys2prv.clocks import AlignMethod
from nsys2prv.efficiency.iterations import BY_KERNELS, find_iterations
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.window import RunIterations
from nsys2prv.errors import UsageError
from nsys2prv.run.options import ReadOptions

LAYERS = ("embed", *("attention", "mlp") * 6, "loss", *("mlp_backward", "attention_backward") * 6, "adam")
"""Kernels of one iteration; inside it others repeat."""


def trained(
    rank: int, starts: Sequence[int], *, names: Sequence[str] = (), evaluations: Sequence[int] = (), stream: int = 7
) -> ReportBuilder:
    """Iterations with kernels of 10 us, one every 12 us; `names` are those of NVTX ranges around them."""
    report = ReportBuilder(rank=rank, pid=1000 + rank).gpu(rank)
    for number, start in enumerate(starts):
        kernels = ("embed", *("attention", "mlp") * 3, "score") if number in evaluations else LAYERS
        if names:
            report.nvtx_range(names[number], start - 5_000, start + 12_000 * len(kernels))
        for place, kernel in enumerate(kernels):
            at = start + 12_000 * place
            report.kernel(f"{kernel}(float*)", at, at + 10_000, launch=(at - 4_000, at - 2_000), stream=stream)
    return report


def found(reports: Sequence[ReportBuilder], folder: Path, requested: str | None = None) -> RunIterations:
    return find_iterations(MeasuredRun(events_of(folder, *reports, options=ReadOptions(align=AlignMethod.UTC))), requested)


def begins(result: RunIterations, device: int = 0) -> list[int]:
    return result.iterations.filter(device=device)["begin"].to_list()


def in_a_row(report: ReportBuilder, at: int, kernels: Sequence[tuple[str, int]]) -> int:
    """Kernels (names and lengths) one after the other; returns the end of the last one."""
    for kernel, length in kernels:
        report.kernel(f"{kernel}(float*)", at, at + length, stream=7)
        at += length
    return at


EVERY_MS = [1_000_000 * number for number in range(1, 13)]


def test_without_nvtx_iterations_are_the_period_of_kernels(tmp_path: Path) -> None:
    result = found([trained(0, EVERY_MS)], tmp_path)
    assert result.how == BY_KERNELS
    assert [begin - begins(result)[0] for begin in begins(result)] == [1_000_000 * number for number in range(12)]
    assert result.iterations["number"].to_list() == list(range(12))
    assert result.work is not None
    assert result.iterations["end"].to_list() == [*begins(result)[1:], result.work[1]]


@pytest.mark.parametrize("end", [20_000, 900_000_000])
def test_a_loop_long_after_the_first_copy_is_found(tmp_path: Path, end: int) -> None:
    report = trained(0, [time + 1_000_000_000 for time in EVERY_MS])
    report.copy(10_000, end, 1 << 20)
    assert len(begins(found([report], tmp_path))) == 12


def test_iterations_each_on_a_stream_of_its_own_are_found(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    for number, start in enumerate(EVERY_MS):
        for place, kernel in enumerate(LAYERS):
            report.kernel(f"{kernel}(float*)", start + 12_000 * place, start + 12_000 * place + 10_000, stream=10 + number)
    assert begins(found([report], tmp_path)) == [start - EVERY_MS[0] for start in EVERY_MS]


def test_what_is_beside_a_kernel_that_fills_the_main_stream_shows_iterations(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    for start in EVERY_MS:
        for place in range(10):
            report.kernel("matvec(float*)", start + 50_000 * place, start + 50_000 * place + 40_000, stream=17)
        for place, kernel in enumerate(LAYERS):
            report.kernel(f"{kernel}(float*)", start + 510_000 + 12_000 * place, start + 520_000 + 12_000 * place, stream=7)
    assert len(begins(found([report], tmp_path))) == 12


def test_with_nvtx_they_are_the_range_that_repeats(tmp_path: Path) -> None:
    report = trained(0, EVERY_MS, names=[f"step {number}" for number in range(12)])
    for start in EVERY_MS:
        report.nvtx_range("layer", start, start + 100_000).nvtx_range("layer", start + 110_000, start + 200_000)
    report.nvtx_range("training", 0, 14_000_000)
    result = found([report], tmp_path)
    assert result.how == "nvtx step #"
    assert found([trained(0, EVERY_MS, names=["net v3"] * 12)], tmp_path).how == "nvtx net v3"
    assert result.iterations.height == 12
    by_kernels = found([trained(0, EVERY_MS)], tmp_path)
    offset = begins(result)[0] - begins(by_kernels)[0]
    assert [begin - offset for begin in begins(result)] == begins(by_kernels)
    lengths = result.iterations["end"] - result.iterations["begin"]
    assert lengths.to_list() == (by_kernels.iterations["end"] - by_kernels.iterations["begin"]).to_list()


def test_a_range_beside_the_work_is_no_iteration(tmp_path: Path) -> None:
    # A data loader: its ranges last as long, but another thread launches the work.
    report = trained(0, EVERY_MS)
    for start in range(1_000_000, 13_000_000, 500_000):
        report.nvtx_range("load", start, start + 480_000, tid=4000)
    assert found([report], tmp_path).how == BY_KERNELS


def test_iterations_have_one_number_on_all_ranks(tmp_path: Path) -> None:
    ranks = [trained(rank, [start + 20_000 * rank for start in EVERY_MS]) for rank in range(3)]
    result = found(ranks, tmp_path)
    assert result.iterations.group_by("number").len()["len"].to_list() == [3] * 12
    spread = result.iterations.group_by("number").agg(pl.col("begin").max() - pl.col("begin").min())
    assert spread["begin"].to_list() == [40_000] * 12


def test_a_rank_that_was_recorded_later_has_later_numbers(tmp_path: Path) -> None:
    # Both begin inside an iteration, and the second rank two iterations later.
    whole, late = trained(0, EVERY_MS), trained(1, EVERY_MS[2:])
    result = found([whole, late], tmp_path)
    assert begins(result, 0)[2:] == begins(result, 1)
    assert result.iterations.filter(pl.col("device") == 1)["number"].to_list() == list(range(2, 12))


def test_of_two_ranks_that_repeat_other_work_that_counts_which_does_so_more_often(tmp_path: Path) -> None:
    often = [1_000_000 + 400_000 * number for number in range(30)]
    assert begins(found([trained(0, EVERY_MS[:6]), trained(1, often)], tmp_path), 1) == [start - 996_000 for start in often]


def test_an_evaluation_step_does_not_end_the_search(tmp_path: Path) -> None:
    result = found([trained(0, EVERY_MS, evaluations=(5,))], tmp_path)
    assert result.how == BY_KERNELS
    # It begins as the others do, and is one of them.
    assert [begin - begins(result)[0] for begin in begins(result)] == [1_000_000 * number for number in range(12)]


def test_first_iterations_that_take_longer_are_warm_up(tmp_path: Path) -> None:
    starts = [100_000, 40_100_000, *(60_100_000 + 1_000_000 * number for number in range(14))]
    result = found([trained(0, starts)], tmp_path)
    assert result.lengths["is_warm_up"].to_list() == [True, True, *[False] * 14]
    assert result.steady == (begins(result)[2], (result.work or (0, 0))[1])
    # Of seven, two are more than a warm-up.
    assert not found([trained(0, starts[:7])], tmp_path).lengths["is_warm_up"].any()


def test_what_follows_the_loop_is_no_iteration(tmp_path: Path) -> None:
    report, after = trained(0, EVERY_MS), EVERY_MS[-1] + 1_000_000
    in_a_row(report, after, [*((name, 10_000) for name in LAYERS[:4]), *[("solve", 10_000)] * len(LAYERS)])
    assert found([report], tmp_path).iterations["end"].to_list()[-1] == after - (EVERY_MS[0] - 4_000)


def test_a_slow_iteration_is_named(tmp_path: Path) -> None:
    starts = [*EVERY_MS[:6], *(start + 3_000_000 for start in EVERY_MS[6:])]
    lengths = found([trained(0, starts)], tmp_path).lengths
    assert lengths.filter(pl.col("kind") == "slow")["number"].to_list() == [5]
    assert not lengths["is_warm_up"].any()


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([f"kernel{place}" for place in range(40)], "on streams with most time in kernels nothing is executed 4 times"),
        (["one"] * 40, "one operation repeats alone"),
        (["copy", "one"] * 12, "the work takes longer each time"),
        (random.Random(7).choices("abcd", k=600), "kernels, copies and collectives have no period"),
    ],
)
def test_work_that_does_not_repeat_has_no_iterations_and_a_reason(tmp_path: Path, names: list[str], reason: str) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    for place, name in enumerate(names):
        report.kernel(f"{name}(int)", 1000 * place, 1001 * place + 1)
    result = found([report], tmp_path)
    assert (result.how, result.steady, result.iterations.is_empty()) == (None, None, True)
    assert str(result.reason).startswith(reason)


def test_time_steps_that_begin_with_one_direction_after_the_other_are_found(tmp_path: Path) -> None:
    # Three sub-steps in x and three in z, in turn in this order and in the other: neighbours of no kernel are alike.
    report, at = ReportBuilder(rank=0).gpu(0), 0
    for step in range(24):
        for direction in "xz" if step % 2 == 0 else "zx":
            for _ in range(3):
                for kernel in (f"halo_{direction}", f"flux_{direction}", "update"):
                    report.kernel(f"{kernel}(double*)", at, at + 10_000, launch=(at - 4_000, at - 2_000))
                    at += 12_000
    result = found([report], tmp_path)
    assert result.how == BY_KERNELS
    lengths = result.iterations["end"] - result.iterations["begin"]
    assert lengths.to_list() == [18 * 12_000] * 23


def test_copies_do_not_hide_which_kernels_run(tmp_path: Path) -> None:
    report, at = ReportBuilder(rank=0).gpu(0), 0
    for kernel in ("grid", "push", "grid", "correct") * 10:
        report.kernel(f"{kernel}(int)", at, at + 10_000, launch=(at, at + 1_000))
        for begin in range(at + 12_000, at + 72_000, 1_000):
            report.copy(begin, begin + 500, 64)
        at += 72_000
    assert found([report], tmp_path).iterations["operations"].unique().to_list() == [4 * 61]


def test_a_long_kernel_that_repeats_at_once_is_no_period_of_the_layers(tmp_path: Path) -> None:
    # Nine tenths of the time are in pairs of "gemm" and "bias", which come in two groups in each layer.
    pairs = [("gemm", 40_000), ("bias", 1_000)] * 4
    forward, backward = ([(f"{name}{n}", 1_000) for n in range(count)] for name, count in (("forward", 12), ("backward", 9)))
    report, at = ReportBuilder(rank=0).gpu(0), 0
    for _ in range(20):
        at = in_a_row(report, at, [*pairs, *forward, *pairs, *backward]) + 5_000
    lengths = found([report], tmp_path).lengths["longest"].to_list()
    assert lengths == [*[8 * 40_000 + 29 * 1_000 + 5_000] * 19, 8 * 40_000 + 29 * 1_000]


def test_a_long_wait_in_one_iteration_is_no_boundary(tmp_path: Path) -> None:
    # As the first one loads code: the device is idle for 50 ms before "mlp", which is executed once more in it.
    report = ReportBuilder(rank=0).gpu(0)
    first, others = (
        [(name, 10_000) for name in names]
        for names in (("embed", "attention"), ("mlp", "loss", *(f"layer{n}" for n in range(20))))
    )
    starts, at = [], 1_000_000
    for number in range(12):
        starts.append(at)
        at = in_a_row(report, at, first)
        at = in_a_row(report, at + 50_000_000, others[:1]) if number == 0 else at
        at = in_a_row(report, at, others) + 100_000
    result = found([report], tmp_path)
    assert [begin - begins(result)[0] for begin in begins(result)] == [start - starts[0] for start in starts]


def test_requested_ranges_are_the_iterations(tmp_path: Path) -> None:
    report = trained(0, EVERY_MS, names=[f"step {number}" for number in range(12)])
    for start in EVERY_MS[::3]:
        report.nvtx_range("three", start - 6_000, start + 2_900_000)
    result = found([report], tmp_path, "three")
    assert result.how == "nvtx three"
    assert result.iterations.height == 4
    with pytest.raises(UsageError, match="no NVTX range is called other; did you mean three"):
        found([report], tmp_path, "other")


def test_layers_inside_of_a_step_are_no_iterations(tmp_path: Path) -> None:
    # All layers but the last of a step hold 99 % of the time: what is between steps is short, but it comes back.
    layer = [(name, 1_000) for name in ("norm", "attention", "linear", "residual")]
    report, at = ReportBuilder(rank=0).gpu(0), 0
    for _ in range(10):
        at = in_a_row(report, at, [*layer * 100, *((name, 200) for name in ("head", "top", "sample", "embed"))])
    assert found([report], tmp_path).lengths["longest"].to_list()[:9] == [100 * 4_000 + 4 * 200] * 9


def test_where_only_lengths_differ_the_period_is_that_of_the_lengths(tmp_path: Path) -> None:
    # A product and a copy, eight times in each layer, of four sizes.
    products = [(name, length) for size in (7, 2, 6, 6, 6, 1, 2, 2) for name, length in (("gemm", 1_000 * size), ("copy", 50))]
    report = ReportBuilder(rank=0).gpu(0)
    in_a_row(report, 0, products * 28)
    lengths = found([report], tmp_path).lengths
    assert lengths.height == 28
    assert set(lengths["longest"].to_list()) == {32_000 + 8 * 50}
    # Rows of a matrix that begin at other places take some tenths more, and are the same work.
    report = ReportBuilder(rank=0).gpu(0)
    in_a_row(report, 0, [(name, 1_000 + 200 * (step % 8 == 0)) for step in range(400) for name in ("row", "column")])
    assert found([report], tmp_path).lengths.height == 400


HALF_LATER = [start + 500_000 for start in EVERY_MS]


def numbers(result: RunIterations, device: int) -> list[int]:
    return result.iterations.filter(pl.col("device") == device)["number"].to_list()


def test_waits_in_collectives_do_not_make_several_iterations_one(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).gpu(0)
    for number in range(40):
        begin = 1_000_000 * number
        in_a_row(report, begin, [("forward", 100_000), ("backward", 100_000)])
        # Another rank is late in every fifth.
        report.kernel("ncclDevKernel_AllReduce(x)", begin + 200_000, begin + (900_000 if number % 5 == 3 else 250_000))
    assert len(begins(found([report], tmp_path))) >= 39


def test_a_rank_that_is_half_a_period_late_from_its_begin_on_is_counted(tmp_path: Path) -> None:
    result = found([trained(0, EVERY_MS), trained(1, [start + 600_000 for start in EVERY_MS])], tmp_path)
    assert numbers(result, 0) == numbers(result, 1) == list(range(12))


def test_of_a_rank_that_was_recorded_from_within_an_iteration_numbers_are_known_by_times_only(tmp_path: Path) -> None:
    def cut(rank: int, starts: Sequence[int]) -> ReportBuilder:
        report = trained(rank, starts)
        at = starts[0] - 20 * 12_000
        in_a_row(report, at, [(kernel, 12_000) for kernel in LAYERS[-20:]])
        return report

    near = found([trained(0, EVERY_MS), cut(1, [start + 100_000 for start in EVERY_MS[2:]])], tmp_path)
    assert numbers(near, 1) == list(range(2, 12))
    late = found([trained(0, EVERY_MS), cut(1, HALF_LATER)], tmp_path)
    assert (late.how, late.reason) == (None, "which iterations of several tasks are the same ones is not decidable")


def test_collectives_tell_which_iterations_are_the_same_ones(tmp_path: Path) -> None:
    # Two stages: what the second does in an iteration begins half a period later, and an all-reduce ends it on both.
    # What the second did in the first one was not recorded.
    ranks = [trained(0, EVERY_MS), trained(1, HALF_LATER[1:])]
    for rank, report in enumerate(ranks):
        in_a_row(report, EVERY_MS[0] - 12_000 * (10 + rank), [(kernel, 12_000) for kernel in LAYERS[-10 - rank :]])
        for start in EVERY_MS:
            report.kernel("ncclDevKernel_AllReduce_Sum_f32", start + 850_000, start + 900_000, stream=9)
    result = found(ranks, tmp_path)
    assert (numbers(result, 0), numbers(result, 1)) == (list(range(12)), list(range(1, 12)))


def test_numbers_in_the_texts_of_ranges_are_those_of_iterations(tmp_path: Path) -> None:
    ranks = [trained(rank, EVERY_MS[rank:], names=[f"step {number}" for number in range(rank, 12)]) for rank in range(2)]
    result = found(ranks, tmp_path)
    assert result.how == "nvtx step #"
    assert (numbers(result, 0), numbers(result, 1)) == (list(range(12)), list(range(1, 12)))
    # These count something else: each rank has its own.
    ranks = [trained(rank, EVERY_MS, names=[f"batch {12 * rank + number}" for number in range(12)]) for rank in range(2)]
    result = found(ranks, tmp_path)
    assert numbers(result, 0) == numbers(result, 1) == list(range(12))


def test_digits_of_other_scripts_are_no_numbers(tmp_path: Path) -> None:
    """Python and regular expressions have them, Polars reads none."""
    result = found([trained(0, EVERY_MS, names=["epoch \u0f21"] * 12)], tmp_path)
    assert result.iterations["number"].to_list() == list(range(12))
