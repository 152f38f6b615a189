"""What a gate found: its table, how the results are worded, and what the command ends with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from nsys2prv.efficiency.result_tables import Column, Table
from nsys2prv.errors import GateFailed, GateNotDecidable, Nsys2prvError
from nsys2prv.vocabulary.wording import quantity

FAILS, PASSES, NOT_DECIDABLE = "fails", "passes", "not decidable"
"""Results of a condition."""

GATE = Table(
    "gate",
    "Gate",
    "one condition of `--fail-if`, of one run",
    (
        Column.text("condition", "as it was given; the gate fails where it is true"),
        Column.text("run", "the run that is checked: `A`, `B`, ..."),
        Column.text("metric", "name of the column of `runs`"),
        Column.text("unit", "unit of the numbers: `ns`, `0 to 1`, or none"),
        Column.number("value", "of that run; null where it has none"),
        Column.number("least", "the least that it can be, as clocks are known; null likewise"),
        Column.number("most", "the most that it can be; null likewise"),
        Column.number("bound", "what it is compared with; null where the other run has no such value"),
        Column.number("least_bound", "the least that the bound can be; null likewise"),
        Column.number("most_bound", "the most that the bound can be; null likewise"),
        Column.text("result", f"`{FAILS}` (the condition is true), `{PASSES}` or `{NOT_DECIDABLE}`"),
        Column.text("reason", "why it is not decidable; null otherwise"),
    ),
    when="`--fail-if`",
)


def worded(value: float | None, unit: str) -> str:
    """A number of a run for people.

    >>> worded(0.5, "0 to 1"), worded(2e6, "ns"), worded(1.25, ""), worded(None, "ns")
    ('50.0 %', '2.000 ms', '1.25', 'not known')
    """
    if value is None or math.isinf(value):
        return "not known"
    return quantity(value, unit) or f"{value:,.6g}"


def gate_order(gate: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of the table: those that fail first."""
    order = {FAILS: 0, NOT_DECIDABLE: 1, PASSES: 2}
    return sorted(gate.iter_rows(named=True), key=lambda row: order[row["result"]])


def gate_lines(gate: pl.DataFrame) -> list[str]:
    """Each condition with its result and numbers: those that fail first."""
    return [f"{row['result']}: {_sentence(row)}" for row in gate_order(gate)]


def _sentence(row: Mapping[str, Any]) -> str:
    if row["reason"] is not None:
        return f"{row['run']}: {row['condition']} ({row['reason']})"
    return f"{row['run']}: {row['condition']} ({worded(row['value'], row['unit'])}, bound {worded(row['bound'], row['unit'])})"


def gate_error(gate: pl.DataFrame) -> Nsys2prvError | None:
    """What the command ends with: an error where a condition is true or not decidable, else None."""
    rows = list(gate.iter_rows(named=True))
    for result, error in ((FAILS, GateFailed), (NOT_DECIDABLE, GateNotDecidable)):
        sentences = [_sentence(row) for row in rows if row["result"] == result]
        if sentences:
            return error(sentences, len(rows))
    return None
