"""The simulated run: the size of the cluster and of the run, its problems, and its clocks."""

import uuid
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

UTC_ZERO = 1_748_872_800_000_000_000
"""UTC at true time 0, ns: 2 June 2025, 14:00."""
AUTOGRAD_TID, WATCHDOG_TID, LOADER_TID = 31, 14, 47
"""Added to the pid for the tid of a thread; the tid of the main thread is the pid."""
FIRST_PID, PID_STEP = 41_200, 64
"""Every node has the same pids: they do not identify a process across hosts."""


@dataclass(frozen=True)
class SimulatedClock:
    """A host's clock: at true time t it shows `t + offset + t * drift_ppm / 1e6` (ns)."""

    offset: int
    drift_ppm: float

    def elapsed(self, time: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Time of the clock from true time 0 to true times, ns: with the drift, without the offset."""
        true = np.asarray(time, dtype=np.int64)
        gained: NDArray[np.int64] = np.rint(true * (self.drift_ppm * 1e-6)).astype(np.int64)
        return true + gained


@dataclass(frozen=True)
class Cluster:
    """A training run on several nodes: one process per GPU, one report per process."""

    # nodes, gpus_per_node: size of the cluster; ranks are counted node by node
    nodes: int = 2
    gpus_per_node: int = 4
    # iterations, layers: training steps, and layers of the model. A rank has about 65 events per layer and iteration, and 100
    # more.
    iterations: int = 20
    layers: int = 6
    seed: int = 1  # the same seed gives the same reports
    # slow_gpu, slow_factor: rank whose kernels take `slow_factor` times as long; None, or a rank that does not exist: none
    slow_gpu: int | None = 3
    slow_factor: float = 1.3
    # The gradient of the embedding, which the output layer shares, is reduced too: in one piece, after the backward pass. The
    # gradients of the layers are reduced during it.
    exposed_communication: bool = False
    data_loading_gap: bool = True  # in every fifth iteration the batch comes 12 ms late
    pageable_copies: bool = True  # batches are copied from pageable memory: slower, and the call waits for the copy
    allocations_in_loop: bool = False  # a cudaMalloc and a cudaFree in every iteration
    # clock_offsets_ns, clock_drifts_ppm: per host, how far its clock is ahead of true time at true time 0, and by how much it
    # is too fast; None: random, 12 to 60 ms and 1 to 9 ppm, in either direction
    clock_offsets_ns: tuple[int, ...] | None = None
    clock_drifts_ppm: tuple[float, ...] | None = None
    with_mpi: bool = True  # MPI events: barriers, a halo exchange and a reduction per iteration, ranks and communicators
    with_nccl: bool = True  # NCCL kernels and, with NVTX, NCCL's ranges
    # with_nvtx, with_os_calls: ranges and marks; calls of the operating system's libraries
    with_nvtx: bool = True
    with_os_calls: bool = True
    gpu_metrics_hz: int = 1000  # samples per second of each metric of the rank's GPU; 0: none
    jitter: float = 0.03  # relative standard deviation of the durations of kernels
    pause_ns: int = 0  # time between two iterations without events: a long run with few events
    late_ns: int = 1_200  # a collective ends on each rank at most so much later than on the first
    lost_collectives: float = 0.0  # share of the collectives that are missing from each report
    # Number of a node whose reports hold no collectives: nothing ties its clock to the others. None: no such node.
    lonely_host: int | None = None

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def slow_rank(self) -> int | None:
        """The rank with the slow GPU, None when all are equal."""
        return self.slow_gpu if self.slow_gpu is not None and 0 <= self.slow_gpu < self.ranks and self.slow_factor > 1 else None

    @cached_property
    def clocks(self) -> tuple[SimulatedClock, ...]:
        """The clock of each node."""
        random = np.random.default_rng([self.seed, 1])
        offsets = random.integers(12_000_000, 60_000_000, self.nodes) * random.choice([-1, 1], self.nodes)
        drifts = random.uniform(1, 9, self.nodes).round(3) * random.choice([-1, 1], self.nodes)
        return tuple(
            SimulatedClock(int(offset), float(drift))
            for offset, drift in zip(self.clock_offsets_ns or offsets, self.clock_drifts_ppm or drifts, strict=True)
        )

    @property
    def has_data_gap(self) -> NDArray[np.bool_]:
        """Per iteration, whether its batch comes late."""
        late = np.arange(self.iterations) % 5 == 3
        return late if self.data_loading_gap else np.zeros_like(late)

    def node(self, rank: int) -> int:
        """The node that a rank runs on."""
        return rank // self.gpus_per_node

    def local_rank(self, rank: int) -> int:
        """The number of a rank on its node, which is nsys' number of its GPU too."""
        return rank % self.gpus_per_node

    def host(self, rank: int) -> str:
        """The host that a rank runs on."""
        return f"gpu{self.node(rank) + 1:03d}"

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return FIRST_PID + PID_STEP * self.local_rank(rank)


def gpu_uuid(host: str, index: int) -> str:
    """The uuid of a GPU of a host: always the same, and unique."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"gpu{index}.{host}"))
