"""The ENUM_* tables that nsys writes beside CUDA, NVTX and diagnostic events, as in exports of schema 3.11."""

from __future__ import annotations

import polars as pl


def _enumeration(prefix: str, entries: dict[int, tuple[str, str]]) -> pl.DataFrame:
    rows = [(number, f"{prefix}{name}", label) for number, (name, label) in entries.items()]
    return pl.DataFrame(rows, schema={"id": pl.Int64, "name": pl.String, "label": pl.String}, orient="row")


ENUMERATIONS: dict[str, pl.DataFrame] = {
    "ENUM_CUDA_MEMCPY_OPER": _enumeration(
        "CUDA_MEMCPY_KIND_",
        {
            0: ("UNKNOWN", "Unknown"),
            1: ("HTOD", "Host-to-Device"),
            2: ("DTOH", "Device-to-Host"),
            3: ("HTOA", "Host-to-Array"),
            4: ("ATOH", "Array-to-Host"),
            5: ("ATOA", "Array-to-Array"),
            6: ("ATOD", "Array-to-Device"),
            7: ("DTOA", "Device-to-Array"),
            8: ("DTOD", "Device-to-Device"),
            9: ("HTOH", "Host-to-Host"),
            10: ("PTOP", "Peer-to-Peer"),
            11: ("UVM_HTOD", "Unified Host-to-Device"),
            12: ("UVM_DTOH", "Unified Device-to-Host"),
            13: ("UVM_DTOD", "Unified Device-to-Device"),
        },
    ),
    "ENUM_CUDA_MEM_KIND": _enumeration(
        "CUDA_MEMOPR_MEMORY_KIND_",
        {
            0: ("PAGEABLE", "Pageable"),
            1: ("PINNED", "Pinned"),
            2: ("DEVICE", "Device"),
            3: ("ARRAY", "Array"),
            4: ("MANAGED", "Managed"),
            5: ("DEVICE_STATIC", "Device Static"),
            6: ("MANAGED_STATIC", "Managed Static"),
            7: ("UNKNOWN", "Unknown"),
        },
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _enumeration(
        "CUDA_KERNEL_LAUNCH_TYPE_",
        {
            0: ("UNKNOWN", "Unknown"),
            1: ("REGULAR", "Regular"),
            2: ("COOPERATIVE_SINGLE_DEVICE", "Coop Single Device"),
            3: ("COOPERATIVE_MULTI_DEVICE", "Coop Multi Device"),
        },
    ),
    "ENUM_CUPTI_SYNC_TYPE": _enumeration(
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        {
            0: ("UNKNOWN", "Unknown"),
            1: ("EVENT_SYNCHRONIZE", "Event sync"),
            2: ("STREAM_WAIT_EVENT", "Stream wait sync"),
            3: ("STREAM_SYNCHRONIZE", "Stream sync"),
            4: ("CONTEXT_SYNCHRONIZE", "Context sync"),
        },
    ),
    "ENUM_CUPTI_STREAM_TYPE": _enumeration(
        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_",
        {
            0: ("UNKNOWN", "Unknown stream type"),
            1: ("DEFAULT", "Default stream"),
            2: ("NON_BLOCKING", "Non-blocking stream"),
            3: ("NULL", "Null stream"),
        },
    ),
    "ENUM_NSYS_EVENT_TYPE": _enumeration(
        "Nvtx",
        {
            33: ("Category", "NvtxCategory"),
            34: ("Mark", "NvtxMark"),
            39: ("Thread", "NvtxThread"),
            59: ("PushPopRange", "NvtxPushPopRange"),
            60: ("StartEndRange", "NvtxStartEndRange"),
            75: ("DomainCreate", "NvtxDomainCreate"),
            76: ("DomainDestroy", "NvtxDomainDestroy"),
        },
    ),
    "ENUM_NSYS_EVENT_CLASS": _enumeration(
        "TRACE_PROCESS_EVENT_",
        {0: ("CUDA_RUNTIME", "CUDA runtime"), 1: ("CUDA_DRIVER", "CUDA driver"), 27: ("OS_RUNTIME", "OSRT runtime")},
    ),
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": _enumeration(
        "",
        {0: ("UnknownLevel", "Unknown"), 1: ("Info", "Info"), 2: ("Warning", "Warning"), 3: ("Error", "Error")},
    ),
    "ENUM_DIAGNOSTIC_SOURCE_TYPE": _enumeration(
        "",
        {
            0: ("UnknownSource", "Unknown source"),
            1: ("Injection", "Injection"),
            2: ("Daemon", "Daemon"),
            3: ("Analysis", "Analysis"),
        },
    ),
}
