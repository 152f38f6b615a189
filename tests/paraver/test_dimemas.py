"""A trace for Dimemas has what its translator takes, says what it lacks, and is simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dimemas import simulate
from support.report_builder import ReportBuilder
from support.whole_trace import open_whole

from nsys2prv.errors import UsageError
from nsys2prv.paraver import dimemas
from nsys2prv.paraver.check import check_trace
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types, mpi_calls

BARRIER, REDUCE = mpi_calls.NUMBERS["MPI_Barrier"], mpi_calls.NUMBERS["MPI_Reduce"]


def rank(number: int) -> ReportBuilder:
    """A rank of two: a message each way, a barrier, and a reduction to rank 1 in the communicator in the opposite order."""
    report = ReportBuilder(rank=number, pid=100 + number, host="n0").mpi_rank(number)
    report.gpu(number)
    report.communicator(rank=number, size=2)
    report.communicator(50 + number, rank=number, size=2, parent=94577367172512, local_rank=1 - number, group=(0, 0), time=11)
    report.mpi_other("MPI_Init_thread", 0, 10)
    report.kernel("k", 14, 16, launch=(12, 13))
    report.mpi_collective("MPI_Barrier", 20, 30)
    report.mpi_p2p("MPI_Irecv", 40, 42, partner=1 - number, size=80, tag=7, request=70)
    report.mpi_p2p("MPI_Send", 50, 60, partner=1 - number, size=80, tag=7)
    report.mpi_wait("MPI_Wait", 70, 80, requests=(70,))
    report.mpi_collective("MPI_Reduce", 90, 100, size=8, received=16, root=0, communicator=50 + number)
    return report


def written(tmp_path: Path, *reports: ReportBuilder, **options: object) -> Summary:
    paths = [report.write(tmp_path / f"{place}.sqlite") for place, report in enumerate(reports)]
    chosen = TranslateOptions(align="none", for_dimemas=True, **options)  # type: ignore[arg-type]
    return translate(paths, tmp_path / "out", chosen)


def test_only_calls_messages_and_collective_operations_of_first_threads_are_written(tmp_path: Path) -> None:
    summary = written(tmp_path, rank(0), rank(1))
    trace = open_whole(summary.prv)
    text = summary.prv.read_text().splitlines()

    assert check_trace(summary.prv).violations == ()
    assert text[1:5] == ["c:1:1:2:1:2", "c:1:2:2:2:1", "c:1:100001:1:1", "c:1:100002:1:2"]
    assert trace.names["THREAD"] == ("THREAD 1.1.1", "THREAD 1.2.1")
    assert [line for line in text if ":50000002:" in line] == [
        *(f"2:0:1:{task}:1:20:50000002:{BARRIER}:50100001:0:50100002:0:50100004:1" for task in (1, 2)),
        *(f"2:0:1:{task}:1:30:50000002:0:50100001:0:50100002:0:50100004:0" for task in (1, 2)),
        f"2:0:1:1:1:90:50000002:{REDUCE}:50100001:8:50100002:16:50100004:2",
        # Rank 0 of the communicator is the second task.
        f"2:0:1:2:1:90:50000002:{REDUCE}:50100001:8:50100002:16:50100003:1:50100004:2",
        "2:0:1:1:1:100:50000002:0:50100001:0:50100002:0:50100004:0",
        "2:0:1:2:1:100:50000002:0:50100001:0:50100002:0:50100003:0:50100004:0",
    ]
    assert [line for line in text if line.startswith("3:")] == [
        "3:0:1:1:1:50:50:0:1:2:1:40:80:80:7",
        "3:0:1:2:1:50:50:0:1:1:1:40:80:80:7",
    ]
    assert summary.content["dimemas"] == {
        "messages": 2,
        "collective_operations": [{"communicator": 1, "least": 1, "most": 1}, {"communicator": 2, "least": 1, "most": 1}],
        "left_out": {},
    }


def test_what_dimemas_does_not_take_is_left_out_and_counted(tmp_path: Path) -> None:
    reports = [rank(0), rank(1)]
    for number, report in enumerate(reports):
        report.thread(900 + number, name="other")
        report.mpi_collective("MPI_Barrier", 200, 210, tid=900 + number)
        report.mpi_collective("MPI_Exscan", 200, 210, size=8)
        report.mpi_collective("MPI_Barrier", 220, 230, communicator=4711)
        report.mpi_p2p("MPI_Sendrecv_replace", 240, 250, partner=1 - number, size=1 << 31)
    reports[1].mpi_collective("MPI_Barrier", 260, 270)
    summary = written(tmp_path, *reports)

    assert len(open_whole(summary.prv).header.tasks) == 2
    assert summary.content["dimemas"] == {
        "messages": 2,
        "collective_operations": [{"communicator": 1, "least": 1, "most": 2}, {"communicator": 2, "least": 1, "most": 1}],
        "left_out": {dimemas.UNKNOWN_CALL: 2, dimemas.UNKNOWN_COMMUNICATOR: 2, dimemas.TOO_LARGE: 2},
    }
    assert any("communicator 1 have 1 to 2" in warning for warning in summary.content["warnings"])
    sources = [one for report in summary.content["reports"] for table in report["tables"] for one in table["sources"]]
    assert (
        sum(
            one["left_out"].get("its rank or thread was not chosen, or another report samples the same GPU", 0)
            for one in sources
        )
        == 2
    )


def test_calls_of_old_exports_are_in_the_communicator_of_all_tasks(tmp_path: Path) -> None:
    reports = []
    for number in range(2):
        report = ReportBuilder(rank=number, pid=100 + number, host="n0")
        report.nvtx_range("MPI_Barrier", 20, 30, domain="MPI")
        reports.append(report)
    text = written(tmp_path, *reports).prv.read_text()
    assert f":0:{event_types.MPI_COLLECTIVE.number}:{BARRIER}:50100001:0:50100002:0:50100004:1\n" in text


def test_options_that_would_leave_out_a_part_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--for-dimemas selects what is written"):
        written(tmp_path, rank(0), gzip=True)


def test_dimemas_simulates_every_message_and_operation(tmp_path: Path) -> None:
    found = simulate(written(tmp_path, rank(0), rank(1)).prv)
    assert (found.sent, found.received, found.operations) == ((1, 1), (1, 1), (2, 2))
    assert 0 < found.seconds < 1e-6
