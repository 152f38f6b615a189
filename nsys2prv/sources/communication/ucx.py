"""Calls and requests of UCX, and calls of NVSHMEM."""

from functools import partial

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.nvtx.nvtx_ranges import ON_THREADS, PUSHPOP, is_nvshmem_call, ranges_in_domains
from nsys2prv.sources.source import RowKind, Source, call_source
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet
from nsys2prv.vocabulary.name_rules import first_match

_UCX_VALUES = ValueSet("ucx")
UCX_SUBMIT = EventType(51000001, "UCX submission", Role.INTERVAL, _UCX_VALUES, gradient=1)
UCX_PROGRESS = EventType(51000002, "UCX progress", Role.INTERVAL, _UCX_VALUES, gradient=1, lanes=51001000)
UCX_OTHER = EventType(51000003, "UCX call", Role.INTERVAL, _UCX_VALUES, gradient=1)
UCX_SIZE = EventType(51100001, "UCX message size", Role.ATTRIBUTE, gradient=1, unit="bytes")
UCX_TAG = EventType(51100002, "UCX message tag", Role.ATTRIBUTE, gradient=1, unit="tag")
UCX_PEER = EventType(51100003, "UCX peer worker", Role.ATTRIBUTE, gradient=1, unit="id")
NVSHMEM_CALL = EventType(53000001, "NVSHMEM call", Role.INTERVAL, ValueSet("nvshmem"), gradient=1, former=52000001)


# (what a call's name looks like, Paraver state meanwhile); first match counts. As for MPI: what does not block only starts.
_UCX_STATES = (
    (r"ucp_(put|get|atomic)", event_types.STATE_REMOTE_MEMORY),
    (r"flush|fence|_wait|_signal|_arm$", event_types.STATE_WAIT),
    (r"progress|probe|check|test|poll", event_types.STATE_TEST),
    (r"send", event_types.STATE_IMMEDIATE_SEND),
    (r"recv", event_types.STATE_IMMEDIATE_RECEIVE),
    (r"mem_(map|alloc)", event_types.STATE_ALLOCATING),
    (r"mem_(unmap|free)", event_types.STATE_FREEING),
)
_NVSHMEM_STATES = (
    (r"barrier|sync|alltoall|broadcast|collect|reduce|team_split|_(and|or|xor|max|min|sum|prod)_", event_types.STATE_GROUP),
    (r"quiet|fence|wait|test|lock", event_types.STATE_SYNCHRONIZATION),
    (r"put|get|atomic|signal|_[pg]$", event_types.STATE_REMOTE_MEMORY),
    (r"alloc|calloc|align", event_types.STATE_ALLOCATING),
    (r"free", event_types.STATE_FREEING),
)

_MESSAGE = {UCX_SIZE: "packedSize", UCX_TAG: "tag", UCX_PEER: "peerWorkerUid"}


def _nvshmem(report: Report) -> pl.LazyFrame:
    return (
        ranges_in_domains(report, NVSHMEM)
        .filter(is_nvshmem_call())
        .select(
            *RowKind.THREAD.interval,
            "label",
            type=pl.lit(NVSHMEM_CALL, pl.Int64),
            state=first_match(pl.col("label"), _NVSHMEM_STATES, event_types.STATE_OTHERS),
        )
    )


_ucx = partial(call_source, "ucx", name_column="textId", since="3.7")

SUBMISSIONS = _ucx(
    "UCX submissions",
    "UCP_SUBMIT_EVENTS",
    UCX_SUBMIT,
    _MESSAGE,
    states=_UCX_STATES,
    assumption="A row is a call on its thread, with the message that it submits.",
)

# A request is in flight while its thread does other things: it says nothing about the state of the thread.
REQUESTS = _ucx(
    "UCX requests in progress",
    "UCP_PROGRESS_EVENTS",
    UCX_PROGRESS,
    _MESSAGE,
    in_order=lambda: Lanes("globalTid"),
    assumption="A row is a message in flight: rows of one thread may overlap freely, and take no state.",
)

OTHERS = _ucx("UCX calls", "UCP_EVENTS", UCX_OTHER, {}, states=_UCX_STATES, assumption="A row is a call on its thread.")

NVSHMEM = Source(
    name="nvshmem",
    title="NVSHMEM calls",
    **ON_THREADS,
    types=(NVSHMEM_CALL,),
    frame=_nvshmem,
    only=PUSHPOP.only,
    assumption="Calls are push/pop ranges of an NVTX domain NVSHMEM whose names begin with nvshmem.",
)
