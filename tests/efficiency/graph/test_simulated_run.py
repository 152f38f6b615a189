"""The simulator obeys CUDA, NCCL and MPI: small programs have the times that they must have, and reports contain them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.simulated_run import actions
from support.simulated_run.actions import COMPUTE, DEVICE_TO_HOST, Action, Communicator, Compute, Launch
from support.simulated_run.causes import CAUSES, SLOW_RANK, with_and_without
from support.simulated_run.cluster import DATA, HALO, PATTERNS, PIPELINE, TENSOR, Cluster
from support.simulated_run.engine import Recorded, execute
from support.simulated_run.machine import Machine
from support.simulated_run.records import EVENT, LAUNCHED, STREAM
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure

MACHINE = Machine(
    launch_call=5, copy_call=5, launch_latency=10, call=2, wake=3, between=1, event_latency=4, queue=None, thread_wake=20,
    eager=100, message_latency=50, message_bandwidth=1.0, end_spread=0,
)  # fmt: skip
PAIR = Communicator(1, (0, 1), bandwidth=1.0, latency=0)


def run(*ranks: list[Action], machine: Machine = MACHINE) -> Recorded:
    """Programs of ranks with one thread each."""
    return execute([{0: actions_of_rank} for actions_of_rank in ranks], machine, seed=1)


def on_devices(recorded: Recorded) -> list[tuple[int, int]]:
    return [(operation.start.time, operation.end.time) for operation in recorded.operations]


def on_hosts(recorded: Recorded) -> list[tuple[str, int, int]]:
    return [(call.name.partition("_v")[0], call.start, call.end.time) for call in recorded.calls]


def test_a_stream_waits_for_an_event_of_another_one_and_the_host_for_either() -> None:
    waits: list[Action] = [actions.SynchronizeEvent(1), actions.SynchronizeStream(9), actions.SynchronizeDevice()]
    recorded = run(
        [
            Launch("a", 100),
            actions.Record(1, COMPUTE),
            Launch("after the record", 1000),
            actions.StreamWait(1, 9),
            Launch("b", 10, stream=9),
            *waits,
        ]
    )

    assert on_devices(recorded) == [(10, 110), (111, 1111), (114, 124)]
    assert [operation.cause for operation in recorded.operations] == [LAUNCHED, STREAM, EVENT]
    assert on_hosts(recorded)[-3:] == [
        ("cudaEventSynchronize", 19, 113), ("cudaStreamSynchronize", 113, 127), ("cudaDeviceSynchronize", 127, 1114)
    ]  # fmt: skip


def test_a_wait_for_an_event_holds_over_a_record_without_work_between() -> None:
    chain: list[Action] = [
        Launch("a", 100), actions.Record(1, COMPUTE), actions.StreamWait(1, 9), actions.Record(2, 9), actions.StreamWait(2, 8),
        Launch("b", 10, stream=8),
    ]  # fmt: skip

    assert on_devices(run(chain)) == [(10, 110), (114, 124)]


def test_copies_block_the_host_where_they_are_synchronous_or_pageable() -> None:
    copies = [
        actions.Copy(8, 50, DEVICE_TO_HOST),
        actions.Copy(8, 50, DEVICE_TO_HOST, synchronous=True),
        actions.Copy(8, 50, DEVICE_TO_HOST, pageable=True),
    ]

    assert on_hosts(run([*copies])) == [
        ("cudaMemcpyAsync", 0, 5), ("cudaMemcpy", 5, 114), ("cudaMemcpyAsync", 114, 177)
    ]  # fmt: skip


def test_a_launch_waits_where_the_queue_is_full() -> None:
    recorded = run([Launch("a", 100) for _ in range(4)], machine=replace(MACHINE, queue=2))

    # The third one needs the place of the first, which starts at 10, and the fourth that of the second, which starts at 111.
    assert [(start, end) for _, start, end in on_hosts(recorded)] == [(0, 5), (5, 10), (10, 15), (15, 114)]
    assert on_devices(recorded)[-1] == (313, 413)


def test_a_collective_ends_after_its_last_member_has_arrived() -> None:
    reduce = actions.Collective(PAIR, "AllReduce", 1000)
    recorded = run([reduce], [Compute(5000), reduce])
    transfer = recorded.operations[0].meeting
    assert transfer is not None

    assert 900 < transfer.transfer < 1100
    assert on_devices(recorded) == [(1010, 6010 + transfer.transfer), (6010, 6010 + transfer.transfer)]
    assert transfer.last == (6010, 1)

    ideal = run([reduce], [Compute(5000), reduce], machine=replace(MACHINE, transfer_factor=0))
    assert on_devices(ideal) == [(1010, 6010), (6010, 6010)]
    alone = run([reduce], [Compute(5000), reduce], machine=replace(MACHINE, late_ranks_matter=False))
    assert on_devices(alone) == [(1010, 1010 + transfer.transfer), (6010, 6010 + transfer.transfer)]


def test_messages_of_mpi_wait_for_their_receiver_where_they_are_large() -> None:
    def exchanged(size: int) -> list[tuple[str, int, int]]:
        return on_hosts(
            run(
                [actions.MpiMessage("MPI_Send", 1, size)],
                [Compute(1000), actions.MpiMessage("MPI_Irecv", 0, size, request=7), Compute(10), actions.MpiWaitAll((7,))],
            )
        )

    assert exchanged(100) == [("MPI_Send", 0, 3), ("MPI_Irecv", 1000, 1002), ("MPI_Waitall", 1012, 1014)]
    assert exchanged(200) == [("MPI_Send", 0, 1253), ("MPI_Irecv", 1000, 1002), ("MPI_Waitall", 1012, 1253)]


def test_a_thread_is_woken_by_another_one() -> None:
    sleeps: list[Action] = [actions.WaitForSignal("go"), Launch("a", 10)]
    recorded = execute([{0: [Compute(100), actions.Signal("go")], 1: sleeps}], MACHINE, seed=1)

    assert on_hosts(recorded) == [
        ("pthread_cond_wait", 0, 120), ("pthread_cond_signal", 100, 102), ("cudaLaunchKernel", 120, 125)
    ]  # fmt: skip


# -- whole runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
def test_everything_starts_when_the_last_that_it_waits_for_lets_it(pattern: str) -> None:
    run = simulate(Cluster(pattern=pattern, nodes=2, gpus=2, iterations=2))
    machine = run.cluster.machine
    before: dict[tuple[int, int], int] = {}

    for operation in sorted(run.recorded.operations, key=lambda one: (one.call.start, one.call.correlation)):
        earliest = operation.call.start + machine.launch_latency
        start, stream = operation.start.time, (operation.rank, operation.stream)
        assert start >= max(earliest, before.get(stream, 0))
        assert (operation.awaited is None) == (operation.cause == LAUNCHED) == (start == earliest)
        if operation.awaited is not None:
            gap = machine.between if operation.cause == STREAM else machine.event_latency
            assert start == operation.awaited.end.time + gap
        if operation.meeting is None:
            assert operation.end.time == start + operation.ns
        else:
            last, _ = operation.meeting.last
            assert 0 <= operation.end.time - last - operation.meeting.transfer <= machine.end_spread
            assert operation.meeting.arrived[operation.rank] == start
            assert set(operation.meeting.arrived) == set(operation.meeting.communicator.ranks)
        before[stream] = operation.end.time


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_makes_a_run_longer(cause: str) -> None:
    slow, good = (simulate(cluster) for cluster in with_and_without(Cluster(gpus=3, iterations=2), cause))

    assert slow.length > 1.01 * good.length
    assert len(slow.lengths) == len(good.lengths)


@pytest.mark.parametrize(
    ("cause", "times", "expected"),
    [
        ("slow loading", 3, 5_000_000),
        ("late rank", 3, 3_000_000),
        # Once in each of four layers.
        ("slow kernels", 3 * 4, 120_000),
    ],
)
def test_what_nothing_hides_costs_what_it_is(cause: str, times: int, expected: int) -> None:
    slow, good = (simulate(cluster) for cluster in with_and_without(Cluster(iterations=3, jitter=0.0), cause))

    cost = slow.length - good.length
    assert 0.9 * times * expected < cost < 1.05 * times * expected


def test_a_slow_rank_is_the_last_one_of_every_collective() -> None:
    slow, _ = with_and_without(Cluster(), "slow GPU")

    meetings = {id(one.meeting): one.meeting for one in simulate(slow).recorded.operations if one.meeting}
    assert {meeting.last[1] for meeting in meetings.values()} == {SLOW_RANK}


# -- reports ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", [*(pytest.param(name, marks=pytest.mark.thorough) for name in (DATA, TENSOR)), PIPELINE, HALO]
)
def test_reports_contain_the_run(pattern: str, tmp_path: Path) -> None:
    run = simulate(Cluster(pattern=pattern, nodes=2, gpus=2 if pattern == TENSOR else 1, iterations=2))
    write_reports(run, tmp_path)

    result = measure([tmp_path], EfficiencyOptions(align="utc"))

    assert result.head["window"]["length_ns"] == run.length
    kernels = sum(operation.kind in ("kernel", "nccl") for operation in run.recorded.operations)
    assert result.kernels["count"].sum() == kernels


def test_communicators_are_those_of_the_program(tmp_path: Path) -> None:
    run = simulate(Cluster(pattern=TENSOR, nodes=2, gpus=2, iterations=2))
    write_reports(run, tmp_path)

    result = measure([tmp_path], EfficiencyOptions(align="utc"))

    assert sorted(result.nccl.select("operation", "ranks", "count").rows()) == [
        ("AllReduce", 2, 32), ("AllReduce", 2, 32), ("ReduceScatter", 2, 8), ("ReduceScatter", 2, 8)
    ]  # fmt: skip


def test_clocks_of_nodes_can_be_wrong(tmp_path: Path) -> None:
    cluster = Cluster(nodes=2, gpus=1, iterations=2)
    run = simulate(replace(cluster, clock_offsets=(0, 7_000_000), clock_drifts=(0.0, 5.0)))
    assert run.lengths == simulate(cluster).lengths
    write_reports(run, tmp_path)

    by_utc, aligned = (
        measure([tmp_path], EfficiencyOptions(align=align)).head["window"]["length_ns"] for align in ("utc", "auto")
    )
    assert by_utc - run.length > 4_000_000
    assert abs(aligned - run.length) < 10_000
