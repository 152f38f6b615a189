"""Identity of a report: tool, host, clocks, processes, ranks, threads, GPUs. All small; read once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from nsys2prv.exports.columns import Text, pid_of, process_of, tid_of
from nsys2prv.exports.report import Report, once
from nsys2prv.vocabulary.launchers import Launched, launched, node_name
from nsys2prv.vocabulary.limits import whole_number
from nsys2prv.vocabulary.wording import short

NEWEST_KNOWN_SCHEMA = (3, 30)

_LAUNCHERS = ("nsys-launcher", "ProcessLauncher")
"""What nsys starts before the program, in the same process."""
_LONGEST_HOST = 128
"""Characters of the name of a host; Linux allows 64."""
NVTX_THREAD_NAME, NVTX_DOMAIN_CREATED = 39, 75
NEVER_WAITS, IS_DEFAULT, _USUAL_DEFAULT = 2, 3, 7
"""`TARGET_INFO_CUDA_STREAM.flag` of a stream that never waits for the default stream; of a default stream; its usual number."""
_NAME_OF_RANK = r"^MPI Rank (\d+)$"
"""Name that nsys gives to the main thread of a rank of MPI."""

_ENVIRONMENT_NAME = re.compile(r"PROCESS_\d+:ENVIRONMENT_VARIABLE")
# nsys warns of everything that it was asked to look for and that the program does not use.
_NOTHING_LOST = r"^No .* events collected"
_LOSSES = (2, 3)
"""`DIAGNOSTIC_EVENT.severity` of messages about lost data: warnings and errors (4 is chatter)."""

_SIZES = ("smCount", "maxBlocksPerSm", "maxWarpsPerSm", "maxRegistersPerSm", "maxShmemPerSm", "computeMajor")
_HELD = "Blocks", "Warps", "Registers", "SharedMemory"
_OLDER_SIZES = ("numMultiprocessors", *map("max{}PerMultiprocessor".format, _HELD), "computeCapabilityMajor")
"""Multiprocessors of a GPU; blocks, warps, registers and bytes of shared memory that one of them holds; major capability."""
SLICE_OF_GPU = "MIG-"
"""Prefix of the uuid of a part of a GPU (MIG): parts share the place on the bus, and are one device."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as a report names it; `id` is nsys' index of it on this machine, which GPU_METRICS uses.

    `key` identifies it on the node: uuid, else bus location, else its index. Slices of a GPU (MIG) have the key of the GPU.
    `sizes` are those of _SIZES, 0 where one is not known."""

    id: int
    name: str
    key: str
    bus: str = ""
    uuid: str = ""
    sizes: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Nic:
    """One network adapter of the host: its name, its link layer by nsys' label (such as "InfiniBand NIC"), its model, and its
    GUID in hexadecimal; the last two "" when not known."""

    name: str
    link: str
    device: str
    guid: str


@dataclass(frozen=True)
class Identity:
    """Identity of a report. Texts are "" and numbers None (CPUs 0) where they are not known.

    Attributes
    ----------
    host, host_source
        Name of the machine; where it comes from when nsys does not report it, for the user.
    cpus, gpus, nics
        Number of CPUs of the host, its GPUs and network adapters.
    tool, schema
        Version of nsys that exported, and of the schema (major, minor).
    utc_ns, monotonic_ns, stopped_ns
        UTC and the host's monotonic clock at time 0 of the report; when the recording stopped, from there; ns.
    environment
        Environment of the launched process.
    processes, threads
        Name of each process, by globalPid; columns `globalTid`, `name` of threads.
    ranks, rank_source
        Rank of each process that has one, by globalPid; where they come from, for the user.
    launch_rank, launch_source
        Rank that the launcher gave to the recorded program; where it comes from, for the user.
    launches, ranks_of_run
        What the launchers that started the program report, the innermost first; number of ranks of the run.
    devices
        GPU (key) that a CUDA device number means: by process id and number; by None and number, for any process.
    warnings
        What is lost or odd, one sentence each.
    cuda_names
        Names that programs gave with NVTX: to a device by (deviceId,), to a context by (pid, deviceId, contextId), to a stream
        by (pid, deviceId, contextId, streamId).
    stream_flags
        How each stream was created, by (pid, contextId, streamId): `NEVER_WAITS`, `IS_DEFAULT`, others.
    traced
        Processes, by globalPid, whose calls were recorded, or their work on GPUs: not those that the report has only as
        something else that ran on the host.
    """

    host: str
    tool: str
    schema: tuple[int, int] | None
    utc_ns: int | None
    monotonic_ns: int | None
    cpus: int
    environment: Mapping[str, str]
    processes: Mapping[int, str]
    ranks: Mapping[int, int]
    rank_source: str
    launch_rank: int | None
    threads: pl.DataFrame
    gpus: tuple[Gpu, ...]
    devices: Mapping[tuple[int | None, int], str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    launch_source: str = ""
    launches: tuple[Launched, ...] = ()
    ranks_of_run: int | None = None
    host_source: str = ""
    cuda_names: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    stream_flags: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    nics: tuple[Nic, ...] = ()
    traced: frozenset[int] = frozenset()
    stopped_ns: int | None = None

    @property
    def known_ranks(self) -> list[int]:
        """Ranks of its processes, else the one that the launcher gave."""
        return sorted(self.ranks.values()) or ([self.launch_rank] if self.launch_rank is not None else [])

    @property
    def known_ranks_source(self) -> str:
        """Where `known_ranks` come from, for the user."""
        return self.rank_source or (self.launch_source if self.launch_rank is not None else "")

    def of_events(self, global_pids: Collection[int], global_tids: Collection[int]) -> Identity:
        """The same without the names of processes and threads other than these: a machine has thousands of both."""
        return replace(
            self,
            processes={pid: name for pid, name in self.processes.items() if pid in global_pids},
            threads=self.threads.filter(pl.col("globalTid").is_in(list(global_tids))),
        )

    def gpu_key(self, global_pid: int, device: int) -> str:
        """Identifies the GPU that a process calls `device`.

        Every rank may call its own GPU "device 0": the tables of newer exports, else unique CUDA ordinals, else
        CUDA_VISIBLE_DEVICES, else nsys' own index identify it."""
        reported = self.devices.get((pid_of(global_pid), device)) or self.devices.get((None, device))
        if reported is not None:
            return reported
        by_id = {gpu.id: gpu.key for gpu in self.gpus}
        visible = [entry.strip() for entry in self.environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
        if 0 <= device < len(visible):
            entry = visible[device]
            number = whole_number(entry)
            if number in by_id:
                return by_id[number]
            uuid = entry.removeprefix("GPU-")
            named = next((gpu.key for gpu in self.gpus if uuid in (gpu.uuid, gpu.key) or _without_slice(uuid) == gpu.key), None)
            if named is not None:
                return named
        if len(self.gpus) == 1 and device == 0:
            return self.gpus[0].key
        return by_id.get(device, f"index {device}")

    def stream_flag(self, pid: int, context: int, stream: int) -> int:
        """How a stream was created; 0 where that is not known."""
        return self.stream_flags.get((pid, context, stream), IS_DEFAULT if stream == _USUAL_DEFAULT else 0)

    def metric_gpu_key(self, gpu_id: int) -> str:
        """Identifies the GPU that GPU_METRICS calls `gpu_id`."""
        return next((gpu.key for gpu in self.gpus if gpu.id == gpu_id), f"index {gpu_id}")


@once
def describe(report: Report) -> Identity:
    """Read the identity of a report; ReportError when a table can't be read."""
    export = report.export_metadata
    capture = _read(report, "META_DATA_CAPTURE", Text("name"), Text("value"))
    environment = _environment(capture)
    system = dict(_read(report, "TARGET_INFO_SYSTEM_ENV", Text("name"), Text("value")).iter_rows())
    utc, monotonic = report.session_start
    schema = _schema_version(export)
    threads = _thread_names(report)
    ranks, rank_source = _ranks(report, threads)
    launches = launched(environment)
    gpus = _gpus(report)
    host = host_name(system.get("Hostname") or dict(capture.iter_rows()).get("DEVICE_DISPLAY_NAME") or "")
    host_by_launcher, host_source = ("", "") if host else node_name(environment)
    return Identity(
        host=host or host_name(host_by_launcher),
        tool=export.get("EXPORT_PRODUCT_VERSION") or "",
        schema=schema,
        utc_ns=utc,
        monotonic_ns=monotonic,
        cpus=whole_number(system.get("CpuCores")) or 0,
        environment=environment,
        processes=_process_names(report),
        ranks=ranks,
        rank_source=rank_source,
        launch_rank=launches[0].rank if launches else None,
        threads=threads,
        gpus=gpus,
        devices=_devices(report, {gpu.id: gpu.key for gpu in gpus}),
        warnings=_warnings(report, schema, utc),
        launch_source=launches[0].source if launches else "",
        launches=launches,
        ranks_of_run=_ranks_of_run(report, ranks, launches),
        host_source=host_source,
        cuda_names=_cuda_names(report),
        stream_flags=_stream_flags(report),
        nics=_nics(report),
        stopped_ns=max(_read(report, "ANALYSIS_DETAILS", "duration")["duration"].drop_nulls(), default=None),
    )


def host_name(text: str) -> str:
    """A text as the name of a host: tools find streams of a GPU by rows whose names end with it, so it must stay whole there.

    >>> host_name("node\\x1b1 "), len(host_name("n" * 1000))
    ('node 1', 128)
    """
    return short(text, _LONGEST_HOST)


@once
def _process_names(report: Report) -> dict[int, str]:
    names = _read(report, "PROCESSES", "globalPid", Text("name")).drop_nulls("globalPid")
    processes = {pid: name or "" for pid, name in names.iter_rows()}
    # It became the program after nsys noted its name: the name of its first thread, or of most, is that of the program.
    launchers = [pid for pid, name in processes.items() if name in _LAUNCHERS]
    threads = _system_thread_names(report).filter(pl.col("name") != "") if launchers else pl.DataFrame()
    for pid in launchers:
        of_process = threads.filter(process_of(pl.col("globalTid")) == pid)
        first = of_process.filter(pl.col("globalTid") == pid + pid_of(pid))["name"]
        processes[pid] = [*first.tail(1), *of_process["name"].mode().sort(), processes[pid]][0]
    return processes


def _read(report: Report, table: str, *columns: str) -> pl.DataFrame:
    """Columns of a table, in the order of their values: of rows that contradict each other the last one counts."""
    return report.read(table, optional=columns).sort(columns)


def _environment(capture: pl.DataFrame) -> dict[str, str]:
    texts = (text for name, text in capture.iter_rows() if _ENVIRONMENT_NAME.fullmatch(name or "") and "=" in (text or ""))
    return {name: value.strip().strip('"') for name, _, value in (text.partition("=") for text in texts)}


def _schema_version(export: Mapping[str, str | None]) -> tuple[int, int] | None:
    major, minor = (whole_number(export.get(f"EXPORT_SCHEMA_VERSION_{part}")) for part in ("MAJOR", "MINOR"))
    if major is None or minor is None:
        major, minor = map(whole_number, [*(export.get("EXPORT_SCHEMA_VERSION") or "").split(".")[:2], None, None][:2])
    return None if major is None or minor is None else (major, minor)


@once
def _system_thread_names(report: Report) -> pl.DataFrame:
    """Columns `globalTid`, `name` of threads as the system calls them."""
    names = _read(report, "ThreadNames", "globalTid", "nameId")
    named = names.join(report.strings, left_on="nameId", right_on="id", how="left")
    # What nsys calls it, before it is the program or for its rank, is no name of the system.
    name = pl.col("value").fill_null("").str.replace(rf"{_NAME_OF_RANK}|^({'|'.join(_LAUNCHERS)})$", "")
    return named.select("globalTid", name=name).sort("globalTid", "name")


def _thread_names(report: Report) -> pl.DataFrame:
    named = _system_thread_names(report)
    # What the program calls a thread says more than what the system does, which often is the name of the program. That of a
    # rank is in the name of its process.
    by_program = _named_with_nvtx(report).filter(~pl.col("name").str.contains(_NAME_OF_RANK))
    tid = pl.col("globalTid")
    of_process = process_of(tid).replace_strict(_process_names(report), default="", return_dtype=pl.String)
    is_unnamed = (pl.col("name") == "") & (tid_of(tid) == pid_of(tid))
    return (
        pl.concat([named.with_columns(name=pl.when(is_unnamed).then(of_process).otherwise("name")), by_program])
        .drop_nulls("globalTid")
        .unique("globalTid", keep="last", maintain_order=True)
        .sort("globalTid")
    )


@once
def _named_with_nvtx(report: Report) -> pl.DataFrame:
    """Columns `globalTid`, `name` of threads that have a name of NVTX; what was named last is last."""
    if not report.has("NVTX_EVENTS", "eventType", "globalTid"):
        return pl.DataFrame(schema={"globalTid": pl.Int64, "name": pl.String})
    named = report.scan(
        "NVTX_EVENTS", ("eventType", "globalTid"), ("start", Text("text"), "textId"), only={"eventType": (NVTX_THREAD_NAME,)}
    ).join(report.strings.lazy(), left_on="textId", right_on="id", how="left", maintain_order="left")
    names = report.collect(
        named.select("start", "globalTid", name=pl.coalesce("text", "value")).drop_nulls(["globalTid", "name"])
    )
    return names.sort(names.columns).drop("start")


def _cuda_names(report: Report) -> dict[tuple[int, ...], str]:
    context = ("processId", "deviceId", "contextId")
    names: dict[tuple[int, ...], str] = {}
    for kind, key in {"DEVICE": ("deviceId",), "CONTEXT": context, "STREAM": (*context, "streamId")}.items():
        for *of_key, name in _read(report, f"TARGET_INFO_NVTX_CUDA_{kind}", *key, Text("name")).drop_nulls().iter_rows():
            names[tuple(of_key)] = name
    return names


def _stream_flags(report: Report) -> dict[tuple[int, ...], int]:
    key = ("processId", "contextId")
    flags = _read(report, "TARGET_INFO_CUDA_STREAM", *key, "streamId", "flag").drop_nulls()
    by_stream = {tuple(stream): flag for *stream, flag in flags.iter_rows() if flag}
    for table, stream_id in (("CONTEXT_INFO", "nullStreamId"), ("NULL_STREAM", "streamId")):
        defaults = _read(report, f"TARGET_INFO_CUDA_{table}", *key, stream_id).drop_nulls()
        by_stream |= dict.fromkeys(defaults.iter_rows(), IS_DEFAULT)
    return by_stream


def _ranks(report: Report, threads: pl.DataFrame) -> tuple[dict[int, int], str]:
    reported = _read(report, "MPI_RANKS", "globalTid", "rank").drop_nulls()
    if reported.height:
        return _by_process(reported), "MPI_RANKS"
    rank = pl.col("name").str.extract(_NAME_OF_RANK).cast(pl.Int64, strict=False)
    named = _named_with_nvtx(report).select("globalTid", rank=rank).drop_nulls()
    if named.height:
        return _by_process(named), "NVTX thread names"
    members = _read(report, "MPI_COMMUNICATORS", "rank")["rank"].drop_nulls().unique()
    processes = process_of(threads["globalTid"]).unique()
    if len(members) == 1 and len(processes) == 1:
        return {processes[0]: members[0]}, "MPI_COMMUNICATORS"
    return {}, ""


def _ranks_of_run(report: Report, ranks: Mapping[int, int], launches: tuple[Launched, ...]) -> int | None:
    sizes = _read(report, "MPI_COMMUNICATORS", "size")["size"].drop_nulls()
    if ranks and len(sizes):
        # No communicator is larger than that of all.
        return int(sizes.max())  # type: ignore[arg-type]
    # A launcher that gave another rank started something else: the shell around it, a step before it.
    of_run = (launch.ranks for launch in launches if not ranks or launch.rank in ranks.values())
    return next((size for size in of_run if size is not None), None)


def _by_process(ranks: pl.DataFrame) -> dict[int, int]:
    return {process_of(tid): rank for tid, rank in ranks.select("globalTid", "rank").iter_rows()}


def _gpus(report: Report) -> tuple[Gpu, ...]:
    gpus = _read(report, "TARGET_INFO_GPU", "id", Text("name"), Text("busLocation"), Text("uuid"), *_SIZES).drop_nulls("id")
    if gpus.is_empty():
        sizes = dict(zip(_OLDER_SIZES, _SIZES, strict=True))
        older = _read(report, "TARGET_INFO_CUDA_GPU", "deviceId", Text("name"), Text("busLocation"), *sizes).rename(sizes)
        gpus = older.drop_nulls("deviceId").select(pl.exclude(_SIZES), pl.lit("").alias("uuid"), pl.col(_SIZES))
    known = gpus.with_columns(pl.col(pl.String).fill_null(""), pl.col(_SIZES).fill_null(0).clip(lower_bound=0))
    known = known.with_columns(pl.col("uuid").str.strip_prefix("GPU-"))
    return tuple(
        # Without a place on the bus, nothing says of which GPU a slice is.
        Gpu(index, name, _without_slice(uuid) or bus.lower() or uuid or f"index {index}", bus, uuid, tuple(sizes))
        for index, name, bus, uuid, *sizes in known.iter_rows()
    )


def _without_slice(uuid: str) -> str:
    """The uuid of a GPU; of a slice that of its GPU, "" where it does not contain that.

    >>> _without_slice("2f4c-a1"), _without_slice("MIG-2f4c-a1"), _without_slice("MIG-GPU-2f4c-a1/1/0")
    ('2f4c-a1', '', '2f4c-a1')
    """
    if not uuid.startswith(SLICE_OF_GPU):
        return uuid
    slice_of = uuid.removeprefix(SLICE_OF_GPU)
    return slice_of.removeprefix("GPU-").partition("/")[0] if slice_of.startswith("GPU-") else ""


def _nics(report: Report) -> tuple[Nic, ...]:
    adapters = _read(report, "TARGET_INFO_NIC_INFO", "nicId", Text("name"), "linkLayer", "deviceId", "GUID")
    links = dict(_read(report, "ENUM_NET_LINK_TYPE", "id", Text("label")).iter_rows())
    models = dict(_read(report, "ENUM_NET_DEVICE_ID", "id", Text("label")).iter_rows())
    return tuple(
        Nic(
            name or f"NIC {number}",
            links.get(link) or (f"link layer {link}" if link is not None else ""),
            models.get(device) or "",
            # A GUID has 64 bits without a sign.
            f"{guid & 0xFFFFFFFFFFFFFFFF:#x}" if guid is not None else "",
        )
        for number, name, link, device, guid in adapters.iter_rows()
    )


def _devices(report: Report, by_id: Mapping[int, str]) -> dict[tuple[int | None, int], str]:
    ordinals = _read(report, "TARGET_INFO_GPU", "id", "cuDevice").drop_nulls()
    # One number for several GPUs identifies none: each rank of the node calls its own GPU 0.
    is_unique = not ordinals["cuDevice"].is_duplicated().any()
    devices: dict[tuple[int | None, int], str] = {
        (None, ordinal): by_id[index] for index, ordinal in ordinals.iter_rows() if is_unique and index in by_id
    }
    of_processes = _read(report, "TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId", Text("uuid"))
    for pid, ordinal, index, uuid in of_processes.drop_nulls(("pid", "cudaId")).iter_rows():
        key = _without_slice((uuid or "").removeprefix("GPU-")) or by_id.get(index) or uuid
        devices[pid, ordinal] = key or f"index {ordinal if index is None else index}"
    return devices


def _warnings(report: Report, schema: tuple[int, int] | None, utc: int | None) -> tuple[str, ...]:
    warnings = []
    if schema is not None and schema > NEWEST_KNOWN_SCHEMA:
        newest = ".".join(map(str, NEWEST_KNOWN_SCHEMA))
        warnings.append(f"schema {schema[0]}.{schema[1]} is newer than {newest}, the newest known: what is alike is read")
    if utc is None:
        warnings.append("the report has no start time of its session: its times can't be aligned with other reports")
    if report.session_time.warning:
        warnings.append(report.session_time.warning)
    lost = report.collect(
        report.scan("DIAGNOSTIC_EVENT", optional=("timestamp", "severity", Text("text")))
        .filter(pl.col("severity").is_in(_LOSSES), ~pl.col("text").str.contains(_NOTHING_LOST))
        .select("timestamp", "text")
    )
    texts = lost.sort(lost.columns)["text"].drop_nulls().unique(maintain_order=True)
    warnings += [f"nsys said: {' '.join(text.split())[:300]}" for text in texts]
    return tuple(warnings)
