"""Tables of nsys exports as simulated reports have them: ids, columns, enumerations, ranks and hosts; and their writer."""

import datetime
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import polars as pl

from nsys2prv.demo.scenario import AUTOGRAD_TID, LOADER_TID, UTC_ZERO, WATCHDOG_TID, Cluster, gpu_uuid
from nsys2prv.demo.schedule import Schedule
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


def kernel_short_name(name: str) -> str:
    """What nsys calls a kernel in short: the demangled name without return type, namespaces and arguments.

    >>> kernel_short_name("void at::native::reduce_kernel<(int)512, at::native::ReduceOp<float>>(T3)")
    'reduce_kernel'
    >>> kernel_short_name("void at::native::<unnamed>::cunn_SoftMaxForward<(int)8>(T4 *)")
    'cunn_SoftMaxForward'
    """
    return name.replace("<unnamed>::", "").split("(")[0].split("<")[0].removeprefix("void ").split("::")[-1]


_TABLES = """
    META_DATA_EXPORT: name:text value:text
    META_DATA_CAPTURE: name:text value:text
    TARGET_INFO_SESSION_START_TIME: utcEpochNs utcTime:text localTime:text systemClockNs
    TARGET_INFO_SYSTEM_ENV: globalVid devStateName:text name:text nameEnum value:text
    TARGET_INFO_GPU: vmId id name:text busLocation:text isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount
        pwGpuId uuid:text luid chipName:text cuDevice computeMajor computeMinor
    TARGET_INFO_CUDA_DEVICE: gpuId cudaId pid uuid:text
    TARGET_INFO_CUDA_CONTEXT_INFO: nullStreamId hwId vmId processId deviceId contextId parentContextId isGreenContext
    TARGET_INFO_CUDA_STREAM: streamId hwId vmId processId contextId priority flag
    TARGET_INFO_GPU_METRICS: typeId sourceId typeName:text metricId metricName:text
    PROCESSES: globalPid pid name:text
    ThreadNames: nameId priority globalTid
    StringIds: id value:text
    ANALYSIS_DETAILS: globalVid duration startTime stopTime
    DIAGNOSTIC_EVENT: timestamp timestampType source severity text:text globalPid
    MPI_RANKS: globalTid rank
    MPI_COMMUNICATORS: rank timestamp commHandle parentHandle localRank size groupRoot groupRootUid members:text
    CUPTI_ACTIVITY_KIND_RUNTIME: start end eventClass globalTid correlationId nameId returnValue callchainId
    CUPTI_ACTIVITY_KIND_KERNEL: start end deviceId contextId greenContextId streamId correlationId globalPid demangledName
        shortName mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ
        staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId
        sharedMemoryLimitConfig graphId
    CUPTI_ACTIVITY_KIND_MEMCPY: start end deviceId contextId greenContextId streamId correlationId globalPid bytes copyKind
        deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause graphNodeId
        virtualAddress copyCount
    CUPTI_ACTIVITY_KIND_MEMSET: start end deviceId contextId greenContextId streamId correlationId globalPid value bytes
        graphNodeId memKind
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: start end deviceId contextId greenContextId streamId correlationId globalPid
        syncType eventId
    CUPTI_ACTIVITY_KIND_CUDA_EVENT: deviceId contextId greenContextId streamId correlationId globalPid eventId
    NVTX_EVENTS: start end eventType rangeId category color text:text globalTid endGlobalTid textId domainId uint64Value
        int64Value doubleValue:real uint32Value int32Value floatValue:real jsonTextId jsonText:text binaryData:blob
    NVTX_PAYLOAD_SCHEMAS: domainId schemaId name:text type flags numEntries payloadSize alignTo
    NVTX_PAYLOAD_SCHEMA_ENTRIES: domainId schemaId idx flags type name:text description:text arrayOrUnionDetail offset
    NVTX_PAYLOAD_ENUMS: domainId schemaId name:text numEntries size
    NVTX_PAYLOAD_ENUM_ENTRIES: domainId schemaId idx name:text value isFlag
    MPI_P2P_EVENTS: start end globalTid textId commHandle tag remoteRank size requestHandle
    MPI_COLLECTIVES_EVENTS: start end globalTid textId commHandle rootRank size recvSize requestHandle
    MPI_START_WAIT_EVENTS: start end globalTid textId requestHandle
    MPI_OTHER_EVENTS: start end globalTid textId
    OSRT_API: start end eventClass globalTid nameId returnValue nestingLevel callchainId
    GPU_METRICS: timestamp typeId metricId value
"""
_TYPES: dict[str, type[pl.DataType]] = {"": pl.Int64, "text": pl.String, "real": pl.Float64, "blob": pl.Binary}


COLUMNS = {
    table.strip(): {name: _TYPES[kind] for name, _, kind in (column.partition(":") for column in listed.split())}
    for table, listed in (entry.split(": ") for entry in _TABLES.replace("\n        ", " ").strip().splitlines())
}
"""Columns of tables with their types, of schema 3.11 and newer ones."""


def _enumeration(prefix: str, names: str, labels: str, numbers: tuple[int, ...] = ()) -> pl.DataFrame:
    """Names after a prefix, and labels separated by `;`; numbers count from 0 unless they are given."""
    columns = {"name": [f"{prefix}{name}" for name in names.split()], "label": [label.strip() for label in labels.split(";")]}
    return pl.DataFrame({"id": numbers or range(len(columns["name"])), **columns}, schema_overrides={"id": pl.Int64})


ENUMERATIONS: dict[str, pl.DataFrame] = {
    "ENUM_CUDA_MEM_KIND": _enumeration(
        "CUDA_MEMOPR_MEMORY_KIND_",
        "PAGEABLE PINNED DEVICE ARRAY MANAGED DEVICE_STATIC MANAGED_STATIC UNKNOWN",
        "Pageable; Pinned; Device; Array; Managed; Device Static; Managed Static; Unknown",
    ),
    "ENUM_NSYS_EVENT_TYPE": _enumeration(
        "Nvtx",
        "Category Mark Thread PushPopRange StartEndRange DomainCreate DomainDestroy",
        "NvtxCategory; NvtxMark; NvtxThread; NvtxPushPopRange; NvtxStartEndRange; NvtxDomainCreate; NvtxDomainDestroy",
        (33, 34, 39, 59, 60, 75, 76),
    ),
}
"""Those that are read."""

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
                columns = ", ".join(
                    f"{_quoted(column)} {_SQLITE_TYPES[dtype.base_type()]}" for column, dtype in typed.schema.items()
                )
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


DEFAULT_STREAM, NCCL_STREAM = 7, 16

_UPTIME = 1_730_412_000_000_000
"""Monotonic clock of the first host at true time 0, ns: about 20 days. Other hosts have been up for other times."""
_GPU: dict[str, int | str] = {
    "name": "NVIDIA H100 80GB HBM3", "chipName": "GH100", "isDiscrete": 1, "luid": 0, "l2CacheSize": 52_428_800,
    "totalMemory": 85_024_112_640, "memoryBandwidth": 3_352_320_000_000, "clockRate": 1_980_000_000, "smCount": 132,
    "computeMajor": 9, "computeMinor": 0,
}  # fmt: skip


def identity_tables(cluster: Cluster, schedule: Schedule, rank: int, string: Callable[[str], int]) -> dict[str, pl.DataFrame]:
    """Tables of the tool, the host, its clock and GPUs, and the process with its threads and streams.

    Parameters
    ----------
    cluster, schedule, rank
        The run, and the number of the rank.
    string
        Gives the id of a text in StringIds.
    """
    pid, clock = cluster.pid(rank), cluster.clocks[cluster.node(rank)]
    session, stop = (clock.elapsed(int(times[rank])) for times in (schedule.session, schedule.stop))
    host, local = cluster.host(rank), cluster.local_rank(rank)
    utc = UTC_ZERO + clock.offset + int(session)
    second = datetime.datetime.fromtimestamp(utc // 1_000_000_000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    monotonic = _UPTIME * (1 + cluster.node(rank)) + int(session)
    version = {"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_PRODUCT_VERSION": "2024.2.3.38"}
    schema = {"": "3.11.1", "_MAJOR": "3", "_MINOR": "11", "_MICRO": "1"}
    variables = {
        "CUDA_VISIBLE_DEVICES": local,
        "SLURM_PROCID": rank,
        "SLURM_JOB_ID": 4711_000 + cluster.seed,
        "SLURM_LOCALID": local,
        "SLURM_NODEID": cluster.node(rank),
        "SLURM_NTASKS": cluster.ranks,
        "RANK": rank,
        "LOCAL_RANK": local,
        "WORLD_SIZE": cluster.ranks,
    }
    environment = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"') for name, value in variables.items()]
    system = [("CpuCores", 1, "96"), ("CpuArchitecture", 3, "x86_64"), ("Hostname", 907, host)]
    threads = {
        pid: f"MPI Rank {rank}" if cluster.with_mpi else "python3",
        pid + 2: "[NSys]",
        pid + 3: "[NSys Comms]",
        pid + WATCHDOG_TID: "pt_nccl_watchdg",
        pid + AUTOGRAD_TID: "pt_autograd_0",
        pid + LOADER_TID: "pt_data_pin",
    }
    gpus, process = range(cluster.gpus_per_node), constants(hwId=0, vmId=1, processId=pid, contextId=1)
    return {
        "META_DATA_EXPORT": _pairs([*version.items(), *((f"EXPORT_SCHEMA_VERSION{k}", v) for k, v in schema.items())]),
        "META_DATA_CAPTURE": _pairs([("DEVICE_DISPLAY_NAME", host), ("PROCESS_0:COMMAND", "python3"), *environment]),
        "TARGET_INFO_SESSION_START_TIME": pl.DataFrame(
            {"utcEpochNs": [utc], "utcTime": [second], "localTime": [second], "systemClockNs": [monotonic]}
        ),
        "TARGET_INFO_SYSTEM_ENV": pl.DataFrame(system, schema=["name", "nameEnum", "value"], orient="row").with_columns(
            globalVid=pl.lit(VM), devStateName=pl.lit("Local (CLI)")
        ),
        "ANALYSIS_DETAILS": pl.DataFrame({"globalVid": [VM], "duration": [int(stop - session)], "startTime": [0]}).with_columns(
            stopTime="duration"
        ),
        "PROCESSES": pl.DataFrame(
            [(global_pid(pid), pid, "python3"), (global_pid(pid - 1), pid - 1, "nsys-launcher")],
            schema=["globalPid", "pid", "name"],
            orient="row",
        ),
        "ThreadNames": pl.DataFrame(
            [(string(name), 20, global_tid(pid, tid)) for tid, name in threads.items()],
            schema=["nameId", "priority", "globalTid"],
            orient="row",
        ),
        "TARGET_INFO_GPU": pl.DataFrame(
            {
                "id": gpus,
                "busLocation": [f"0000:{0x18 + 0x11 * index:02X}:00.0" for index in gpus],
                "pwGpuId": gpus,
                "uuid": [gpu_uuid(host, index) for index in gpus],
                # CUDA_VISIBLE_DEVICES leaves one GPU to each rank, and each calls it 0.
                "cuDevice": [0 if index == local else None for index in gpus],
            },
            schema_overrides={"cuDevice": pl.Int64},
        ).with_columns(**constants(vmId=VM, **_GPU)),
        "TARGET_INFO_CUDA_DEVICE": pl.DataFrame(
            {"gpuId": [local], "cudaId": [0], "pid": [pid], "uuid": [gpu_uuid(host, local)]}
        ),
        "TARGET_INFO_CUDA_CONTEXT_INFO": pl.DataFrame({"nullStreamId": [DEFAULT_STREAM], "deviceId": [0]}).with_columns(
            **process
        ),
        "TARGET_INFO_CUDA_STREAM": pl.DataFrame(
            {"streamId": [DEFAULT_STREAM, NCCL_STREAM], "priority": [0, 4294967291], "flag": [3, 2]}
        ).with_columns(**process),
    }


def constants(**values: int | str | None) -> dict[str, pl.Expr]:
    """Columns that hold one value in all rows."""
    return {name: pl.lit(value, pl.String if isinstance(value, str) else pl.Int64) for name, value in values.items()}


def _pairs(pairs: list[tuple[str, str]]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={"name": pl.String, "value": pl.String}, orient="row")
