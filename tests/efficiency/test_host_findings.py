"""Findings of runs without a GPU: each rule finds what a run was made to show, and nothing in a run without it."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from support.measured import MS, check, finding, measured
from support.pages import PageReader
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import window_choice

STEPS = 10


def run(work: Sequence[int], *, start: int = 20, late: int = 0, ranks: int = 2) -> list[ReportBuilder]:
    """Two of `ranks` are in MPI_Init for `start` ms, compute for `work` ms in each of STEPS steps of 10 ms, which end with a
    collective, and are in MPI_Finalize for 5 ms; before that rank 1 waits for a message that rank 0 sends `late` ms later."""
    reports = []
    for rank in (0, 1):
        report = ReportBuilder(rank=rank, pid=1000 + rank, ranks=ranks, with_mpi=True)
        report.communicator(rank=rank, size=ranks)
        report.mpi_other("MPI_Init", 0, start * MS)
        for step in range(STEPS):
            begin = (start + step * 10) * MS
            report.mpi_collective("MPI_Allreduce", begin + work[rank] * MS, begin + 10 * MS, size=8)
        begin = (start + STEPS * 10) * MS
        if late:
            if rank == 0:
                report.mpi_p2p("MPI_Send", begin + late * MS, begin + (late + 1) * MS, partner=1, size=64)
            else:
                report.mpi_p2p("MPI_Recv", begin, begin + (late + 1) * MS, partner=0, size=64)
        report.mpi_other("MPI_Finalize", begin + 40 * MS, begin + 45 * MS)
        reports.append(report)
    return reports


def test_equal_work_and_a_short_start_have_no_finding(tmp_path: Path) -> None:
    result = measured(tmp_path, *run((9, 9)), no_critical_path=False)
    assert result.findings.is_empty()
    assert {check(result, kind) for kind in ("mpi-start-up", "mpi-imbalance", "late-process")} == {("not found", None)}
    assert result.finding_checks.filter(pl.col("result") == "not decidable")["reason"].unique().to_list() == [
        "no work of a GPU was recorded"
    ]


def test_a_long_start_of_mpi_is_found_with_the_time_in_its_calls(tmp_path: Path) -> None:
    result = measured(tmp_path, *run((9, 9), start=200))
    assert result.findings["kind"].to_list() == ["mpi-start-up"]
    found = finding(result, "mpi-start-up")
    assert (found["saved_ns"], found["cost_ns"], found["saved_how"]) == (
        205 * MS, 410 * MS, "at most, from the time of processes",
    )  # fmt: skip
    assert (found["begin_ns"], found["end_ns"], found["ranks"], found["device"]) == (0, 345 * MS, "0-1", None)
    assert "in MPI_Init for 200.000 ms and in MPI_Finalize for 5.000 ms on average" in found["seen"]


def test_unequal_work_is_found_and_the_late_process_is_its_consequence(tmp_path: Path) -> None:
    result = measured(tmp_path, *run((5, 9)), no_critical_path=False)
    assert result.findings["kind"].to_list() == ["mpi-imbalance", "late-process"]
    unequal, late = (finding(result, kind) for kind in ("mpi-imbalance", "late-process"))
    # Outside of MPI: 50 and 90 ms, and 40 ms before MPI ends.
    assert (unequal["saved_ns"], unequal["cost_ns"]) == (20 * MS, 40 * MS)
    assert unequal["tasks"].startswith("Rank 1 ")
    assert "is outside of MPI calls for 130.000 ms, the mean of 2 processes is 110.000 ms" in unequal["seen"]
    assert (late["saved_ns"], late["cost_ns"], late["consequence_of"]) == (40 * MS, 40 * MS, "mpi-imbalance")
    assert late["ranks"] == "1"
    assert "others wait 10 times in collectives and receives until Rank 1 " in late["seen"]
    text = result.as_text(verbose=True)
    assert "Unequal work: one process is outside of MPI for longer" in text
    assert "40.000 ms of time of processes" in text
    assert "GPUs, most on None" not in text
    result.to_html(tmp_path / "page.html")
    read = PageReader((tmp_path / "page.html").read_text())
    shown = read.one("ol", **{"class": "findings"}).text
    assert "time of processes that it costs" in shown
    assert "of all processes" in shown
    # There is no map of devices in which a place could be shown.
    assert not [link for link in read.all("a") if link.attributes.get("href") == "#map"]


def test_a_late_sender_is_found_with_the_receive_that_waits(tmp_path: Path) -> None:
    result = measured(tmp_path, *run((9, 9), late=30), no_critical_path=False)
    late = finding(result, "late-process")
    assert (late["saved_ns"], late["ranks"]) == (30 * MS, "0")
    assert (late["worst_begin_ns"], late["worst_end_ns"]) == (120 * MS, 150 * MS)
    of_two = measured(tmp_path / "two", *run((9, 9), late=30, ranks=3))
    assert check(of_two, "late-process") == ("not decidable", "missing ranks may be later")


def test_a_receive_that_was_started_before_waits_from_the_call_that_completes_it(tmp_path: Path) -> None:
    sends, receives = (
        ReportBuilder(rank=rank, pid=1000 + rank, ranks=2, with_mpi=True).communicator(rank=rank, size=2) for rank in (0, 1)
    )
    receives.mpi_p2p("MPI_Irecv", 0, 1 * MS, partner=0, size=64, request=7).mpi_wait(
        "MPI_Wait", 60 * MS, 91 * MS, requests=(7,)
    )
    sends.mpi_p2p("MPI_Send", 90 * MS, 91 * MS, partner=1, size=64)
    for report in (sends, receives):
        report.mpi_other("MPI_Finalize", 95 * MS, 100 * MS)
    late = finding(measured(tmp_path, sends, receives, no_critical_path=False), "late-process")
    assert (late["saved_ns"], late["worst_begin_ns"], late["worst_end_ns"]) == (30 * MS, 60 * MS, 90 * MS)


def test_one_process_and_runs_without_mpi_are_not_decidable(tmp_path: Path) -> None:
    alone = ReportBuilder(rank=0).mpi_other("MPI_Init", 0, 110 * MS).mpi_other("MPI_Finalize", 1190 * MS, 1191 * MS)
    result = measured(tmp_path, alone)
    # 111 ms are less than a tenth of the run.
    assert check(result, "mpi-start-up")[0] == "not found"
    assert check(result, "mpi-imbalance") == ("not decidable", "there is one process with MPI, and nothing to compare it with")
    without = ReportBuilder().os_call("read", 0, 10 * MS)
    result = measured(tmp_path, without)
    assert check(result, "mpi-start-up") == ("not decidable", "not recorded: MPI calls")


def test_in_a_window_after_the_start_the_start_is_no_finding(tmp_path: Path) -> None:
    result = measured(tmp_path, *run((9, 9), start=200), window=window_choice("200ms:300ms"))
    assert check(result, "mpi-start-up") == ("not found", None)


def test_what_all_processes_spend_in_mpi_is_found_and_not_where_its_calls_had_not_ended(tmp_path: Path) -> None:
    result = measured(tmp_path, *run((6, 6)))
    assert (finding(result, "mpi-transfers")["saved_ns"], result.findings.height) == (40 * MS, 1)
    assert "each process is in MPI calls for 40.000 ms or more, most in MPI_Allreduce" in result.findings["seen"][0]
    # Rank 1 fails in a barrier, and rank 0 sends to it.
    hung = run((6, 6))
    for report, name in zip(hung, ("Send", "Barrier"), strict=True):
        report.row("ANALYSIS_DETAILS", duration=400 * MS).mpi_other(f"MPI_{name}", 170 * MS, 400 * MS)
    (tmp_path / "hung").mkdir()
    result = measured(tmp_path / "hung", *hung)
    reason = "2 calls of MPI (MPI_Barrier, MPI_Send) had not ended when the recording stopped"
    assert check(result, "mpi-transfers") == check(result, "mpi-imbalance") == ("not decidable", reason)
    assert any(warning.startswith(reason) for warning in result.head["warnings"])
