"""A run as data frames, and the reader of events that fills them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from support.report_builder import ReportBuilder

from nsys2prv.execution.workers import workers
from nsys2prv.run.frames import clocks_frame, events_frame
from nsys2prv.run.options import ReadOptions
from nsys2prv.run.session import RunSession
from nsys2prv.sources.registry import SOURCES
from nsys2prv.timeline.reader import EventReader, Request


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


def test_clocks_of_several_hosts_are_a_frame(tmp_path: Path) -> None:
    with session_of(tmp_path, rank_report(0), rank_report(1)) as session:
        assert clocks_frame(session.plan)["host"].to_list() == ["node0", "node1"]


class Names:
    """A sink that keeps the names of events."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, placed: pl.DataFrame) -> None:
        self.names += placed["label"].to_list()


def test_the_reader_gives_each_request_its_events_and_counts_all_rows(tmp_path: Path) -> None:
    report = rank_report(0)
    report.kernel("short", 6000, 6010, stream=7)
    with session_of(tmp_path, report) as session:
        (opened,) = session.plan.reports
        surveys = [survey for survey in opened.surveys if survey.source.name in ("kernels", "os-runtime")]
        reader = EventReader(session.plan.timeline, tmp_path / "reader", lambda _: None)
        read = reader.read(0, opened, [Request(survey, Names, min_duration=50) for survey in surveys])

    names = {request.survey.source.name: sink.names for request, sink, _ in read.sinks}
    assert names == {"kernels": ["gemm"], "os-runtime": ["read"]}
    counts = {one.source.name: (one.read, one.written, dict(one.left_out)) for one in read.coverage}
    assert counts == {"kernels": (2, 1, {"shorter than --min-duration": 1}), "os-runtime": (1, 1, {})}
