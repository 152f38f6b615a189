"""Work that was launched and is not recorded: devices are not called idle because of it."""

from collections.abc import Container
from pathlib import Path

from support.measured import MS, US, check, measured
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import window_choice
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import verdict
from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions, scalings


def run(folder: Path, recorded: Container[int], *, of_host: int = 0) -> EfficiencyResult:
    """A hundred launches, 10 ms apart, each of a kernel of 9 ms; only some kernels are recorded."""
    report = ReportBuilder(rank=0).gpu(0)
    report.api_call("cudaFree_v3020", 0, 10 * US)
    report.copy(1 * MS, 2 * MS, 1 << 20, launch=(900 * US, 950 * US))
    for step in range(100):
        call = (step + 1) * 10 * MS
        if step in recorded:
            report.kernel("train(float*)", call + 10 * US, call + 9 * MS, launch=(call, call + 5 * US))
        else:
            report.api_call("cudaLaunchKernel_v7000", call, call + 5 * US)
    for place in range(of_host):
        report.api_call("cudaLaunchHostFunc_v10000", 1_012 * MS + place * US, 1_012 * MS + (place + 1) * US)
    return measured(folder, report)


def test_the_end_of_a_recording_is_no_shut_down(tmp_path: Path) -> None:
    result = run(tmp_path, range(50))
    # What the last one launched may run after the end.
    lost = "49 calls launch after the last work that is recorded"
    assert f"{lost}: what they launched is lost" in result.head["warnings"]
    assert check(result, "shut-down") == ("not decidable", lost)


def test_what_runs_after_the_end_of_a_window_is_not_lost(tmp_path: Path) -> None:
    # All is launched 300 ms ahead.
    report = ReportBuilder(rank=0).gpu(0)
    for step in range(100):
        start = 400 * MS + step * 10 * MS
        report.kernel("train(float*)", start, start + 9 * MS, launch=(start - 300 * MS, start - 300 * MS + 5 * US))
    result = measured(tmp_path, report, window=window_choice((500 * MS, 900 * MS)))
    assert not any("lost" in text for text in result.head["warnings"])


def test_a_recording_that_begins_late_is_no_start_up(tmp_path: Path) -> None:
    result = run(tmp_path, range(60, 100))
    lost = "60 calls launch before the first work that is recorded"
    assert f"{lost}: what they launched is lost" in result.head["warnings"]
    assert check(result, "start-up") == ("not decidable", lost)


def test_a_hole_in_the_recording_is_no_idle_time(tmp_path: Path) -> None:
    result = run(tmp_path, [*range(30), *range(70, 100)])
    assert "40 calls launch beside work that is recorded: what they launched is lost" in result.head["warnings"]
    for kind in ("idle-devices", "host-bound", "data-loading"):
        assert check(result, kind) == ("not decidable", "40 calls launch work that is not recorded")


def test_a_rank_without_kernels_is_no_imbalance(tmp_path: Path) -> None:
    reports = []
    for rank in range(2):
        report = ReportBuilder(rank=rank, ranks=2, pid=1000 + rank).gpu(rank)
        for step in range(50):
            call = (step + 1) * 10 * MS
            report.kernel("train(float*)", call + 10 * US, call + 9 * MS, launch=(call, call + 5 * US))
            report.copy(call + 9 * MS, call + 9 * MS + 10 * US, 1 << 10, launch=(call + 6 * US, call + 8 * US))
        if rank:
            report.without("CUPTI_ACTIVITY_KIND_KERNEL")
        reports.append(report)
    result = measured(tmp_path, *reports)
    for kind in ("imbalance", "slow-device", "straggler", "idle-devices"):
        assert check(result, kind) == ("not decidable", "50 calls launch work that is not recorded")


def test_without_kernels_nothing_is_said_about_idle_devices(tmp_path: Path) -> None:
    result = run(tmp_path, range(0))
    reason = "of most launches no work is recorded: 100 calls, 0 kernels and graphs"
    assert result.findings.is_empty()
    assert check(result, "little-gpu-work") == ("not decidable", reason)
    since = "from 900.000 µs on, when a call launches or copies"
    assert f"{reason}; it is not known when devices are idle {since}" in result.head["warnings"]
    found = verdict(result.head, result.tables)
    # Before the first call that launches or copies nothing can be lost.
    assert [part.title for part in found.bar[1:]] == ["not decidable (work of devices was not recorded)", "start-up"]
    assert found.bar[-1].value == 900 * US
    assert found.sentence.startswith("1 GPU computed at least 0.0 % of ")
    assert (found.tiles[0].value, result.tables["run"]["orchestration_efficiency"][0]) == (None, None)


def test_launches_that_failed_lose_no_work(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.copy(2 * MS, 3 * MS, 1 << 20, launch=(0, MS))
    for call in range(20):
        report.api_call("cudaLaunchKernel_v7000", (4 + call) * MS, (5 + call) * MS, error=222)
    report.api_call("cudaEventQuery_v3020", 30 * MS, 500 * MS, error=600)
    result = measured(tmp_path, report)
    failed = "(pid 1000): calls failed: 20 of 20 calls of cudaLaunchKernel (cudaErrorUnsupportedPtxVersion)"
    assert result.head["warnings"][0].endswith(failed)
    assert result.findings["kind"].to_list() == ["shut-down", "little-gpu-work"]


def test_where_all_is_recorded_nothing_is_lost(tmp_path: Path) -> None:
    result = run(tmp_path, range(100), of_host=50)
    assert not any("launch" in text for text in result.head["warnings"])
    assert check(result, "shut-down") == ("not found", None)


def test_one_launch_without_any_work_is_lost_work(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.copy(20 * US, MS, 1 << 20, launch=(0, 10 * US))
    report.api_call("cudaLaunchKernel_v7000", 50 * MS, 51 * MS)
    result = measured(tmp_path, report)
    reason = "of most launches no work is recorded: 1 calls, 0 kernels and graphs"
    assert check(result, "idle-devices") == ("not decidable", reason)
    row = what_if([tmp_path / "rank0.sqlite"], WhatIfOptions(scale=scalings("*=0.5"))).what_if.row(0, named=True)
    assert (row["least_ns"], row["reason"]) == (None, reason)
    for begin in range(MS, 40 * MS, MS):
        report.copy(begin + 20 * US, begin + MS // 2, 1 << 20, launch=(begin, begin + 10 * US))
    found = measured(tmp_path, report)
    assert check(found, "idle-devices")[0] == "not found"
    assert "1 call to launch work, and no kernel is recorded: it failed, or was lost" in found.head["warnings"]


def test_what_is_captured_into_a_graph_is_not_lost(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("k", 20 * US, MS, launch=(0, 10 * US))
    report.api_call("cudaStreamBeginCapture_v10000", 100 * MS, 100 * MS + US)
    for call in range(101, 151):
        report.api_call("cudaLaunchKernel_v7000", call * MS, call * MS + US)
    report.api_call("cudaStreamEndCapture_v10000", 160 * MS, 161 * MS)
    report.kernel("k", 171 * MS, 200 * MS, launch=(170 * MS, 170 * MS + US))
    assert not any("lost" in text for text in measured(tmp_path, report).head["warnings"])


def test_ranges_that_go_on_without_launches_tell_that_calls_were_lost(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    for begin in range(0, 1000 * MS, 100 * MS):
        report.nvtx_range("step", begin, begin + 90 * MS)
        if begin < 600 * MS:
            report.kernel("k", begin + 2 * MS, begin + 80 * MS, launch=(begin + MS, begin + MS + 10 * US))
        if begin < 300 * MS:
            helped = report.api_call("cudaLaunchKernel_v7000", begin + 2 * MS, begin + 3 * MS, tid=report.pid + 1)
            report.kernel("k2", begin + 80 * MS, begin + 90 * MS, correlation=helped)
    lost = "no launch is recorded after 501.000 ms (none of one of its threads after 202.000 ms), but 4 ranges of NVTX named"
    for window, is_lost in (("all", True), ((250 * MS, 450 * MS), True), ((0, 200 * MS), False)):
        warnings = measured(tmp_path, report, window=window_choice(window)).head["warnings"]
        assert any(text.startswith(lost) for text in warnings) == is_lost


def test_what_ran_between_recordings_is_not_known(tmp_path: Path) -> None:
    reports = [ReportBuilder(utc_ns=1_700_000_000_000_000_000 + 10 * number * MS).gpu(0) for number in range(3)]
    for report in reports:
        report.kernel("k", 100 * US, 5 * MS, launch=(0, 10 * US))
    result = measured(tmp_path, *reports)
    why = "nothing was recorded for 10.000 ms (40.0 %), from 5.000 ms on"
    assert f"{why}: not known what ran then; measure each recording alone" in result.head["warnings"]
    assert check(result, "idle-devices") == ("not decidable", why)
    of_one = measured(tmp_path, *reports, window=window_choice((10 * MS, 15 * MS)))
    assert not any("nothing was recorded" in text for text in of_one.head["warnings"])
