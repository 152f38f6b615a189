"""Events of a run as data frames."""

from pathlib import Path

from support.report_builder import ReportBuilder

import nsys2prv


def report_in(folder: Path) -> Path:
    report = ReportBuilder(pid=1000).os_call("read", 100, 200)
    report.kernel("gemm", 3000, 5000, launch=(1000, 1500))
    return report.write(folder / "report.sqlite")


def test_events_of_host_threads_have_their_thread(tmp_path: Path) -> None:
    with nsys2prv.open_run(report_in(tmp_path)) as run:
        calls = run.events("os-runtime").collect()

    assert calls.select("thread", "start", "end", "name").rows() == [(1000, 0, 100, "read")]


def test_a_time_range_cuts_the_events_of_a_frame(tmp_path: Path) -> None:
    with nsys2prv.open_run(report_in(tmp_path), time="3us:4us") as run:
        kernels = run.events("kernels").collect()

    assert kernels.select("start", "end").rows() == [(0, 1000)]
