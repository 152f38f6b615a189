"""The kernels of the simulated programs: names as nsys has them, and typical durations, ns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
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
