"""One iteration of the training loop: the calls of a process, their threads, and the work that they put on streams.

Kernels are those of a transformer: names and launch configurations are like those of PyTorch 2 on an H100, durations those of a
layer 4096 wide. An iteration is built once and repeated for every iteration and rank; it has no absolute times."""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nsys2prv.demo.scenario import Cluster

_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<(int)4, {}, std::array<char *, (unsigned long){}>>(int, T2, T3)"
_XMMA = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize{}_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
_CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{}>(T1::Params)"
_FLASH_TRAITS = "<(int)128, (int)128, (int)64, (int)4, cutlass::bfloat16_t>"
_MULTI_TENSOR = (
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int){}>, "
    "at::native::<unnamed>::{}>(T1, T2, T3...)"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel and its use of a GPU."""

    name: str  # demangled name
    duration: int  # typical length, ns
    # grid, block: blocks, and threads per block, in x
    grid: int = 2048
    block: int = 128
    registers: int = 32  # registers per thread
    shared: int = 0  # dynamic shared memory per block, bytes
    # tensor, issue, dram_read, dram_write: "Tensor Active", "SM Issue", "DRAM Read Throughput", "DRAM Write Throughput" while
    # it runs, percent
    tensor: int = 0
    issue: int = 25
    dram_read: int = 60
    dram_write: int = 30
    driver: bool = False  # launched through the driver API (cuLaunchKernelEx) and not through the runtime


def _gemm(layout: str, tile: str, duration: int, grid: int) -> Kernel:
    name = _XMMA.format(layout, tile)
    return Kernel(name, duration, grid, 384, 168, 213_000, tensor=82, issue=40, dram_read=25, dram_write=12, driver=True)


def _elementwise(functor: str, arrays: int, duration: int) -> Kernel:
    return Kernel(_ELEMENTWISE.format(functor, arrays), duration, grid=16384)


EMBEDDING = Kernel("void at::native::<unnamed>::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, (int)2>(T1)", 48_000)
LAYER_NORM = Kernel(
    "void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2, const T1 *)", 24_000
)
QKV = _gemm("tn", "128x256x64", 172_000, 132)
FLASH_FORWARD = Kernel(
    f"void flash::flash_fwd_kernel<Flash_fwd_kernel_traits{_FLASH_TRAITS}, (bool)0, (bool)1>(flash::Flash_fwd_params)",
    148_000, 1024, 128, 255, 81_920, tensor=48, issue=45, dram_read=12, dram_write=6,
)  # fmt: skip
PROJECTION = _gemm("tn", "128x128x64", 62_000, 264)
UP = _gemm("tn", "256x128x64", 228_000, 132)
GELU = _elementwise("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &)::[lambda(c10::BFloat16) (instance 1)]", 2, 38_000)
DOWN = Kernel(
    _CUTLASS.format("128x256_32x3_tn_align8"), 231_000, 528, 256, 234, 73_728, tensor=64, issue=38, dram_read=22, dram_write=10
)
RESIDUAL = _elementwise("at::native::CUDAFunctor_add<c10::BFloat16>", 3, 21_000)
LOGITS = _gemm("tn", "128x256x64", 410_000, 132)
SOFTMAX = Kernel(
    "void at::native::<unnamed>::cunn_SoftMaxForward<(int)8, c10::BFloat16, float, float, "
    "at::native::<unnamed>::LogSoftMaxForwardEpilogue>(T4 *, const T2 *, int)",
    96_000, 4096, 1024, 40, 4096,
)  # fmt: skip
LOSS = Kernel(
    "void at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(T1 *, T1 *)", 9_000, 1, 32, 30
)
LOSS_MEAN = Kernel(
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float, "
    "float, float>, unsigned int, float, (int)4, (int)4>>(T3)",
    6_000, 1, 512, 32, 16,
)  # fmt: skip

LOSS_BACKWARD = Kernel(
    "void at::native::<unnamed>::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(T1 *)", 8_000, 1, 32, 30
)
SOFTMAX_BACKWARD = Kernel(
    "void at::native::<unnamed>::cunn_SoftMaxBackward<(int)8, c10::BFloat16, float, float, "
    "at::native::<unnamed>::LogSoftMaxBackwardEpilogue>(T1 *, const T3 *, const T3 *, int)",
    118_000, 4096, 1024, 40, 4096,
)  # fmt: skip
LOGITS_DATA = _gemm("nn", "128x256x64", 398_000, 132)
LOGITS_WEIGHT = _gemm("nt", "128x256x64", 421_000, 132)
GELU_BACKWARD = _elementwise(
    "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &)::[lambda(float) (instance 1)]", 3, 52_000
)
DOWN_DATA = _gemm("nn", "128x256x64", 226_000, 132)
DOWN_WEIGHT = _gemm("nt", "128x256x64", 239_000, 132)
UP_DATA = _gemm("nn", "256x128x64", 224_000, 132)
UP_WEIGHT = _gemm("nt", "256x128x64", 236_000, 132)
LAYER_NORM_BACKWARD = Kernel(
    "void at::native::<unnamed>::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(const T1 *, const T1 *)", 33_000
)
LAYER_NORM_WEIGHT = Kernel(
    "void at::native::<unnamed>::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float, (unsigned int)64>(long, long)",
    19_000,
    64,
)
PROJECTION_DATA = _gemm("nn", "128x128x64", 60_000, 264)
PROJECTION_WEIGHT = _gemm("nt", "128x128x64", 66_000, 264)
FLASH_DOT = Kernel("void flash::flash_bwd_dot_do_o_kernel<(bool)1>(flash::Flash_bwd_params)", 17_000, 512, 128, 48)
FLASH_BACKWARD = Kernel(
    f"void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits{_FLASH_TRAITS}>"
    "(flash::Flash_bwd_params)",
    382_000, 1024, 256, 255, 144_384, tensor=41, issue=42, dram_read=10, dram_write=8,
)  # fmt: skip
FLASH_CONVERT = Kernel("void flash::flash_bwd_convert_dq_kernel(flash::Flash_bwd_params, int)", 14_000, 512, 128, 40)
QKV_DATA = _gemm("nn", "128x256x64", 169_000, 132)
QKV_WEIGHT = _gemm("nt", "128x256x64", 181_000, 132)
EMBEDDING_BACKWARD = Kernel(
    "void at::native::<unnamed>::embedding_backward_feature_kernel<c10::BFloat16, float, long>(const T3 *, const T1 *, T1 *)",
    61_000,
)

GRADIENT_NORM = Kernel(
    _MULTI_TENSOR.format(1, "LpNormFunctor<float, (at::native::NormType)1, float, (int)1>"), 74_000, 320, 512
)
GRADIENT_SCALE = Kernel(_MULTI_TENSOR.format(1, "BinaryOpScalarTensorFunctor<float, (int)1, (int)1, (int)0>"), 88_000, 320, 512)
ADAM = Kernel(
    _MULTI_TENSOR.format(4, "FusedAdamMathFunctor<float, (int)4, (at::native::ADAM_MODE)1, (bool)0>"), 296_000, 320, 512,
    dram_read=72, dram_write=55,
)  # fmt: skip

FORWARD_LAYER = (LAYER_NORM, QKV, FLASH_FORWARD, PROJECTION, RESIDUAL, LAYER_NORM, UP, GELU, DOWN, RESIDUAL)
FORWARD_HEAD = (LAYER_NORM, LOGITS, SOFTMAX, LOSS, LOSS_MEAN)
BACKWARD_HEAD = (LOSS_BACKWARD, SOFTMAX_BACKWARD, LOGITS_DATA, LOGITS_WEIGHT, LAYER_NORM_BACKWARD)
BACKWARD_LAYER = (
    *(RESIDUAL, DOWN_DATA, DOWN_WEIGHT, GELU_BACKWARD, UP_DATA, UP_WEIGHT, LAYER_NORM_BACKWARD, LAYER_NORM_WEIGHT),
    *(PROJECTION_DATA, PROJECTION_WEIGHT, FLASH_DOT, FLASH_BACKWARD, FLASH_CONVERT),
    *(QKV_DATA, QKV_WEIGHT, LAYER_NORM_BACKWARD, LAYER_NORM_WEIGHT, RESIDUAL),
)
OPTIMIZER = (GRADIENT_NORM, GRADIENT_SCALE, ADAM, ADAM, ADAM)

_NCCL_ARGUMENTS = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ALLREDUCE_GRADIENTS = Kernel(
    f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{_NCCL_ARGUMENTS}", 850_000, 24, 544, 96, issue=8, dram_read=15, dram_write=12,
    driver=True,
)  # fmt: skip
ALLREDUCE_EMBEDDING = replace(ALLREDUCE_GRADIENTS, duration=2_600_000)
ALLREDUCE_LOSS = Kernel(
    f"ncclDevKernel_AllReduce_Sum_f32_RING_LL{_NCCL_ARGUMENTS}", 22_000, 1, 544, 96, issue=4, dram_read=1, dram_write=1,
    driver=True,
)  # fmt: skip
BROADCAST = replace(
    ALLREDUCE_GRADIENTS, name=f"ncclDevKernel_Broadcast_RING_LL{_NCCL_ARGUMENTS}", duration=1_900_000, dram_read=10
)


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
    """An API call."""

    name: str  # as nsys writes it, version suffix included
    thread: int  # MAIN or AUTOGRAD
    # duration, gap: typical length of the call, and of the time before it, ns
    duration: int = 5_500
    gap: int = 14_000
    work: Work = Work.NONE  # its work on a stream: collectives on NCCL's, the rest on the default one
    kernel: Kernel | None = None  # the kernel, for KERNEL and COLLECTIVE
    length: int = 0  # typical time on the device, ns
    bytes: int = 0  # size of a copy, memset or message
    optimizer: bool = False  # whether it comes after the collectives of the iteration


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
        self._launch(MAIN, EMBEDDING)
        for layer in range(cluster.layers):
            self._layer(f"layer {layer}", MAIN, FORWARD_LAYER, 3)
        self._layer("loss", MAIN, FORWARD_HEAD, 3)
        self.regions.append(Region("forward", MAIN, first, len(self.calls) - 1, 2))

    def _backward(self, cluster: Cluster) -> None:
        first = len(self.calls)
        self._layer("loss backward", AUTOGRAD, BACKWARD_HEAD, 2)
        for layer in reversed(range(cluster.layers)):
            self._layer(f"layer {layer} backward", AUTOGRAD, BACKWARD_LAYER, 2)
            if cluster.with_nccl:
                self._reduce(AUTOGRAD, ALLREDUCE_GRADIENTS, GRADIENT_BYTES)
        self._launch(AUTOGRAD, EMBEDDING_BACKWARD)
        if cluster.with_nccl and cluster.exposed_communication:
            self._reduce(AUTOGRAD, ALLREDUCE_EMBEDDING, EMBEDDING_BYTES)
        self.regions.append(Region("backward", AUTOGRAD, first, len(self.calls) - 1, 1))

    def _optimizer(self) -> None:
        first = len(self.calls)
        if any(call.work is Work.COLLECTIVE for call in self.calls):
            self._reduce(MAIN, ALLREDUCE_LOSS, LOSS_BYTES)
            first = len(self.calls)
            self.calls.append(Call("cudaStreamWaitEvent_v3020", MAIN, 1_600))
        for kernel in OPTIMIZER:
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
