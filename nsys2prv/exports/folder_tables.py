"""Exports with a file per table in a folder: Parquet or Arrow."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from nsys2prv.errors import DamagedReport, NotAReport
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import is_utf8
from nsys2prv.exports.columns import TIME_COLUMNS, in_type
from nsys2prv.exports.tables import BATCH_ROWS, Schema, Selection, Stretch, Tables, read_errors, selected_rows
from nsys2prv.vocabulary.limits import MOST_COLUMNS, MOST_ROWS, MOST_ROWS_PER_BYTE, MOST_TABLES, MOST_TEXT, MOST_TEXT_PER_BYTE

if TYPE_CHECKING:
    import pyarrow.parquet

_READ_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError, ValueError, KeyError)
"""What polars and Arrow raise for a damaged file; names that are no text are ValueErrors, unknown ones KeyErrors."""

_TEXTUAL = (pl.String, pl.Binary, pl.Null)
_READABLE: dict[type[pl.DataType], tuple[type[pl.DataType], ...]] = {
    pl.Int64: (pl.datatypes.classes.IntegerType, pl.Boolean, pl.Null),
    pl.Float64: (pl.datatypes.classes.IntegerType, pl.Float32, pl.Float64, pl.Null),
    pl.String: _TEXTUAL,
    pl.Binary: _TEXTUAL,
}
"""Types of files in which a column can be, by the type in which it is read: what others become is up to polars."""


class FolderTables(Tables):
    """An export with one file per table in a folder."""

    suffixes: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        if not is_utf8(path.absolute()):
            raise NotAReport(path, "its path is not UTF-8, which only databases may have")
        self._files: dict[str, Path] = {}
        # Absolute: libraries take some names, such as file:x, for addresses.
        for file in sorted(path.absolute().iterdir()):
            if file.suffix in self.suffixes and self._files.setdefault(file.stem, file) != file:
                raise NotAReport(path, f"{self._files[file.stem].name} and {file.name} are two files of one table")
        odd = next((file for file in self._files.values() if file.exists() and not file.is_file()), None)
        if odd is not None:
            # A pipe would never answer.
            raise NotAReport(path, f"{odd.name} is no file")
        if len(self._files) > MOST_TABLES:
            raise NotAReport(path, f"it has more than {MOST_TABLES:,} tables")
        self._schemas: dict[str, dict[str, pl.DataType]] = {}
        super().__init__(path, self._files.values())

    @abstractmethod
    def _schema_in(self, file: Path) -> pa.Schema: ...

    @abstractmethod
    def _record_batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]: ...

    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(self._types(table))

    def _types(self, table: str) -> dict[str, pl.DataType]:
        """Columns of a table, with their types in its file."""
        if table not in self._schemas:
            file = self._files[table]
            with read_errors(file, *_READ_ERRORS):
                types = pl.DataFrame(pl.from_arrow(self._schema_in(file).empty_table())).schema
            if len(types) > MOST_COLUMNS:
                raise DamagedReport(file, f"it has more than {MOST_COLUMNS:,} columns")
            texts = {name: pl.String() for name, dtype in types.items() if dtype == pl.Categorical}
            self._schemas[table] = {**types, **texts}
        return self._schemas[table]

    def row_count(self, table: str) -> int:
        return sum(rows.height for rows in self.batches(table, {}, {}))

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        file, types = self._files[table], self._types(table)
        for name, dtype in schema.items():
            if name not in types:
                raise DamagedReport(file, f"it has no column {name}")
            if not isinstance(types[name], _READABLE[dtype]) or (types[name] == pl.Boolean and name in TIME_COLUMNS):
                raise DamagedReport(file, f"column {name} is of type {types[name]}")
        # nsys declares bytes to be text: polars refuses to read what is not UTF-8.
        as_bytes = {name for name, dtype in schema.items() if dtype == pl.Binary and types[name] == pl.String}
        text_bytes = 0
        with read_errors(file, *_READ_ERRORS):
            # Without a column a batch has no rows.
            for batch in self._record_batches(file, list({**schema, **only}) or list(types)[:1]):
                text_bytes += _text_bytes(batch)
                if text_bytes > MOST_TEXT + MOST_TEXT_PER_BYTE * file.stat().st_size:
                    raise DamagedReport(file, f"its texts take more than {text_bytes:,} bytes, which no report needs")
                # Polars trusts what is in a file: damaged offsets and lengths end the process.
                rows = selected_rows(pl.DataFrame(pl.from_arrow(_validated(batch, as_bytes))), only)
                yield pl.DataFrame([in_type(rows[name], dtype) for name, dtype in schema.items()]) if schema else rows


class ParquetTables(FolderTables):
    """A folder of ``TABLE.parquet``."""

    form = "parquet"
    suffixes = (".parquet",)

    def _schema_in(self, file: Path) -> pa.Schema:
        with _open_parquet(file) as parquet:
            rows = parquet.metadata.num_rows
            if rows > MOST_ROWS + MOST_ROWS_PER_BYTE * file.stat().st_size:
                raise DamagedReport(file, f"{rows:,} rows don't fit into it")
            return parquet.schema_arrow

    def _record_batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _open_parquet(file) as parquet:
            texts = [field.name for field in parquet.schema_arrow if _is_text(field.type)]
        # A text that many rows have is in memory once.
        with _open_parquet(file, [name for name in texts if name in columns]) as parquet:
            yield from parquet.iter_batches(batch_size=memory.scaled(BATCH_ROWS), columns=columns)


_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class ArrowTables(FolderTables):
    """A folder of ``TABLE.arrow``, in Arrow's file or stream format."""

    form = "arrow"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")

    def _schema_in(self, file: Path) -> pa.Schema:
        with _open_arrow(file) as (reader, _):
            return reader.schema

    def _record_batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _open_arrow(file) as (reader, source):
            if isinstance(reader, pa.RecordBatchFileReader):
                yield from (reader.get_batch(index).select(columns) for index in range(reader.num_record_batches))
            else:
                yield from (batch.select(columns) for batch in reader)
                _check_ended(file, source)


def form_of_folder(folder: Path) -> type[FolderTables] | None:
    """The form of the tables in a folder; None when it holds none."""
    suffixes = {file.suffix for file in folder.iterdir()}
    forms = [form for form in (ParquetTables, ArrowTables) if suffixes.intersection(form.suffixes)]
    if len(forms) > 1:
        raise NotAReport(folder, "it holds tables in Parquet and in Arrow files: keep those of one form")
    return forms[0] if forms else None


def _open_parquet(file: Path, dictionaries: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
    # Only this form, and only few reports, need it.
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(file, read_dictionary=list(dictionaries))


def _text_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the texts of a batch that are in memory once for many rows, when each row has its own."""
    columns = [column for column in batch.columns if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type)]
    if not columns:
        return 0
    import pyarrow.compute

    lengths = (pyarrow.compute.binary_length(column.dictionary).take(column.indices) for column in columns)
    return sum(pyarrow.compute.sum(of_column).as_py() or 0 for of_column in lengths)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


@contextlib.contextmanager
def _open_arrow(file: Path) -> Iterator[tuple[pa.RecordBatchFileReader | pa.RecordBatchStreamReader, pa.NativeFile]]:
    """A reader of a file in Arrow's file format or its stream format, and the opened file."""
    with pa.OSFile(str(file)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        with pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source) as reader:
            yield reader, source


def _check_ended(file: Path, source: pa.NativeFile) -> None:
    """Raise DamagedReport unless a stream that was read to its end has the mark of its end, and is all of the file."""
    end = source.tell()
    source.seek(max(end - len(_END_OF_STREAM), 0))
    if source.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
        raise DamagedReport(file, "the stream is cut off: the mark of its end is missing")
    if end < source.size():
        raise DamagedReport(file, "something follows the end of the stream")


def _validated(batch: pa.RecordBatch, as_bytes: Collection[str]) -> pa.Table:
    """A batch as a table, some of its columns of text as bytes; ArrowException when it is damaged."""
    # First the sizes of its buffers, which a cast trusts; then offsets, and texts that stay texts.
    batch.validate()
    arrays = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        array = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if name in as_bytes:
            array = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
        arrays.append(array)
    for array in arrays:
        array.validate(full=True)
    return pa.Table.from_arrays(arrays, names=batch.schema.names)
