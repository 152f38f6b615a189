"""All sources and event types. A new kind of activity is a module with its columns and event types, and a line here."""

import copyreg
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from nsys2prv.errors import UsageError
from nsys2prv.exports import Report
from nsys2prv.exports.columns import dtype_of
from nsys2prv.sources.communication import message_ends, mpi, nccl, ucx
from nsys2prv.sources.counters import cpu_counters, gpu_metrics, network, plugins
from nsys2prv.sources.cuda import (
    api_calls,
    context_switches,
    device_memory,
    kernels,
    memory_operations,
    synchronization,
    unified_memory,
)
from nsys2prv.sources.host import call_chains, cpu_samples, library_calls, openacc, openmp, scheduling
from nsys2prv.sources.nvtx import nvtx_on_gpu, nvtx_ranges
from nsys2prv.sources.source import Source
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType
from nsys2prv.vocabulary.wording import listed, nearest, short

SOURCES: tuple[Source, ...] = (
    nvtx_ranges.PUSHPOP,
    nvtx_ranges.STARTEND,
    nvtx_ranges.MARKS,
    nvtx_ranges.FIELDS,
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
    library_calls.CUBLAS,
    library_calls.CUDNN,
    api_calls.HOST_FUNCTIONS,
    api_calls.CALLS,
    api_calls.JIT,
    synchronization.ON_THREADS,
    synchronization.ON_DEVICES,
    kernels.GRAPHS,
    kernels.GRAPH_NODES,
    api_calls.CUDA_SETUP,
    api_calls.PROFILER_SETUP,
    unified_memory.CPU_FAULTS,
    call_chains.CUDA_CALLERS,
    library_calls.OS_CALLS,
    library_calls.SYSTEM_CALLS,
    library_calls.FILE_ACCESSES,
    call_chains.OS_CALLERS,
    scheduling.BEFORE,
    scheduling.SWITCHES,
    cpu_samples.CPU_SAMPLES,
    nvtx_on_gpu.RANGES,
    kernels.KERNELS,
    nccl.CALLS_OF_KERNELS,
    memory_operations.COPIES,
    memory_operations.MEMSETS,
    kernels.GRAPH_EXECUTIONS,
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
    network.ETHERNET_SWITCHES,
    network.CONGESTION,
    *cpu_counters.SOURCES,
    plugins.EVENTS,
    plugins.EVENTS_WITH_VALUES,
)
"""All sources. Host activities are in the order of nesting, the outermost first."""


def source_of(title: str, table: str) -> Source:
    """The source with a title and a table."""
    return next(source for source in SOURCES if (source.title, source.table) == (title, table))


# Functions don't travel between processes: a source is looked up there.
copyreg.pickle(Source, lambda source: (source_of, (source.title, source.table)))


def _declared() -> Iterator[tuple[str, EventType]]:
    """Event types by the constants of the modules: first those that packages share, then those of each source."""
    of_sources = [module for name, module in sorted(sys.modules.items()) if name.startswith(f"{__package__}.")]
    for module in (event_types, *of_sources):
        for name, declared in vars(module).items():
            for candidate in declared if isinstance(declared, tuple) else (declared,):
                if isinstance(candidate, EventType):
                    yield name, candidate


CONSTANTS: dict[str, EventType] = dict(reversed(list(_declared())))
"""Event types by the names of their constants, as `views.ini` has them."""
EVENT_TYPES: tuple[EventType, ...] = tuple(dict.fromkeys(event_type for _, event_type in _declared()))
"""All event types. Names of types with one set of values get their numbers in this order."""
TYPES: dict[int, EventType] = {event_type.number: event_type for event_type in EVENT_TYPES}
_OF_SEVERAL_NUMBERS = tuple(event_type for event_type in EVENT_TYPES if event_type.is_series or event_type.lanes)


def type_of(number: int) -> EventType | None:
    """The event type that a number in a trace belongs to; None when it is not one of ours."""
    if number in TYPES:
        return TYPES[number]
    matches = [event_type for event_type in _OF_SEVERAL_NUMBERS if event_type.covers(number)]
    # Numbers of members beyond the usual ones reach into those of the next series, which needs them more.
    return min(matches, key=lambda event_type: event_type.overflow <= number, default=None)


def renumbered(labels: Mapping[int, str]) -> dict[int, int]:
    """Numbers that an earlier version used for event types, with those of today.

    Parameters
    ----------
    labels
        Labels of event types in a .pcf, by number: under the same number other tools have other events.
    """
    return {
        event_type.former: event_type.number
        for event_type in EVENT_TYPES
        if event_type.former and labels.get(event_type.former) == event_type.label
    }


NAMES: tuple[str, ...] = (*dict.fromkeys(source.name for source in SOURCES), message_ends.NAME)
"""Names for --only and --skip. Messages are not a source: they join events of one, as launch lines do."""

_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "cuda": ("kernels", "copies", "memsets", "cuda-api"),
    "osrt": ("os-runtime",),
    "syscall": ("os-runtime",),
    "oshmem": ("nvshmem",),
    "gpu": ("kernels", "copies", "memsets"),
    "memcpy": ("copies",),
    "sampling": ("cpu-samples",),
    "cpu": ("cpu-samples", "scheduling"),
}
"""Sources by what `nsys profile --trace` and `nsys stats` call them."""


def unknown_source(names: Sequence[str], where: str = "") -> UsageError:
    """The error for names that are not those of sources; `where`: the options that have them, and a colon."""
    meant = ([name] if name in NAMES else _OTHER_NAMES.get(name.casefold()) or nearest(name, NAMES) for name in names)
    near = dict.fromkeys(itertools.chain(*meant))
    offered = f"did you mean {listed(near, 'or')}? " if near else f"the sources are {', '.join(NAMES)}; "
    return UsageError(
        f"{where}there is no source {', '.join(map(short, names))}; {offered}"
        f"{'(' if near else ''}`nsys2prv inspect REPORT` lists those of a report{')' if near else ''}"
    )


def select_sources(only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> tuple[Source, ...]:
    """Sources that a user selects. Messages include the calls that they join.

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
        raise unknown_source(unknown, "--only and --skip: ")
    names_only = (*only, *message_ends.SOURCE_OF_KIND.values()) if message_ends.NAME in only else only
    return tuple(source for source in SOURCES if (not names_only or source.name in names_only) and source.name not in skip)


def kinds_with_messages(sources: tuple[Source, ...], skip: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of messages between ranks in a trace: those whose calls are selected, unless messages are left out."""
    names = {source.name for source in sources}
    return tuple(kind for kind, name in message_ends.SOURCE_OF_KIND.items() if message_ends.NAME not in skip and name in names)


def present_sources(report: Report, sources: tuple[Source, ...]) -> list[Source]:
    """Those of `sources` whose table is in a report."""
    return [source for source in sources if report.has(source.table)]


def needed_columns(report: Report, sources: Sequence[Source]) -> dict[str, dict[str, type[pl.DataType]]]:
    """Columns of a report's tables that are read for sources, with their types."""
    needed: dict[str, dict[str, type[pl.DataType]]] = {}
    for source in sources:
        present = filter(partial(report.has, source.table), source.columns)
        needed.setdefault(source.table, {}).update({str(name): dtype_of(name) for name in present})
    return {table: columns for table, columns in needed.items() if columns}
