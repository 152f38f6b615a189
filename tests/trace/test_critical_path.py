"""The critical path in a trace: events on the rows that it runs over, and lines where it goes to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.report_builder import ReportBuilder
from support.traces import labels_of, translate_reports
from support.whole_trace import open_whole

from nsys2prv.errors import UsageError
from nsys2prv.paraver.check import check_trace
from nsys2prv.run.options import NvtxRange
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types

WITH_PATH = TranslateOptions(critical_path=True)


def a_launch_a_kernel_and_a_wait() -> ReportBuilder:
    report = ReportBuilder()
    report.api_call("cudaMalloc_v3020", 0, 1000)
    report.kernel("gemm", 3000, 5000, launch=(1500, 1600), stream=7)
    report.api_call("cudaDeviceSynchronize_v3020", 2000, 5200)
    return report


def test_the_path_is_on_its_rows_with_lines_between_them(tmp_path: Path) -> None:
    summary = translate_reports(tmp_path, a_launch_a_kernel_and_a_wait(), options=WITH_PATH)

    trace = open_whole(summary.prv)
    parts = labels_of(trace, event_types.CRITICAL_PATH)
    path = trace.intervals([event_types.CRITICAL_PATH]).sort("begin").select("thread", "begin", "end", "value")
    host, stream = 1, 2
    assert [(row, begin, end, parts[value]) for row, begin, end, value in path.rows()] == [
        (host, 0, 1000, "host: allocating"),
        (host, 1000, 1500, "host: in no call"),
        (stream, 1500, 3000, "launch latency"),
        (stream, 3000, 5000, "kernel"),
        (host, 5000, 5200, "synchronization latency"),
    ]
    lines = trace.messages().filter(tag=event_types.TAG_CRITICAL_PATH)
    assert lines.select("send_thread", "logical_send", "recv_thread", "physical_recv").rows() == [
        (host, 1500, stream, 1500),
        (stream, 5000, host, 5000),
    ]


def test_the_account_and_the_views_have_it(tmp_path: Path) -> None:
    reports = [a_launch_a_kernel_and_a_wait().write(tmp_path / "report.sqlite")]
    summary, plain = translate(reports, tmp_path / "out", WITH_PATH), translate(reports, tmp_path / "plain")

    account = json.loads(summary.prv.with_suffix(".json").read_text())
    assert account["critical_path"] == {
        "segments": 5,
        "lines": 2,
        "total_ns": {
            "kernel": 2000,
            "launch latency": 1500,
            "synchronization latency": 200,
            "host: allocating": 1000,
            "host: in no call": 500,
        },
    }
    assert "critical_path" not in json.loads(plain.prv.with_suffix(".json").read_text())
    views = {"5-host-and-cuda-api/critical_path.cfg", "5-host-and-cuda-api/critical_path_time.cfg"}
    with_path, without = ({view["path"] for view in one.content["views"]} for one in (summary, plain))
    assert views == with_path - without


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"segments": 4}, "4 events of type 63000800 were written, and the trace has 5"),
        ({"segments": 5, "lines": 3}, "critical_path.lines is 3, and the trace has 2"),
        ({"segments": 5, "lines": 2, "total_ns": {"kernel": 5199}}, "add up to 5199 ns, and those in the trace to 5200 ns"),
        ([], "critical_path is '[]' and not an object"),
        ({"segments": True}, "critical_path.segments is 'true' and not a whole number"),
    ],
)
def test_check_counts_the_path_again(tmp_path: Path, said: object, problem: str) -> None:
    prv = translate_reports(tmp_path, a_launch_a_kernel_and_a_wait(), options=WITH_PATH).prv
    assert not check_trace(prv).violations
    summary = prv.with_suffix(".json")
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "critical_path": said}))

    assert problem in "\n".join(map(str, check_trace(prv).violations))


def test_a_run_without_work_of_a_gpu_or_mpi_has_none(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("read", 100, 500)

    summary = translate_reports(tmp_path, report, options=WITH_PATH)

    assert check_trace(summary.prv).violations == ()
    assert event_types.CRITICAL_PATH.number not in summary.content["trace"]["types"]
    assert str(event_types.CRITICAL_PATH.number) not in summary.prv.with_suffix(".pcf").read_text()
    assert summary.content["critical_path"]["segments"] == 0
    assert [text for text in summary.content["warnings"] if "no critical path" in text] != []


@pytest.mark.parametrize(
    "options",
    [{"fold_streams": True}, {"nvtx": NvtxRange("step", None)}],
    ids=lambda options: next(iter(options)),
)
def test_it_needs_all_streams_and_one_stretch_of_time(options: dict[str, object], tmp_path: Path) -> None:
    report = a_launch_a_kernel_and_a_wait().write(tmp_path / "x.sqlite")

    with pytest.raises(UsageError, match="--critical-path needs all streams"):
        translate([report], tmp_path / "out", TranslateOptions(critical_path=True, **options))  # type: ignore[arg-type]
