"""What is known of a simulated run: all that happened in true time, and why."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from support.simulated_run.cluster import Cluster
from support.simulated_run.engine import Recorded, execute
from support.simulated_run.programs import programs
from support.simulated_run.records import HostCall, Operation, Range


@dataclass
class SimulatedRun:
    """A run: its cluster and what was recorded, in true time, ns."""

    cluster: Cluster
    recorded: Recorded = field(repr=False)

    @cached_property
    def window(self) -> tuple[int, int]:
        """Start of the first and end of the last event of the reports."""
        recorded = self.recorded
        hosts: list[HostCall | Range] = [*recorded.calls, *recorded.ranges]
        ends = [one.end.time for one in hosts] + [operation.end.time for operation in recorded.operations]
        return min(one.start for one in hosts), max(ends)

    @property
    def length(self) -> int:
        """Of the window."""
        return self.window[1] - self.window[0]

    @cached_property
    def iterations(self) -> list[list[tuple[int, int]]]:
        """Of each rank: start and end of each iteration, as its NVTX range."""
        found = defaultdict(list)
        for one in self.recorded.ranges:
            if one.name == "iteration":
                found[one.rank].append((one.start, one.end.time))
        return [sorted(found[rank]) for rank in range(self.cluster.ranks)]

    @property
    def lengths_on_devices(self) -> list[int]:
        """Of each iteration on the devices: from the first start of its work on any to where the last one begins the next; the
        last iteration ends with its work."""
        spans = [self._on_device(rank) for rank in range(self.cluster.ranks)]
        return [max(end for _, end in step) - min(start for start, _ in step) for step in zip(*spans, strict=True)]

    def _on_device(self, rank: int) -> list[tuple[int, int]]:
        launched = sorted((one.call.start, one.start.time, one.end.time) for one in self.operations_of(rank))
        begins = [begin for begin, _ in self.iterations[rank]]
        starts = [min(start for call, start, _ in launched if call >= begin) for begin in begins]
        return list(zip(starts, [*starts[1:], max(end for _, _, end in launched)], strict=True))

    def operations_of(self, rank: int) -> list[Operation]:
        """Operations of a rank, in the order of their starts."""
        of_rank = [operation for operation in self.recorded.operations if operation.rank == rank]
        return sorted(of_rank, key=lambda operation: (operation.start.time, operation.end.time))


def simulate(cluster: Cluster) -> SimulatedRun:
    """Execute the programs of a cluster; the same cluster gives the same times."""
    return SimulatedRun(cluster, execute(programs(cluster), cluster.machine, cluster.seed))
