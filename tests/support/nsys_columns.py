"""Tables of nsys exports with their columns and types.

Taken from exports of schema 2.9 to 3.25 and NVIDIA's "SQLite Schema Reference" (to 3.28). Rows of other tables have the columns
that they are given.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.demo.nsys_tables import COLUMNS as COLUMNS_OF_DEMO

_I: type[pl.DataType] = pl.Int64
_T: type[pl.DataType] = pl.String
_R: type[pl.DataType] = pl.Float64

# fmt: off
_INTERVAL = {"start": _I, "end": _I}
_ON_STREAM = {
    **_INTERVAL, "deviceId": _I, "contextId": _I, "greenContextId": _I, "streamId": _I, "correlationId": _I, "globalPid": _I,
}
_ON_THREAD = {**_INTERVAL, "globalTid": _I}
_LABELS = {"id": _I, "name": _T, "label": _T}
_NETWORK_METRIC = {**_INTERVAL, "globalId": _I, "portId": _I, "metricsListId": _I, "metricsIdx": _I, "value": _I}
_RAW_EVENT = {**_INTERVAL, "vmId": _I, "componentId": _I, "eventId": _I, "count": _I}
_METRIC_EVENT = {**_INTERVAL, "vmId": _I, "componentId": _I, "metricId": _I, "value": _R}
_CONTEXT_SWITCH = {
    "tag": _I, "vmId": _I, "seqNo": _I, "contextId": _I, "timestamp": _I, "globalPid": _I, "gpuId": _I,
}
_UCX = {
    **_ON_THREAD, "textId": _I, "bufferAddr": _I, "packedSize": _I, "peerWorkerUid": _I, "tag": _I,
}
_OPENACC = {
    **_ON_THREAD,
    "nameId": _I,
    "eventKind": _I,
    "DeviceType": _I,
    "lineNo": _I,
    "cuDeviceId": _I,
    "cuContextId": _I,
    "cuStreamId": _I,
    "srcFile": _I,
    "funcName": _I,
}
_OPENMP = {**_ON_THREAD, "correlationId": _I, "nameId": _I, "eventKind": _I}
_FRAME = {"id": _I, "symbol": _I, "module": _I, "unresolved": _I, "originalIP": _I, "stackDepth": _I}

COLUMNS: dict[str, dict[str, type[pl.DataType]]] = COLUMNS_OF_DEMO | {
    # who it is
    "EXPORT_META_DATA": {"name": _T, "value": _T},
    "TARGET_INFO_CUDA_GPU": {"deviceId": _I, "name": _T, "busLocation": _T},
    "TARGET_INFO_CUDA_NULL_STREAM": {
        "streamId": _I, "hwId": _I, "vmId": _I, "processId": _I, "deviceId": _I, "contextId": _I,
    },
    "TARGET_INFO_NVTX_CUDA_DEVICE": {"name": _T, "hwId": _I, "vmId": _I, "deviceId": _I},
    "TARGET_INFO_NVTX_CUDA_CONTEXT": {
        "name": _T, "hwId": _I, "vmId": _I, "processId": _I, "deviceId": _I, "contextId": _I,
    },
    "TARGET_INFO_NVTX_CUDA_STREAM": {
        "name": _T, "hwId": _I, "vmId": _I, "processId": _I, "deviceId": _I, "contextId": _I, "streamId": _I,
    },
    "TARGET_INFO_NIC_INFO": {
        "GUID": _I, "globalId": _I, "stateName": _T, "nicId": _I, "name": _T, "deviceId": _I, "vendorId": _I, "linkLayer": _I,
    },
    "TARGET_INFO_NETWORK_METRICS": {"metricsListId": _I, "metricsIdx": _I, "name": _T, "description": _T, "unit": _T},
    "TARGET_INFO_PERF_METRIC": {"id": _I, "name": _T, "description": _T, "unit": _T, "displayName": _T},
    "TARGET_INFO_COMPONENT": {"componentId": _I, "name": _T, "instance": _I},
    "TARGET_INFO_SOC_METRICS": {"typeId": _I, "sourceId": _I, "typeName": _T, "metricId": _I, "metricName": _T},
    "TARGET_INFO_XMC_SPEC": {"vmId": _I, "clientId": _I, "type": _T, "name": _T, "groupId": _T},
    "NIC_ID_MAP": {"nicId": _I, "globalId": _I},
    "NET_IB_DEVICE_INFO": {"networkId": _I, "guid": _I, "name": _T, "des": _T, "lid": _I},
    "NET_IB_DEVICE_PORT_INFO": {"guid": _I, "portNumber": _I, "portLabel": _T, "portLid": _I},
    "PMU_EVENT_REQUESTS": {"id": _I, "eventid": _I, "source": _I, "unit_type": _I, "event_name": _T},
    "GENERIC_EVENT_SOURCES": {"sourceId": _I, "nameId": _I, "timeSourceId": _I, "data": _T},
    "GENERIC_EVENT_TYPES": {"typeId": _I, "sourceId": _I, "nameId": _I, "data": _T},
    "GENERIC_EVENT_TYPE_FIELDS": {"typeId": _I, "fieldIdx": _I, "fieldNameId": _I, "type": _I},
    "ENUM_NET_LINK_TYPE": _LABELS,
    "ENUM_NET_DEVICE_ID": _LABELS,
    "ENUM_NET_IB_CONGESTION_EVENT_TYPE": _LABELS,
    "ENUM_GPU_CTX_SWITCH": _LABELS,
    "ENUM_NSYS_EVENT_TYPE": _LABELS,
    "ENUM_NSYS_GENERIC_EVENT_SOURCE": _LABELS,
    # CUDA
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {**_ON_STREAM, "graphId": _I, "graphExecId": _I},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {
        **COLUMNS_OF_DEMO["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"], "eventSyncId": _I,
    },
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": {
        "timestamp": _I, **COLUMNS_OF_DEMO["CUPTI_ACTIVITY_KIND_CUDA_EVENT"], "eventSyncId": _I,
    },
    "CUDA_GRAPH_EVENTS": {
        **_ON_THREAD, "eventClass": _I, "nameId": _I, "graphId": _I, "originalGraphId": _I, "graphExecId": _I,
        # up to 3.7: nodes are in this table too
        "graphNodeId": _I, "originalGraphNodeId": _I,
    },
    "CUDA_GRAPH_NODE_EVENTS": {
        **_ON_THREAD, "eventClass": _I, "nameId": _I, "graphNodeId": _I, "originalGraphNodeId": _I,
    },
    "CUDA_GPU_MEMORY_USAGE_EVENTS": {
        "start": _I, "globalPid": _I, "deviceId": _I, "contextId": _I, "address": _I, "pc": _I, "bytes": _I, "memKind": _I,
        "memoryOperationType": _I, "name": _T, "correlationId": _I, "localMemoryPoolAddress": _I,
        "localMemoryPoolReleaseThreshold": _I, "localMemoryPoolSize": _I, "localMemoryPoolUtilizedSize": _I,
    },
    "CUDA_GPU_MEMORY_POOL_EVENTS": {
        "start": _I, "globalPid": _I, "deviceId": _I, "address": _I, "operationType": _I, "poolType": _I,
        "correlationId": _I, "minBytesToKeep": _I, "localMemoryPoolReleaseThreshold": _I, "localMemoryPoolSize": _I,
        "localMemoryPoolUtilizedSize": _I,
    },
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": {
        **_INTERVAL, "globalPid": _I, "deviceId": _I, "address": _I, "numberOfPageFaults": _I, "faultAccessType": _I,
    },
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": {
        "start": _I, "globalPid": _I, "address": _I, "CpuInstruction": _I, "module": _I, "SourceFile": _I, "SourceLine": _I,
    },
    "CUPTI_ACTIVITY_KIND_OVERHEAD": {**_ON_THREAD, "eventClass": _I, "correlationId": _I, "nameId": _I, "overheadType": _I},
    "PROFILER_OVERHEAD": {**_ON_THREAD, "nameId": _I, "overheadType": _I},
    "ENUM_CUDA_MEM_KIND": _LABELS,
    "ENUM_CUDA_UNIF_MEM_MIGRATION": _LABELS,
    "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE": _LABELS,
    "ENUM_CUDA_DEV_MEM_EVENT_OPER": _LABELS,
    "ENUM_CUDA_MEMPOOL_OPER": _LABELS,
    "ENUM_CUDA_MEMPOOL_TYPE": _LABELS,
    "ENUM_CUPTI_OVERHEAD_TYPE": _LABELS,
    # host
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA": {**_OPENACC, "bytes": _I, "varName": _I},
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": {
        **_OPENACC, "numGangs": _I, "numWorkers": _I, "vectorLength": _I, "kernelName": _I,
    },
    "CUPTI_ACTIVITY_KIND_OPENACC_OTHER": _OPENACC,
    # CPU
    "SCHED_EVENTS": {
        "start": _I, "cpu": _I, "isSchedIn": _I, "globalTid": _I, "threadState": _I, "threadBlock": _I,
    },
    "COMPOSITE_EVENTS": {"id": _I, "start": _I, "cpu": _I, "threadState": _I, "globalTid": _I, "cpuCycles": _I},
    "SAMPLING_CALLCHAINS": _FRAME,
    "OSRT_CALLCHAINS": _FRAME,
    "CUDA_CALLCHAINS": _FRAME,
    "OSRT_FILE_ACCESS_EVENTS": {
        "fileAccessId": _I, "threadId": _I, "startedAt": _I, "endedAt": _I, "eventType": _I, "apiCallId": _I,
        "bytesProcessed": _I,
    },
    "OSRT_FILE_ACCESS_DESCRIPTORS": {
        "fileAccessId": _I, "processId": _I, "openedAt": _I, "closedAt": _I, "filePath": _T,
    },
    "OPENMP_EVENT_KIND_THREAD": {**_OPENMP, "threadId": _I, "threadType": _I},
    "OPENMP_EVENT_KIND_PARALLEL": {**_OPENMP, "parallelId": _I, "parentTaskId": _I},
    "OPENMP_EVENT_KIND_SYNC_REGION": {**_OPENMP, "parallelId": _I, "taskId": _I, "kind": _I},
    "OPENMP_EVENT_KIND_SYNC_REGION_WAIT": {**_OPENMP, "parallelId": _I, "taskId": _I, "kind": _I},
    "OPENMP_EVENT_KIND_TASK": {**_OPENMP, "parallelId": _I, "taskId": _I, "kind": _I},
    "OPENMP_EVENT_KIND_TASK_CREATE": {**_OPENMP, "parentTaskId": _I, "newTaskId": _I},
    "OPENMP_EVENT_KIND_TASK_SCHEDULE": {
        **_OPENMP, "parallelId": _I, "priorTaskId": _I, "priorTaskStatus": _I, "nextTaskId": _I,
    },
    "OPENMP_EVENT_KIND_MASTER": {**_OPENMP, "parallelId": _I, "taskId": _I},
    "OPENMP_EVENT_KIND_REDUCTION": {**_OPENMP, "parallelId": _I, "taskId": _I},
    "OPENMP_EVENT_KIND_CANCEL": {**_OPENMP, "taskId": _I},
    "OPENMP_EVENT_KIND_MUTEX_WAIT": {**_OPENMP, "kind": _I, "waitId": _I, "taskId": _I},
    "OPENMP_EVENT_KIND_MUTEX_RELEASED": {**_OPENMP, "kind": _I, "waitId": _I, "taskId": _I},
    "OPENMP_EVENT_KIND_CRITICAL_SECTION": {**_OPENMP, "kind": _I, "waitId": _I},
    "OPENMP_EVENT_KIND_LOCK_INIT": {**_OPENMP, "kind": _I, "waitId": _I},
    "OPENMP_EVENT_KIND_LOCK_DESTROY": {**_OPENMP, "kind": _I, "waitId": _I},
    "OPENMP_EVENT_KIND_WORKSHARE": {**_OPENMP, "kind": _I, "parallelId": _I, "taskId": _I, "count": _I},
    "OPENMP_EVENT_KIND_DISPATCH": {**_OPENMP, "kind": _I, "parallelId": _I, "taskId": _I},
    "OPENMP_EVENT_KIND_FLUSH": {**_OPENMP, "threadId": _I},
    "CUBLAS_EVENTS": {**_ON_THREAD, "eventClass": _I, "nameId": _I},
    "CUDNN_EVENTS": {**_ON_THREAD, "eventClass": _I, "nameId": _I},
    "ENUM_SAMPLING_THREAD_STATE": _LABELS,
    "ENUM_SCHEDULING_THREAD_BLOCK": _LABELS,
    "ENUM_OSRT_FILE_ACCESS_EVENT_TYPE": _LABELS,
    "ENUM_OPENMP_THREAD": _LABELS,
    "ENUM_OPENMP_SYNC_REGION": _LABELS,
    "ENUM_OPENMP_TASK_FLAG": _LABELS,
    "ENUM_OPENMP_TASK_STATUS": _LABELS,
    "ENUM_OPENMP_MUTEX": _LABELS,
    "ENUM_OPENMP_WORK": _LABELS,
    "ENUM_OPENMP_DISPATCH": _LABELS,
    "UCP_SUBMIT_EVENTS": _UCX,
    "UCP_PROGRESS_EVENTS": _UCX,
    "UCP_EVENTS": {**_ON_THREAD, "textId": _I},
    # the node: network, CPUs, what plugins sample
    "NET_NIC_METRIC": _NETWORK_METRIC,
    "NET_IB_SWITCH_METRIC": _NETWORK_METRIC,
    "NET_IB_SWITCH_CONGESTION_EVENT": {
        "start": _I, "globalId": _I, "congestionType": _I, "packetSLID": _I, "packetDLID": _I, "packetSL": _I,
        "packetOpCode": _I, "packetSourceQP": _I, "packetDestinationQP": _I, "switchIngressPort": _I, "switchEgressPort": _I,
    },
    "PERF_EVENT_CPU_RAW_EVENT": _RAW_EVENT,
    "PERF_EVENT_CPU_METRIC_EVENT": _METRIC_EVENT,
    "PERF_EVENT_SOC_OR_CPU_RAW_EVENT": _RAW_EVENT,
    "PERF_EVENT_SOC_OR_CPU_METRIC_EVENT": _METRIC_EVENT,
    "PMU_EVENTS": {**_INTERVAL, "globalVm": _I, "cpu": _I, "counter_id": _I},
    "PMU_EVENT_COUNTERS": {"id": _I, "idx": _I, "value": _I},
    "UNCORE_PMU_EVENTS": {**_INTERVAL, "globalVm": _I, "clusterId": _I, "counterId": _I},
    "UNCORE_PMU_EVENT_VALUES": {"id": _I, "type": _I, "value": _I, "rawId": _I, "clusterId": _I},
    "BANDWIDTH_USAGE_EVENTS": {**_INTERVAL, "globalVm": _I, "valuesId": _I},
    "BANDWIDTH_USAGE_VALUES": {"id": _I, "idx": _I, "value": _I},
    "SOC_METRICS": {"timestamp": _I, "typeId": _I, "metricId": _I, "value": _I},
    "GENERIC_EVENTS": {
        "genericEventId": _I, "rawTimestamp": _I, "timestamp": _I, "typeId": _I, "globalTid": _I, "data": _T,
    },
    "GENERIC_EVENT_DATA": {
        "genericEventId": _I, "fieldIdx": _I, "intVal": _I, "uintVal": _I, "floatVal": _R, "doubleVal": _R,
    },
    "GPU_CONTEXT_SWITCH_EVENTS": _CONTEXT_SWITCH,
    "FECS_EVENTS": _CONTEXT_SWITCH,
    # samples
}
