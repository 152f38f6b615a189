"""A comparison of runs in Markdown, for a merge request on GitHub or GitLab.

Texts from outside are shown as they are and do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency.gate_table import FAILS, NOT_DECIDABLE, PASSES, worded
from nsys2prv.efficiency.outputs.comparison_sections import Section, comparison_sections
from nsys2prv.vocabulary.wording import short

_ROWS = 10
_LONGEST_TEXT = 200
_VERDICTS = {FAILS: "fails", NOT_DECIDABLE: "is not decidable", PASSES: "passes"}
"""Results of a gate, the worst first."""


def comparison_as_markdown(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int = _ROWS) -> str:
    """A summary of a `ComparisonResult` in Markdown, the gate first, with so many rows of each table and run."""
    lines = ["### Comparison of runs", ""]
    lines += [f"- {run['run']}: {as_code(run['label'])} ({as_code(run['input'])})" for run in head["runs"]]
    if head["not_compared"] is not None:
        lines += ["", head["not_compared"]]
    lines += ["", *_gate(tables["gate"])] if tables["gate"].height else []
    for section in comparison_sections(head, tables, rows):
        lines += ["", *_section(section)]
    if head["warnings"]:
        lines += ["", *_folded(f"Warnings ({len(head['warnings'])})", [f"- {as_code(text)}" for text in head["warnings"]])]
    return "\n".join(lines) + "\n"


def _gate(gate: pl.DataFrame) -> Iterator[str]:
    results = gate["result"].to_list()
    worst = next(result for result in _VERDICTS if result in results)
    yield f"**The gate {_VERDICTS[worst]}** ({results.count(worst)} of {len(results)})"
    yield ""
    cells = []
    for row in gate.iter_rows(named=True):
        numbers = [worded(row[name], row["unit"]) for name in ("value", "bound")]
        cells.append([row["result"], row["run"], as_code(row["condition"]), *numbers, as_code(row["reason"] or "")])
    yield from markdown_table(["result", "run", "fails if", "value", "bound", "reason"], cells, texts=(0, 1, 2, 5))


def _section(section: Section) -> list[str]:
    rows = []
    for row in section.rows:
        words = [_words(cell) for cell in row[: section.names]]
        if section.is_foreign:
            words[-1] = as_code(row[section.names - 1])
        rows.append([*words, *row[section.names :]])
    table = markdown_table([_heading(column) for column in section.columns], rows, range(section.names))
    if section.is_detail:
        return _folded(section.title, table)
    return [f"**{section.title}**", "", *table] if section.title else table


def _words(text: str) -> str:
    """Words of the program; blanks in front are kept."""
    words = text.lstrip(" ")
    return "&nbsp;" * 2 * (len(text) - len(words)) + words


def _heading(text: str) -> str:
    """A heading: the letter of a run has its label behind it."""
    letter, blank, label = text.partition(" ")
    return f"{letter} {as_code(label)}" if blank and letter.isupper() else text


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>"]


def as_code(text: str) -> str:
    """A text from outside, on one line, as code: neither Markdown nor HTML in it, nor a name of a user or an issue, is read.

    >>> as_code("gemm<float>"), as_code("a `b`"), as_code(" ")
    ('`gemm<float>`', '`` a `b` ``', '')
    """
    text = short(text, _LONGEST_TEXT)
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    blank = " " if "`" in text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: Collection[int]) -> list[str]:
    """Lines of a table; columns in these places are aligned to the left. Cells are Markdown.

    >>> markdown_table(["", "A"], [[as_code("a|b"), "1"]], texts=[0])
    ['|  | A |', '| --- | ---: |', '| `a\\\\|b` | 1 |']
    """
    rule = ["---" if place in texts else "---:" for place in range(len(columns))]
    return [_line(columns), _line(rule), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    # A table ends a cell at each bar without a backslash, also in code, and takes two backslashes for one.
    return re.sub(r"(\\*)\|", lambda bar: f"{bar[1] * 2}\\|", text)
