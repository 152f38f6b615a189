"""Which collective calls of MPI are the same one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support import rest
from support.measured import events_of
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import CHOSEN
from nsys2prv.efficiency.graph.host_waits import mpi_collectives
from nsys2prv.efficiency.graph.replay import EdgeKind
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.window import MeasuredWindow, RunIterations
from nsys2prv.run.options import ReadOptions, TimeRange

SPLIT = 777


def matched(
    folder: Path, reports: Sequence[ReportBuilder], window: tuple[int, int] | None = None, options: ReadOptions | None = None
) -> pl.DataFrame:
    """Members of all collectives, in the order of their ends, with names of calls and numbers of ranks."""
    events = events_of(folder, *reports, options=options)
    run = MeasuredRun(events)
    if window is not None:
        nothing = RunIterations(pl.DataFrame(), None)
        run = run.in_window(MeasuredWindow(CHOSEN, window, window, events.length, nothing))
    members = mpi_collectives(run)
    ranks = pl.Series(events.rows.task)
    numbers = pl.repeat(50000002, members.height, eager=True)
    return members.with_columns(
        row=ranks.gather(members["row"]),
        awaited_row=ranks.gather(members["awaited_row"]),
        kind=events.named(numbers, members["kind"]),
    )


def ranks(number: int) -> list[ReportBuilder]:
    return [ReportBuilder(rank=rank, with_mpi=True, ranks=number, pid=1000 + rank) for rank in range(number)]


def test_calls_in_the_same_place_of_their_communicator_are_one_collective(tmp_path: Path) -> None:
    reports = ranks(3)
    for rank, report in enumerate(reports):
        report.communicator(SPLIT, rank=rank, size=2, parent=94577367172512, group=(0, rank == 2), local_rank=rank % 2)
        report.mpi_collective("MPI_Barrier", 10 * rank, 50 + rank)
        if rank < 2:
            report.mpi_collective("MPI_Allreduce", 100 - rank, 120 + rank, communicator=SPLIT)
        report.mpi_collective("MPI_Iallreduce", 200 + rank, 210 + rank, request=5)
    members = matched(tmp_path, reports)
    assert members.select("row", "start", "end", "kind", "blocking", "members", "awaited_row", "awaited_start").rows() == [
        (0, 0, 50, "MPI_Barrier", True, 3, 2, 20),
        (1, 10, 51, "MPI_Barrier", True, 3, 2, 20),
        (2, 20, 52, "MPI_Barrier", True, 3, None, None),
        (0, 100, 120, "MPI_Allreduce", True, 2, None, None),
        (1, 99, 121, "MPI_Allreduce", True, 2, 0, 100),
        (0, 200, 210, "MPI_Iallreduce", False, 3, None, None),
        (1, 201, 211, "MPI_Iallreduce", False, 3, None, None),
        (2, 202, 212, "MPI_Iallreduce", False, 3, None, None),
    ]
    assert members["collective"].n_unique() == 3


@pytest.mark.parametrize(
    ("name", "others"), [("MPI_Allreduce", 2), ("MPI_Bcast", 0), *rest(("MPI_Reduce_scatter", 2), ("MPI_Scatterv", 0))]
)
def test_in_a_replay_another_may_be_last_where_all_wait_for_all(tmp_path: Path, name: str, others: int) -> None:
    reports = ranks(3)
    for rank, report in enumerate(reports):
        report.mpi_collective(name, 10 * rank, 50 + rank, root=2)
    graph = graph_of_run(MeasuredRun(events_of(tmp_path, *reports))).graph
    assert np.count_nonzero(graph.kind == EdgeKind.ARRIVAL) == others


def test_members_wait_for_the_root_or_it_waits_for_them(tmp_path: Path) -> None:
    reports = ranks(3)
    for rank, report in enumerate(reports):
        report.communicator(SPLIT, rank=rank, size=3, parent=94577367172512, group=(0, 0))
        report.mpi_collective("MPI_Bcast", 10 * rank, 40 + rank, root=1)
        report.mpi_collective("MPI_Reduce", 100 + 10 * rank, 140 + rank, root=1)
        report.mpi_collective("MPI_Scan", 200 + 10 * rank, 240 + rank)
        # Of this communicator it is not known here which process is its rank 1.
        report.mpi_collective("MPI_Bcast", 300 + 10 * rank, 340 + rank, root=1, communicator=SPLIT)
    members = matched(tmp_path, reports)
    assert members.select("row", "awaited_row", "awaited_start").rows() == [
        (0, 1, 10), (1, None, None), (2, 1, 10),
        (0, None, None), (1, 2, 120), (2, None, None),
        *[(rank, None, None) for rank in range(3)] * 2,
    ]  # fmt: skip


def several(rank: int, report: ReportBuilder, *, left_out: int = 0) -> None:
    """Twenty reductions of different lengths, without some of the first."""
    for turn in range(left_out, 20):
        report.mpi_collective("MPI_Allreduce", 1000 * turn + 10 * rank, 1000 * turn + 100 + turn)


def test_a_recording_that_begins_later_on_one_rank_is_shifted(tmp_path: Path) -> None:
    reports = ranks(2)
    several(0, reports[0])
    several(1, reports[1], left_out=3)
    members = matched(tmp_path, reports)
    assert members.height == 34
    assert (members["end"].max() or 0) > 19_000  # type: ignore[operator]
    assert members.group_by("collective").agg(pl.col("end").n_unique())["end"].to_list() == [1] * 17


def test_a_selected_time_may_begin_inside_a_collective(tmp_path: Path) -> None:
    reports = ranks(2)
    for rank, report in enumerate(reports):
        report.mpi_collective("MPI_Bcast", 0, 500 if rank else 20)
        several(rank, report, left_out=1)
    options = ReadOptions(time=TimeRange(300, 30_000))
    assert matched(tmp_path, reports, options=options)["kind"].to_list() == ["MPI_Allreduce"] * 38


def test_other_calls_in_the_same_place_are_not_matched(tmp_path: Path) -> None:
    reports = ranks(2)
    for rank, report in enumerate(reports):
        report.mpi_collective("MPI_Barrier", 0, 10)
        report.mpi_collective("MPI_Gather" if rank else "MPI_Reduce", 20, 30, root=0)
        report.mpi_collective("MPI_Barrier", 40, 50)
    reports[0].mpi_collective("MPI_Barrier", 60, 70, communicator=4711)
    assert matched(tmp_path, reports)["kind"].to_list() == ["MPI_Barrier"] * 4


def test_a_collective_may_lack_ranks(tmp_path: Path) -> None:
    reports = ranks(3)
    for rank, report in enumerate(reports):
        for turn in range(2 if rank == 2 else 3):
            report.mpi_collective("MPI_Barrier", 100 * turn, 100 * turn + 10 + rank)
    members = matched(tmp_path, reports)
    assert members["members"].to_list() == [3] * 6 + [2] * 2


def test_members_of_a_window_have_its_times(tmp_path: Path) -> None:
    reports = ranks(2)
    for rank, report in enumerate(reports):
        report.mpi_collective("MPI_Barrier", 10 * rank, 50).mpi_collective("MPI_Barrier", 80 + 10 * rank, 120)
        report.mpi_collective("MPI_Barrier", 200 + 10 * rank, 250).mpi_collective("MPI_Barrier", 400 + 10 * rank, 450)
    members = matched(tmp_path, reports, (85, 300))
    assert members.select("row", "start", "end", "awaited_row", "awaited_start").rows() == [
        (0, 0, 35, 1, 5),
        (1, 5, 35, None, None),
        (0, 115, 165, 1, 125),
        (1, 125, 165, None, None),
    ]
