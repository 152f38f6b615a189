"""All tables of efficiency numbers, and the keys beside them in the JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsys2prv.efficiency.clock_accuracy import CLOCK_BINS, CLOCKS
from nsys2prv.efficiency.closeups import CLOSEUP_BARS, CLOSEUPS
from nsys2prv.efficiency.findings.engine import FINDING_CHECKS, FINDING_DEVICES, FINDING_NUMBERS, FINDINGS
from nsys2prv.efficiency.meter_registry import METERS
from nsys2prv.efficiency.meters.run_totals import RUN
from nsys2prv.efficiency.metrics import TREE_TABLE
from nsys2prv.efficiency.result_tables import Table

FORMAT = "nsys2prv-efficiency"
VERSION = 3
"""Counts up when a column or a table is removed or changes its meaning; a new one does not change it."""
FIRST_TABLES: Mapping[str, Sequence[str]] = json.loads(
    Path(__file__).with_name(f"first_tables_of_version_{VERSION}.json").read_text(encoding="utf-8")
)
"""Columns by table of the first files of this VERSION: files have them all, and may lack others, which came later."""

TABLES: tuple[Table, ...] = tuple(
    dict.fromkeys(
        (RUN, TREE_TABLE, FINDINGS, FINDING_CHECKS, FINDING_DEVICES, FINDING_NUMBERS,
         *(table for meter in METERS for table in meter.tables), CLOSEUPS, CLOSEUP_BARS, CLOCKS, CLOCK_BINS)
    )
)  # fmt: skip
"""All tables, in the order in which people read them: JSON, page, console and documentation have it."""

BY_NAME: Mapping[str, Table] = {table.name: table for table in TABLES}

HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this format: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("inputs", "list of texts", "reports, or the trace"),
    ("input_kind", "text", "`reports`"),
    ("title", "text", "name of the run, for headings"),
    ("began", "text", "when the recording started, UTC, `2026-11-21T14:00:00`; null when not known"),
    ("recorders", "list of texts", "versions of nsys that recorded it"),
    ("gpus", "list of texts", "models of the GPUs; likewise"),
    ("nccl", "text", "`communication` or `useful`: what NCCL kernels count as"),
    ("window", "object", "what was measured: `name` (`all`, `steady` or `chosen`); `begin_ns`, `end_ns` on the time axis of "
     "all reports, and `length_ns`, which is E; `offset_ns`, where it begins in the trace; `recorded_ns`, length of the trace. "
     "Times in tables are those of the trace"),
    ("iterations", "object", "`how` iterations were found (`nvtx NAME`, or `period of kernels`), else null, and the `reason` "
     "why there are none; `count`; `warm_up`, how many at the start are left out of the steady part"),
    ("length_interval", "object", "`least_ns`, `most_ns`: what the length can be if clocks are wrong by as much as they can "
     "be; the latter is null where that is not known"),
    ("options", "object", "options that differ from their defaults"),
    ("warnings", "list of texts", "what is odd, missing, or was assumed"),
    ("left_out", "list of objects", "`path`, `error`: reports that could not be read (`--keep-going`)"),
    ("tables", "object", "each table by its name: an object with a list per column, all of equal length. "
     "`polars.DataFrame(tables['devices'])` and `pandas.DataFrame(...)` read one"),
)  # fmt: skip
"""Keys of the JSON: key, type, meaning."""
