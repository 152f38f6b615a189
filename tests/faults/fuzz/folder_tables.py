"""Folders of Parquet and Arrow files with other types, other columns, and other things than files."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet

from .commands import Commands
from .oracle import Surroundings, fault_of_reading
from .report_commands import REPORT_COMMANDS
from .whole_report import whole_tables, write_whole_report

_KEPT = ("StringIds", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "PROCESSES", "CUPTI_ACTIVITY_KIND_KERNEL")
_NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
_TEXTS = ("", "text", "x" * 65_536, "\0", "9" * 5000, "²", "[[[", "\u202e")


def _other_values(array: pa.Array, chance: random.Random) -> pa.Array:
    """The same type with extremes."""
    values = array.to_pylist()
    if pa.types.is_integer(array.type):
        bounds = {"uint64": (0, 2**64 - 1), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
        low, high = bounds.get(str(array.type), (-(2**63), 2**63 - 1))
        new: object = min(max(chance.choice((*_NUMBERS, 2**64 - 1)), low), high)
    elif pa.types.is_floating(array.type):
        new = chance.choice((float("nan"), float("inf"), -1e300, 0.0))
    else:
        new = chance.choice(_TEXTS)
    return pa.array([new if chance.random() < 0.5 else value for value in values], array.type)


def _other_type(array: pa.Array, chance: random.Random) -> pa.Array:
    """A column of a type that nsys does not write."""
    size = len(array)
    made: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array([{"a": 1, "b": "x"}] * size),
        lambda: pa.array([[1, 2]] * size),
        lambda: pa.array([[]] * size, pa.list_(pa.list_(pa.int64()))),
        lambda: pa.array([[("k", 1)]] * size, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array(["a"] * size).dictionary_encode(),
        lambda: array.dictionary_encode(),
        lambda: pa.array([b"\xff\xfe"] * size),
        lambda: pa.array([b"\xff" * 4] * size, pa.binary(4)),
        lambda: pa.array([None] * size, pa.null()),
        lambda: pa.array([True] * size),
        lambda: pa.array([0] * size, pa.timestamp("ns")),
        lambda: pa.array([0] * size, pa.timestamp("us", tz="UTC")),
        lambda: pa.array([0] * size, pa.duration("ns")),
        lambda: pa.array([0] * size, pa.date32()),
        lambda: pa.array([0] * size, pa.time64("ns")),
        lambda: pa.array([1] * size, pa.decimal128(38, 0)),
        lambda: pa.array([1.5, float("nan")] * size)[:size],
        lambda: pa.array([1] * size, pa.int8()),
        lambda: pa.array([200] * size, pa.uint16()),
        lambda: pa.array(["soon"] * size),
        lambda: pa.array(["5"] * size, pa.large_string()),
        lambda: pa.array(["5"] * size, pa.string_view()),
        lambda: pa.array([None] * size, pa.struct([])),
        lambda: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\0" * 16] * size, pa.binary(16))),
        lambda: pa.RunEndEncodedArray.from_arrays([size], [1]) if size else array,
    )
    return chance.choice(made)()


def _changed(table: pa.Table, chance: random.Random) -> pa.Table:
    place = chance.randrange(table.num_columns)
    name, array = table.column_names[place], table.column(place).combine_chunks()
    kind = chance.randrange(7)
    if kind == 0:
        return table.set_column(place, name, _other_values(array, chance))
    if kind in (1, 2):
        return table.set_column(place, name, _other_type(array, chance))
    if kind == 3:
        return table.remove_column(place)
    if kind == 4:
        return table.append_column(name, array)
    if kind == 5:
        return table.rename_columns(
            [chance.choice(("", "\0", "x" * 5000, "ü", "a\nb")) if one == name else one for one in table.column_names]
        )
    return table.slice(0, 0)


def _write(table: pa.Table, file: Path, chance: random.Random) -> None:
    if file.suffix == ".parquet":
        pa.parquet.write_table(
            table, file, compression=chance.choice(("none", "zstd", "gzip")), row_group_size=chance.choice((1, 100))
        )
    elif chance.random() < 0.5:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        options = pa.ipc.IpcWriteOptions(compression=chance.choice((None, "zstd", "lz4")))
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)


def _replaced(file: Path, chance: random.Random) -> None:
    """Something else in the place of a file."""
    content = file.read_bytes()
    file.unlink()
    kind = chance.randrange(8)
    if kind == 0:
        os.mkfifo(file)
    elif kind == 1:
        file.mkdir()
    elif kind == 2:
        file.symlink_to("nowhere")
    elif kind == 3:
        file.symlink_to(file.name)
    elif kind == 4:
        file.write_bytes(content[: chance.randrange(len(content))])
    elif kind == 5:
        file.write_bytes(b"")
    elif kind == 6:
        file.write_bytes(content + chance.randbytes(100))
    else:
        # The other format under this name.
        file.write_bytes(chance.choice((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"SQLite format 3\0")) + content)


class FolderTables:
    name = "parquet-arrow"
    description = "other types, columns, row groups, pipes, links and cut files in folders of Parquet and Arrow tables"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        name = chance.choice(("report_pqtdir", "report_arwdir"))
        report = folder / name
        write_whole_report(report)
        suffix = ".parquet" if name == "report_pqtdir" else ".arrow"
        changed = [chance.choice(list(whole_tables())) for _ in range(chance.choice((1, 1, 3)))]
        for table in whole_tables():
            if table not in (*changed, *_KEPT) and chance.random() < 0.93:
                (report / f"{table}{suffix}").unlink()
        for table in dict.fromkeys(changed):
            file = report / f"{table}{suffix}"
            if chance.random() < 0.25:
                _replaced(file, chance)
            else:
                frame = whole_tables()[table]
                try:
                    _write(_changed(_arrow(frame), chance), file, chance)
                except pa.ArrowNotImplementedError:
                    # Parquet lacks some types.
                    _write(_arrow(frame), file, chance)
        (folder / "changes.txt").write_text(repr(changed))
        before = Surroundings(folder)
        command = chance.choice(REPORT_COMMANDS)
        run = commands.run(*command, name, folder=folder)
        return fault_of_reading(run, before, names="report")


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
