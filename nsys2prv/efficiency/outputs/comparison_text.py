"""A comparison of runs for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from nsys2prv.efficiency.gate_table import gate_lines
from nsys2prv.efficiency.outputs.comparison_sections import comparison_sections
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.styles import wrapped
from nsys2prv.vocabulary.text_grid import grid, is_too_wide
from nsys2prv.vocabulary.wording import short

_ROWS = 10
_LONGEST_PATH = 200


def comparison_as_text(
    head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int = _ROWS, width: int | None = None
) -> str:
    """A summary of a `ComparisonResult`, with so many rows of each table and run.

    On a terminal of this width (characters; None: any) longer lines are broken, and tables are made narrower as `grid`
    does it, or have less in them.
    """
    lines = _wrapped([
        f"{one['run']}  " + ", ".join(short(one[name], _LONGEST_PATH) for name in ("label", "title", "input"))
        for one in head["runs"]
    ], width)  # fmt: skip
    if "GPU" in tables["runs"]["per"]:
        lines += [f"(NCCL kernels count as {head['nccl']})"]
    if head["not_compared"] is not None:
        lines += ["", *_wrapped([head["not_compared"]], width)]
    for section in comparison_sections(head, tables, rows):
        left = frozenset(range(section.names))
        while section.narrower is not None and is_too_wide(section.columns, section.rows, left, width):
            section = section.narrower
        lines += ["", *([section.title] if section.title else [])]
        lines += grid(section.columns, section.rows, left, width)
    if tables["gate"].height:
        lines += ["", "Gate", *_wrapped([f"  {line}" for line in gate_lines(tables["gate"])], width)]
    return printable_lines(lines)


def _wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    return [str(one) for line in lines for one in wrapped(line, width)]
