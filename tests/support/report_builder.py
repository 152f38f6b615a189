"""Small reports by hand: one method call per event comes in, tables or a written export leave. Made for tests.

A report with two kernels, one of them launched by an API call:

>>> report = ReportBuilder(host="node01", rank=0)
>>> launch = report.api_call("cudaLaunchKernel_v7000", 100, 110)
>>> _ = report.kernel("gemm", 130, 200, correlation=launch)
>>> _ = report.kernel("softmax", 210, 230)
>>> report.tables()["CUPTI_ACTIVITY_KIND_KERNEL"].select("start", "end", "correlationId").rows()
[(130, 200, 1), (210, 230, None)]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.demo.nsys_tables import (
    ENUMERATIONS,
    NVTX_CATEGORY,
    NVTX_DOMAIN,
    NVTX_MARK,
    NVTX_PUSHPOP,
    NVTX_STARTEND,
    NVTX_THREAD_NAME,
    VM,
    global_pid,
    global_tid,
    kernel_short_name,
    write_report,
)
from nsys2prv.exports.columns import NOT_APPLICABLE
from support.export_folders import write_arrow_report, write_parquet_report
from support.nsys_columns import COLUMNS

# Columns that only newer schemas have: there only when a row gives them.
_NEWER = frozenset(
    {
        ("CUPTI_ACTIVITY_KIND_KERNEL", "graphId"),
        ("TARGET_INFO_SESSION_START_TIME", "systemClockNs"),
        ("NVTX_EVENTS", "binaryData"),
        ("SCHED_EVENTS", "threadState"),
        ("SCHED_EVENTS", "threadBlock"),
        ("NET_NIC_METRIC", "portId"),
        ("NET_IB_SWITCH_METRIC", "portId"),
        ("TARGET_INFO_NIC_INFO", "globalId"),
        ("GENERIC_EVENTS", "genericEventId"),
        ("GENERIC_EVENTS", "globalTid"),
        ("GENERIC_EVENT_SOURCES", "nameId"),
        ("GENERIC_EVENT_SOURCES", "timeSourceId"),
        ("GENERIC_EVENT_TYPES", "nameId"),
    }
)

Value = int | float | str | bytes | None
Text = str | None
Calls = Sequence[tuple[str, str]]
H100 = "NVIDIA H100 80GB HBM3"


class ReportBuilder:
    """A report in the making. Times are ns from the start of the session; sizes are bytes."""

    def __init__(
        self,
        *,
        host: str = "node01",
        pid: int = 1000,
        process_name: str = "python3",
        rank: int | None = None,
        with_mpi: bool = False,
        ranks: int | None = None,
        utc_ns: int | None = 1_700_000_000_000_000_000,
        monotonic_ns: int | None = None,
        environment: Mapping[str, str] | None = None,
        schema: str | None = "3.11.1",
        hardware: int = 0,
    ) -> None:
        self.pid = pid
        self.hardware = hardware
        self._rows: dict[str, list[dict[str, Value]]] = {}
        self._dropped: set[tuple[str, str | None]] = set()
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self._domains: dict[tuple[int, str], int] = {}
        self._plugin_types: dict[tuple[str, str], int] = {}
        if schema is not None:
            self._metadata(schema, host)
        if utc_ns is not None:
            clock = {} if monotonic_ns is None else {"systemClockNs": monotonic_ns}
            self.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=utc_ns, **clock)
        variables = {} if rank is None else {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks or rank + 1)}
        for name, value in {**variables, **(environment or {})}.items():
            self.variable(name, value)
        self.process(pid, process_name)
        self.thread(pid, name=process_name)
        if with_mpi:
            self.mpi_rank(rank or 0)
            self.communicator(rank=rank or 0, size=ranks or (rank or 0) + 1)

    # -- anything -----------------------------------------------------------------------------------------------------

    def row(self, table: str, **columns: Value) -> ReportBuilder:
        """Add a row to any table, as it stands. Columns not given are NULL."""
        self._rows.setdefault(table, []).append(columns)
        return self

    def without(self, table: str, *columns: str) -> ReportBuilder:
        """Leave out a table, or only some columns of it."""
        self._dropped.update((table, column) for column in columns or (None,))
        return self

    def string(self, text: str) -> int:
        """The id of a text in StringIds."""
        return self._strings.setdefault(text, len(self._strings) + 1)

    # -- who it is ----------------------------------------------------------------------------------------------------

    def variable(self, name: str, value: str) -> ReportBuilder:
        """Add a variable to the environment of the launched program."""
        return self.row("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=f'{name}="{value}"')

    def process(self, pid: int, name: str = "python3") -> int:
        """Add a process; gives its globalPid."""
        self.row("PROCESSES", globalPid=self.global_pid(pid), pid=pid, name=name)
        return self.global_pid(pid)

    def thread(self, tid: int, *, pid: int | None = None, name: str = "python3") -> int:
        """Add the name of a thread; gives its globalTid."""
        thread = self.global_tid(tid, pid)
        self.row("ThreadNames", nameId=self.string(name), priority=20, globalTid=thread)
        return thread

    def global_pid(self, pid: int | None = None) -> int:
        """The globalPid of a process."""
        return global_pid(self.pid if pid is None else pid, hardware=self.hardware)

    def global_tid(self, tid: int | None = None, pid: int | None = None) -> int:
        """The globalTid of a thread; by default the main thread of the process."""
        pid = self.pid if pid is None else pid
        return global_tid(pid, pid if tid is None else tid, hardware=self.hardware)

    def gpu(
        self, index: int = 0, *, cuda: int | None = 0, uuid: Text = None, bus: Text = None, name: str = H100, **columns: Value
    ) -> ReportBuilder:
        """Add a GPU of the machine; `index` is nsys' number of it, `cuda` the one that CUDA gives it."""
        return self.row(
            "TARGET_INFO_GPU",
            vmId=VM, id=index, name=name, busLocation=bus or f"0000:{0x18 + 8 * index:02X}:00.0",
            isDiscrete=1, totalMemory=80 << 30,
            clockRate=1_980_000_000, pwGpuId=index, uuid=uuid or f"{index:08x}-5a43-32b5-99d0-45ee3353aa16",
            chipName="GH100", cuDevice=cuda, computeMajor=9, computeMinor=0, **columns,
        )  # fmt: skip

    def cuda_device(self, device: int, gpu: int, *, pid: int | None = None, uuid: str | None = None) -> ReportBuilder:
        """Add which GPU (nsys' index) a process calls CUDA device `device`. Newer exports only."""
        pid = self.pid if pid is None else pid
        return self.row("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=device, pid=pid, uuid=uuid)

    def context(self) -> ReportBuilder:
        """Add a CUDA context and its default stream."""
        return self.row(
            "TARGET_INFO_CUDA_CONTEXT_INFO",
            nullStreamId=7, hwId=self.hardware, vmId=1, processId=self.pid, deviceId=0, contextId=1,
        )  # fmt: skip

    def diagnostic(self, text: str, *, time: int = 0) -> ReportBuilder:
        """Add a warning of nsys."""
        return self.row(
            "DIAGNOSTIC_EVENT",
            timestamp=time, timestampType=1, source=3, severity=2, text=text, globalPid=self.global_pid(),
        )  # fmt: skip

    # -- CUDA ---------------------------------------------------------------------------------------------------------

    def api_call(
        self,
        name: str,
        start: int,
        end: int,
        *,
        tid: int | None = None,
        pid: int | None = None,
        correlation: int | None = None,
        driver: bool = False,
        error: int = 0,
    ) -> int:
        """Add a CUDA API call; gives its correlation id (a new one unless given)."""
        correlation = self._next_correlation() if correlation is None else correlation
        self.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start, end=end, eventClass=int(driver), globalTid=self.global_tid(tid, pid), correlationId=correlation,
            nameId=self.string(name), returnValue=error,
        )  # fmt: skip
        return correlation

    def kernel(self, name: str, start: int, end: int, *, short_name: str | None = None, **work: Any) -> int | None:
        """Add a kernel; gives its correlation id, None when it has none; `work`: its launch and columns, as in `_work`."""
        fixed = {
            "demangledName": self.string(name), "shortName": self.string(short_name or kernel_short_name(name)),
            "mangledName": self.string(name), "launchType": 1, "cacheConfig": 1, "registersPerThread": 32,
            "gridX": 1, "gridY": 1, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 0,
            "dynamicSharedMemory": 0, "localMemoryPerThread": 0, "localMemoryTotal": 0, "gridId": 1,
        }  # fmt: skip
        return self._work("KERNEL", "cudaLaunchKernel_v7000", start, end, **{**fixed, **work})

    def copy(self, start: int, end: int, size: int, *, kind: int = 1, pageable: bool = False, **work: Any) -> int | None:
        """Add a copy of `size` bytes; `kind` 1 HtoD, 2 DtoH, 8 DtoD, 10 PtoP; the rest as in `kernel`."""
        host = 0 if pageable else 1
        source, destination = {1: (host, 2), 2: (2, host), 9: (host, host)}.get(kind, (2, 2))
        fixed = {"bytes": size, "copyKind": kind, "srcKind": source, "dstKind": destination}
        return self._work("MEMCPY", "cudaMemcpyAsync_v3020", start, end, **{**fixed, **work})

    def memset(self, start: int, end: int, size: int, **work: Any) -> int | None:
        """Add a memset of `size` bytes; the rest as in `kernel`."""
        return self._work("MEMSET", "cudaMemsetAsync_v3020", start, end, **{"value": 0, "bytes": size, "memKind": 2, **work})

    def graph(self, start: int, end: int, *, graph: int = 1, **work: Any) -> int | None:
        """Add the execution of a CUDA graph; the rest as in `kernel`."""
        return self._work("GRAPH_TRACE", "cudaGraphLaunch_v10000", start, end, graphId=graph, graphExecId=1, **work)

    def synchronization(
        self, start: int, end: int, *, kind: int = 3, event: int = NOT_APPLICABLE, sync: int | None = None, **work: Any
    ) -> ReportBuilder:
        """Add a wait; `kind` 1 event, 2 stream wait, 3 stream, 4 context; `sync` names the record of the event."""
        self._work("SYNCHRONIZATION", "", start, end, syncType=kind, eventId=event, eventSyncId=sync, **work)
        return self

    def event_record(
        self, event: int, *, time: int | None = None, correlation: int | None = None, sync: int | None = None, **columns: Value
    ) -> ReportBuilder:
        """Add the record of a CUDA event; `time` on the device, and `sync`, are told by newer schemas only."""
        told = {"correlationId": correlation, "timestamp": time, "eventId": event, "eventSyncId": sync}
        return self.row("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **told, **self._placed(columns))

    def memory_use(
        self, time: int, size: int, *, freed: bool = False, kind: int = 2, name: str | None = None, device: int = 0
    ) -> ReportBuilder:
        """Add an allocation, or a deallocation, of `size` bytes on a device; `kind` 2 device, 4 managed."""
        return self.row(
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
            start=time, globalPid=self.global_pid(), deviceId=device, contextId=1, address=0x7F0000000000, pc=0, bytes=size,
            memKind=kind, memoryOperationType=int(freed), name=name,
        )  # fmt: skip

    def gpu_page_fault(self, start: int, end: int, faults: int, *, access: int = 2) -> ReportBuilder:
        """Add page faults of unified memory on a device; `access` 1 read, 2 write."""
        return self.row(
            "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
            start=start, end=end, globalPid=self.global_pid(), deviceId=0, address=0x7F0000000000,
            numberOfPageFaults=faults, faultAccessType=access,
        )  # fmt: skip

    # -- NVTX ---------------------------------------------------------------------------------------------------------

    def nvtx_range(self, text: str, start: int, end: int | None, **options: Any) -> ReportBuilder:
        """Add a push/pop range; `end` None: never closed."""
        return self._nvtx(NVTX_PUSHPOP, text, start, end, **options)

    def nvtx_start_end(
        self, text: str, start: int, end: int | None, *, end_tid: int | None = None, **options: Any
    ) -> ReportBuilder:
        """Add a start/end range; `end_tid`: the thread that ended it, when another one; the rest as in `nvtx_range`."""
        self._nvtx(NVTX_STARTEND, text, start, end, **options)
        last = self._rows["NVTX_EVENTS"][-1]
        last["rangeId"] = len(self._rows["NVTX_EVENTS"])
        last["endGlobalTid"] = last["globalTid"] if end_tid is None else self.global_tid(end_tid, options.get("pid"))
        return self

    def nvtx_mark(self, text: str, time: int, **options: Any) -> ReportBuilder:
        """Add a mark; the rest as in `nvtx_range`."""
        return self._nvtx(NVTX_MARK, text, time, None, **options)

    def nvtx_category(self, number: int, name: str, *, time: int = 0, **options: Any) -> ReportBuilder:
        """Add the name of a category of a domain."""
        return self._nvtx(NVTX_CATEGORY, name, time, None, category=number, **options)

    def nvtx_schema(
        self,
        schema: int,
        fields: Sequence[tuple[str, int, int]],
        size: int,
        *,
        domain: str = "",
        pid: int | None = None,
        **columns: Sequence[int],
    ) -> ReportBuilder:
        """Add a schema of binary payloads of `size` bytes."""
        number = self.nvtx_domain(domain, pid=pid)
        told = {"type": 1, "numEntries": len(fields), "payloadSize": size or None}
        self.row("NVTX_PAYLOAD_SCHEMAS", domainId=number, schemaId=schema, **told)
        for index, (name, code, offset) in enumerate(fields):
            # nsys leaves out numbers that are 0.
            more = {column: values[index] or None for column, values in columns.items()}
            self.row(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                domainId=number, schemaId=schema, idx=index, type=code, name=name, offset=offset or None, **more,
            )  # fmt: skip
        return self

    def nvtx_enumeration(self, schema: int, values: Mapping[int, str], *, size: int = 4, domain: str = "") -> ReportBuilder:
        """Add an enumeration that fields of payloads can have as their type."""
        number = self.nvtx_domain(domain)
        self.row("NVTX_PAYLOAD_ENUMS", domainId=number, schemaId=schema, numEntries=len(values), size=size)
        for index, (value, name) in enumerate(values.items()):
            self.row("NVTX_PAYLOAD_ENUM_ENTRIES", domainId=number, schemaId=schema, idx=index, name=name, value=value or None)
        return self

    def nvtx_thread_name(self, text: str, *, time: int = 0, **thread: int | None) -> ReportBuilder:
        """Add the name that the program gave to a thread."""
        return self._nvtx(NVTX_THREAD_NAME, text, time, None, **thread)

    def nvtx_domain(self, name: str, *, pid: int | None = None) -> int:
        """The id of a domain in a process; the first use adds its row. The name "" is the default domain, 0."""
        process = self.global_pid(pid)
        if not name:
            return 0
        if (process, name) not in self._domains:
            number = 1 + sum(owner == process for owner, _ in self._domains)
            self._domains[process, name] = number
            thread = self.global_tid(pid=pid)
            self.row("NVTX_EVENTS", start=0, eventType=NVTX_DOMAIN, text=name, globalTid=thread, domainId=number)
        return self._domains[process, name]

    # -- MPI, operating system, samples ----------------------------------------------------------------------------------

    def mpi_rank(self, rank: int, *, tid: int | None = None, pid: int | None = None) -> ReportBuilder:
        """Add the rank of a process."""
        return self.row("MPI_RANKS", globalTid=self.global_tid(tid, pid), rank=rank)

    def communicator(
        self,
        handle: int = 94577367172512,
        *,
        rank: int = 0,
        size: int | None = 1,
        parent: int = 0,
        local_rank: int | None = None,
        group: tuple[int, int] | None = None,
        time: int = 0,
    ) -> ReportBuilder:
        """Add a communicator, by default MPI_COMM_WORLD."""
        local = None if size is None else rank if local_rank is None else local_rank
        root, number = group or (None, None)
        return self.row(
            "MPI_COMMUNICATORS", rank=rank, timestamp=time, commHandle=handle, parentHandle=parent, localRank=local, size=size,
            groupRoot=root, groupRootUid=number,
        )  # fmt: skip

    def mpi_p2p(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        partner: int,
        size: int,
        tag: int = 0,
        request: int | None = None,
        communicator: int = 94577367172512,
        **thread: int | None,
    ) -> ReportBuilder:
        """Add a point-to-point call of `size` bytes with rank `partner` of the communicator; `thread`: `tid` and `pid`."""
        return self._mpi(
            "P2P", name, start, end, thread,
            commHandle=communicator, tag=tag, remoteRank=partner, size=size, requestHandle=request,
        )  # fmt: skip

    def mpi_collective(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        size: int | None = None,
        received: int | None = None,
        root: int | None = None,
        request: int | None = None,
        communicator: int = 94577367172512,
        **thread: int | None,
    ) -> ReportBuilder:
        """Add a collective call with `size` bytes sent and `received` bytes received."""
        return self._mpi(
            "COLLECTIVES", name, start, end, thread,
            commHandle=communicator, rootRank=root, size=size, recvSize=received, requestHandle=request,
        )  # fmt: skip

    def mpi_wait(
        self, name: str, start: int, end: int | None, *, requests: tuple[int, ...] = (1,), **thread: int | None
    ) -> ReportBuilder:
        """Add a start or wait call: nsys writes one row per request, with equal times."""
        for request in requests:
            self._mpi("START_WAIT", name, start, end, thread, requestHandle=request)
        return self

    def mpi_other(self, name: str, start: int, end: int | None, **thread: int | None) -> ReportBuilder:
        """Add any other MPI call, such as MPI_Init_thread."""
        return self._mpi("OTHER", name, start, end, thread)

    def os_call(
        self, name: str, start: int, end: int, *, nesting: int = 0, chain: int = 0, **thread: int | None
    ) -> ReportBuilder:
        """Add a call of the operating system's libraries; `chain` is the number of its call chain."""
        return self.row(
            "OSRT_API",
            start=start, end=end, eventClass=27, globalTid=self.global_tid(**thread), nameId=self.string(name),
            returnValue=0, nestingLevel=nesting, callchainId=chain,
        )  # fmt: skip

    def switch(
        self, time: int, cpu: int, *, on: bool, tid: int | None = None, pid: int | None = None, **columns: Value
    ) -> ReportBuilder:
        """Put a thread on a CPU, or take it off one."""
        return self.row("SCHED_EVENTS", start=time, cpu=cpu, isSchedIn=int(on), globalTid=self.global_tid(tid, pid), **columns)

    def on_cpu(self, start: int, end: int, cpu: int = 0, **thread: int | None) -> ReportBuilder:
        """Add a whole stay of a thread on a CPU."""
        return self.switch(start, cpu, on=True, **thread).switch(end, cpu, on=False, **thread)

    def profiler(self, name: str, start: int, end: int, tid: int | None = None) -> ReportBuilder:
        """Add work of nsys itself on a thread."""
        return self.row("PROFILER_OVERHEAD", start=start, end=end, globalTid=self.global_tid(tid), nameId=self.string(name))

    def cpu_sample(
        self, time: int, chain: Calls = (), *, cpu: int = 0, state: int = 1, cycles: int = 1, **thread: int | None
    ) -> ReportBuilder:
        """Add a sample of a CPU, with the functions and modules of its call chain from the innermost on."""
        number = len(self._rows.get("COMPOSITE_EVENTS", ())) + 1
        self.row(
            "COMPOSITE_EVENTS",
            id=number, start=time, cpu=cpu, threadState=state, globalTid=self.global_tid(**thread), cpuCycles=cycles,
        )  # fmt: skip
        return self.call_chain("SAMPLING_CALLCHAINS", number, chain)

    def call_chain(self, table: str, number: int, chain: Calls) -> ReportBuilder:
        """Add a call chain with a number: functions and modules from the innermost on. An address has no name."""
        for depth, (function, module) in enumerate(chain):
            self.row(
                table,
                id=number, symbol=self.string(function), module=self.string(module), stackDepth=depth,
                unresolved=1 if function.startswith("0x") else None,
            )  # fmt: skip
        return self

    def metric(self, name: str, time: int, value: int, *, gpu: int = 0, instance: int = 0) -> ReportBuilder:
        """Add a sample of a metric of the GPU with nsys' index `gpu`, or of an instance of it (MIG)."""
        names = self._rows.setdefault("TARGET_INFO_GPU_METRICS", [])
        kind = VM | 1 << 32 | instance << 8 | gpu
        found = next((row["metricId"] for row in names if row["typeId"] == kind and row["metricName"] == name), None)
        if found is None:
            found = sum(row["typeId"] == kind for row in names)
            names.append({"typeId": kind, "sourceId": VM | 1 << 32, "typeName": "", "metricId": found, "metricName": name})
        return self.row("GPU_METRICS", timestamp=time, typeId=kind, metricId=found, value=value)

    # -- the node --------------------------------------------------------------------------------------------------------

    def nic(self, name: str, index: int = 0, *, guid: int = 0x5000E60300A1B2C3) -> int:
        """Add an InfiniBand adapter; gives the id that its metrics have."""
        number = VM | index
        self.row(
            "TARGET_INFO_NIC_INFO",
            GUID=guid, stateName="Local (CLI)", nicId=index, name=name, deviceId=4129, vendorId=5555, linkLayer=2,
        )  # fmt: skip
        self.row("NIC_ID_MAP", nicId=index, globalId=number)
        return number

    def network_metric(
        self,
        device: int,
        metric: str,
        start: int,
        end: int,
        value: int,
        *,
        unit: str = "bytes/ms",
        port: int | None = None,
        switch: bool = False,
    ) -> ReportBuilder:
        """Add a sample of a metric of the adapter (or switch) `device` from `start` to `end`; `value` is a rate in `unit`."""
        names = self._rows.setdefault("TARGET_INFO_NETWORK_METRICS", [])
        if all(row["name"] != metric for row in names):
            names.append({"metricsListId": 0, "metricsIdx": len(names), "name": metric, "description": metric, "unit": unit})
        index = next(row["metricsIdx"] for row in names if row["name"] == metric)
        ports = {} if port is None else {"portId": port}
        return self.row(
            "NET_IB_SWITCH_METRIC" if switch else "NET_NIC_METRIC",
            start=start, end=end, globalId=device, metricsListId=0, metricsIdx=index, value=value, **ports,
        )  # fmt: skip

    def plugin_event(
        self, plugin: str, kind: str, time: int | None, fields: Mapping[str, Value], *, raw_time: int | None = None
    ) -> ReportBuilder:
        """Add an event of a plugin: fields as JSON, described where their type is first used."""
        types = self._rows.setdefault("GENERIC_EVENT_TYPES", [])
        key = (plugin, kind)
        if key not in self._plugin_types:
            source = next((number for (name, _), number in self._plugin_types.items() if name == plugin), None)
            number = (VM | len(types) << 32 if source is None else source & ~0xFFFFFFFF) | len(types) << 8
            if source is None:
                described: dict[str, object] = {"Name": plugin, "TimeSource": "SessionNs", "SourceGroup": "Unknown"}
                self.row("GENERIC_EVENT_SOURCES", sourceId=number & ~0xFFFFFFFF, data=json.dumps(described))
            named = {"Name": kind, "Fields": [{"Name": name} for name in fields]}
            types.append({"typeId": number, "sourceId": number & ~0xFFFFFFFF, "data": json.dumps(named)})
            self._plugin_types[key] = number
        raw = raw_time if raw_time is not None else time
        return self.row(
            "GENERIC_EVENTS", rawTimestamp=raw, timestamp=time, typeId=self._plugin_types[key], data=json.dumps(fields)
        )

    # -- out ----------------------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables, with all columns that `COLUMNS` declares (those of newer schemas only when used), times in ns."""
        rows = dict(self._rows)
        rows["StringIds"] = [{"id": number, "value": text} for text, number in self._strings.items()]
        frames = {table: self._frame(table, content) for table, content in rows.items() if (table, None) not in self._dropped}
        if "META_DATA_EXPORT" in rows:
            frames |= {table: frame for table, frame in ENUMERATIONS.items() if (table, None) not in self._dropped}
        return frames

    def write(self, path: str | Path) -> Path:
        """Write the report: a folder of Parquet files if `path` ends in _pqtdir, of Arrow files if in _arwdir, else SQLite."""
        path = Path(path)
        writers = {"_pqtdir": write_parquet_report, "_arwdir": write_arrow_report}
        next((write for ending, write in writers.items() if path.name.endswith(ending)), write_report)(path, self.tables())
        return path

    # -- inside -------------------------------------------------------------------------------------------------------

    def _frame(self, table: str, rows: list[dict[str, Value]]) -> pl.DataFrame:
        given = {column for row in rows for column in row}
        declared = COLUMNS.get(table, {})
        usual = {name for name in declared if (table, name) not in _NEWER}
        ordered = [*declared, *sorted(given - declared.keys())]
        names = [name for name in ordered if name in usual | given and (table, name) not in self._dropped]
        return pl.DataFrame([pl.Series(name, [row.get(name) for row in rows], dtype=declared.get(name)) for name in names])

    def _metadata(self, schema: str, host: str) -> None:
        major, minor, micro = (*schema.split("."), "0", "0")[:3]
        for name, value in {
            "PRODUCT_NAME": "NVIDIA Nsight Systems",
            "PRODUCT_VERSION": "2024.2.3.38",
            "SCHEMA_VERSION": schema,
            "SCHEMA_VERSION_MAJOR": major,
            "SCHEMA_VERSION_MINOR": minor,
            "SCHEMA_VERSION_MICRO": micro,
        }.items():
            self.row("META_DATA_EXPORT", name=f"EXPORT_{name}", value=value)
        self.row("META_DATA_CAPTURE", name="DEVICE_DISPLAY_NAME", value=host)
        for number, name, value in ((1, "CpuCores", "64"), (0, "Hostname", host)):
            self.row(
                "TARGET_INFO_SYSTEM_ENV", globalVid=VM, devStateName="Local (CLI)", name=name, nameEnum=number, value=value
            )

    def _next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def _work(
        self,
        table: str,
        call: str,
        start: int,
        end: int,
        *,
        launch: tuple[int, int] | None = None,
        correlation: int | None = None,
        **columns: Value,
    ) -> int | None:
        """Add work of a device, and its call where `launch` has the times of that; `columns`: those of its table, and `stream`,
        `device`, `context` and `pid` where they are not the usual ones.
        """
        if launch is not None:
            correlation = self.api_call(call, *launch, pid=columns.get("pid"), correlation=correlation)
        placed = self._placed(columns)
        self.row(f"CUPTI_ACTIVITY_KIND_{table}", start=start, end=end, **{"correlationId": correlation, **placed})
        return correlation

    def _placed(self, columns: Mapping[str, Value]) -> dict[str, Value]:
        """Columns with a stream, device, context and process, where not given the usual ones."""
        given = {"stream": 7, "device": 0, "context": 1, "pid": None, **columns}
        place = {f"{name}Id": given.pop(name) for name in ("device", "context", "stream")}
        return {**place, "globalPid": self.global_pid(given.pop("pid")), **given}

    def _mpi(
        self, table: str, name: str, start: int, end: int | None, thread: Mapping[str, int | None], **columns: Value
    ) -> ReportBuilder:
        known = {"globalTid": self.global_tid(**thread), "textId": self.string(name)}
        return self.row(f"MPI_{table}_EVENTS", start=start, end=end, **known, **columns)

    def _nvtx(
        self,
        kind: int,
        text: str,
        start: int,
        end: int | None,
        *,
        domain: str = "",
        tid: int | None = None,
        pid: int | None = None,
        registered: bool = False,
        payload: Mapping[str, int | float | str] | None = None,
        **columns: Value,
    ) -> ReportBuilder:
        named: dict[str, Value] = {"textId": self.string(text)} if registered else {"text": text}
        return self.row(
            "NVTX_EVENTS",
            start=start, end=end, eventType=kind, globalTid=self.global_tid(tid, pid),
            domainId=self.nvtx_domain(domain, pid=pid),
            **{"jsonText": None if payload is None else json.dumps(payload), **named, **columns},
        )  # fmt: skip
