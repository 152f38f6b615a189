"""The words of the rules: what each sees and needs, how its cost is counted, where it is seen, what people do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nsys2prv.efficiency.findings import limits


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    kind, title
        For programs and for people.
    sees
        What it looks for.
    needs
        What must be recorded, else it says nothing.
    cost
        How its cost is counted: device time at most, ns.
    view
        The view that shows it, by its name in cfgs/views.ini.
    advice
        What people do about it.
    """

    kind: str
    title: str
    sees: str
    needs: str
    cost: str
    view: str
    advice: str


_LAUNCHES = "CUDA API calls"

RULES: tuple[Rule, ...] = (
    Rule(
        limits.LAUNCH,
        "Launch-bound: kernels are shorter than what it takes to launch them",
        "short gaps before kernels while the launching thread does nothing but launch: it is in a launch, or between two calls",
        _LAUNCHES,
        "sum of the gaps, without the time in allocation calls",
        "analysis/gaps",
        "Launch less: CUDA graphs, fused kernels (torch.compile), larger batches. Launch earlier: no synchronisation in the "
        "loop, less Python between launches.",
    ),
    Rule(
        limits.TURNS,
        "Ping-pong: host and device wait for each other in turn",
        "short gaps that begin while the launching thread waits for the device: in a synchronisation, or in the copy of a "
        "small result; what comes next is launched only then",
        _LAUNCHES,
        "sum of the gaps, without the time in allocation calls",
        "views/cuda_activities",
        "Keep results on the device; look at them every n-th iteration, or later through an event; batch small copies; replace "
        "loops on the host by kernels.",
    ),
    Rule(
        limits.HOST,
        "Host-bound: devices wait while the host computes",
        "gaps in which the launching thread is mostly in neither CUDA nor MPI calls, and that belong to none of the other "
        "shapes",
        _LAUNCHES,
        "sum of the gaps, without the time in allocation calls",
        "analysis/gaps",
        "Move the work of the host to the device or to other threads, and launch ahead of the device.",
    ),
    Rule(
        limits.DATA,
        "Data loading: devices wait for new data",
        "long gaps between work and the copy of new data to the device, the launching thread being in neither CUDA nor "
        "MPI calls",
        f"{_LAUNCHES}, copies with sizes",
        "sum of the gaps, without the time in allocation calls",
        "analysis/gaps",
        "More loading processes (num_workers), prefetching, faster storage or decoding on the GPU; copy the next batch while "
        "the device computes.",
    ),
    Rule(
        limits.SLOW_DEVICE,
        "Slow GPU: the same kernels take longer on one device",
        "kernels that all devices execute equally often, and that take longer on one than on the median of the others",
        "kernels on two devices or more",
        "what its kernels take longer than at the median of the others, times n: all may have to wait for it; of several slow "
        "ones the slowest counts",
        "analysis/kernel_average",
        "Compare clocks, temperature, power limit and ECC errors (nvidia-smi -q), look for another process on that GPU, check "
        "the placement; leave the device out to prove it.",
    ),
    Rule(
        limits.IMBALANCE,
        "Imbalance: one device has more useful work than others",
        "useful time of the device that has most of it against the mean over devices, beside what slow GPUs explain",
        "two devices or more",
        "n max U - sum U, less the cost of slow GPUs",
        "analysis/useful_time",
        "Distribute the work anew: sizes of parts, sequence lengths, pipeline stages, experts; use devices that are idle.",
    ),
    Rule(
        limits.MODES,
        "Two modes of one kernel: it is slower beside communication",
        "kernels that, after the same kernel of their stream, take clearly longer when an NCCL kernel runs as they begin than "
        "when nothing else does",
        "NCCL kernels",
        "executions beside NCCL kernels x difference of the means",
        "analysis/kernel_durations",
        "Overlap costs multiprocessors and bandwidth: fewer NCCL channels (NCCL_MAX_CTAS), transfers by copy engines, other "
        "points in time for collectives; compare with the time that overlap saves.",
    ),
    Rule(
        limits.COMMUNICATION,
        "Uncovered communication: nothing computes while NCCL kernels run",
        "NCCL kernels beside which no other kernel runs, without the time that they wait for the last rank",
        "NCCL kernels; waits need all ranks of a collective",
        "of each NCCL kernel the smaller one of its time beside no kernel, and its time from the last arrival on",
        "analysis/overlap_of_communication",
        "Start collectives earlier and in smaller buckets, during the backward pass; prefetch parameters; overlap with "
        "independent work; less to move: gradient accumulation, compression, other parallelism.",
    ),
    Rule(
        limits.ALLOCATIONS,
        "Allocations in the loop: devices wait while memory is allocated or freed",
        "gaps after work in which the launching thread allocates or frees memory, again and again",
        _LAUNCHES,
        "time of these calls in the gaps",
        "basics/cuda_calls",
        "Allocate before the loop, use a memory pool (cudaMallocAsync) or the caching allocator of the framework.",
    ),
    Rule(
        limits.PAGEABLE,
        "Pageable copies that should be pinned",
        "large copies between device and pageable memory, again and again",
        "copies with kinds of memory and sizes",
        "time of the copies in which no kernel runs",
        "basics/copy_source",
        "Pinned memory (cudaMallocHost, pin_memory=True with non_blocking=True): copies are faster, and overlap with kernels.",
    ),
    Rule(
        limits.SMALL_COPIES,
        "Small copies: latency instead of bandwidth",
        "many copies that are too small for the bandwidth, in which no kernel runs",
        "copies with sizes",
        "time of the copies in which no kernel runs, and of short gaps between two of them",
        "basics/copy_size",
        "Put small pieces into one buffer and copy that, or make them on the device.",
    ),
    Rule(
        limits.DEFAULT_STREAM,
        "Default stream: other streams wait for it",
        "work on other streams that is launched in time, and begins only when the default stream ends, hardly ever beside it",
        "CUDA API calls, streams of their own, and no waits for events",
        "of each wait the smaller one of its length and of the work that waits: it could have run beside",
        "basics/kernels",
        "Non-blocking streams (cudaStreamNonBlocking), per-thread default streams (--default-stream per-thread), nothing on "
        "the default stream.",
    ),
    Rule(
        limits.CLOCK,
        "Clock drops: the device runs slower for a time",
        "bins in which a busy device has a lower clock than in most of its busy bins",
        "sampled clocks (GPC Clock Frequency)",
        "kernel time in these bins x (1 - clock / median clock)",
        "hwcounters/metric",
        "Look at power limit, temperature and other users of the GPU (nvidia-smi -q -d PERFORMANCE); lock clocks to compare "
        "runs.",
    ),
)  # fmt: skip
"""All rules. Those with the same cost stand in this order."""

BY_KIND: Mapping[str, Rule] = {rule.kind: rule for rule in RULES}
