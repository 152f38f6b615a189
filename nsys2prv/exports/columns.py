"""Columns of nsys tables: names, and the types in which they are read.

Whoever reads a table names its columns: a plain name is a column of whole numbers, `Text("name")` one of texts. Ids are signed
64-bit here, also where an export has them unsigned.
"""

from __future__ import annotations

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


def decoded(raw: pl.Series) -> pl.Series:
    """Bytes as texts; what is not UTF-8 keeps marks in the place of the bytes that don't fit."""
    try:
        texts: pl.Series = raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        texts = pl.Series(
            raw.name, [None if text is None else text.decode("utf-8", "replace") for text in raw], dtype=pl.String
        )
    return texts


def dtype_of(column: str) -> type[pl.DataType]:
    """Type of a column by how it is named.

    >>> dtype_of("start"), dtype_of(Text("name"))
    (Int64, String)
    """
    return _TYPES.get(type(column), pl.Int64)
