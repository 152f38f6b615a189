"""Calls of libraries on the host: of the operating system, cuBLAS and cuDNN."""

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text, labelled, tid_of
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.source import RowKind, Source, call_source, named, on_first_thread
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet
from nsys2prv.vocabulary.name_rules import first_match

FILE_ACCESS = EventType(40000160, "File access", Role.INTERVAL, ValueSet("file accesses"), former=40000060)
FILE_NAME = EventType(40000059, "File name", Role.ATTRIBUTE, ValueSet("file names"))
SYSTEM_CALL = EventType(40000163, "System call", Role.INTERVAL, ValueSet("system calls"))
IO_SIZE = EventType(40000011, "I/O size", Role.ATTRIBUTE, unit="bytes")


# (what a call's name looks like, Paraver state meanwhile); first match counts.
_STATES = (
    (r"wait|join|lock|poll|select|sleep|futex|pause|^sem_|barrier|accept|recv|yield", event_types.STATE_BLOCKED),
    (r"read|write|open|close|seek|sync|stat|sendfile|splice|getc|putc|gets|puts|printf|scanf|flush", event_types.STATE_IO),
)

# (what a call's name looks like, event type); first match counts. Sockets, pipes and waiting for either are neither files
# nor pthreads, and ioctl talks to drivers.
_FAMILIES = (
    (r"^(pthread_|sem_)", event_types.PTHREAD_CALL),
    (
        r"^_*(IO_)?(f|p|fd)?(re)?open(at)?(64)?(_2)?$|^_*creat(64)?$|^_*f?close(_range)?$"
        r"|^_*(f|p)?(read|write)v?2?(64)?(v64v?2?)?(_unlocked)?(_chk)?$|^_*(f|l)seek(o|64|o64)?$|^rewind$"
        r"|^f?(get|put)(c|s|char|w?c|ws)(_unlocked)?$|^getw?c(har)?(_unlocked)?$|^putw?c(har)?(_unlocked)?$"
        r"|^getdelim$|^getline$|^v?[fd]?w?printf$|^v?f?w?scanf$|^fflush(_unlocked)?$|^f(data)?sync$|^sync(fs|_file_range)?$"
        r"|^msync$|^f?truncate(64)?$|^(posix_)?fallocate(64)?$|^posix_fadvise(64)?$|^readahead$|^sendfile(64)?$"
        r"|^splice$|^tee$|^vmsplice$|^copy_file_range$|^f?l?stat(at|vfs|x|fs)?(64)?$|^__f?x?l?x?stat(at)?(64)?$|^newfstatat$"
        r"|^aio_.*|^lio_listio$",
        event_types.IO_CALL,
    ),
)


def _frame(report: Report) -> pl.LazyFrame:
    calls = report.strings.select(
        "id",
        label="value",
        state=first_match(pl.col("value"), _STATES, event_types.STATE_OTHERS),
        type=first_match(pl.col("value"), _FAMILIES, event_types.OS_CALL),
    )
    called = named(OS_CALLS.scan(report), "nameId", calls)
    kind = pl.col("type").fill_null(event_types.OS_CALL)
    return called.select(on_first_thread(), "start", "end", "label", "state", kind)


OS_CALLS = Source(
    name="os-runtime",
    title="OS runtime calls",
    table="OSRT_API",
    required=("start", "end", "globalTid", "nameId"),
    row=RowKind.THREAD,
    types=(event_types.OS_CALL, event_types.PTHREAD_CALL, event_types.IO_CALL),
    frame=_frame,
)


def _accesses(report: Report) -> pl.LazyFrame:
    kinds = enum_labels(report, "ENUM_OSRT_FILE_ACCESS_EVENT_TYPE")
    files = report.read("OSRT_FILE_ACCESS_DESCRIPTORS", optional=("fileAccessId", "processId", Text("filePath")))
    processes = drop_duplicates(report.read("PROCESSES", optional=("globalPid", "pid")).drop_nulls(), "pid")
    names = drop_duplicates(files.drop_nulls("fileAccessId"), "fileAccessId")
    names = names.join(processes, left_on="processId", right_on="pid", how="left", maintain_order="left")
    accessed = FILE_ACCESSES.scan(report).join(names.lazy(), on="fileAccessId", how="left", maintain_order="left")
    return accessed.select(
        pl.col("filePath").fill_null("unknown file").alias(str(FILE_NAME)),
        pl.col("bytesProcessed").alias(str(IO_SIZE)),
        globalTid=pl.col("globalPid") + tid_of(pl.col("threadId")),
        start=pl.col("startedAt"),
        end=pl.col("endedAt"),
        type=pl.lit(FILE_ACCESS, pl.Int64),
        label=labelled("eventType", kinds, "access").fill_null("access"),
    )


FILE_ACCESSES = Source(
    name="file-access",
    title="File accesses",
    table="OSRT_FILE_ACCESS_EVENTS",
    required=("fileAccessId", "threadId", "startedAt", "endedAt", "eventType"),
    optional=("bytesProcessed",),
    row=RowKind.THREAD,
    types=(FILE_ACCESS, FILE_NAME, IO_SIZE),
    frame=_accesses,
    times=("startedAt", "endedAt"),
)


_MATH_LIBRARY_VALUES = ValueSet("math libraries")
CUBLAS_CALL = EventType(67000000, "cuBLAS call", Role.INTERVAL, _MATH_LIBRARY_VALUES)
CUDNN_CALL = EventType(67000001, "cuDNN call", Role.INTERVAL, _MATH_LIBRARY_VALUES)

_ASSUMPTION = "A row of {} is one call on the thread that made it, and nameId is the call's name."

# In the order of the calls that make them: a call of the C library has its system call inside.
SYSTEM_CALLS = call_source(
    "os-runtime",
    "System calls",
    "SYSCALL",
    SYSTEM_CALL,
    {},
    states=_STATES,
    since="3.28",
    assumption="A row is one call of the kernel by the thread in `globalTid`, and nameId is the call's name.",
)

CUBLAS = call_source("cublas", "cuBLAS calls", "CUBLAS_EVENTS", CUBLAS_CALL, {}, assumption=_ASSUMPTION.format("CUBLAS_EVENTS"))
CUDNN = call_source("cudnn", "cuDNN calls", "CUDNN_EVENTS", CUDNN_CALL, {}, assumption=_ASSUMPTION.format("CUDNN_EVENTS"))
