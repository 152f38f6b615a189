"""Names of calls: which ones wait for others, and of those of MPI Extrae's numbers, their event types and states meanwhile.

`mpi_calls.csv` has a line for each call: its kind, a key of `event_types.MPI_TYPES`; the number of the state
(`event_types.STATES`); and what it does for messages (MessagePart). The first 219 are in the order of Extrae's numbers, so that
views made for its traces work; any other call gets a number above these. nsys has File_open among the collectives; Extrae's
views look for it under I/O."""

import csv
import enum
from importlib import resources

import polars as pl

_OF_EXTRAE = 219  # calls that have a number in Extrae's traces
_TEXT = (resources.files("nsys2prv.vocabulary") / "mpi_calls.csv").read_text(encoding="ascii")
_CALLS = list(csv.DictReader(_TEXT.splitlines()))

NUMBERS: dict[str, int] = {call["call"]: number for number, call in enumerate(_CALLS[:_OF_EXTRAE], start=1)}
"""Extrae's number of each MPI call, from 1."""

START_UP_CALLS, SHUT_DOWN_CALLS = r"^MPI_Init(_thread)?$", r"^MPI_Finalize$"
"""Names of the calls that start MPI, and of that which ends it. They are no communication of the program."""
TO_ALL, FROM_ROOT, TO_ROOT = range(1, 4)
WAITING_COLLECTIVES = (
    (r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?)(_c)?$", TO_ALL),
    (r"^MPI_(Bcast|Scatterv?)(_c)?$", FROM_ROOT),
    (r"^MPI_(Reduce|Gatherv?)(_c)?$", TO_ROOT),
)
"""Collectives of which all wait for all, all for the root, and the root for all."""

POLLS = r"^(e?poll(_p?wait2?)?|ppoll|p?select|sig(timed)?wait(info)?)$"
"""Calls that wait for files, sockets or signals, or for a time-out."""
WAKE_UPS = (
    (r"^pthread_cond_(timed|clock)?wait$", r"^pthread_cond_(signal|broadcast)$"),
    (r"^sem_(timed|clock)?wait$", r"^sem_post$"),
    # A wait for a condition starts by unlocking the mutex.
    (r"^pthread_(mutex_(timed|clock)?|spin_)lock$", r"^pthread_((mutex|spin)_unlock|cond_(timed|clock)?wait)$"),
    (r"^pthread_rwlock_(timed|clock)?(rd|wr)lock$", r"^pthread_rwlock_unlock$"),
    (r"^pthread_(timed|clock)?join(_np)?$", r"^pthread_exit$"),
    (r"^pthread_barrier_wait$", r"^pthread_barrier_wait$"),
    (POLLS, r"^(writev?|eventfd_write|send(to|m?msg)?|shutdown)$"),
)
"""Names of calls in which a thread waits, and of those that end such a wait; the last are polls, and writes."""
TIMERS = r"^((clock_)?nanosleep|u?sleep)$"
"""Calls in which a thread sleeps for a time that it knows."""
TIMED_WAITS = r"_(timed|clock)wait$"
"""Calls that wait for another thread, or for a time-out."""
WAITING_CALLS = "|".join([TIMERS, *(wait for wait, _ in WAKE_UPS)])
"""Names of calls of the OS in which a thread waits: for what, is known at best from who woke it."""


class MessagePart(enum.IntFlag):
    """What a call does for point-to-point messages. nsys does not report cancelled and freed requests."""

    SENDS = enum.auto()
    RECEIVES = enum.auto()
    LATER = enum.auto()  # makes a request, which a later call completes
    DEFINES = enum.auto()  # makes a persistent request, which later calls start and complete
    STARTS = enum.auto()  # starts persistent requests
    COMPLETES = enum.auto()  # completes requests


def call_kind(names: pl.Expr) -> pl.Expr:
    """Kind of MPI calls: point_to_point, collective, one_sided, io or other.

    >>> names = pl.Series(["MPI_Iallreduce", "MPI_Waitall", "MPI_File_open", "MPI_Win_fence", "MPI_Comm_rank"])
    >>> pl.select(call_kind(pl.lit(names))).to_series().to_list()
    ['collective', 'point_to_point', 'io', 'one_sided', 'other']
    """
    return _of_call(names, {call["call"]: call["kind"] for call in _CALLS}, "other")


def call_state(names: pl.Expr) -> pl.Expr:
    """Paraver state of a rank inside MPI calls.

    >>> names = pl.Series(["MPI_Recv", "MPI_Waitall", "MPI_Allreduce", "MPI_Send_c", "MPI_Init", "MPI_Mine"])
    >>> pl.select(call_state(pl.lit(names))).to_series().to_list()
    [3, 8, 13, 4, 15, 15]
    """
    return _of_call(names, {call["call"]: int(call["state"]) for call in _CALLS}, 15)


def message_parts(names: pl.Expr) -> pl.Expr:
    """What MPI calls do for point-to-point messages (bits of `MessagePart`), 0 for nothing.

    >>> names = pl.Series(["MPI_Irecv", "MPI_Waitall", "MPI_Probe"])
    >>> [MessagePart(parts) for parts in pl.select(message_parts(pl.lit(names))).to_series()]
    [<MessagePart.RECEIVES|LATER: 6>, <MessagePart.COMPLETES: 32>, <MessagePart: 0>]
    """
    parts = {call["call"]: int(sum(MessagePart[part.upper()] for part in call["parts"].split())) for call in _CALLS}
    return _of_call(names, parts, 0)


def _of_call(names: pl.Expr, values: dict[str, int] | dict[str, str], default: int | str) -> pl.Expr:
    # Calls with large counts have the suffix _c.
    call = names.str.to_lowercase().str.strip_suffix("_c")
    return call.replace_strict({name.lower(): value for name, value in values.items()}, default=default)
