"""What must be recorded for a rule. Where it is not, a rule can't say that there is nothing: it is not decidable."""

from __future__ import annotations

import re
from collections.abc import Callable

from nsys2prv.efficiency.findings.rule import Evidence, Need
from nsys2prv.vocabulary import event_types


def _metric(pattern: str, name: str) -> Callable[[Evidence], str | None]:
    def missing(evidence: Evidence) -> str | None:
        sampled = evidence.tables["sampled_bins"]["metric"].unique()
        return None if any(re.search(pattern, one) for one in sampled) else f"not recorded: {name}"

    return missing


def _lost_between(evidence: Evidence) -> str | None:
    lost = evidence.lost_work.between
    return f"{lost:,} calls launch work that is not recorded" if lost else None


def _sizes(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    return "not recorded: sizes of copies" if operations.height and not operations["bytes"].sum() else None


def _memory_kinds(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    unknown = operations.height and operations["source"].null_count() == operations.height
    return "not recorded: kinds of memory of copies" if unknown else _sizes(evidence)


def _host_times(evidence: Evidence) -> str | None:
    names = ", ".join(evidence.device_name(device) for device in evidence.contradictions)
    return f"times of {names} contradict those of the host" if names else None


def _first_work(evidence: Evidence) -> str | None:
    lost = evidence.lost_work.at_start
    return f"{lost:,} calls launch before the first work that is recorded" if lost else _host_times(evidence)


def _all_work(evidence: Evidence) -> str | None:
    return _lost_between(evidence) or _host_times(evidence)


def _last_work(evidence: Evidence) -> str | None:
    lost = evidence.lost_work.at_end
    return f"{lost:,} calls launch after the last work that is recorded" if lost else _host_times(evidence)


def _launches(evidence: Evidence) -> str | None:
    return _all_work(evidence) if evidence.has_launches else "not recorded: CUDA API calls that launch"


def _several_devices(evidence: Evidence) -> str | None:
    return _lost_between(evidence) if evidence.devices > 1 else "there is one GPU, and nothing to compare it with"


def _matched_collectives(evidence: Evidence) -> str | None:
    if evidence.tables["nccl"].is_empty():
        return None
    if evidence.collectives.height and not evidence.collectives["complete"].any():
        return "ranks of the communicators are not in the run: they may be those that the others wait for"
    if evidence.transfers.height:
        return None
    return "collectives could not be matched over ranks: reports of other ranks are missing, or ranks have different counts"


def _calls(evidence: Evidence) -> str | None:
    return None if evidence.tables["cuda_calls"].height else "not recorded: CUDA API calls"


def _event_waits(evidence: Evidence) -> str | None:
    calls = evidence.tables["cuda_calls"]["call"]
    waits = calls.str.starts_with("cudaStreamWaitEvent") | calls.str.starts_with("cuStreamWaitEvent")
    return "streams wait for events: which work waits for the default stream is not known" if waits.any() else None


def _graphs(evidence: Evidence) -> str | None:
    calls = evidence.tables["cuda_calls"]["call"]
    launched = (calls.str.starts_with("cudaGraphLaunch") | calls.str.starts_with("cuGraphLaunch")).any()
    if not launched or evidence.has_graphs:
        return None
    return "graphs were recorded node by node: where one ends is not known"


def _mpi(evidence: Evidence) -> str | None:
    return None if evidence.tables["mpi_calls"].height else "not recorded: MPI calls"


def _unified(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    managed = event_types.MEMORY_KINDS[4]
    uses = (operations["source"] == managed) | (operations["destination"] == managed)
    has_migrations = operations["operation"].str.contains("Unified").any()
    if uses.any() and not has_migrations:
        return "not recorded: migrations of unified memory (--cuda-um-gpu-page-faults, --cuda-um-cpu-page-faults)"
    return None


CUDA_CALLS = Need("CUDA API calls", _launches)
FIRST_WORK = Need("the work of the first launches", _first_work)
LAST_WORK = Need("the work of the last launches", _last_work)
ALL_WORK = Need("the work of all launches", _all_work)
CALL_NAMES = Need("CUDA API calls", _calls)
COPY_SIZES = Need("copies with sizes", _sizes)
MEMORY_KINDS = Need("copies with kinds of memory and sizes", _memory_kinds)
SEVERAL_DEVICES = Need("kernels on two devices or more", _several_devices)
ALL_RANKS = Need("all ranks of NCCL collectives", _matched_collectives)
CLOCKS = Need(
    "sampled clocks (GPC Clock Frequency)", _metric(r"(?i)\bGPC Clock", "sampled clocks of GPUs (GPC Clock Frequency)")
)
TENSOR_ACTIVE = Need("sampled activity of tensor cores", _metric(r"(?i)tensor", "sampled activity of tensor cores"))
NO_EVENT_WAITS = Need("separate streams without waits for events", _event_waits)
MPI_CALLS = Need("MPI calls", _mpi)
WHOLE_GRAPHS = Need("CUDA graphs recorded as a whole", _graphs)
UNIFIED_MEMORY = Need("copies of unified memory", _unified)
NOTHING_ELSE = Need("kernels or copies", lambda _: None)
NCCL_KERNELS = Need("NCCL kernels", lambda _: None)
"""Rules that need these find nothing without them, which is true: they are recorded with all other kernels."""
