"""Made reports, full of equal times and contradictions, give the same trace and numbers in any order of rows."""

import json
import random
import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.made_reports import drawn_events, made_report
from support.report_builder import ReportBuilder
from support.shuffled import differences, outcome, shuffled
from support.traces import trace_of, translate_reports

from nsys2prv.errors import UsageError
from nsys2prv.execution import external_sort
from nsys2prv.execution.row_order import drop_duplicates, in_content_order
from nsys2prv.paraver.check import check_trace
from nsys2prv.run.options import NvtxRange
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types

_OVERLAPPING = (
    [
        (0, 0, 0, 0), (31, 11, 0, 0), (28, 0, 0, 0), (31, 0, 0, 0), (0, 0, 0, 0), (26, 0, 0, 0), (38, 0, 0, 0),
        (11, 0, 0, 0), (0, 0, 0, 0), (23, 0, 0, 0), (24, 0, 0, 0),
    ],
    [
        (30, 0, 0, 0), (26, 0, 0, 0), (24, 11, 0, 0), (0, 0, 0, 0), (16, 0, 0, 0), (16, 0, 0, 0), (32, 0, 0, 0),
        (0, 10, 4, 1), (5, 5, 2, 0), (14, 10, 0, 1), (21, 7, 4, 1), (37, 2, 3, 0), (16, 2, 3, 1), (12, 3, 4, 0),
        (19, 1, 3, 2), (27, 6, 2, 0), (22, 2, 4, 2), (8, 2, 1, 2), (24, 6, 1, 2),
    ],
)  # fmt: skip
_NCCL_AT_ONE_TIME = (
    [(13, 11, 0, 0), *((time, 0, 0, 0) for time in (24, 0, 22, 15, 34, 25, 12, 0, 0, 0))],
    [
        (13, 11, 0, 1), (24, 7, 4, 2), (5, 2, 1, 0), (22, 9, 3, 0), (15, 10, 0, 0), (34, 5, 4, 2), (25, 0, 3, 1), (12, 9, 2, 1),
        (1, 9, 2, 2), (3, 2, 0, 0), (0, 9, 4, 2),
    ],
)  # fmt: skip


@pytest.mark.thorough
def test_any_order_of_rows_gives_the_same_trace_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=20, suppress_health_check=list(HealthCheck))
    @given(
        ranks=st.tuples(drawn_events, drawn_events),
        seed=st.integers(0, 2**32),
        sizes=st.sampled_from([(40_000, 90_000, 8_192), (20, 15, 4), (7, 30, 7)]),
    )
    # A call that starts when a kernel without length does, in another place among others of this time.
    @example(ranks=([(0, 0, 0, 0)] * 10, [(3, 0, 1, 0), *[(0, 0, 0, 0)] * 9]), seed=0, sizes=(40_000, 90_000, 8_192))
    # Calls of a thread that overlap, of which some have ended in the window before.
    @example(ranks=_OVERLAPPING, seed=373705, sizes=(20, 15, 4))
    # NCCL kernels that a row starts at one time, of which one has no length.
    @example(ranks=_NCCL_AT_ONE_TIME, seed=310, sizes=(7, 30, 7))
    def check(ranks: tuple[list[tuple[int, int, int, int]], ...], seed: int, sizes: tuple[int, int, int]) -> None:
        folder = tmp_path / "example"
        # One that an example before left when it failed would hide why.
        shutil.rmtree(folder, ignore_errors=True)
        # What is read has the same name, as it is in titles.
        for name in ("written/run", "copies/run"):
            (folder / name).mkdir(parents=True)
        written = [
            made_report(rank, events).write(folder / "written/run" / f"r{rank}.sqlite") for rank, events in enumerate(ranks)
        ]
        copies = [shuffled(report, folder / "copies/run", seed) for report in written]
        files, measured = outcome(written, folder / "written", "utc")
        with monkeypatch.context() as patch:
            # Rows in another order also fall into other pieces.
            for name, size in zip(("RUN_ROWS", "WINDOW_ROWS", "_BATCH_ROWS"), sizes, strict=True):
                patch.setattr(external_sort, name, size)
            files_of_copies, measured_of_copies = outcome(copies, folder / "copies", "utc")
        assert files_of_copies == files
        assert list(differences(measured, measured_of_copies)) == []

    check()


_ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.sampled_from("abc")), max_size=30)


@given(rows=_ROWS, seed=st.integers(0, 2**32))
def test_rows_are_ordered_and_chosen_by_what_is_in_them(rows: list[tuple[int, int, str | None]], seed: int) -> None:
    schema = {"key": pl.Int64, "other": pl.Int64, "text": pl.String}
    frame = pl.DataFrame(rows, schema, orient="row")
    mixed = pl.DataFrame(random.Random(seed).sample(rows, len(rows)), schema, orient="row")
    assert in_content_order(mixed, ["key"]).equals(frame.sort("key", "other", "text"))
    assert in_content_order(frame.sort("other"), ["other"]).equals(frame.sort("other", "key", "text"))
    chosen = drop_duplicates(mixed, "key").sort("key")
    assert chosen.rows() == [
        min((row for row in rows if row[0] == key), key=lambda row: (row[1], row[2] is None, row[2] or ""))
        for key in sorted({row[0] for row in rows})
    ]


# -- the critical path in a trace: events on the rows that it runs over, and lines where it goes to another ----
WITH_PATH = TranslateOptions(critical_path=True)


def a_launch_a_kernel_and_a_wait() -> ReportBuilder:
    report = ReportBuilder()
    report.api_call("cudaMalloc_v3020", 0, 1000)
    report.kernel("gemm", 3000, 5000, launch=(1500, 1600), stream=7)
    report.api_call("cudaDeviceSynchronize_v3020", 2000, 5200)
    return report


def test_the_path_is_on_its_rows_with_lines_between_them(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, a_launch_a_kernel_and_a_wait(), options=WITH_PATH)

    path = trace.named(trace.intervals([event_types.CRITICAL_PATH]).sort("begin"))
    host, stream = 1, 2
    assert path.select("thread", "begin", "end", "name").rows() == [
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
    assert event_types.CRITICAL_PATH.number not in summary.content["trace"]["types"]
    assert str(event_types.CRITICAL_PATH.number) not in summary.prv.with_suffix(".pcf").read_text()
    assert summary.content["critical_path"]["segments"] == 0
    assert [text for text in summary.content["warnings"] if "no critical path" in text] != []


@pytest.mark.parametrize(
    "options", [{"fold_streams": True}, {"nvtx": NvtxRange("step", None)}], ids=lambda options: next(iter(options))
)
def test_it_needs_all_streams_and_one_stretch_of_time(options: dict[str, object], tmp_path: Path) -> None:
    report = a_launch_a_kernel_and_a_wait().write(tmp_path / "x.sqlite")
    with pytest.raises(UsageError, match="--critical-path needs all streams"):
        translate([report], tmp_path / "out", TranslateOptions(critical_path=True, **options))  # type: ignore[arg-type]
