"""The run that is simulated: its size, what its program is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.simulated_run.machine import Machine

DATA, TENSOR, PIPELINE, HALO = PATTERNS = ("data", "tensor", "pipeline", "halo")
"""Programs.

- `data`: training with data parallelism. A second thread launches the backward pass; gradients are reduced in buckets over all
  ranks meanwhile.
- `tensor`: tensor parallelism inside a node, with a reduction per layer that the layer after it needs, and data parallelism
  over nodes at the end of an iteration.
- `pipeline`: each rank is a stage; micro-batches go forward, then backward, by sends and receives.
- `halo`: a solver with MPI: halos are copied to the host, exchanged with the two neighbours of a ring, and copied back; the
  residual is reduced with MPI_Allreduce.
"""

ASYNCHRONOUS, SYNCHRONOUS = "asynchronous", "synchronous"


@dataclass(frozen=True)
class Cluster:
    """A run. All that makes it slow is absent unless it is given; times are ns.

    Attributes
    ----------
    pattern
        One of PATTERNS.
    nodes, gpus
        Nodes, and GPUs of each: one rank per GPU.
    iterations, layers, buckets, batches
        Iterations; layers of the model; collectives for the gradients; micro-batches of a pipeline.
    seed
        The same seed draws the same durations, whatever else is changed.
    jitter
        Relative spread of durations of kernels and of the host.
    machine
        Costs of calls, streams and the network.
    loading
        Time to load a batch.
    host
        Time of the host before each launch.
    kernel_factor
        All kernels take so many times as long.
    late_rank, rotating
        A rank, and what its host computes at the start of each iteration before it launches; rotating: it is another rank in
        each iteration.
    slow_kernel
        Key of a kernel (`kernels.KERNELS`), and its factor on all ranks.
    slow_gpu
        A rank, and the factor of its kernels and copies.
    slow_loading
        Ranks (none: all), and what loading takes longer in each iteration; in the first three of four iterations.
    unequal
        Key of a kernel, its factor, and the ranks where it has it.
    results
        The result of each layer is copied to the host, ASYNCHRONOUS or SYNCHRONOUS, and the host computes for 80 us.
    pageable_copies
        Batches are copied from pageable memory; in the first three of four iterations.
    allocations
        Of each layer: what cudaMalloc before it and cudaFree after it take.
    lazy_loading
        What the first launch of each kernel takes longer.
    migrations
        Pages that migrate before each large kernel, and the time of each.
    small_graphs
        The optimizer is so many graphs; 1: one, of the same time.
    launches_ahead
        So many more small kernels are launched in each iteration in one go, and then the host computes for 20 ms: with 1,024
        and more the queue of the stream is full.
    late_for_reduction
        A rank, and what its host computes before it calls MPI_Allreduce.
    start_up
        What the hosts compute before the first iteration.
    clock_offsets, clock_drifts
        Of the clock of each node, ns and ppm.
    event_ids
        Whether the reports have `eventSyncId`, as in new schemas.
    """

    pattern: str = DATA
    nodes: int = 1
    gpus: int = 4
    iterations: int = 6
    layers: int = 4
    buckets: int = 2
    batches: int = 4
    seed: int = 1
    jitter: float = 0.03
    machine: Machine = field(default_factory=Machine)
    loading: int = 150_000
    host: int = 6_000
    kernel_factor: float = 1.0
    late_rank: tuple[int, int] | None = None
    rotating: bool = False
    slow_kernel: tuple[str, float] | None = None
    slow_gpu: tuple[int, float] | None = None
    slow_loading: tuple[tuple[int, ...], int] | None = None
    unequal: tuple[str, float, tuple[int, ...]] | None = None
    results: str | None = None
    pageable_copies: bool = False
    allocations: tuple[int, int] | None = None
    lazy_loading: int = 0
    migrations: tuple[int, int] | None = None
    small_graphs: int = 0
    launches_ahead: int = 0
    late_for_reduction: tuple[int, int] | None = None
    start_up: int = 20_000_000
    clock_offsets: tuple[int, ...] | None = None
    clock_drifts: tuple[float, ...] | None = None
    event_ids: bool = True

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    def node(self, rank: int) -> int:
        """The node of a rank."""
        return rank // self.gpus
