"""Sources: tables of one report come in; lazy frames of intervals, marks or samples leave, one module per kind of activity.

What is in a report is found by asking SOURCES. A new kind of activity is a module here and a line in that table; its event
types are lines in `nsys2prv.events`, its columns lines in `nsys2prv.reports.columns`.
"""

from __future__ import annotations

from nsys2prv.errors import UsageError
from nsys2prv.reports import Report
from nsys2prv.sources import (
    callchains,
    context_switches,
    cuda_calls,
    device_memory,
    generic,
    gpu_metrics,
    graphs,
    kernels,
    math_libraries,
    memory,
    messages,
    mpi,
    nccl,
    network,
    nvtx,
    nvtx_on_gpu,
    openacc,
    openmp,
    os_runtime,
    overhead,
    samples,
    scheduling,
    synchronization,
    system_metrics,
    ucx,
    unified_memory,
)
from nsys2prv.sources.source import Launch, RowKind, Source

SOURCES: tuple[Source, ...] = (
    nvtx.PUSHPOP,
    nvtx.STARTEND,
    nvtx.MARKS,
    nvtx.FIELDS,
    nccl.REGIONS,
    *mpi.TABLES,
    mpi.AS_NVTX,
    *openmp.TABLES,
    ucx.NVSHMEM,
    ucx.OTHERS,
    ucx.SUBMISSIONS,
    ucx.REQUESTS,
    openacc.DATA,
    openacc.LAUNCH,
    openacc.OTHER,
    math_libraries.CUBLAS,
    math_libraries.CUDNN,
    cuda_calls.CALLS,
    synchronization.ON_THREADS,
    synchronization.ON_DEVICES,
    graphs.GRAPHS,
    graphs.NODES,
    overhead.CUDA,
    overhead.PROFILER,
    unified_memory.CPU_FAULTS,
    callchains.CUDA_CALLERS,
    os_runtime.CALLS,
    os_runtime.FILE_ACCESSES,
    callchains.OS_CALLERS,
    scheduling.BEFORE,
    scheduling.SWITCHES,
    samples.CPU_SAMPLES,
    nvtx_on_gpu.RANGES,
    kernels.KERNELS,
    nccl.CALLS_OF_KERNELS,
    memory.COPIES,
    memory.MEMSETS,
    graphs.EXECUTIONS,
    synchronization.EVENT_RECORDS,
    device_memory.USAGE,
    device_memory.POOLS,
    unified_memory.GPU_FAULTS,
    gpu_metrics.METRICS,
    gpu_metrics.METRICS_IN_JSON,
    context_switches.SWITCHES,
    context_switches.SWITCHES_UP_TO_3_0,
    network.ADAPTERS,
    network.SWITCHES,
    network.CONGESTION,
    *system_metrics.SOURCES,
    generic.EVENTS,
    generic.EVENTS_WITH_VALUES,
)
"""All sources. Host activities stand from the outermost to the innermost: ranges of equal extent nest in this order."""

NAMES: tuple[str, ...] = (*dict.fromkeys(source.name for source in SOURCES), messages.NAME)
"""Names for --only and --skip. Messages are no source: they join events of one, as launch lines do."""


def select_sources(only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> tuple[Source, ...]:
    """Sources that a user asks for. Who asks for messages asks for the calls that they join.

    Parameters
    ----------
    only, skip
        Names of sources; an empty `only` means all.

    Raises
    ------
    UsageError
        When a name is not that of a source.
    """
    unknown = sorted({*only, *skip}.difference(NAMES))
    if unknown:
        raise UsageError(f"--only and --skip: there is no source {', '.join(unknown)}; the sources are {', '.join(NAMES)}")
    wanted = (*only, *messages.KINDS) if messages.NAME in only else only
    return tuple(source for source in SOURCES if (not wanted or source.name in wanted) and source.name not in skip)


def kinds_with_messages(sources: tuple[Source, ...], skip: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of messages between ranks that a user gets: with the calls that they join, unless messages are left out."""
    return tuple(kind for kind in messages.KINDS if messages.NAME not in skip and kind in {source.name for source in sources})


def present_sources(report: Report, sources: tuple[Source, ...]) -> list[Source]:
    """Those of `sources` whose table is in a report."""
    return [source for source in sources if report.has(source.table)]


__all__ = ["NAMES", "SOURCES", "Launch", "RowKind", "Source", "kinds_with_messages", "present_sources", "select_sources"]
