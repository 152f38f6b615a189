"""The programs of all ranks of a cluster."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from support.simulated_run import cluster as patterns
from support.simulated_run.actions import (
    COMPUTE,
    COPIES,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    NCCL,
    Action,
    Allocate,
    Clear,
    Collective,
    Communicator,
    Compute,
    Copy,
    Free,
    Launch,
    LaunchGraph,
    MpiCollective,
    MpiMessage,
    MpiWaitAll,
    Pop,
    Programs,
    Push,
    Record,
    Signal,
    StreamWait,
    SynchronizeEvent,
    SynchronizeStream,
    SystemCall,
    WaitForSignal,
)
from support.simulated_run.cluster import Cluster


class Kernel(NamedTuple):
    """A kernel: its name, its typical duration, its grid."""

    name: str
    ns: int
    grid: int


def _gemm(layout: str) -> str:
    return f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"


def _elementwise(functor: str) -> str:
    return (
        f"void at::native::vectorized_elementwise_kernel<(int)4, {functor}, std::array<char *, (unsigned long)2>>(int, T2, T3)"
    )


KERNELS = {
    "norm": Kernel(
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, T2, const T1 *)", 24_000, 4096
    ),
    "gemm": Kernel(_gemm("tn"), 170_000, 132),
    "attention": Kernel(
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128>, (bool)0>(flash::Flash_fwd_params)", 120_000, 1024
    ),
    "gelu": Kernel(_elementwise("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &)"), 36_000, 16_384),
    "gemm data": Kernel(_gemm("nn"), 165_000, 132),
    "gemm weight": Kernel(_gemm("nt"), 180_000, 132),
    "attention backward": Kernel(
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<(int)128>>(flash::Flash_bwd_params)",
        260_000, 1024,
    ),
    "gelu backward": Kernel(_elementwise("at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &)"), 48_000, 16_384),
    "adam": Kernel(
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)4>, "
        "at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4>>(T1, T2, T3...)",
        240_000, 320,
    ),
    "fill": Kernel(_elementwise("at::native::FillFunctor<float>"), 3_000, 64),
    "interior": Kernel("void stencil::interior_kernel<double>(stencil::Field, stencil::Field)", 420_000, 8192),
    "boundary": Kernel("void stencil::boundary_kernel<double>(stencil::Field, stencil::Field)", 60_000, 512),
    "residual": Kernel("void stencil::residual_kernel<double>(stencil::Field, double *)", 80_000, 1024),
}  # fmt: skip
FORWARD = ("norm", "gemm", "attention", "gemm", "gelu")
BACKWARD = ("gelu backward", "gemm data", "gemm weight", "attention backward", "gemm data", "gemm weight")
LARGE = frozenset({"gemm", "gemm data", "gemm weight", "interior"})
"""Kernels whose data migrate where memory is unified."""


MAIN, AUTOGRAD = 0, 1
"""Threads of a rank."""
BATCH, HALO_BYTES, RESULT = 8 << 20, 1 << 20, 8
_GRADIENTS, _ACTIVATIONS = 64 << 20, 8 << 20
_PINNED, _PAGEABLE, _HALO_COPY, _SMALL_COPY = 340_000, 1_100_000, 45_000, 1_600
_GRADIENTS_READY, _REDUCED, _BATCH_COPIED = 1, 2, 3
"""Events; those of pipelines and tensors follow."""
_FIRST_OF_PATTERN = 10
_INSIDE, _BETWEEN = (200.0, 10_000), (50.0, 16_000)
"""Bandwidth, bytes per ns, and latency of a communicator inside a node and of one between nodes."""
_WORLD, _NODE, _LOCAL, _PAIR, _MPI = (number << 40 for number in (1, 2, 3, 4, 5))
"""Where ids of communicators begin."""
_STREAM_OF_PAIR = 30


def programs(cluster: Cluster) -> Programs:
    """The actions of all threads of all ranks."""
    return [_RankProgram(cluster, rank).written() for rank in range(cluster.ranks)]


def communicators(cluster: Cluster) -> dict[str, Communicator]:
    """Communicators of all ranks, of NCCL and of MPI."""
    everyone = tuple(range(cluster.ranks))
    speed = _INSIDE if cluster.nodes == 1 else _BETWEEN
    return {"world": Communicator(_WORLD + 11, everyone, *speed), "mpi": Communicator(_MPI + 11, everyone, 10.0, 9_000)}


class _RankProgram:
    """Writes the actions of a rank."""

    def __init__(self, cluster: Cluster, rank: int) -> None:
        self.cluster, self.rank = cluster, rank
        self.threads: dict[int, list[Action]] = {MAIN: []}
        self.thread = MAIN
        self.kernels = np.random.default_rng([cluster.seed, 1, rank])
        self.hosts = np.random.default_rng([cluster.seed, 2, rank])
        self.world, self.mpi = communicators(cluster).values()
        node, local = cluster.node(rank), rank % cluster.gpus
        of_node = range(node * cluster.gpus, (node + 1) * cluster.gpus)
        self.node = Communicator(_NODE + 100 + node, tuple(of_node), *_INSIDE)
        self.local = Communicator(_LOCAL + 100 + local, tuple(range(local, cluster.ranks, cluster.gpus)), *_BETWEEN)
        self.launched: set[str] = set()

    def written(self) -> dict[int, list[Action]]:
        iteration: Mapping[str, Callable[[int], None]] = {
            patterns.DATA: self._data,
            patterns.TENSOR: self._tensor,
            patterns.PIPELINE: self._pipeline,
            patterns.HALO: self._halo,
        }
        start_up = Compute(self._drawn(self.cluster.start_up, self.hosts))
        self.add(Push("start up"), start_up, Allocate(180_000), Allocate(150_000), Pop())
        if self.cluster.pattern == patterns.HALO:
            self.add(MpiCollective("MPI_Barrier", self.mpi))
        for step in range(self.cluster.iterations):
            self.add(Push("iteration"))
            iteration[self.cluster.pattern](step)
            self.add(Pop(), Compute(4_000))
        return self.threads

    # -- pieces ---------------------------------------------------------------------------------------------------------

    def add(self, *actions: Action) -> None:
        """Add actions to the thread that is written."""
        self.threads.setdefault(self.thread, []).extend(actions)

    def _drawn(self, typical: float, random: np.random.Generator) -> int:
        return round(typical * float(np.exp(self.cluster.jitter * np.clip(random.standard_normal(), -3, 3))))

    def _device_factor(self) -> float:
        slow = self.cluster.slow_gpu
        return slow[1] if slow and slow[0] == self.rank else 1.0

    def kernel(self, key: str, *, stream: int = COMPUTE, factor: float = 1.0) -> None:
        """Launch a kernel, after the host has computed for a time."""
        cluster, known = self.cluster, KERNELS[key]
        length = self._drawn(known.ns * factor, self.kernels) * cluster.kernel_factor * self._device_factor()
        if cluster.slow_kernel and cluster.slow_kernel[0] == key:
            length *= cluster.slow_kernel[1]
        if cluster.unequal and cluster.unequal[0] == key and self.rank in cluster.unequal[2]:
            length *= cluster.unequal[1]
        pages, of_page = cluster.migrations if cluster.migrations and key in LARGE else (0, 0)
        first = known.name not in self.launched
        self.launched.add(known.name)
        self.add(
            Compute(self._drawn(cluster.host, self.hosts)),
            Launch(
                known.name, round(length) + pages * of_page, stream, known.grid,
                call_ns=cluster.lazy_loading if first else 0, migrations=pages, migration_ns=of_page,
            ),
        )  # fmt: skip

    def layer(self, keys: Iterable[str], *, factor: float = 1.0) -> None:
        """The kernels of a layer, with what is done around them."""
        cluster = self.cluster
        if cluster.allocations:
            self.add(Allocate(cluster.allocations[0]))
        for key in keys:
            self.kernel(key, factor=factor)
        if cluster.results:
            self.copy(RESULT, _SMALL_COPY, DEVICE_TO_HOST, synchronous=cluster.results == patterns.SYNCHRONOUS)
            self.add(Compute(80_000))
        if cluster.allocations:
            self.add(Free(cluster.allocations[1]))

    def copy(
        self, size: int, typical: int, kind: int, *, stream: int = COMPUTE, synchronous: bool = False, pageable: bool = False
    ) -> None:
        """Copy, after the host has computed for a short time."""
        length = round(typical * self._device_factor())
        self.add(Compute(2_000), Copy(size, length, kind, stream, synchronous, pageable))

    def load(self, step: int) -> None:
        """Wait for the next batch and copy it to the device."""
        cluster = self.cluster
        longer = cluster.slow_loading
        late = longer[1] if longer and (not longer[0] or self.rank in longer[0]) and step % 4 != 3 else 0
        self.add(Push("load data"), Compute(3_000))
        self.add(SystemCall("poll", self._drawn(cluster.loading, self.hosts) + late), Compute(2_000), Pop())
        pageable = cluster.pageable_copies and step % 4 != 3
        self.copy(BATCH, _PAGEABLE if pageable else _PINNED, HOST_TO_DEVICE, stream=COPIES, pageable=pageable)
        self.add(Record(_BATCH_COPIED, COPIES), StreamWait(_BATCH_COPIED, COMPUTE))

    def be_late(self, step: int) -> None:
        """What the host of the late rank computes."""
        cluster = self.cluster
        if cluster.late_rank is None:
            return
        rank, longer = cluster.late_rank
        if self.rank == (rank + step * cluster.rotating) % cluster.ranks:
            self.add(Push("preprocess"), Compute(longer), Pop())

    def ahead(self) -> None:
        """Many small kernels, launched in one go."""
        known = KERNELS["fill"]
        for _ in range(self.cluster.launches_ahead):
            length = self._drawn(known.ns * 4, self.kernels) * self._device_factor()
            self.add(Compute(300), Launch(known.name, round(length), COMPUTE, known.grid))
        if self.cluster.launches_ahead:
            self.add(Push("prepare"), Compute(20_000_000), Pop())

    def optimizer(self) -> None:
        """Update the parameters: some kernels, or graphs of the same work."""
        graphs = self.cluster.small_graphs
        self.add(Push("optimizer"))
        if graphs:
            whole = 3 * KERNELS["adam"].ns * self.cluster.kernel_factor * self._device_factor()
            for _ in range(graphs):
                self.add(Compute(self._drawn(self.cluster.host, self.hosts)), LaunchGraph(round(whole / graphs)))
        else:
            for _ in range(3):
                self.kernel("adam")
        self.add(Pop())

    def end_of_iteration(self) -> None:
        """The host reads the loss."""
        self.ahead()
        self.copy(RESULT, _SMALL_COPY, DEVICE_TO_HOST)
        self.add(Push("read loss"), SynchronizeStream(COMPUTE), Pop())

    def reduce(self, communicator: Communicator, operation: str, size: int, event: int) -> None:
        """A collective after what is on the stream of kernels."""
        self.add(Record(event, COMPUTE), StreamWait(event, NCCL), Compute(2_000), Collective(communicator, operation, size))

    # -- programs -------------------------------------------------------------------------------------------------------

    def _data(self, step: int) -> None:
        cluster = self.cluster
        self.be_late(step)
        self.load(step)
        self.add(Clear(_GRADIENTS, 40_000), Push("forward"))
        for _ in range(cluster.layers):
            self.layer(FORWARD)
        self.add(Pop(), Signal("backward"))

        self.thread = AUTOGRAD
        self.add(WaitForSignal("backward"), Push("backward"))
        for layer in range(cluster.layers):
            self.layer(BACKWARD)
            if (layer + 1) * cluster.buckets // cluster.layers > layer * cluster.buckets // cluster.layers:
                self.reduce(self.world, "AllReduce", _GRADIENTS // cluster.buckets, _GRADIENTS_READY)
        self.add(Pop(), Signal("backward is done"))

        self.thread = MAIN
        self.add(WaitForSignal("backward is done"), Record(_REDUCED, NCCL), StreamWait(_REDUCED, COMPUTE))
        self.optimizer()
        self.end_of_iteration()

    def _tensor(self, step: int) -> None:
        cluster = self.cluster
        self.be_late(step)
        self.load(step)
        for keys in (FORWARD, BACKWARD):
            self.add(Push("forward" if keys is FORWARD else "backward"))
            for _ in range(cluster.layers):
                self.layer(keys)
                self.reduce(self.node, "AllReduce", _ACTIVATIONS, _FIRST_OF_PATTERN)
                self.add(Record(_REDUCED, NCCL), StreamWait(_REDUCED, COMPUTE))
            self.add(Pop())
        if cluster.nodes > 1:
            for _ in range(cluster.buckets):
                self.reduce(self.local, "ReduceScatter", _GRADIENTS // cluster.buckets // cluster.nodes, _GRADIENTS_READY)
            self.add(Record(_REDUCED, NCCL), StreamWait(_REDUCED, COMPUTE))
        self.optimizer()
        self.end_of_iteration()

    def _pipeline(self, step: int) -> None:
        first, last = self.rank == 0, self.rank == self.cluster.ranks - 1
        self.be_late(step)
        if first:
            self.load(step)
        for forward in (True, False):
            before, after = (self.rank - 1, self.rank + 1) if forward else (self.rank + 1, self.rank - 1)
            begins, ends = (first, last) if forward else (last, first)
            self.add(Push("forward" if forward else "backward"))
            for _ in range(self.cluster.batches):
                if not begins:
                    self._pass_on(before, "Recv")
                for _ in range(self.cluster.layers):
                    self.layer(FORWARD if forward else BACKWARD, factor=1 / self.cluster.batches)
                if not ends:
                    self._pass_on(after, "Send")
            self.add(Pop())
        self.optimizer()
        self.end_of_iteration()

    def _pass_on(self, partner: int, operation: str) -> None:
        """Send to, or receive from, the stage beside this one."""
        source, target = (self.rank, partner) if operation == "Send" else (partner, self.rank)
        pair = tuple(sorted((source, target)))
        inside = self.cluster.node(source) == self.cluster.node(target)
        # A communicator, a stream and an event for each direction, so that sends and receives don't wait for each other.
        number = 2 * pair[0] + (source > target)
        communicator = Communicator(_PAIR + 100 + number, pair, *(_INSIDE if inside else _BETWEEN))
        stream, event = _STREAM_OF_PAIR + number, _FIRST_OF_PATTERN + number
        if operation == "Send":
            self.add(Record(event, COMPUTE), StreamWait(event, stream))
        self.add(Compute(2_000), Collective(communicator, operation, _ACTIVATIONS, stream))
        if operation == "Recv":
            self.add(Record(event, stream), StreamWait(event, COMPUTE))

    def _halo(self, step: int) -> None:
        cluster, ranks = self.cluster, self.cluster.ranks
        self.be_late(step)
        if cluster.slow_loading:
            self.load(step)
        for _ in range(cluster.layers):
            self.layer(("boundary",))
            self.copy(HALO_BYTES, _HALO_COPY, DEVICE_TO_HOST)
            self.add(Record(_FIRST_OF_PATTERN, COMPUTE))
            self.kernel("interior")
            self.add(SynchronizeEvent(_FIRST_OF_PATTERN), Push("exchange"))
            left, right = (self.rank - 1) % ranks, (self.rank + 1) % ranks
            self.add(
                MpiMessage("MPI_Irecv", left, HALO_BYTES, 1, 0), MpiMessage("MPI_Irecv", right, HALO_BYTES, 2, 1),
                MpiMessage("MPI_Isend", right, HALO_BYTES, 1, 2), MpiMessage("MPI_Isend", left, HALO_BYTES, 2, 3),
                MpiWaitAll((0, 1, 2, 3)), Pop(),
            )  # fmt: skip
            self.copy(HALO_BYTES, _HALO_COPY, HOST_TO_DEVICE)
        self.kernel("residual")
        self.end_of_iteration()
        if cluster.late_for_reduction and cluster.late_for_reduction[0] == self.rank:
            self.add(Push("statistics"), Compute(cluster.late_for_reduction[1]), Pop())
        self.add(MpiCollective("MPI_Allreduce", self.mpi))
