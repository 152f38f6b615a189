"""Which part of a run is measured: the program and not its recording, the steady part, a part that is chosen."""

from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support import QUICK
from support.measured import MS, NCCL, US, written
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import CHOSEN, EfficiencyOptions, WindowChoice
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult, read_efficiency
from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions
from nsys2prv.errors import NothingToTranslate, UsageError
from nsys2prv.run.options import TimeRange

KERNELS = ("forward", "loss", "backward", "step")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """From 2 to 40 ms: start-up with an allocation of 8 ms, a slow first iteration, ten of 2 ms, and a call of 2 ms at the end.
    GPUs are sampled from 0 to 60 ms. In an iteration kernels of 400 us run, one every 500 us."""
    reports = [ReportBuilder(rank=rank, pid=1000 + rank).gpu(rank) for rank in range(2)]
    for rank, report in enumerate(reports):
        report.api_call("cudaMalloc_v3020", 2 * MS, 10 * MS)
        for begin in (10 * MS, *range(18 * MS, 38 * MS, 2 * MS)):
            for place, kernel in enumerate(KERNELS):
                at = begin + 500 * US * place
                report.kernel(f"{kernel}(float*)", at, at + 400 * US, launch=(at - 20 * US, at - 10 * US))
        report.api_call("cudaFree_v3020", 38 * MS, 40 * MS)
        for time in range(0, 60 * MS, MS):
            report.metric("SM Active [Throughput %]", time, 50, gpu=rank)
    return tuple(written(tmp_path_factory.mktemp("run"), *reports))


@cache
def measured(paths: tuple[Path, ...], **options: Any) -> EfficiencyResult:
    return measure(list(paths), EfficiencyOptions(align="utc", progress=False, **QUICK, **options))


def test_the_length_is_that_of_the_program_and_not_of_its_recording(reports: tuple[Path, ...]) -> None:
    found = measured(reports)
    window = found.head["window"]
    assert (window["name"], window["offset_ns"], window["length_ns"]) == ("all", 2 * MS, 38 * MS)
    assert window["recorded_ns"] >= 59 * MS
    assert found.run["elapsed_ns"].item() == 38 * MS
    assert found.devices["useful_ns"].to_list() == [11 * 4 * 400 * US] * 2
    (warning,) = (text for text in found.head["warnings"] if "the trace lasts" in text)
    assert "the program's own events 38.000 ms of it" in warning
    # Times are those of the trace.
    assert found.devices["first_ns"].to_list() == [10 * MS] * 2
    assert found.bins["begin_ns"][0] == 2 * MS
    assert found.bins["end_ns"][-1] == 40 * MS
    # Start-up is the longest time without computation.
    assert found.absent_stretches.select("begin_ns", "end_ns", "launched_ns").row(0) == (2 * MS, 10 * MS, 9_980 * US)
    # An edge that --time chooses is where it is.
    window = measured(reports, time="1ms:").head["window"]
    assert (window["begin_ns"], window["offset_ns"], window["length_ns"]) == (MS, 0, 39 * MS)


def test_what_was_open_when_the_recording_began_starts_there(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).gpu(0).os_call("pthread_cond_wait", -4_000_000 * MS, 3 * MS, tid=7)
    for begin in range(1, 9):
        report.kernel("k(int)", begin * MS, begin * MS + 900 * US, launch=(begin * MS - 20 * US, begin * MS - 10 * US))
    window = measured(tuple(written(tmp_path, report))).head["window"]
    assert (window["offset_ns"], window["length_ns"]) == (4_000_000 * MS, 8 * MS + 900 * US)


def test_parts_of_the_run_are_beside_the_window(reports: tuple[Path, ...]) -> None:
    for chosen in ("all", "steady", "20ms:26ms"):
        parts = measured(reports, window=chosen).windows
        spans = {row["window"]: (row["begin_ns"], row["end_ns"]) for row in parts.iter_rows(named=True)}
        assert spans.pop("chosen window", (20 * MS, 26 * MS)) == (20 * MS, 26 * MS)
        assert spans == {
            "whole run": (2 * MS, 40 * MS),
            "start-up": (2 * MS, 10 * MS),
            "work of devices": (10 * MS, 37_900 * US),
            "shut-down": (37_900 * US, 40 * MS),
            "steady part": (18 * MS, 37_900 * US),
        }
        useful = dict(parts.select("window", "useful_ns").iter_rows())
        assert useful["whole run"] == useful["work of devices"] == 2 * 11 * 4 * 400 * US
        assert useful["start-up"] == useful["shut-down"] == 0
        assert useful["steady part"] == 2 * 10 * 4 * 400 * US
        hosts = dict(parts.select("window", "cuda_ns").iter_rows())
        # The first launch is before the first work.
        assert hosts["start-up"] == 2 * (8 * MS)
        assert hosts["whole run"] == 2 * (8 * MS + 2 * MS + 44 * 10 * US - 10 * US)


def test_the_steady_part_is_measured_as_time_would(reports: tuple[Path, ...]) -> None:
    steady = measured(reports, window="steady")
    assert steady.head["window"]["name"] == "steady"
    assert steady.head["iterations"] == {"how": "period of kernels", "reason": None, "count": 11, "warm_up": 1}
    assert steady.run["elapsed_ns"].item() == 19_900 * US
    chosen = measured(reports, time="18ms:37900us")
    moments = {"devices": ["first_ns", "last_ns"], "longest_gaps": ["begin_ns", "end_ns"], "bins": ["begin_ns", "end_ns"]}
    for name in ("run", "devices", "kernels", "gaps", "longest_gaps", "cuda_calls", "threads", "bins", "device_bins"):
        moved = chosen.tables[name].with_columns(pl.col(moments.get(name, [])) + 18 * MS)
        assert_frame_equal(steady.tables[name], moved)


def test_a_window_cuts_what_reaches_over_its_edges(reports: tuple[Path, ...]) -> None:
    # Both edges are inside of kernels.
    span = "20200us:24100us"
    found, wanted = measured(reports, window=span), measured(reports, time=span)
    for name in ("run", "kernels", "kernel_devices", "gaps", "threads", "overlap", "cuda_calls"):
        assert_frame_equal(found.tables[name], wanted.tables[name])
    assert found.devices["first_ns"].to_list() == [20_200 * US] * 2
    assert found.devices["last_ns"].to_list() == [24_100 * US] * 2


def test_iterations_have_their_lengths_on_each_task(reports: tuple[Path, ...]) -> None:
    found = measured(reports)
    iterations = found.iterations
    assert iterations["iteration"].to_list() == list(range(11))
    assert iterations["kind"].to_list() == ["warm-up", *[None] * 10]
    assert iterations["longest_ns"].to_list() == [8 * MS, *[2 * MS] * 9, 1_900 * US]
    assert iterations["region"].unique().to_list() == ["period of kernels"]
    assert iterations["useful_ns"].to_list() == [2 * 4 * 400 * US] * 11
    of_tasks = found.task_iterations
    assert (
        of_tasks.filter(pl.col("iteration") == 3).select("begin_ns", "end_ns", "length_ns", "ratio").rows()
        == [(22 * MS, 24 * MS, 2 * MS, 1.0)] * 2
    )
    # Those of a window are those that are in it.
    assert measured(reports, window="20ms:26ms").iterations["iteration"].to_list() == [2, 3, 4]


def test_what_an_edge_of_the_window_cuts_is_no_start_and_no_end(tmp_path: Path) -> None:
    made = ReportBuilder(pid=1000).gpu(0)
    for begin in (10, 90):
        made.kernel("k(int)", begin * MS, (begin + 5) * MS, launch=((begin - 1) * MS, begin * MS))
    path = made.write(tmp_path / "report.sqlite")
    for window in ("20ms:92ms", "12ms:80ms"):
        absent = measured((path,), window=window).tables["absent_time"].row(0, named=True)
        assert (absent["start_up_ns"], absent["shut_down_ns"]) == (0, 0)
        assert absent["absent_ns"] >= 61 * MS


def test_texts_name_the_window_and_the_iterations(reports: tuple[Path, ...], tmp_path: Path) -> None:
    found = measured(reports, window="steady")
    text = found.as_text(verbose=True)
    assert " of 19.900 ms (the steady part)" in text
    assert "measured: 0.018000 to 0.037900 s of the trace" in text
    assert "11 iterations" not in text
    assert "10 iterations (period of kernels), usually 2.000 ms" in text
    assert "whole run" in text
    assert "; they cover 73.4 % of this time" in measured(reports).as_text()
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "the steady part, 18.000 ms to 37.900 ms of the trace" in page
    found.to_json(tmp_path / "found.json")
    assert read_efficiency(tmp_path / "found.json").head["window"] == found.head["window"]


def test_windows_that_are_not_there_are_refused(reports: tuple[Path, ...], tmp_path: Path) -> None:
    with pytest.raises(NothingToTranslate, match=r"the window lies outside of the run, which is from 2\.000 ms to 40\.000 ms"):
        measured(reports, window="50ms:")
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("k(int)", 100, 200, launch=(10, 20))
    once = report.write(tmp_path / "once.sqlite")
    with pytest.raises(UsageError, match=r"--window steady: no iterations are found, as on streams with most time"):
        measured((once,), window="steady")
    with pytest.raises(UsageError, match="not one of all, steady, or a time range"):
        measured((once,), window="middle")
    assert measured((once,)).as_text().splitlines()[3].startswith("no iterations: on streams with most time in kernels")


def test_a_what_if_measures_the_same_window(reports: tuple[Path, ...]) -> None:
    of_program = measured(reports)
    window = of_program.head["window"]
    found = what_if(list(reports), WhatIfOptions(align="utc", progress=False, scale=["*=1"]))
    whole, steady = found.what_if.rows(named=True)
    assert whole["measured_ns"] == whole["replayed_ns"] == window["length_ns"] == 38 * MS
    assert (whole["begin_ns"], whole["end_ns"]) == (window["offset_ns"], window["offset_ns"] + window["length_ns"])
    assert (steady["begin_ns"], steady["end_ns"]) == (18 * MS, 38 * MS - 100 * US)
    assert steady["replayed_ns"] == steady["measured_ns"]
    assert found.critical_path["begin_ns"].min() == window["offset_ns"]


@pytest.mark.parametrize("given", ["window", "time"])
def test_an_edge_inside_of_a_collective_leaves_the_turns_of_others(tmp_path: Path, given: str) -> None:
    made = [ReportBuilder(rank=rank, ranks=2, with_mpi=True, pid=1000 + rank).gpu(rank) for rank in range(2)]
    for rank, report in enumerate(made):
        for start, end in ((0, 10 + 5 * rank), (20, 30), (40, 60)):
            report.kernel(NCCL, start * MS, end * MS)
    part = TimeRange(12 * MS, 50 * MS)
    found = measured(tuple(written(tmp_path, *made)), **{given: WindowChoice(CHOSEN, part) if given == "window" else part})
    assert (found.head["window"]["name"], found.head["window"]["length_ns"]) == (CHOSEN, 38 * MS)
    assert found.absent_time.select(pl.col("start_up_ns", "shut_down_ns").sum()).row(0) == (0, 0)
    assert given == "time" or found.nccl_stragglers["collectives"].to_list() == [2, 2]


def test_the_program_is_there_where_its_threads_are_sampled_but_not_in_the_profiler(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).gpu(0)
    report.kernel("k", 12 * MS, 13 * MS, launch=(10 * MS, 11 * MS))
    for time, module in ((2, "/home/me/program"), (20, "/home/me/program"), (30, "/opt/nsys/libToolsInjection64.so")):
        report.cpu_sample(time * MS, [("f", module)])
    report.cpu_sample(40 * MS, [("helper", "/home/me/program")], tid=1001).thread(1001)
    report.profiler("CUPTI: Resource Management", 0, 2 * MS)
    head = measured(tuple(written(tmp_path, report.on_cpu(0, 15 * MS).on_cpu(30 * MS, 50 * MS)))).head
    assert head["window"]["length_ns"] == 18 * MS
    outside = "; a thread is on a CPU for 22.000 ms of it (scheduling); before them CUPTI prepares a CUDA context for 2.000 ms"
    assert any(f"is not measured{outside}" in text for text in head["warnings"])


def test_a_window_inside_of_the_start_up_has_it_as_its_finding(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).gpu(0).nvtx_range("start", 0, MS).os_call("sleep", 100 * MS, 400 * MS)
    report.kernel("k", 910 * MS, 920 * MS, launch=(900 * MS, 905 * MS))
    (found,) = measured(tuple(written(tmp_path, report)), window="50ms:450ms").findings.iter_rows(named=True)
    assert (found["kind"], found["saved_ns"]) == ("start-up", 400 * MS)
    assert "meanwhile: host asleep 75.0 %" in found["seen"]


def test_a_window_that_begins_later_knows_what_creates_contexts(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).gpu(0).nvtx_range("start", 0, MS)
    report.api_call("cudaFree_v3020", 10 * MS, 310 * MS)
    report.kernel("k", 320 * MS, 400 * MS, launch=(311 * MS, 312 * MS))
    for window, creating in (("20ms:", 290), ("110ms:", 200), ("all", 300))[: 2 if QUICK else 3]:
        found = measured(tuple(written(tmp_path, report)), window=window)
        assert found.absent_time["starved_context_ns"].item() == creating * MS
