"""Reports of one host, which report UTC only, are of one host with one clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS, place_sessions, report_clocks
from nsys2prv.exports import describe, find_reports, open_report
from nsys2prv.run.ranks import resolve_ranks

from .conftest import Translated


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
    assert {issue.kind.value[0] for issue in run.issues} == ({"missing ranks"} if "5of6" in folder else set())


@pytest.mark.thorough
def test_one_host_warns_of_nothing_about_clocks(translation: Callable[[str], Translated]) -> None:
    content = json.loads(translation("v100x8").trace.path.with_suffix(".json").read_text())
    assert [node["name"] for node in content["nodes"]] == ["cgpu04"]
    assert [clock["host"] for clock in content["clocks"]] == ["cgpu04"]
    assert content["warnings"] == []
