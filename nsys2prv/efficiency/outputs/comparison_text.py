"""A comparison of runs for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from nsys2prv.efficiency.gate_table import gate_lines
from nsys2prv.efficiency.outputs.comparison_sections import comparison_sections
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.text_grid import grid
from nsys2prv.vocabulary.wording import short

_ROWS = 10
_LONGEST_PATH = 200


def comparison_as_text(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int = _ROWS) -> str:
    """A summary of a `ComparisonResult`, with so many rows of each table and run."""
    lines = [
        f"{one['run']}  " + ", ".join(short(one[name], _LONGEST_PATH) for name in ("label", "title", "input"))
        for one in head["runs"]
    ]
    if "GPU" in tables["runs"]["per"]:
        lines += [f"(NCCL kernels count as {head['nccl']})"]
    if head["not_compared"] is not None:
        lines += ["", head["not_compared"]]
    for section in comparison_sections(head, tables, rows):
        lines += ["", *([section.title] if section.title else [])]
        lines += grid(section.columns, section.rows, frozenset(range(section.names)))
    if tables["gate"].height:
        lines += ["", "Gate", *(f"  {line}" for line in gate_lines(tables["gate"]))]
    return printable_lines(lines)
