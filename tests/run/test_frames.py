"""A run as data frames, and the reader of events that fills them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.report_builder import ReportBuilder

from nsys2prv.execution.workers import workers
from nsys2prv.run.frames import events_frame
from nsys2prv.run.options import ReadOptions
from nsys2prv.run.session import RunSession
from nsys2prv.sources.registry import SOURCES


@contextmanager
def session_of(folder: Path, *reports: ReportBuilder, options: ReadOptions | None = None) -> Iterator[RunSession]:
    paths = [report.write(folder / f"{number}.sqlite") for number, report in enumerate(reports)]
    scratch = folder / "scratch"
    scratch.mkdir()
    with workers(0, "") as some:
        yield RunSession(paths, SOURCES, options or ReadOptions(), scratch, some)


def rank_report(rank: int) -> ReportBuilder:
    report = ReportBuilder(host=f"node{rank}", pid=1000 + rank, rank=rank, ranks=2)
    report.gpu(0)
    report.kernel("gemm", 3000, 5000, launch=(1000, 1500), stream=7, registersPerThread=32)
    report.os_call("read", 100, 200)
    return report


def test_events_of_host_threads_have_their_thread(tmp_path: Path) -> None:
    with session_of(tmp_path, rank_report(0)) as session:
        calls = events_frame(session, "os-runtime").collect()

    assert calls.select("thread", "start", "end", "name").rows() == [(1000, 0, 100, "read")]


def test_a_time_range_cuts_the_events_of_a_frame(tmp_path: Path) -> None:
    with session_of(tmp_path, rank_report(0), options=ReadOptions(time="3us:4us")) as session:  # type: ignore[arg-type]
        kernels = events_frame(session, "kernels").collect()

    assert kernels.select("start", "end").rows() == [(0, 1000)]
