"""Kernels that use a part of the GPU or need not run; what hosts do meanwhile; and no finding costs more than its evidence."""

import random
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest
from support import rest
from support.measured import MS, NCCL, US, check, finding, measured, union_length
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.findings import engine
from nsys2prv.efficiency.findings.engine import RULES
from nsys2prv.efficiency.findings.finding import Losses, Threshold
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import wall_time_parts

A100 = {"smCount": 100, "maxBlocksPerSm": 32, "maxWarpsPerSm": 64, "maxRegistersPerSm": 65_536, "maxShmemPerSm": 167_936}
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<float>(int)"
CAST = "bfloat16_copy_kernel_cuda(int)"
ELEMENT_WISE = "void at::native::vectorized_elementwise_kernel<(int)4>(int)"


def report(rank: int = 0, **sizes: int) -> ReportBuilder:
    return ReportBuilder(rank=rank, ranks=4, pid=1000 + rank).gpu(rank, **sizes)


def costs(result: EfficiencyResult) -> dict[str, int]:
    return dict(result.tables["findings"].select("kind", "cost_ns").iter_rows())


def test_a_kernel_of_one_thread_is_named_with_its_device_and_rank(tmp_path: Path) -> None:
    made = report(**A100)
    made.kernel("add(int)", 0, 100 * MS, gridX=1, blockX=1)
    result = measured(tmp_path, made)

    # A multiprocessor holds 32 blocks and 64 warps.
    assert costs(result) == {"few-blocks": 100 * MS - 100 * MS // 100 // 32 // 2}
    assert "with 1 block of 1 thread" in finding(result, "few-blocks")["seen"]
    made.kernel("add(int)", 100 * MS, 300 * MS, gridX=1000, blockX=16)
    seen = finding(measured(tmp_path, made), "few-blocks")["seen"]
    assert seen.endswith("add(int) 249.984 ms, 150.000 ms of it with 1,000 blocks of 16 threads")
    assert result.tables["findings"]["title"][0].endswith("use a part of the GPU only, on node01:D0, rank 0")


@pytest.mark.parametrize(("moving", "lost"), [(4, 96 - 0.96), pytest.param(6, 94 - 0.94, marks=pytest.mark.thorough)])
def test_few_blocks_are_not_blamed_for_pages_that_move(tmp_path: Path, moving: int, lost: float) -> None:
    """Faults were not recorded: it is not known how long a kernel waits for them. The bar and the sentence say so."""
    made = report(**A100)
    made.kernel("add(int)", 0, 100 * MS, gridX=1, blockX=128)
    made.copy(10 * MS, (10 + moving) * MS, 65_536, kind=11, stream=13)
    result = measured(tmp_path, made)
    assert costs(result)["few-blocks"] == pytest.approx(lost * MS, rel=0.01)
    # What the kernel did meanwhile is not known.
    bar = {part.name: part.value for part in wall_time_parts(result.tables)}
    assert bar == {"compute": 96 * MS if moving == 4 else 0, "paging": 4 * MS if moving == 4 else 100 * MS}
    made.gpu_page_fault(10 * MS, 70 * MS, 1)
    assert costs(measured(tmp_path, made)) == {"few-blocks": 40 * MS - 40 * MS // 100}


@pytest.mark.parametrize(
    ("columns", "beside", "sizes"), [({"gridX": 98}, False, A100), ({"gridX": 1}, True, A100), ({"gridX": 1}, False, {})]
)
def test_many_blocks_several_kernels_at_once_and_unknown_gpus_are_not_blamed(
    tmp_path: Path, columns: dict[str, int], beside: bool, sizes: dict[str, int]
) -> None:
    made = report(**sizes)
    made.kernel("add(int)", 0, 100 * MS, **columns)
    if beside:
        made.kernel("k(int)", 4 * MS, 100 * MS, stream=8, **columns)
    result = measured(tmp_path, made)
    assert costs(result) == {}
    assert sizes or check(result, "few-blocks")[1] == "not recorded: multiprocessors of GPUs"


def test_the_last_wave_of_blocks(tmp_path: Path) -> None:
    """16 blocks of 128 threads with 32 registers on each of 100 multiprocessors."""
    made = report(**A100)
    for index in range(20):
        made.kernel("k(int)", index * MS, (index + 1) * MS, gridX=2000)
    result = measured(tmp_path, made)
    assert costs(result) == {"tail-waves": 20 * MS * 3 // 8}
    full = report(**A100)
    for index in range(20):
        full.kernel("k(int)", index * MS, (index + 1) * MS, gridX=3200)
    assert costs(measured(tmp_path, full)) == {}
    # One kernel that is all of the run is no chance.
    single = report(**A100)
    single.kernel("k(int)", 0, 100 * MS, gridX=2000)
    # Older exports call the sizes in another way.
    held = ("Blocks", "Warps", "Registers", "SharedMemory")
    older = dict(zip((f"max{what}PerMultiprocessor" for what in held), list(A100.values())[1:], strict=True))
    single.without("TARGET_INFO_GPU").row("TARGET_INFO_CUDA_GPU", deviceId=0, numMultiprocessors=100, **older)
    assert costs(measured(tmp_path, single)) == {"tail-waves": 37_500 * US}


def test_layouts_precision_and_chains(tmp_path: Path) -> None:
    made, begin = report(), 0
    lengths = {
        LAYOUT: 100, CAST: 50, ELEMENT_WISE: 50, ELEMENT_WISE + " ": 200, "ampere_fp16_s16816gemm_fp16_128x128(int)": 100,
        CAST + " ": 25, CAST + "  ": 25, "ampere_sgemm_128x64_nn(int)": 50,
    }  # fmt: skip
    for name, length in list(lengths.items()) * 110:
        made.kernel(name.strip(), begin, begin + length * US)
        begin += length * US
    result = measured(tmp_path, made)

    # Of two element-wise kernels and a cast before them the longest one stays; casts alone are no chain.
    assert costs(result) == {"layout-changes": 22 * MS, "unfused-kernels": 11 * MS, "full-precision": 5500 * US * 15 // 16}
    assert result.tables["findings"]["kind"][0] == "layout-changes"


def test_element_wise_kernels_that_wait_for_pages_are_not_to_be_fused(tmp_path: Path) -> None:
    made = report()
    for index in range(220):
        made.kernel(ELEMENT_WISE.replace("kernel", f"kernel{index % 2}"), index * MS, (index + 1) * MS)
    assert costs(measured(tmp_path, made)) == {"unfused-kernels": 219 * MS}
    made.gpu_page_fault(0, 215 * MS, 1)
    assert "unfused-kernels" not in costs(measured(tmp_path, made))
    # One that is there again and again does something else each time.
    made = report()
    for index in range(220):
        made.kernel(ELEMENT_WISE, index * MS, (index + 1) * MS)
    assert "unfused-kernels" not in costs(measured(tmp_path, made))


def test_kernels_that_nobody_waits_for_cost_nothing(tmp_path: Path) -> None:
    made = report(**A100)
    made.kernel("add(int)", 20 * US, 100 * MS, gridX=1, blockX=1, launch=(0, 10 * US))
    made.api_call("cudaFree_v3020", 150 * MS, 200 * MS)
    assert "few-blocks" not in costs(measured(tmp_path, made, no_critical_path=False))


def test_attention_in_fp32_is_known_by_its_name(tmp_path: Path) -> None:
    made = report()
    for begin in range(0, 20 * MS, MS):
        made.kernel("fmha_cutlassB_f32_aligned_64x64_k64_sm80(Params)", begin, begin + 900 * US)
        made.kernel("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4(Params)", begin + 900 * US, begin + MS)
    result = measured(tmp_path, made)
    assert costs(result) == {"full-precision": 20 * 900 * US * 15 // 16}
    # The others of these kernels are in TF32 already.
    assert "allow_tf32" not in result.findings["advice"][0]


def test_whether_fp32_alone_is_meant_is_not_known(tmp_path: Path) -> None:
    made = report()
    for index in range(20):
        made.kernel("ampere_sgemm_128x64_nn(int)", index * MS, (index + 1) * MS)
    result = measured(tmp_path, made)
    assert costs(result) == {}
    reason = "all kernels of matrices are in fp32: whether they need to be is not known"
    assert check(result, "full-precision") == ("not decidable", reason)


@pytest.mark.parametrize("pages", [20, *rest(200)])
def test_pages_that_the_host_pulls_back(tmp_path: Path, pages: int) -> None:
    made = report()
    made.kernel("k(int)", 0, 10 * MS)
    for page in range(pages):
        begin = 10 * MS + page * 300 * US + 290 * US
        made.copy(begin, begin + 10 * US, 65_536, kind=12, stream=13)
    result = measured(tmp_path, made)
    assert costs(result)["pages-pulled-back"] == pages * 290 * US
    assert "idle-devices" not in costs(result)


def late_host(*chains: tuple[str, str]) -> ReportBuilder:
    """Kernels of 200 us every ms; samples in the gaps alone, and one range over all."""
    made = report()
    for index in range(20):
        begin = index * MS
        made.kernel("k(int)", begin + 20 * US, begin + 220 * US, launch=(begin, begin + 10 * US))
        made.cpu_sample(begin + 100 * US, [("waits", "libcuda.so")])
        for place, (function, module) in enumerate(chains):
            made.cpu_sample(begin + (300 + place) * US, [(function, module)])
    made.nvtx_range("all", 0, 20 * MS)
    return made.nvtx_range("steps", 100 * US, 20 * MS - 1)


def test_functions_and_ranges_of_late_hosts_are_named(tmp_path: Path) -> None:
    made = late_host(("parse", "a.so"), ("parse", "a.so"), ("sort", "b.so"))
    for time in range(400 * US, 20 * MS, 100 * US):
        made.cpu_sample(time, [("decode", "a.so")], tid=3_000)
    text = finding(measured(tmp_path, made), "host-bound")["seen"]
    assert "of CPU samples of these threads meanwhile, most are in parse of a.so 66.7 %, sort of b.so 33.3 %" in text
    assert "of other threads of their processes meanwhile, most are in decode of a.so 100.0 %" in text
    assert text.endswith("; 100.0 % of the time is in the NVTX range steps")


def test_code_without_a_name_is_named_by_its_module_once(tmp_path: Path) -> None:
    result = measured(tmp_path, late_host(("parse", "a.so"), ("0x7f01", "/lib/b.so")))
    assert "most are in parse of a.so 50.0 %, unresolved code of /lib/b.so 50.0 %;" in finding(result, "host-bound")["seen"]


def test_where_no_function_has_many_samples_modules_are_named(tmp_path: Path) -> None:
    made = late_host(*((f"pass{number}", "libLLVM.so") for number in range(7)), ("malloc", "libc.so"))
    text = finding(measured(tmp_path, made), "host-bound")["seen"]
    assert "most are in libLLVM.so 87.5 %, libc.so 12.5 %;" in text


def test_hosts_that_load_code_that_a_compiler_makes(tmp_path: Path) -> None:
    made = late_host()
    for index in range(20):
        begin = index * MS
        made.os_call("mmap", begin + 300 * US, begin + 500 * US)
        if index % 3:
            made.api_call("cuModuleLoadData", begin + 800 * US, begin + 850 * US)
    host_bound = finding(measured(tmp_path, made), "host-bound")
    assert "calls of the OS (25.0 %; longest in 19 calls of mmap, 3.800 ms)" in host_bound["seen"]
    assert "; code is loaded in 12 of them, 9.600 ms" in host_bound["seen"]
    assert "compiled" in host_bound["advice"]


def test_samples_in_mpi_that_was_not_recorded_are_a_warning(tmp_path: Path) -> None:
    warnings = measured(tmp_path, late_host(("ucp_worker_progress", "/usr/lib/libucp.so.0"))).head["warnings"]
    assert any("50.0 % of the CPU samples are in /usr/lib/libucp.so.0, and MPI was not recorded" in text for text in warnings)
    recorded = late_host(("ucp_worker_progress", "/usr/lib/libucp.so.0")).mpi_collective("MPI_Barrier", 0, 10 * US)
    assert not any("MPI was not recorded" in text for text in measured(tmp_path, recorded).head["warnings"])


NAMES = [LAYOUT, ELEMENT_WISE, "ampere_fp16_s16816gemm_fp16_128x128(int)", "ampere_sgemm_128x64_nn(int)", "k(int)", NCCL]
Spans = dict[str, list[tuple[int, int]]]


def random_work(rank: int, choice: random.Random) -> tuple[ReportBuilder, Spans]:
    """Kernels and copies that overlap on four streams in any way, with calls; and when they run."""
    made, spans = report(rank, **A100), Spans()
    for index in range(300):
        begin = index * 100 * US + choice.randrange(90 * US)
        end, stream = begin + choice.randrange(1, 400 * US), choice.choice([7, 13, 14, 15])
        launch = (index * 100 * US, index * 100 * US + 5 * US) if choice.random() < 0.7 else None
        if choice.random() < 0.3:
            kind, size = choice.choice([1, 2, 8, 11, 12]), choice.choice([4, 1 << 20])
            pageable, name = choice.random() < 0.5, f"copy {kind}"
            made.copy(begin, end, size, kind=kind, stream=stream, pageable=pageable, launch=launch)
        else:
            name = choice.choice(NAMES)
            made.kernel(name, begin, end, stream=stream, launch=launch, gridX=choice.choice([1, 1700]))
        spans.setdefault(name, []).append((begin, end))
        if choice.random() < 0.2:
            made.api_call(choice.choice(["cudaMalloc_v3020", "cudaStreamSynchronize_v3020", "cudaMemcpy_v3020"]),
                          index * 100 * US + 10 * US, index * 100 * US + 60 * US)  # fmt: skip
    return made, spans


COPIES = [f"copy {kind}" for kind in (1, 2, 8, 11, 12)]
EVIDENCE = {
    **dict.fromkeys(("few-blocks", "tail-waves", "default-stream", "contention-slowdown"), tuple(NAMES[:-1])),
    **dict.fromkeys(("exposed-communication", "starved-beside-communication", "hidden-communication"), (NCCL,)),
    "layout-changes": [LAYOUT], "unfused-kernels": [ELEMENT_WISE], "full-precision": [NAMES[3]],
    "exposed-copies": COPIES[:3], "pageable-copies": COPIES[:2], "unified-memory": COPIES[3:],
}  # fmt: skip
"""Work that is all that a finding can cost."""


@pytest.mark.parametrize("seed", [0, *rest(*range(1, 9))])
def test_no_finding_costs_more_than_its_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def costly(_rule: FindingRule, losses: Losses, _evidence: Evidence) -> Losses:
        return losses.where(pl.col("cost") > 0) if losses else losses

    monkeypatch.setattr(FindingRule, "costly", costly)
    for name in ("LEAST_COST", "LEAST_SHARE"):
        monkeypatch.setattr(engine, name, Threshold("", 0, ""))
    made = [random_work(rank, random.Random(f"{seed} {rank}")) for rank in range(2)]
    tables = measured(tmp_path, *(report for report, _ in made)).tables
    elapsed = tables["run"]["elapsed_ns"][0]

    findings = tables["findings"]
    assert findings["kind"].n_unique() >= 12
    assert (findings["saved_ns"] <= findings["cost_ns"]).all()
    assert (findings["saved_ns"] <= elapsed).all()
    with_gaps = {rule.kind for rule in RULES if rule.gap_cause is not None} | {"idle-devices", "full-launch-queue"}
    for kind, device, cost in tables["finding_devices"].select("kind", "device", "cost_ns").iter_rows():
        spans = made[int(device[-1])][1]

        def busy(names: Iterable[str], spans: Spans = spans) -> int:
            return union_length(span for name in names for span in spans.get(name, ()))

        idle = elapsed - busy(spans) + (busy(COPIES[:2]) if kind == "small-copies" else 0)
        # What others wait for costs all of them.
        limit = busy(EVIDENCE[kind]) if kind in EVIDENCE else idle if kind in with_gaps else len(made) * elapsed
        assert cost <= limit, kind
