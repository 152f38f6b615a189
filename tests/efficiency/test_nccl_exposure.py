"""NCCL kernels that are exposed, and those that block: small runs with known times, and simulated clusters."""

from pathlib import Path

import polars as pl
import pytest
from support import rest
from support.measured import NCCL, measured_tables, row, written
from support.nccl_regions import COMMUNICATOR, Nccl
from support.report_builder import ReportBuilder
from support.simulated_run.cluster import DATA, TENSOR, Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(x)"
WAIT_CALL, RECORD_CALL = "cudaStreamWaitEvent_v3020", "cudaEventRecord_v3020"


def exposure(folder: Path, *reports: ReportBuilder) -> pl.DataFrame:
    return measured_tables(written(folder, *reports), ("nccl_exposure",))["nccl_exposure"]


def beside_a_collective(launch: int, *, waits: bool = True, computes_until: int = 0) -> ReportBuilder:
    """A collective from 150 to 400 beside kernels; the last one is launched at `launch` and waits for it by an event."""
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 5))
    report.kernel(NCCL, 150, 400, stream=20, launch=(10, 15))
    if computes_until:
        report.kernel("beside", 160, computes_until, stream=9, launch=(16, 18))
    if waits:
        record = report.api_call(RECORD_CALL, 20, 22)
        report.event_record(3, correlation=record, stream=20, sync=8)
        wait = report.api_call(WAIT_CALL, 24, 26)
        report.synchronization(24, 26, kind=2, correlation=wait, stream=7, event=3, sync=8)
    report.kernel("last", 420, 500, launch=(launch, launch + 5))
    return report


@pytest.mark.parametrize(
    ("report", "times"),
    [
        # It is exposed from 200 on, and the last kernel waits for it.
        (beside_a_collective(40), {"exposed_ns": 200, "overlapped_ns": 50, "blocking_ns": 200, "not_blocking_ns": 0}),
        # Until 390 there is nothing that could wait.
        (beside_a_collective(390), {"exposed_ns": 200, "blocking_ns": 5, "not_blocking_ns": 195}),
        # Nothing waits for it at all.
        (beside_a_collective(40, waits=False), {"exposed_ns": 200, "blocking_ns": 0, "not_blocking_ns": 200}),
        # It is hidden until 380, and the last kernel could run from 200 on.
        (
            beside_a_collective(40, computes_until=380),
            {"exposed_ns": 20, "overlapped_ns": 230, "blocking_ns": 20, "overlapped_blocking_ns": 180},
        ),
        (
            beside_a_collective(40, waits=False, computes_until=380),
            {"exposed_ns": 20, "not_blocking_ns": 20, "overlapped_blocking_ns": 0},
        ),
    ],
)
def test_exposed_and_blocking_are_two_things(report: ReportBuilder, times: dict[str, int], tmp_path: Path) -> None:
    found = row(exposure(tmp_path, report), operation="AllReduce")
    assert {name: found[name] for name in times} == times
    assert (found["count"], found["total_ns"]) == (1, 250)
    # Where communicators are not known, neither is the placement.
    assert (found["communicator"], found["placement"], found["ranks"], found["bytes"]) == (None, None, None, None)


def test_the_next_kernel_of_the_stream_waits_for_it(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel(ALL_GATHER, 100, 200, launch=(0, 5))
    report.kernel("beside", 90, 170, stream=9, launch=(6, 8))
    report.kernel("next", 210, 300, launch=(120, 125))
    found = row(exposure(tmp_path, report), operation="AllGather")
    assert (found["exposed_ns"], found["blocking_ns"], found["overlapped_blocking_ns"]) == (30, 30, 50)


def reducing(rank: int, host: str, ranks: int | None) -> ReportBuilder:
    """A collective of a communicator of so many ranks, or of one that nothing names."""
    report = ReportBuilder(rank=rank, ranks=2, pid=1000 + rank, host=host).gpu(rank)
    if ranks is not None:
        nccl = Nccl(report, binary=True)
        nccl.call("ncclCommInitRank", 0, 10, COMMUNICATOR, ranks, rank, 0)
        nccl.call("ncclAllReduce", 20, 40, COMMUNICATOR, 4096, 0)
    report.kernel(NCCL, 100, 200, launch=(25, 30))
    return report


@pytest.mark.parametrize(
    ("hosts", "ranks", "placement", "nodes"),
    [
        (("node01", "node01"), 2, "inside a node", 1),
        pytest.param(("node01", "node02"), 2, "over nodes", 2, marks=pytest.mark.thorough),
        # The third rank may be anywhere.
        pytest.param(("node01", "node01"), 3, None, 1, marks=pytest.mark.thorough),
        (("node01", "node02"), 3, "over nodes", 2),
        pytest.param(("node01", "node02"), None, None, 2, marks=pytest.mark.thorough),
    ],
)
def test_collectives_inside_a_node_and_over_nodes_are_apart(
    hosts: tuple[str, str], ranks: int | None, placement: str | None, nodes: int, tmp_path: Path
) -> None:
    found = row(exposure(tmp_path, *(reducing(rank, host, ranks) for rank, host in enumerate(hosts))), operation="AllReduce")
    assert (found["communicator"] is None) == (ranks is None)
    assert (found["members"], found["nodes"], found["ranks"], found["placement"]) == (2, nodes, ranks, placement)
    assert (found["count"], found["bytes"]) == (2, None if ranks is None else 2 * 4096)


@pytest.mark.parametrize("pattern", [DATA, *rest(TENSOR)])
def test_blocking_time_is_that_of_compute_absent_time(pattern: str, tmp_path: Path) -> None:
    reports = write_reports(simulate(Cluster(pattern=pattern, nodes=2, gpus=1, iterations=2)), tmp_path)
    found = measured_tables(reports, ("nccl_exposure", "absent_time", "nccl"))

    table, absent, devices = (found[name] for name in ("nccl_exposure", "absent_time", "devices"))
    waits = absent.select(pl.sum_horizontal("late_rank_ns", "transfer_ns", "communication_ns")).to_series()
    assert table["blocking_ns"].sum() == waits.sum() > 0
    assert table["late_rank_ns"].sum() == absent["late_rank_ns"].sum()
    assert table["total_ns"].sum() == found["nccl"]["total_ns"].sum()
    # Collectives of a device are one after the other here.
    assert table["exposed_ns"].sum() == devices["nccl_alone_ns"].sum()
    assert table["overlapped_ns"].sum() == devices["nccl_covered_ns"].sum()
    assert (table["overlapped_blocking_ns"] <= table["overlapped_ns"]).all()
