"""The ENUM_* tables that nsys writes beside CUDA, NVTX and diagnostic events, as in exports of schema 3.11."""

from __future__ import annotations

import polars as pl


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
