"""The simulator obeys CUDA and NCCL: what waits for what on its devices."""

import pytest
from support.simulated_run.cluster import PATTERNS, Cluster
from support.simulated_run.records import LAUNCHED, STREAM
from support.simulated_run.truth import simulate


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
