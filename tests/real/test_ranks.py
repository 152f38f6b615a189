"""Reports of one run, of one host, and of several, and what is known of their clocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS, place_sessions, report_clocks
from nsys2prv.errors import UnrelatedReports
from nsys2prv.exports import describe, find_reports, open_report
from nsys2prv.paraver.check import check_trace
from nsys2prv.run.ranks import resolve_ranks
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

from .conftest import Translated


@pytest.mark.thorough
def test_two_runs_are_not_taken_for_one(real_reports: Path, tmp_path: Path) -> None:
    reports = [*(real_reports / "v100x8").glob("*.sqlite"), *(real_reports / "mpi4").glob("*.sqlite")]
    options = TranslateOptions(only=("cuda-api", "mpi"))
    with pytest.raises(UnrelatedReports, match="not of the same run"):
        translate(reports, tmp_path / "refused", options)
    run = translate(reports, tmp_path / "trace", replace(options, unrelated=True)).content["run"]
    about = [finding["about"] for finding in run["findings"]]
    assert about.count("different runs") == 2
    assert set(about) == {"duplicate ranks", "different runs"}


def test_streams_of_four_gpus_fold(real_reports: Path, tmp_path: Path) -> None:
    report = real_reports / "one-process-4gpu.sqlite"
    plain = translate([report], tmp_path / "plain")
    folded = translate([report], tmp_path / "folded", TranslateOptions(fold_streams=True))
    assert check_trace(folded.prv).violations == ()
    streams = [
        [name for task in summary.content["tasks"] for name in task["threads"] if name.startswith("CUDA-")]
        for summary in (plain, folded)
    ]
    (node,) = (node["name"] for node in folded.content["nodes"])
    assert len(streams[0]) == 68
    assert set(streams[1]) == {f"CUDA-D{device}.S0-{node}" for device in range(4)}
    assert len(streams[1]) <= 16
    counts = [check_trace(summary.prv).counts for summary in (plain, folded)]
    for what in ("event_lines", "events", "messages", "intervals"):
        assert counts[0][what] == counts[1][what]


@pytest.mark.parametrize(
    ("folder", "hosts"),
    [
        ("v100x8", ["cgpu04"]),
        ("mpi4", ["node01"]),
        ("nccl-3nodes-9gpus", ["ault42.cscs.ch", "ault43.cscs.ch", "ault44.cscs.ch"]),
        ("nccl-3nodes-9gpus-utc", ["ault42.cscs.ch", "ault43.cscs.ch", "ault44.cscs.ch"]),
        ("nccl-2nodes-6gpus-utc", ["ault43.cscs.ch", "ault44.cscs.ch"]),
        ("nccl-2nodes-5of6-utc", ["ault43.cscs.ch", "ault44.cscs.ch"]),
    ],
)
def test_reports_of_one_host_share_a_clock(real_reports: Path, folder: str, hosts: list[str]) -> None:
    paths = find_reports([real_reports / folder])
    spans = [(0, 10**9)] * len(paths)
    run = resolve_ranks(paths, [describe(open_report(path)) for path in paths], spans)
    clocks = report_clocks(run.identities, place_sessions(run.identities, spans))
    assert sorted({clock.name for clock in clocks}) == hosts
    assert {clock.of_report for clock in clocks} == {UTC_READINGS_APART_NS}
    # One report of the last folder is missing, and its rank.
    assert {issue.about for issue in run.issues} == ({"missing ranks"} if "5of6" in folder else set())


@pytest.mark.thorough
def test_one_host_warns_of_nothing_about_clocks(translation: Callable[[str], Translated]) -> None:
    content = json.loads(translation("v100x8").trace.path.with_suffix(".json").read_text())
    assert [node["name"] for node in content["nodes"]] == ["cgpu04"]
    assert [clock["host"] for clock in content["clocks"]] == ["cgpu04"]
    assert content["warnings"] == []
