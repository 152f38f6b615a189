"""Ranks and hosts of real sets of reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsys2prv.errors import UnrelatedReports
from nsys2prv.paraver.check import check_trace
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions


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
