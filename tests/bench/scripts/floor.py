"""The floor under a translation, as JSON: the columns that it needs, read once through the ADBC driver of SQLite, and as many
bytes written by the writer of delimited text of Polars.

`floor.py REPORT SOURCES BYTES`: sources as for `--only`, "" for all. Tables are read one after the other, each in one pass, and
nothing is kept; the text is that of states.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import adbc_driver_sqlite.dbapi
import polars as pl

from nsys2prv.exports import open_report
from nsys2prv.sources.registry import needed_columns, present_sources, select_sources

BATCH_ROWS = 50_000
_NAMES = {"StringIds": {"id", "value"}}
LINES = 500_000


def columns_of(path: Path, sources: tuple[str, ...]) -> dict[str, set[str]]:
    """Columns that sources read, by table."""
    report = open_report(path)
    needed = needed_columns(report, present_sources(report, select_sources(sources, ())))
    return {table: set(columns) for table, columns in needed.items()} | _NAMES


def read(path: Path, columns: dict[str, set[str]]) -> int:
    """Read columns of tables; the result is the number of rows."""
    rows = 0
    with adbc_driver_sqlite.dbapi.connect(f"file:{path}?mode=ro&immutable=1") as database, database.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
        for table, names in columns.items():
            selected = ", ".join(f'"{name}"' for name in sorted(names))
            cursor.execute(f'select {selected} from "{table}"')
            rows += sum(batch.num_rows for batch in cursor.fetch_record_batch())
    return rows


def write(lines: pl.DataFrame, size: int) -> None:
    """Write so many bytes."""
    with Path("floor.prv").open("wb") as file:
        while file.tell() < size:
            lines.write_csv(file, include_header=False, separator=":")


def main() -> None:
    path, sources, size = Path(sys.argv[1]), tuple(filter(None, sys.argv[2].split(","))), int(sys.argv[3])
    columns = columns_of(path, sources)
    start = pl.int_range(10**9, 10**9 + LINES * 3_000, 3_000, eager=True)
    lines = pl.DataFrame(
        {"kind": 1, "cpu": 1, "appl": 1, "task": 1, "thread": 3, "start": start, "end": start + 2_000, "state": 1}
    )
    found: dict[str, float] = {}
    for name, work in (("read", lambda: read(path, columns)), ("write", lambda: write(lines, size))):
        began, cpu_began = time.perf_counter(), time.process_time()
        work()
        found |= {f"{name}_seconds": time.perf_counter() - began, f"{name}_cpu_seconds": time.process_time() - cpu_began}
    seconds, cpu_seconds = (sum(found[f"{name}_{what}"] for name in ("read", "write")) for what in ("seconds", "cpu_seconds"))
    print(json.dumps({**found, "seconds": seconds, "cpu_seconds": cpu_seconds, "bytes": Path("floor.prv").stat().st_size}))


if __name__ == "__main__":
    main()
