"""Copies of exports with the rows of every table in a random order, and what must not depend on that order."""

import contextlib
import json
import math
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import NothingToMeasure
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions


def shuffled(report: Path, folder: Path, seed: int) -> Path:
    """A copy of an export in a folder, under its own name, with the rows of every table in a random order."""
    copy = folder / report.name
    (_shuffle_parquet if report.is_dir() else _shuffle_sqlite)(report, copy, random.Random(seed))
    return copy


def _shuffle_sqlite(report: Path, copy: Path, chance: random.Random) -> None:
    with contextlib.closing(sqlite3.connect(f"file:{copy}", uri=True)) as database:
        database.create_function("chance", 0, chance.random)
        database.execute("attach ? as original", (f"file:{report}?immutable=1",))
        database.execute("pragma synchronous = off")
        for (table,) in database.execute("select name from original.sqlite_master where type = 'table'").fetchall():
            # Without keys: a primary key of whole numbers would put the rows back in its order.
            columns = database.execute("select name, type from pragma_table_info(?, 'original')", (table,)).fetchall()
            declared = ", ".join(f'"{name}" {kind}' for name, kind in columns)
            database.execute(f'create table main."{table}" ({declared})')
            database.execute(f'insert into main."{table}" select * from original."{table}" order by chance()')
        database.commit()


def _shuffle_parquet(report: Path, copy: Path, chance: random.Random) -> None:
    copy.mkdir()
    for file in sorted(report.iterdir()):
        rows = pyarrow.parquet.read_table(file)
        order = np.random.default_rng(chance.getrandbits(64)).permutation(len(rows))
        # Several groups of rows, each with times of the whole run.
        pyarrow.parquet.write_table(rows.take(order), copy / file.name, row_group_size=max(1, len(rows) // 3))


def outcome(reports: list[Path], folder: Path, align: str = "auto") -> tuple[dict[str, str], Any]:
    """What reports give, without the folders of trace and reports and the time it took: texts of all files of the trace by what
    follows its name, and the efficiency as JSON.
    """
    out = folder / "trace"
    folder.mkdir(exist_ok=True)
    translate(reports, out, TranslateOptions(align=align))  # type: ignore[arg-type]
    paths = [path for path in (*folder.glob("trace.*"), *folder.glob("trace.cfgs/**/*.*")) if path.is_file()]
    files = {str(path)[len(str(out)) :]: path.read_text().replace(str(out), "OUT") for path in paths}
    summary = json.loads(files[".json"].replace(str(reports[0].parent), "REPORTS"))
    del summary["seconds"]
    try:
        measured = json.dumps(measure(reports, EfficiencyOptions(align=align, regions=("*",), bins=5)).as_json())  # type: ignore[arg-type]
    except NothingToMeasure:
        measured = "{}"
    numbers = json.loads(measured.replace(str(reports[0].parent), "REPORTS"))
    return {**files, ".json": json.dumps(summary, indent=1)}, numbers


def differences(first: Any, second: Any, place: str = "") -> Iterator[str]:
    """Places where two contents of JSON differ by more than the rounding of a sum."""
    if isinstance(first, dict) and isinstance(second, dict) and list(first) == list(second):
        for name in first:
            yield from differences(first[name], second[name], f"{place}/{name}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{place}/{index}")
    elif first != second and not (isinstance(first, float) and math.isclose(first, second, rel_tol=1e-12)):
        yield f"{place}: {first!r}, {second!r}"
