"""Tables of nsys exports with their columns and types."""

import polars as pl

from nsys2prv.demo.nsys_tables import COLUMNS as COLUMNS_OF_DEMO

_TYPES: dict[str, type[pl.DataType]] = {"": pl.Int64, "text": pl.String, "real": pl.Float64}
_SHARED = {
    "@thread": "start end globalTid",
    "@stream": "start end deviceId contextId greenContextId streamId correlationId globalPid",
    "@openacc": "@thread nameId eventKind DeviceType lineNo cuDeviceId cuContextId cuStreamId srcFile funcName",
    "@openmp": "@thread correlationId nameId eventKind",
}
# Tables = their columns, which are integers unless a type stands behind them; up to 3.7, CUDA_GRAPH_EVENTS has nodes, too.
_TABLES = """
CUPTI_ACTIVITY_KIND_SYNCHRONIZATION = @stream syncType eventId eventSyncId
CUPTI_ACTIVITY_KIND_CUDA_EVENT = timestamp deviceId contextId greenContextId streamId correlationId globalPid eventId
    eventSyncId
EXPORT_META_DATA = name:text value:text
TARGET_INFO_CUDA_GPU = deviceId name:text busLocation:text
TARGET_INFO_CUDA_NULL_STREAM = streamId hwId vmId processId deviceId contextId
TARGET_INFO_NVTX_CUDA_DEVICE = name:text hwId vmId deviceId
TARGET_INFO_NVTX_CUDA_CONTEXT = name:text hwId vmId processId deviceId contextId
TARGET_INFO_NVTX_CUDA_STREAM = name:text hwId vmId processId deviceId contextId streamId
TARGET_INFO_NIC_INFO = GUID globalId stateName:text nicId name:text deviceId vendorId linkLayer
TARGET_INFO_NETWORK_METRICS = metricsListId metricsIdx name:text description:text unit:text
TARGET_INFO_PERF_METRIC = id name:text description:text unit:text displayName:text
TARGET_INFO_COMPONENT = componentId name:text instance
TARGET_INFO_SOC_METRICS = typeId sourceId typeName:text metricId metricName:text
TARGET_INFO_XMC_SPEC = vmId clientId type:text name:text groupId:text
NIC_ID_MAP = nicId globalId
NET_IB_DEVICE_INFO = networkId guid name:text des:text lid
NET_DEVICE_INFO = networkId guid name:text des:text lid
NET_IB_DEVICE_PORT_INFO = guid portNumber portLabel:text portLid
PMU_EVENT_REQUESTS = id eventid source unit_type event_name:text
GENERIC_EVENT_SOURCES = sourceId nameId timeSourceId data:text
GENERIC_EVENT_TYPES = typeId sourceId nameId data:text
GENERIC_EVENT_TYPE_FIELDS = typeId fieldIdx fieldNameId type
ENUM_NET_LINK_TYPE ENUM_NET_DEVICE_ID ENUM_NET_IB_CONGESTION_EVENT_TYPE ENUM_GPU_CTX_SWITCH ENUM_NSYS_EVENT_TYPE
    ENUM_NSYS_GENERIC_EVENT_SOURCE ENUM_CUDA_MEM_KIND ENUM_CUDA_UNIF_MEM_MIGRATION ENUM_CUDA_UNIF_MEM_ACCESS_TYPE
    ENUM_CUDA_DEV_MEM_EVENT_OPER ENUM_CUDA_MEMPOOL_OPER ENUM_CUDA_MEMPOOL_TYPE ENUM_CUPTI_OVERHEAD_TYPE
    ENUM_SAMPLING_THREAD_STATE ENUM_SCHEDULING_THREAD_BLOCK ENUM_OSRT_FILE_ACCESS_EVENT_TYPE ENUM_OPENMP_THREAD
    ENUM_OPENMP_SYNC_REGION ENUM_OPENMP_TASK_FLAG ENUM_OPENMP_TASK_STATUS ENUM_OPENMP_MUTEX ENUM_OPENMP_WORK
    ENUM_OPENMP_DISPATCH = id name:text label:text
CUPTI_ACTIVITY_KIND_GRAPH_TRACE = @stream graphId graphExecId
CUDA_GRAPH_EVENTS = @thread eventClass nameId graphId originalGraphId graphExecId graphNodeId originalGraphNodeId
CUDA_GRAPH_NODE_EVENTS = @thread eventClass nameId graphNodeId originalGraphNodeId
CUDA_GPU_MEMORY_USAGE_EVENTS = start globalPid deviceId contextId address pc bytes memKind memoryOperationType name:text
    correlationId localMemoryPoolAddress localMemoryPoolReleaseThreshold localMemoryPoolSize localMemoryPoolUtilizedSize
CUDA_GPU_MEMORY_POOL_EVENTS = start globalPid deviceId address operationType poolType correlationId minBytesToKeep
    localMemoryPoolReleaseThreshold localMemoryPoolSize localMemoryPoolUtilizedSize
CUDA_UM_GPU_PAGE_FAULT_EVENTS = start end globalPid deviceId address numberOfPageFaults faultAccessType
CUDA_UM_CPU_PAGE_FAULT_EVENTS = start globalPid address CpuInstruction module sourceFile sourceLine
CUPTI_ACTIVITY_KIND_OVERHEAD = @thread eventClass correlationId nameId overheadType
PROFILER_OVERHEAD = @thread nameId overheadType
CUPTI_ACTIVITY_KIND_OPENACC_DATA = @openacc bytes varName
CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH = @openacc numGangs numWorkers vectorLength kernelName
CUPTI_ACTIVITY_KIND_OPENACC_OTHER = @openacc
SCHED_EVENTS = start cpu isSchedIn globalTid threadState threadBlock
COMPOSITE_EVENTS = id start cpu threadState globalTid cpuCycles
SAMPLING_CALLCHAINS OSRT_CALLCHAINS CUDA_CALLCHAINS = id symbol module unresolved originalIP stackDepth
OSRT_FILE_ACCESS_EVENTS = fileAccessId threadId startedAt endedAt eventType apiCallId bytesProcessed
OSRT_FILE_ACCESS_DESCRIPTORS = fileAccessId processId openedAt closedAt filePath:text
OPENMP_EVENT_KIND_THREAD = @openmp threadId threadType
OPENMP_EVENT_KIND_PARALLEL = @openmp parallelId parentTaskId
OPENMP_EVENT_KIND_SYNC_REGION OPENMP_EVENT_KIND_SYNC_REGION_WAIT OPENMP_EVENT_KIND_TASK = @openmp parallelId taskId kind
OPENMP_EVENT_KIND_TASK_CREATE = @openmp parentTaskId newTaskId
OPENMP_EVENT_KIND_TASK_SCHEDULE = @openmp parallelId priorTaskId priorTaskStatus nextTaskId
OPENMP_EVENT_KIND_MASTER OPENMP_EVENT_KIND_REDUCTION = @openmp parallelId taskId
OPENMP_EVENT_KIND_CANCEL = @openmp taskId
OPENMP_EVENT_KIND_MUTEX_WAIT OPENMP_EVENT_KIND_MUTEX_RELEASED = @openmp kind waitId taskId
OPENMP_EVENT_KIND_CRITICAL_SECTION OPENMP_EVENT_KIND_LOCK_INIT OPENMP_EVENT_KIND_LOCK_DESTROY = @openmp kind waitId
OPENMP_EVENT_KIND_WORKSHARE = @openmp kind parallelId taskId count
OPENMP_EVENT_KIND_DISPATCH = @openmp kind parallelId taskId
OPENMP_EVENT_KIND_FLUSH = @openmp threadId
CUBLAS_EVENTS CUDNN_EVENTS = @thread eventClass nameId
CUDA_HOST_CALLBACK = @thread eventClass correlationId nameId
CUPTI_ACTIVITY_KIND_JIT = @thread eventClass correlationId nameId overheadType jitEntryType jitOperationType deviceId
SYSCALL = @thread eventClass nameId callchainId
UCP_SUBMIT_EVENTS UCP_PROGRESS_EVENTS = @thread textId bufferAddr packedSize peerWorkerUid tag
UCP_EVENTS = @thread textId
NET_NIC_METRIC NET_IB_SWITCH_METRIC NET_ETH_SWITCH_METRIC = start end globalId portId metricsListId metricsIdx value
NET_IB_SWITCH_CONGESTION_EVENT = start globalId congestionType packetSLID packetDLID packetSL packetOpCode packetSourceQP
    packetDestinationQP switchIngressPort switchEgressPort
PERF_EVENT_CPU_RAW_EVENT PERF_EVENT_SOC_OR_CPU_RAW_EVENT = start end vmId componentId eventId count
PERF_EVENT_CPU_METRIC_EVENT PERF_EVENT_SOC_OR_CPU_METRIC_EVENT = start end vmId componentId metricId value:real
PMU_EVENTS = start end globalVm cpu counter_id
PMU_EVENT_COUNTERS BANDWIDTH_USAGE_VALUES = id idx value
UNCORE_PMU_EVENTS = start end globalVm clusterId counterId
UNCORE_PMU_EVENT_VALUES = id type value rawId clusterId
BANDWIDTH_USAGE_EVENTS = start end globalVm valuesId
SOC_METRICS = timestamp typeId metricId value
GENERIC_EVENTS = genericEventId rawTimestamp timestamp typeId globalTid data:text
GENERIC_EVENT_DATA = genericEventId fieldIdx intVal uintVal floatVal:real doubleVal:real
GPU_CONTEXT_SWITCH_EVENTS FECS_EVENTS = tag vmId seqNo contextId timestamp globalPid gpuId
"""


def _parsed(columns: str) -> dict[str, type[pl.DataType]]:
    found: dict[str, type[pl.DataType]] = {}
    for column in columns.split():
        name, _, kind = column.partition(":")
        found |= _parsed(_SHARED[name]) if name in _SHARED else {name: _TYPES[kind]}
    return found


COLUMNS: dict[str, dict[str, type[pl.DataType]]] = {
    **COLUMNS_OF_DEMO,
    **{
        table: _parsed(columns)
        for names, _, columns in (line.partition("=") for line in _TABLES.replace("\n    ", " ").strip().splitlines())
        for table in names.split()
    },
}
