"""Long reports of one heavy kind of activity each: GPU metrics, OS calls, nested NVTX ranges, scheduling, unified memory, and
kernels to compare them with.

    python tests/bench/heavy_reports.py FOLDER ROWS [KIND ...]

They are made from real ones in ../shared/reports by ../shared/tools/repeat_report.py, each with about as many rows as asked;
nested ranges, of which no real report has many, are made here. Only the standard library is used.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SHARED = CHECKOUT.parent / "shared"

EVENT_TABLES = (
    "CUPTI_ACTIVITY_KIND_",
    "CUDA_",
    "NVTX_EVENTS",
    "OSRT_",
    "MPI_",
    "GPU_METRICS",
    "SCHED_",
    "COMPOSITE_",
    "PROFILER_",
)
"""What the names of tables with events start with."""
NOT_EVENTS = ("MPI_RANKS", "MPI_COMMUNICATORS")

DEPTH = 50
"""Nested ranges around one moment."""
_NAMES = 40
_PUSHPOP = 59


@dataclass(frozen=True)
class HeavyReport:
    """A real report with only some of its tables of events, whose rows are those of a kind."""

    source: str
    tables: tuple[str, ...]


NESTED = "nvtx-nested"
KINDS = {
    "kernels": HeavyReport("gpu-metrics-a100", ("CUPTI_ACTIVITY_KIND_KERNEL",)),
    "gpu-metrics": HeavyReport("gpu-metrics-a100", ("GPU_METRICS",)),
    "os-calls": HeavyReport("pytorch-uvm", ("OSRT_API",)),
    "scheduling": HeavyReport("sched", ("SCHED_EVENTS",)),
    "unified-memory": HeavyReport("pytorch-uvm", ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUDA_UM_GPU_PAGE_FAULT_EVENTS")),
    NESTED: HeavyReport("gpu-metrics-a100", ()),
}


def make(folder: Path, kind: str, rows: int) -> Path:
    """The report of a kind with about so many rows, made where it is not there yet."""
    made = folder / f"{kind}-{rows}.sqlite"
    if made.exists():
        return made
    heavy = KINDS[kind]
    source = SHARED / "reports" / f"{heavy.source}.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        events = [name for name in _tables(database) if name.startswith(EVENT_TABLES) and name not in NOT_EVENTS]
        once = sum(database.execute(f'select count(*) from "{name}"').fetchone()[0] for name in heavy.tables)
    times = max(rows // once, 1) if once else 1
    left_out = ",".join(name for name in events if name not in heavy.tables)
    partial = made.with_suffix(".partial")
    tool = SHARED / "tools" / "repeat_report.py"
    subprocess.run(
        [sys.executable, str(tool), str(source), str(partial), str(times), left_out], check=True, stdout=subprocess.DEVNULL
    )
    if kind == NESTED:
        _nest(source, partial, rows)
    partial.replace(made)
    return made


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("select name from sqlite_master where type='table'")]


def _nest(source: Path, report: Path, rows: int) -> None:
    """Fill a report with push/pop ranges on the thread of the source's calls, `DEPTH` of them inside each other."""
    with contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        (thread,) = database.execute("select globalTid from CUPTI_ACTIVITY_KIND_RUNTIME limit 1").fetchone()
    with contextlib.closing(sqlite3.connect(report)) as database, database:
        (last_id,) = database.execute("select max(id) from StringIds").fetchone()
        names = [(last_id + 1 + one, f"layer {one}") for one in range(_NAMES)]
        database.executemany("insert into StringIds (id, value) values (?, ?)", names)
        insert = "insert into NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId) values (?, ?, ?, ?, ?, 0)"
        database.executemany(insert, _nested_ranges(rows, thread, last_id + 1))


def _nested_ranges(rows: int, thread: int, first_name: int) -> Iterator[tuple[int, int, int, int, int]]:
    for number in range(rows):
        tower, level = divmod(number, DEPTH)
        start, end = tower * 1_000_000 + level * 1_000, (tower + 1) * 1_000_000 - (level + 1) * 1_000
        yield start, end, _PUSHPOP, thread, first_name + (tower + level) % _NAMES


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    asked = arguments.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for kind in asked.kinds or KINDS:
        print(make(asked.folder, kind, asked.rows))


if __name__ == "__main__":
    main()
