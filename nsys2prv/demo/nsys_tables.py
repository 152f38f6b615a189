"""Tables of nsys exports as simulated reports have them: ids, columns, enumerations, and how they are written."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import polars as pl

from nsys2prv.errors import OutputError

VM = 1 << 48
"""The `globalVid` of most reports: hardware 0, virtual machine 1."""

NVTX_CATEGORY, NVTX_MARK, NVTX_THREAD_NAME, NVTX_PUSHPOP, NVTX_STARTEND, NVTX_DOMAIN = 33, 34, 39, 59, 60, 75
"""`NVTX_EVENTS.eventType`."""


def global_pid(pid: int, *, hardware: int = 0) -> int:
    """The 64-bit `globalPid` of a process as SQLite has it (signed): hardware id 8, VM id 8, pid 24, tid 24 bits.

    >>> global_pid(1000) == 281474976710656 + (1000 << 24)
    True
    """
    return _signed(hardware << 56 | VM | pid << 24)


def global_tid(pid: int, tid: int, *, hardware: int = 0) -> int:
    """The 64-bit `globalTid` of a thread as SQLite has it (signed)."""
    return _signed(hardware << 56 | VM | pid << 24 | tid)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def payload_blob(domain: int, schema: int, payload: bytes) -> bytes:
    """A binary payload as nsys writes it: a head of 32 bytes, then the bytes of the program."""
    return struct.pack("<4Q", domain, schema, len(payload), 32 + len(payload)) + payload


def kernel_short_name(name: str) -> str:
    """What nsys calls a kernel in short: the demangled name without return type, namespaces and arguments.

    >>> kernel_short_name("void at::native::reduce_kernel<(int)512, at::native::ReduceOp<float>>(T3)")
    'reduce_kernel'
    >>> kernel_short_name("void at::native::<unnamed>::cunn_SoftMaxForward<(int)8>(T4 *)")
    'cunn_SoftMaxForward'
    """
    return name.replace("<unnamed>::", "").split("(")[0].split("<")[0].removeprefix("void ").split("::")[-1]


_I: type[pl.DataType] = pl.Int64
_T: type[pl.DataType] = pl.String
_R: type[pl.DataType] = pl.Float64
_B: type[pl.DataType] = pl.Binary

# fmt: off
_INTERVAL = {"start": _I, "end": _I}
_ON_STREAM = {
    **_INTERVAL, "deviceId": _I, "contextId": _I, "greenContextId": _I, "streamId": _I, "correlationId": _I, "globalPid": _I,
}
_ON_THREAD = {**_INTERVAL, "globalTid": _I}

COLUMNS: dict[str, dict[str, type[pl.DataType]]] = {
    "META_DATA_EXPORT": {"name": _T, "value": _T},
    "META_DATA_CAPTURE": {"name": _T, "value": _T},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": _I, "utcTime": _T, "localTime": _T, "systemClockNs": _I},
    "TARGET_INFO_SYSTEM_ENV": {"globalVid": _I, "devStateName": _T, "name": _T, "nameEnum": _I, "value": _T},
    "TARGET_INFO_GPU": {
        "vmId": _I, "id": _I, "name": _T, "busLocation": _T, "isDiscrete": _I, "l2CacheSize": _I, "totalMemory": _I,
        "memoryBandwidth": _I, "clockRate": _I, "smCount": _I, "pwGpuId": _I, "uuid": _T, "luid": _I, "chipName": _T,
        "cuDevice": _I, "computeMajor": _I, "computeMinor": _I,
    },
    "TARGET_INFO_CUDA_DEVICE": {"gpuId": _I, "cudaId": _I, "pid": _I, "uuid": _T},
    "TARGET_INFO_CUDA_CONTEXT_INFO": {
        "nullStreamId": _I, "hwId": _I, "vmId": _I, "processId": _I, "deviceId": _I, "contextId": _I,
        "parentContextId": _I, "isGreenContext": _I,
    },
    "TARGET_INFO_CUDA_STREAM": {
        "streamId": _I, "hwId": _I, "vmId": _I, "processId": _I, "contextId": _I, "priority": _I, "flag": _I,
    },
    "TARGET_INFO_GPU_METRICS": {"typeId": _I, "sourceId": _I, "typeName": _T, "metricId": _I, "metricName": _T},
    "PROCESSES": {"globalPid": _I, "pid": _I, "name": _T},
    "ThreadNames": {"nameId": _I, "priority": _I, "globalTid": _I},
    "StringIds": {"id": _I, "value": _T},
    "ANALYSIS_DETAILS": {"globalVid": _I, "duration": _I, "startTime": _I, "stopTime": _I},
    "DIAGNOSTIC_EVENT": {"timestamp": _I, "timestampType": _I, "source": _I, "severity": _I, "text": _T, "globalPid": _I},
    "MPI_RANKS": {"globalTid": _I, "rank": _I},
    "MPI_COMMUNICATORS": {
        "rank": _I, "timestamp": _I, "commHandle": _I, "parentHandle": _I, "localRank": _I, "size": _I,
        "groupRoot": _I, "groupRootUid": _I, "members": _T,
    },
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        **_INTERVAL, "eventClass": _I, "globalTid": _I, "correlationId": _I, "nameId": _I, "returnValue": _I, "callchainId": _I,
    },
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        **_ON_STREAM, "demangledName": _I, "shortName": _I, "mangledName": _I, "launchType": _I, "cacheConfig": _I,
        "registersPerThread": _I, "gridX": _I, "gridY": _I, "gridZ": _I, "blockX": _I, "blockY": _I, "blockZ": _I,
        "staticSharedMemory": _I, "dynamicSharedMemory": _I, "localMemoryPerThread": _I, "localMemoryTotal": _I,
        "gridId": _I, "sharedMemoryExecuted": _I, "graphNodeId": _I, "sharedMemoryLimitConfig": _I, "graphId": _I,
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {
        **_ON_STREAM, "bytes": _I, "copyKind": _I, "deprecatedSrcId": _I, "srcKind": _I, "dstKind": _I, "srcDeviceId": _I,
        "srcContextId": _I, "dstDeviceId": _I, "dstContextId": _I, "migrationCause": _I, "graphNodeId": _I,
        "virtualAddress": _I, "copyCount": _I,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {**_ON_STREAM, "value": _I, "bytes": _I, "graphNodeId": _I, "memKind": _I},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {**_ON_STREAM, "syncType": _I, "eventId": _I},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": {
        "deviceId": _I, "contextId": _I, "greenContextId": _I, "streamId": _I, "correlationId": _I, "globalPid": _I,
        "eventId": _I,
    },
    "NVTX_EVENTS": {
        **_INTERVAL, "eventType": _I, "rangeId": _I, "category": _I, "color": _I, "text": _T, "globalTid": _I,
        "endGlobalTid": _I, "textId": _I, "domainId": _I, "uint64Value": _I, "int64Value": _I, "doubleValue": _R,
        "uint32Value": _I, "int32Value": _I, "floatValue": _R, "jsonTextId": _I, "jsonText": _T,
        "binaryData": _B,
    },
    "NVTX_PAYLOAD_SCHEMAS": {
        "domainId": _I, "schemaId": _I, "name": _T, "type": _I, "flags": _I, "numEntries": _I, "payloadSize": _I,
        "alignTo": _I,
    },
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": {
        "domainId": _I, "schemaId": _I, "idx": _I, "flags": _I, "type": _I, "name": _T, "description": _T,
        "arrayOrUnionDetail": _I, "offset": _I,
    },
    "NVTX_PAYLOAD_ENUMS": {"domainId": _I, "schemaId": _I, "name": _T, "numEntries": _I, "size": _I},
    "NVTX_PAYLOAD_ENUM_ENTRIES": {
        "domainId": _I, "schemaId": _I, "idx": _I, "name": _T, "value": _I, "isFlag": _I,
    },
    "MPI_P2P_EVENTS": {
        **_ON_THREAD, "textId": _I, "commHandle": _I, "tag": _I, "remoteRank": _I, "size": _I, "requestHandle": _I,
    },
    "MPI_COLLECTIVES_EVENTS": {
        **_ON_THREAD, "textId": _I, "commHandle": _I, "rootRank": _I, "size": _I, "recvSize": _I, "requestHandle": _I,
    },
    "MPI_START_WAIT_EVENTS": {**_ON_THREAD, "textId": _I, "requestHandle": _I},
    "MPI_OTHER_EVENTS": {**_ON_THREAD, "textId": _I},
    "OSRT_API": {
        **_INTERVAL, "eventClass": _I, "globalTid": _I, "nameId": _I, "returnValue": _I, "nestingLevel": _I, "callchainId": _I,
    },
    "GPU_METRICS": {"timestamp": _I, "typeId": _I, "metricId": _I, "value": _I},
}


def _enumeration(prefix: str, names: str, labels: str, numbers: tuple[int, ...] = ()) -> pl.DataFrame:
    """Names after a prefix, and labels separated by `;`; numbers count from 0 unless they are given."""
    columns = {"name": [f"{prefix}{name}" for name in names.split()], "label": [label.strip() for label in labels.split(";")]}
    return pl.DataFrame({"id": numbers or range(len(columns["name"])), **columns}, schema_overrides={"id": pl.Int64})


ENUMERATIONS: dict[str, pl.DataFrame] = {
    "ENUM_CUDA_MEMCPY_OPER": _enumeration(
        "CUDA_MEMCPY_KIND_",
        "UNKNOWN HTOD DTOH HTOA ATOH ATOA ATOD DTOA DTOD HTOH PTOP UVM_HTOD UVM_DTOH UVM_DTOD",
        "Unknown; Host-to-Device; Device-to-Host; Host-to-Array; Array-to-Host; Array-to-Array; Array-to-Device; "
        "Device-to-Array; Device-to-Device; Host-to-Host; Peer-to-Peer; "
        "Unified Host-to-Device; Unified Device-to-Host; Unified Device-to-Device",
    ),
    "ENUM_CUDA_MEM_KIND": _enumeration(
        "CUDA_MEMOPR_MEMORY_KIND_",
        "PAGEABLE PINNED DEVICE ARRAY MANAGED DEVICE_STATIC MANAGED_STATIC UNKNOWN",
        "Pageable; Pinned; Device; Array; Managed; Device Static; Managed Static; Unknown",
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _enumeration(
        "CUDA_KERNEL_LAUNCH_TYPE_",
        "UNKNOWN REGULAR COOPERATIVE_SINGLE_DEVICE COOPERATIVE_MULTI_DEVICE",
        "Unknown; Regular; Coop Single Device; Coop Multi Device",
    ),
    "ENUM_CUPTI_SYNC_TYPE": _enumeration(
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        "UNKNOWN EVENT_SYNCHRONIZE STREAM_WAIT_EVENT STREAM_SYNCHRONIZE CONTEXT_SYNCHRONIZE",
        "Unknown; Event sync; Stream wait sync; Stream sync; Context sync",
    ),
    "ENUM_CUPTI_STREAM_TYPE": _enumeration(
        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_",
        "UNKNOWN DEFAULT NON_BLOCKING NULL",
        "Unknown stream type; Default stream; Non-blocking stream; Null stream",
    ),
    "ENUM_NSYS_EVENT_TYPE": _enumeration(
        "Nvtx",
        "Category Mark Thread PushPopRange StartEndRange DomainCreate DomainDestroy",
        "NvtxCategory; NvtxMark; NvtxThread; NvtxPushPopRange; NvtxStartEndRange; NvtxDomainCreate; NvtxDomainDestroy",
        (33, 34, 39, 59, 60, 75, 76),
    ),
    "ENUM_NSYS_EVENT_CLASS": _enumeration(
        "TRACE_PROCESS_EVENT_", "CUDA_RUNTIME CUDA_DRIVER OS_RUNTIME", "CUDA runtime; CUDA driver; OSRT runtime", (0, 1, 27)
    ),
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": _enumeration("", "UnknownLevel Info Warning Error", "Unknown; Info; Warning; Error"),
    "ENUM_DIAGNOSTIC_SOURCE_TYPE": _enumeration(
        "", "UnknownSource Injection Daemon Analysis", "Unknown source; Injection; Daemon; Analysis"
    ),
}


Tables = Mapping[str, pl.DataFrame]

_SQLITE_TYPES: dict[type[pl.DataType], str] = {pl.Int64: "INTEGER", pl.Float64: "REAL", pl.String: "TEXT", pl.Binary: "BLOB"}


def write_report(path: str | Path, tables: Tables) -> None:
    """Write an SQLite export; an existing file is replaced when the new one is complete.

    Parameters
    ----------
    path
        Where; usually ends in ``.sqlite``.
    tables
        A frame per table. Columns that `nsys2prv.demo.nsys_tables.COLUMNS` knows get the types declared there, others keep
        theirs; a column that a frame lacks is not in the table. Unsigned 64-bit numbers become the signed ones with the
        same bits, as nsys does it. A frame without columns leaves no table.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with adbc_driver_sqlite.dbapi.connect(str(part), autocommit=True) as database, database.cursor() as cursor:
            # Nobody reads the file before it is complete, so SQLite needs no journal.
            cursor.execute("PRAGMA journal_mode = OFF")
            cursor.execute("PRAGMA synchronous = OFF")
            for name, frame in tables.items():
                if frame.width == 0:
                    continue
                typed = as_sqlite_types(name, frame)
                columns = ", ".join(f"{_quoted(column)} {_sqlite_type(dtype)}" for column, dtype in typed.schema.items())
                cursor.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
                if typed.height:
                    cursor.adbc_ingest(name, typed.to_arrow(), mode="append")
        part.replace(path)
    except (OSError, adbc_driver_manager.Error, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise OutputError.not_writable(path, str(error)) from error


def as_sqlite_types(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the types that SQLite has."""
    declared = COLUMNS.get(table, {})
    return frame.select(_signed_column(name, dtype, declared.get(name)) for name, dtype in frame.schema.items())


def _signed_column(name: str, dtype: pl.DataType, declared: type[pl.DataType] | None) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.UInt64:
        return column.reinterpret(signed=True)
    if declared is not None:
        return column.cast(declared)
    if dtype in (pl.String, pl.Binary):
        return column
    return column.cast(pl.Float64 if dtype.is_float() else pl.Int64)


def _sqlite_type(dtype: pl.DataType) -> str:
    return _SQLITE_TYPES[dtype.base_type()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
