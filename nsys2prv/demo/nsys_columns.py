"""Tables of nsys exports with their columns and types, as simulated reports have them: schema 3.11 and newer columns."""

from __future__ import annotations

import polars as pl

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
