"""Reports of one run, of one host, and of several, and what is known of their clocks."""

from pathlib import Path

import pytest
from support import few_of, rest
from support.real_reports import RUNS
from support.shuffled import differences, outcome, shuffled

from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS, place_sessions, report_clocks
from nsys2prv.exports import describe, find_reports, open_report
from nsys2prv.run.ranks import resolve_ranks


@pytest.mark.parametrize(
    ("folder", "hosts"),
    [
        ("mpi4", ["node01"]),
        ("nccl-2nodes-5of6-utc", ["ault43.cscs.ch", "ault44.cscs.ch"]),
        *rest(
            ("v100x8", ["cgpu04"]),
            *((f"nccl-3nodes-9gpus{utc}", [f"ault{number}.cscs.ch" for number in (42, 43, 44)]) for utc in ("", "-utc")),
            ("nccl-2nodes-6gpus-utc", ["ault43.cscs.ch", "ault44.cscs.ch"]),
        ),
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


@pytest.mark.parametrize("run", few_of(RUNS, {"cuda-graphs"}))
def test_shuffled_tables_give_the_same_trace_and_numbers(run: str, tmp_path: Path) -> None:
    # Under its own name, which is that of the folder for several reports.
    of_shuffled = tmp_path / "copies" / RUNS[run][0].parent.name
    of_shuffled.mkdir(parents=True)
    copies = [shuffled(report, of_shuffled, 1) for report in RUNS[run]]
    (files, measured), (of_copies, measured_of_copies) = (
        outcome(reports, tmp_path / name) for name, reports in (("recorded", list(RUNS[run])), ("shuffled", copies))
    )
    assert [suffix for suffix in files if files[suffix] != of_copies.get(suffix)] == []
    assert of_copies.keys() == files.keys()
    assert list(differences(measured, measured_of_copies)) == []
