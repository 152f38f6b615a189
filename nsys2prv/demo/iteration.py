"""One iteration of the training loop: the calls of a process, their threads, and the work that they put on streams.

It is built once and repeated for every iteration and rank; it has no absolute times.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nsys2prv.demo import kernel_catalogue
from nsys2prv.demo.kernel_catalogue import Kernel
from nsys2prv.demo.scenario import Cluster

MAIN, AUTOGRAD = 0, 1
"""Threads that call CUDA: PyTorch launches the backward pass from a separate thread."""

BATCH_BYTES, LOSS_BYTES, GRADIENT_BYTES, EMBEDDING_BYTES = 4 << 20, 4, 96 << 20, 288 << 20
_PINNED_NS, _PAGEABLE_NS = 165_000, 590_000
"""Time to copy BATCH_BYTES to the device: about 25 and 7 GB/s."""


class Work(Enum):
    """Work of a call on the device."""

    NONE = 0
    KERNEL = 1
    COPY_IN = 2
    COPY_OUT = 3
    MEMSET = 4
    COLLECTIVE = 5


@dataclass(frozen=True)
class Call:
    """An API call.

    Attributes
    ----------
    name
        As nsys writes it, version suffix included.
    thread
        MAIN or AUTOGRAD.
    duration, gap
        Typical length of the call, and of the time before it, ns.
    work
        Its work on a stream: collectives on NCCL's, the rest on the default one.
    kernel
        The kernel, for KERNEL and COLLECTIVE.
    length
        Typical time on the device, ns.
    bytes
        Size of a copy, memset or message.
    optimizer
        Whether it comes after the collectives of the iteration.
    """

    name: str
    thread: int
    duration: int = 5_500
    gap: int = 14_000
    work: Work = Work.NONE
    kernel: Kernel | None = None
    length: int = 0
    bytes: int = 0
    optimizer: bool = False


@dataclass(frozen=True)
class Region:
    """An NVTX range from the first to the last of some calls, `depth` ranges deep on its thread."""

    name: str
    thread: int
    first: int
    last: int
    depth: int


class Iteration:
    """The calls of an iteration, in order of time, and the ranges around them.

    Attributes
    ----------
    calls
        All calls; the last one is the synchronization that ends the iteration.
    regions
        NVTX ranges of the default domain, without the one of the whole iteration.
    computing
        Indices of the calls that put work on the default stream, in order.
    optimizer_from
        Position in `computing` of the first work that waits for the collectives.
    collectives
        Indices of the calls that launch NCCL kernels.
    after
        Per collective, position in `computing` of the work that it waits for.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.calls: list[Call] = []
        self.regions: list[Region] = []
        self._batch(cluster)
        self._forward(cluster)
        self._backward(cluster)
        self._optimizer()
        self.computing = np.array(
            [index for index, call in enumerate(self.calls) if call.work not in (Work.NONE, Work.COLLECTIVE)], dtype=np.int64
        )
        self.collectives = np.array(
            [index for index, call in enumerate(self.calls) if call.work is Work.COLLECTIVE], dtype=np.int64
        )
        self.optimizer_from = next(position for position, index in enumerate(self.computing) if self.calls[index].optimizer)
        self.after = np.searchsorted(self.computing, self.collectives) - 1

    def positions(self, *works: Work) -> NDArray[np.int64]:
        """Positions in `computing` of some kinds of work."""
        kinds = [self.calls[index].work for index in self.computing]
        return np.array([position for position, work in enumerate(kinds) if work in works], dtype=np.int64)

    def indices(self, name: str) -> NDArray[np.int64]:
        """Indices of the calls of a name."""
        return np.array([index for index, call in enumerate(self.calls) if call.name == name], dtype=np.int64)

    def _batch(self, cluster: Cluster) -> None:
        if cluster.allocations_in_loop:
            self.calls.append(Call("cudaMalloc_v3020", MAIN, 410_000))
        first = len(self.calls)
        length = _PAGEABLE_NS if cluster.pageable_copies else _PINNED_NS
        # From pageable memory the driver copies through a pinned buffer: the call lasts as long as the copy.
        duration = length + 12_000 if cluster.pageable_copies else 7_000
        for _ in ("tokens", "labels"):
            self.calls.append(
                Call("cudaMemcpyAsync_v3020", MAIN, duration, 20_000, Work.COPY_IN, length=length, bytes=BATCH_BYTES)
            )
        self.regions.append(Region("copy batch", MAIN, first, len(self.calls) - 1, 2))
        self.calls.append(Call("cudaMemsetAsync_v3020", MAIN, 4_500, work=Work.MEMSET, length=42_000, bytes=GRADIENT_BYTES))

    def _forward(self, cluster: Cluster) -> None:
        first = len(self.calls)
        self._launch(MAIN, kernel_catalogue.EMBEDDING)
        for layer in range(cluster.layers):
            self._layer(f"layer {layer}", MAIN, kernel_catalogue.FORWARD_LAYER, 3)
        self._layer("loss", MAIN, kernel_catalogue.FORWARD_HEAD, 3)
        self.regions.append(Region("forward", MAIN, first, len(self.calls) - 1, 2))

    def _backward(self, cluster: Cluster) -> None:
        first = len(self.calls)
        self._layer("loss backward", AUTOGRAD, kernel_catalogue.BACKWARD_HEAD, 2)
        for layer in reversed(range(cluster.layers)):
            self._layer(f"layer {layer} backward", AUTOGRAD, kernel_catalogue.BACKWARD_LAYER, 2)
            if cluster.with_nccl:
                self._reduce(AUTOGRAD, kernel_catalogue.ALLREDUCE_GRADIENTS, GRADIENT_BYTES)
        self._launch(AUTOGRAD, kernel_catalogue.EMBEDDING_BACKWARD)
        if cluster.with_nccl and cluster.exposed_communication:
            self._reduce(AUTOGRAD, kernel_catalogue.ALLREDUCE_EMBEDDING, EMBEDDING_BYTES)
        self.regions.append(Region("backward", AUTOGRAD, first, len(self.calls) - 1, 1))

    def _optimizer(self) -> None:
        first = len(self.calls)
        if any(call.work is Work.COLLECTIVE for call in self.calls):
            self._reduce(MAIN, kernel_catalogue.ALLREDUCE_LOSS, LOSS_BYTES)
            first = len(self.calls)
            self.calls.append(Call("cudaStreamWaitEvent_v3020", MAIN, 1_600))
        for kernel in kernel_catalogue.OPTIMIZER:
            self._launch(MAIN, kernel, optimizer=True)
        self.regions.append(Region("optimizer", MAIN, first, len(self.calls) - 1, 2))
        self.calls.append(
            Call("cudaMemcpyAsync_v3020", MAIN, 7_500, work=Work.COPY_OUT, length=1_700, bytes=LOSS_BYTES, optimizer=True)
        )
        self.calls.append(Call("cudaStreamSynchronize_v3020", MAIN, 6_000))

    def _layer(self, name: str, thread: int, launched: tuple[Kernel, ...], depth: int) -> None:
        first = len(self.calls)
        for kernel in launched:
            self._launch(thread, kernel)
        self.regions.append(Region(name, thread, first, len(self.calls) - 1, depth))

    def _launch(self, thread: int, kernel: Kernel, *, optimizer: bool = False) -> None:
        name = "cuLaunchKernelEx" if kernel.driver else "cudaLaunchKernel_v7000"
        self.calls.append(Call(name, thread, work=Work.KERNEL, kernel=kernel, length=kernel.duration, optimizer=optimizer))

    def _reduce(self, thread: int, kernel: Kernel, size: int) -> None:
        self.calls.append(Call("cudaEventRecord_v3020", thread, 1_900))
        self.calls.append(Call("cudaStreamWaitEvent_v3020", thread, 1_600))
        self.calls.append(Call("cuLaunchKernelEx", thread, 8_000, 19_000, Work.COLLECTIVE, kernel, kernel.duration, size))
