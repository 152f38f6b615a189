"""Ids, event types and encodings of nsys exports."""

from __future__ import annotations

import struct

VM = 1 << 48
"""The `globalVid` of most reports: hardware 0, virtual machine 1."""

NVTX_CATEGORY, NVTX_MARK, NVTX_THREAD_NAME, NVTX_PUSHPOP, NVTX_STARTEND, NVTX_DOMAIN = 33, 34, 39, 59, 60, 75
"""`NVTX_EVENTS.eventType`."""


def global_pid(pid: int, *, hardware: int = 0) -> int:
    """The 64-bit `globalPid` of a process as SQLite has it (signed): hardware id 8, VM id 8, pid 24, tid 24 bits.

    >>> global_pid(1000) == 281474976710656 + (1000 << 24)
    True
    """
    return _signed(hardware << 56 | VM | pid << 24)


def global_tid(pid: int, tid: int, *, hardware: int = 0) -> int:
    """The 64-bit `globalTid` of a thread as SQLite has it (signed)."""
    return _signed(hardware << 56 | VM | pid << 24 | tid)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def payload_blob(domain: int, schema: int, payload: bytes) -> bytes:
    """A binary payload as nsys writes it: a head of 32 bytes, then the bytes of the program."""
    return struct.pack("<4Q", domain, schema, len(payload), 32 + len(payload)) + payload


def kernel_short_name(name: str) -> str:
    """What nsys calls a kernel in short: the demangled name without return type, namespaces and arguments.

    >>> kernel_short_name("void at::native::reduce_kernel<(int)512, at::native::ReduceOp<float>>(T3)")
    'reduce_kernel'
    >>> kernel_short_name("void at::native::<unnamed>::cunn_SoftMaxForward<(int)8>(T4 *)")
    'cunn_SoftMaxForward'
    """
    return name.replace("<unnamed>::", "").split("(")[0].split("<")[0].removeprefix("void ").split("::")[-1]
