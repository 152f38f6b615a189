"""The kernels of a transformer's training step: names as nsys shows them, typical durations, launches and use of the GPU.

Names and launch configurations are like those of PyTorch 2 on an H100; durations are those of a layer 4096 wide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """A kernel and its use of a GPU.

    Attributes
    ----------
    name
        Demangled name.
    duration
        Typical length, ns.
    grid, block
        Blocks, and threads per block, in x.
    registers
        Registers per thread.
    shared
        Dynamic shared memory per block, bytes.
    tensor, issue, dram_read, dram_write
        "Tensor Active", "SM Issue", "DRAM Read Throughput", "DRAM Write Throughput" while it runs, percent.
    driver
        Launched through the driver API (cuLaunchKernelEx) and not through the runtime.
    """

    name: str
    duration: int
    grid: int = 2048
    block: int = 128
    registers: int = 32
    shared: int = 0
    tensor: int = 0
    issue: int = 25
    dram_read: int = 60
    dram_write: int = 30
    driver: bool = False


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
