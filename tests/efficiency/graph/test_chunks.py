"""A graph does not depend on the chunks of time in which the events come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.report_builder import ReportBuilder
from support.simulated_run.cluster import PATTERNS, Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph, built_graph
from nsys2prv.efficiency.graph.replay import replay
from nsys2prv.execution import external_sort
from nsys2prv.run.read_options import ReadOptions


def graph_of(reports: list[Path], folder: Path) -> BuiltGraph:
    """The graph of some reports."""
    folder.mkdir()
    return built_graph(read_events(reports, ReadOptions(), folder, with_ranges=True, with_dependencies=True), folder / "graph")


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("rows", [pytest.param(40, marks=pytest.mark.thorough), 400])
def test_small_chunks_give_the_same_graph(pattern: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = write_reports(simulate(Cluster(pattern=pattern, gpus=2, iterations=2)), tmp_path / "reports")
    whole = graph_of(reports, tmp_path / "whole")
    monkeypatch.setattr(external_sort, "WINDOW_ROWS", rows)
    monkeypatch.setattr(external_sort, "_BATCH_ROWS", rows // 4)
    parts = graph_of(reports, tmp_path / "parts")
    for name in ("time", "row"):
        assert np.array_equal(getattr(whole.graph.moments, name), getattr(parts.graph.moments, name))
    for name in ("source", "target", "weight", "kind"):
        columns = [np.asarray(getattr(graph.edges, name)) for graph in (whole.graph, parts.graph)]
        order = [np.lexsort((graph.edges.kind, graph.edges.source, graph.edges.target)) for graph in (whole.graph, parts.graph)]
        assert np.array_equal(columns[0][order[0]], columns[1][order[1]]), name
    assert whole.left_out == parts.left_out
    assert whole.loading.sort("row", "begin").equals(parts.loading.sort("row", "begin"))
    assert np.array_equal(replay(parts.graph).time, parts.graph.moments.time)


@pytest.mark.parametrize("rows", [4, 90_000], ids=["small chunks", "one chunk"])
def test_launches_after_what_they_launch_are_counted_in_any_chunks(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "WINDOW_ROWS", rows)
    monkeypatch.setattr(external_sort, "_BATCH_ROWS", max(1, rows // 4))
    report = ReportBuilder().gpu()
    for place in range(20):
        report.kernel("before its launch", place * 1000, place * 1000 + 500, launch=(place * 1000 + 9000, place * 1000 + 9100))
    assert graph_of([report.write(tmp_path / "report.sqlite")], tmp_path / "graph").left_out == {edge_kinds.LAUNCH: 20}
