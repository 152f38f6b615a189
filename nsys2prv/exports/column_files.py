"""Columns of tables in files: batches of rows, each a separate Arrow stream with the narrowest types that hold its numbers.

Batches are read one at a time, by way of a mapping that ends with it: what is mapped counts as memory of the process.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import polars as pl
import pyarrow as pa


class StoredBatch(NamedTuple):
    """Some rows of a table in a file: where they are (bytes), and how many."""

    path: Path
    offset: int
    length: int
    rows: int

    def load(self, columns: Collection[int]) -> pl.DataFrame:
        """Columns, by their places (at least one), in the order and in the types in which they are stored."""
        options = pa.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
        with pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            with pa.ipc.open_stream(file.read_buffer(self.length), options=options) as stream:
                return pl.DataFrame(pl.from_arrow(stream.read_next_batch(), rechunk=False))


class ColumnFile:
    """A file that batches of rows are appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = pa.OSFile(str(path), "wb")

    def __enter__(self) -> ColumnFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()

    def append(self, batch: pa.RecordBatch) -> StoredBatch:
        """Append rows.

        Raises
        ------
        OSError
            When they can't be written.
        """
        # Narrow numbers would take more time compressed, and hardly less space.
        is_text = not all(pa.types.is_primitive(field.type) or pa.types.is_null(field.type) for field in batch.schema)
        options = pa.ipc.IpcWriteOptions(compression="lz4" if is_text else None, use_threads=False)
        offset = self._file.tell()
        with pa.ipc.new_stream(self._file, batch.schema, options=options) as stream:
            stream.write_batch(batch)
        return StoredBatch(self._path, offset, self._file.tell() - offset, batch.num_rows)


def narrowest(rows: pl.DataFrame) -> pa.RecordBatch:
    """Rows with the narrowest types that hold their whole numbers, and without space for columns of nulls."""
    return (
        pl.DataFrame(list(map(_narrowest, rows.get_columns())))
        .to_arrow(compat_level=pl.CompatLevel.oldest())
        .combine_chunks()
        .to_batches()[0]
    )


def _narrowest(column: pl.Series) -> pl.Series:
    if column.dtype == pl.Int64:
        return column.shrink_dtype()
    return column.cast(pl.Null) if column.null_count() == len(column) else column
