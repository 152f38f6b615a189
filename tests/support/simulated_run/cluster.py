"""The run that is simulated: its size, what its program is, and what is wrong with it."""

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
    """A run. All that makes it slow is absent unless it is given; times are ns."""

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
