"""Communicators are lines after the header, and Paraver's tools take traces with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nccl_regions import COMMUNICATOR, Nccl
from support.paramedir import STATES_VIEW, Paramedir, read_timeline
from support.report_builder import ReportBuilder
from support.traces import labels_of
from support.whole_trace import open_whole

from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.trace_files import read_header
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types

WORLD = 10


def mpi_report(rank: int, *, ranks: int = 4) -> ReportBuilder:
    """A rank that is in MPI_COMM_WORLD, in one of two halves in the opposite order, and in a copy of the half."""
    report = ReportBuilder(rank=rank, pid=100 + rank, host="n0").mpi_rank(rank)
    report.communicator(WORLD + rank, rank=rank, size=ranks)
    half, copy = 500 + rank, 700 - rank
    report.communicator(half, rank=rank, size=2, parent=WORLD + rank, local_rank=1 - rank // 2, group=(rank % 2, 0), time=11)
    report.communicator(copy, rank=rank, size=None, parent=half, time=12)
    for at, handle in ((100, WORLD + rank), (200, half)):
        report.mpi_collective("MPI_Barrier", at, at + 10, communicator=handle)
    return report


def translated(tmp_path: Path, *reports: ReportBuilder, **options: object) -> Path:
    paths = [report.write(tmp_path / f"{place}.sqlite") for place, report in enumerate(reports)]
    return translate(paths, tmp_path / "out", TranslateOptions(align="none", no_views=True, **options)).prv  # type: ignore[arg-type]


def lines(prv: Path) -> list[str]:
    count = read_header(prv).communicators
    return prv.read_text().splitlines()[1 : 1 + count]


def test_communicators_of_mpi_have_the_number_of_their_value_and_tasks_in_the_order_of_ranks(tmp_path: Path) -> None:
    prv = translated(tmp_path, *(mpi_report(rank) for rank in range(4)))
    assert lines(prv) == [
        "c:1:1:4:1:2:3:4",
        # Local ranks of the halves are the other way round than those of the program.
        "c:1:2:2:3:1",
        "c:1:3:2:4:2",
        # No call is made in the copies.
        "c:1:4:2:3:1",
        "c:1:5:2:4:2",
        *(f"c:1:{100_000 + task}:1:{task}" for task in range(1, 5)),
    ]
    assert labels_of(open_whole(prv), event_types.MPI_COMMUNICATOR) == {
        0: "End",
        1: "MPI_COMM_WORLD",
        2: "communicator of 2 ranks from rank 0, number 0",
        3: "communicator of 2 ranks from rank 1, number 0",
    }
    assert check_trace(prv).violations == ()


def test_ranks_that_are_not_in_the_trace_are_in_no_communicator(tmp_path: Path) -> None:
    prv = translated(tmp_path, *(mpi_report(rank) for rank in range(4)), ranks=frozenset({1, 2}))
    # The copies of the halves are after them.
    assert lines(prv)[:3] == ["c:1:1:2:1:2", "c:1:2:1:2", "c:1:3:1:1"]


def test_copies_of_communicators_and_those_of_one_rank_have_names_of_their_own(tmp_path: Path) -> None:
    reports = []
    for rank in range(2):
        report = ReportBuilder(rank=rank, pid=100 + rank, host="n0").mpi_rank(rank)
        report.communicator(5, rank=rank, size=2).communicator(6, rank=rank, size=1)
        for number in range(2):
            report.communicator(7 + number, rank=rank, size=None, parent=5, time=10 + number)
        for place in range(4):
            report.mpi_collective("MPI_Barrier", 100 + 20 * place, 110 + 20 * place, communicator=5 + place)
        reports.append(report)
    prv = translated(tmp_path, *reports)
    names = labels_of(open_whole(prv), event_types.MPI_COMMUNICATOR)
    assert sorted(names.values()) == [
        *("End", "MPI_COMM_SELF of rank 0", "MPI_COMM_SELF of rank 1", "MPI_COMM_WORLD"),
        *("copy 1 of MPI_COMM_WORLD", "copy 2 of MPI_COMM_WORLD"),
    ]
    members = {names[int(line.split(":")[2])]: line.split(":")[4:] for line in lines(prv)}
    assert members == {
        "MPI_COMM_WORLD": ["1", "2"],
        "MPI_COMM_SELF of rank 0": ["1"],
        "MPI_COMM_SELF of rank 1": ["2"],
        "copy 1 of MPI_COMM_WORLD": ["1", "2"],
        "copy 2 of MPI_COMM_WORLD": ["1", "2"],
    }


def test_communicators_of_nccl_are_those_that_payloads_name(tmp_path: Path, paramedir: Paramedir) -> None:
    reports = []
    for rank in range(3):
        report = ReportBuilder(host=f"n{rank}", rank=rank, ranks=3)
        for identifier, members in ((COMMUNICATOR, (0, 1, 2)), (77, (0, 2))):
            if rank in members:
                Nccl(report, binary=False).call("ncclCommInitRank", 10 + identifier % 50, 90, identifier, len(members), 0, 0)
        reports.append(report)
    prv = translated(tmp_path, *reports)
    names = {200_000 + value: name for value, name in labels_of(open_whole(prv), event_types.NCCL_COMMUNICATOR).items()}
    found = {names[int(line.split(":")[2])]: line.split(":")[3:] for line in lines(prv)}
    assert found == {
        "NCCL communicator of 3 ranks: 0-2 (#1a2b)": ["3", "1", "2", "3"],
        "NCCL communicator of 2 ranks: 0,2 (#004d)": ["2", "1", "3"],
    }
    # Paraver counts the lines that the header announces, and reads records after them.
    assert len(read_timeline(paramedir.show_one(prv, STATES_VIEW))) == 3


def test_a_trace_without_communicators_announces_none(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("read", 0, 5)
    assert translated(tmp_path, report).read_text().splitlines()[0].endswith(":1:1(1:1)")


@pytest.mark.parametrize(
    ("line", "why"),
    [("c:1:1:3:1:2", "announces 3 tasks and lists 2"), ("i:1:3:1:1:2", "not a communicator"), ("c:1:1:1:2", "has task 2")],
)
def test_check_names_a_communicator_that_is_wrong(tmp_path: Path, line: str, why: str) -> None:
    prv = translated(tmp_path, mpi_report(0, ranks=1))
    text = prv.read_text().splitlines(keepends=True)
    prv.write_text("".join([text[0], f"{line}\n", *text[2:]]))
    (violation,) = check_trace(prv).violations
    assert violation.line == 2
    assert why in violation.text
