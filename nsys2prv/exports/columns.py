"""Columns of nsys tables: in which types they are read, and what is in them: times, ids of processes, numbers with labels.

Whoever reads a table names its columns: a plain name is a column of whole numbers, `Text("name")` one of texts. Ids are signed
64-bit here, also where an export has them unsigned."""

from collections.abc import Mapping
from typing import TypeVar

import polars as pl

NOT_APPLICABLE = 4294967295
"""What nsys writes into ids of streams, contexts and events that do not apply."""


class Text(str):
    """A column of texts."""


class Real(str):
    """A column of real numbers."""


class Blob(str):
    """A column of bytes."""


TIME_COLUMNS = frozenset(("start", "end", "timestamp", "rawTimestamp", "startedAt", "endedAt", "openedAt", "closedAt"))
"""Columns of times from the start of the session, ns, in whatever table. Other times are not: utcEpochNs and systemClockNs are
of other clocks, and nsys changed what it counts startTime and stopTime of ANALYSIS_DETAILS from."""

_TYPES: dict[type[str], type[pl.DataType]] = {Text: pl.String, Real: pl.Float64, Blob: pl.Binary}


def dtype_of(column: str) -> type[pl.DataType]:
    """Type of a column by how it is named.

    >>> dtype_of("start"), dtype_of(Text("name"))
    (Int64, String)
    """
    return _TYPES.get(type(column), pl.Int64)


def in_type(column: pl.Series, dtype: type[pl.DataType]) -> pl.Series:
    """A column of a table in the type in which it is read. Empty texts and bytes, and numbers that are not finite, are null."""
    if dtype == pl.Int64:
        # Ids are unsigned in Parquet and Arrow exports and signed in SQLite: the same bits must give the same id.
        return column.reinterpret(signed=True) if column.dtype == pl.UInt64 else column.cast(pl.Int64)
    if dtype == pl.Float64:
        numbers: pl.Series = column.cast(pl.Float64)
        return numbers.set(~numbers.is_finite(), None)
    content: pl.Series = column.cast(pl.Binary)
    content = content.set(content.bin.size() == 0, None)
    return decoded(content) if dtype == pl.String else content


def decoded(raw: pl.Series) -> pl.Series:
    """Bytes as texts; what is not UTF-8 keeps marks in the place of the bytes that don't fit."""
    try:
        texts: pl.Series = raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        texts = pl.Series(
            raw.name, [None if text is None else text.decode("utf-8", "replace") for text in raw], dtype=pl.String
        )
    return texts


def labelled(column: str, labels: Mapping[int, str], what: str) -> pl.Expr:
    """The label of each number in a column; ``what`` and the number where there is none, null for no number."""
    number = pl.col(column)
    label = number.replace_strict(dict(labels), default=None, return_dtype=pl.String)
    return pl.coalesce(label, pl.format(f"{what} {{}}", number))


# -- globalTid and globalPid: from the highest bits on the machine, the process and, in the lowest 24, the thread (0 in a
# globalPid).

_OF_PROCESS = ~0xFFFFFF
_LOW_BITS = 0xFFFFFF

GlobalId = TypeVar("GlobalId", int, pl.Expr, pl.Series)


def process_of(global_id: GlobalId) -> GlobalId:
    """The globalPid of a thread's process, from its globalTid (or globalPid).

    >>> process_of(0x1_000010_000011) == 0x1_000010_000000
    True
    """
    return global_id & _OF_PROCESS


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
