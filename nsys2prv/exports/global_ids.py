"""Parts of a globalTid or globalPid: from the highest bits on the machine, the process and, in the lowest 24, the thread (0 in
a globalPid).
"""

from __future__ import annotations

from typing import TypeVar, overload

import polars as pl

_OF_PROCESS = ~0xFFFFFF
_LOW_BITS = 0xFFFFFF

GlobalId = TypeVar("GlobalId", int, pl.Expr, pl.Series)


@overload
def process_of(global_id: GlobalId) -> GlobalId: ...
@overload
def process_of(global_id: str) -> pl.Expr: ...
def process_of(global_id: GlobalId | str) -> GlobalId | pl.Expr:
    """The globalPid of a thread's process, from its globalTid (or globalPid), or from the name of a column of these.

    >>> process_of(0x1_000010_000011) == 0x1_000010_000000
    True
    """
    return (pl.col(global_id) if isinstance(global_id, str) else global_id) & _OF_PROCESS


def pid_of(global_id: GlobalId) -> GlobalId:
    """The system's id of a process, from a globalTid or globalPid.

    >>> pid_of(0x1_000010_000011)
    16
    """
    return global_id // 2**24 & _LOW_BITS


def tid_of(global_tid: GlobalId) -> GlobalId:
    """The system's id of a thread.

    >>> tid_of(0x1_000010_000011)
    17
    """
    return global_tid & _LOW_BITS
