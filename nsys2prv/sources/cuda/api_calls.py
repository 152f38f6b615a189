"""CUDA API calls on host threads, and overhead of the profiler."""

import polars as pl

from nsys2prv.errors import counted
from nsys2prv.exports import Report
from nsys2prv.sources.correlate import IS_CALL
from nsys2prv.sources.source import CALL, RowKind, Source, call_source, named
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet
from nsys2prv.vocabulary.name_rules import first_match

STATES_BY_NAME = (
    (r"(?i)synchronize|^cu(da)?(Event|Stream)Query|^cu(da)?StreamWait|^cuStreamBatchMemOp", event_types.STATE_SYNCHRONIZATION),
    (r"(?i)memcpy|memset|prefetch|^cuMem(Advise|PoolTrim)", event_types.STATE_MEMORY_TRANSFER),
    (
        r"(?i)^cu(da)?(Mem)?(Host)?(Malloc|Alloc|Create|Map|Reserve|AddressReserve)|HostRegister|^cuMemHost",
        event_types.STATE_ALLOCATING,
    ),
    (r"(?i)^cu(da)?(Mem|Host|Address)*(Free|Unmap|Release|Unregister)", event_types.STATE_FREEING),
    (r"(?i)launch", event_types.STATE_CONFIGURING),
)
"""What a call's name looks like, and the Paraver state meanwhile; the first match counts, else `STATE_OTHERS`."""


def call_names(report: Report) -> pl.DataFrame:
    """Columns `id`, `label`: texts of the report as names of API calls."""
    # nsys appends the version of the entry point: cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000.
    return report.strings.select("id", label=pl.col("value").str.replace(r"(_ptsz|_ptds)?_v\d{4,}$", ""))


def _frame(report: Report) -> pl.LazyFrame:
    states = call_names(report).with_columns(state=first_match(pl.col("label"), STATES_BY_NAME, event_types.STATE_OTHERS))
    return named(CALLS.scan(report), "nameId", states).select(
        *RowKind.THREAD.interval,
        "label",
        "state",
        "correlationId",
        pl.col("correlationId").alias(str(event_types.CORRELATION_ID)),
        type=pl.lit(event_types.CUDA_CALL, pl.Int64),
        left_out=pl.when(~IS_CALL).then(pl.lit("the same call again, with its call chain")),
    )


CALLS = Source(
    name="cuda-api",
    title="CUDA API calls",
    table="CUPTI_ACTIVITY_KIND_RUNTIME",
    required=("start", "end", "globalTid", "nameId"),
    optional=("correlationId", "eventClass"),
    row=RowKind.THREAD,
    types=(event_types.CUDA_CALL, event_types.CORRELATION_ID),
    frame=_frame,
    launch=CALL,
)


_ERRORS = {
    1: "cudaErrorInvalidValue", 2: "cudaErrorMemoryAllocation", 9: "cudaErrorInvalidConfiguration",
    98: "cudaErrorInvalidDeviceFunction", 209: "cudaErrorNoKernelImageForDevice", 222: "cudaErrorUnsupportedPtxVersion",
    700: "cudaErrorIllegalAddress", 701: "cudaErrorLaunchOutOfResources", 719: "cudaErrorLaunchFailure",
}  # fmt: skip
"""Errors after which kernels do not run, or end, by their numbers in the CUDA runtime."""
_NO_ERROR = (0, 600)
"""What a call returns that succeeds, and a query about work that is not done yet."""
_ENDS_CONTEXT = (700, 702, *range(710, 720))
"""Errors after which nothing runs in the context any more."""
FAILED_SCHEMA = {"label": pl.String, "count": pl.Int64, "error": pl.String, "calls": pl.Int64, "ends_work": pl.Boolean}


def failed_calls(report: Report) -> pl.DataFrame:
    """Calls that failed, the most frequent first, with columns of FAILED_SCHEMA: `error` is its name, else its number, `calls`
    how many of that name there are; kernels are missing for it (`ends_work`) where most launches fail, or a context ends. All
    calls are looked through."""
    calls = report.scan(CALLS.table, ["nameId"], ["returnValue", "eventClass"]).filter(IS_CALL)
    counts = calls.group_by("nameId", "returnValue").agg(count=pl.len().cast(pl.Int64)).collect()
    counts = counts.with_columns(calls=pl.col("count").sum().over("nameId"))
    named_counts = counts.join(call_names(report), left_on="nameId", right_on="id", how="left")
    number, is_launch = pl.col("returnValue"), pl.col("label").str.contains("(?i)launch").fill_null(False)
    error = pl.coalesce(number.replace_strict(_ERRORS, default=None, return_dtype=pl.String), pl.format("error {}", number))
    ends_work = number.is_in(_ENDS_CONTEXT) | (is_launch & (2 * pl.col("count") >= pl.col("calls")))
    failed = named_counts.filter(~number.is_in(_NO_ERROR)).with_columns(error=error, ends_work=ends_work)
    return failed.select(*FAILED_SCHEMA).sort("count", "label", descending=[True, False])


def named_failures(failed: pl.DataFrame) -> str:
    """The most frequent of `failed_calls` as a text."""
    first = failed.head(3).iter_rows(named=True)
    return ", ".join(f"{row['count']:,} of {counted(row['calls'], 'call')} of {row['label']} ({row['error']})" for row in first)


_OVERHEAD_VALUES = ValueSet("overhead")
CUDA_OVERHEAD = EventType(63000600, "CUDA overhead", Role.INTERVAL, _OVERHEAD_VALUES)
PROFILER_OVERHEAD = EventType(63000601, "Profiler overhead", Role.INTERVAL, _OVERHEAD_VALUES)
JIT_COMPILATION = EventType(63000602, "CUDA just-in-time compilation", Role.INTERVAL, _OVERHEAD_VALUES)
HOST_FUNCTION = EventType(63000610, "CUDA host function", Role.INTERVAL, ValueSet("cuda host functions"))

# The profiler sets up something for each thread of the machine that it watches: a thread that has nothing else would look
# as if it ran all the time.
CUDA_SETUP = call_source(
    "overhead", "CUDA overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD", CUDA_OVERHEAD, {}, existing_rows_only=True, since="3.24"
)
PROFILER_SETUP = call_source(
    "overhead", "Profiler overhead", "PROFILER_OVERHEAD", PROFILER_OVERHEAD, {}, existing_rows_only=True
)
JIT = call_source(
    "overhead",
    "CUDA just-in-time compilation",
    "CUPTI_ACTIVITY_KIND_JIT",
    JIT_COMPILATION,
    {},
    since="3.28",
    assumption="A row is one compilation, or access to the cache of compiled code, on the thread in `globalTid`.",
)
HOST_FUNCTIONS = call_source(
    "cuda-api",
    "CUDA host functions",
    "CUDA_HOST_CALLBACK",
    HOST_FUNCTION,
    {},
    since="3.28",
    assumption="A row is a function of the program that a stream or a graph waited for, on the thread that ran it.",
)
