"""The identity of a rank's report: tables about tool, host, clock, GPUs, process, threads and streams."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import polars as pl

from nsys2prv.demo.nsys_tables import VM, global_pid, global_tid
from nsys2prv.demo.scenario import AUTOGRAD_TID, LOADER_TID, UTC_ZERO, WATCHDOG_TID, Cluster, gpu_uuid
from nsys2prv.demo.schedule import Schedule

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
