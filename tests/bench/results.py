"""Measured values as text, and as rows of the one table of the documentation."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "performance.md"
MARK, END = "<!-- measured by make bench -->", "<!-- end -->"


class Line(NamedTuple):
    """A measured value, and the limits that it should keep; `is_detail`: it is printed, and not in the documentation."""

    what: str
    value: float
    unit: str
    more: str = ""
    at_most: float | None = None
    at_least: float | None = None
    is_detail: bool = False

    @property
    def measured(self) -> str:
        """The value as text."""
        number = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{number} {self.unit}{self.more}"

    @property
    def verdict(self) -> str:
        """Whether the goal is reached; empty without one."""
        if self.at_most is None and self.at_least is None:
            return ""
        return "reached" if (self.at_least or 0) <= self.value <= (self.at_most or float("inf")) else "MISSED"


def lines_text(part: str, lines: Sequence[Line]) -> str:
    """The result of a part as text."""
    goals = [
        f"at most {one.at_most:g}" if one.at_most else f"at least {one.at_least:g}" if one.at_least else "" for one in lines
    ]
    rows = [
        f"  {one.what:70}  {one.measured:>34}  {goal:14} {one.verdict}".rstrip() for one, goal in zip(lines, goals, strict=True)
    ]
    return "\n".join([part, *rows])


def write_rows(part: str, lines: Sequence[Line], circumstances: str, load: str, page: Path = PAGE) -> None:
    """Replace the rows of a part in the table of the documentation; what the machine did besides is in its last column."""
    text = page.read_text(encoding="utf-8")
    rows: dict[str, list[str]] = {}
    for line in text.partition(MARK)[2].partition(END)[0].splitlines():
        if line.startswith("| ") and not line.startswith("| part |"):
            rows.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)
    rows[part] = [f"| {part} | {one.what} | {one.measured} | {load} |" for one in lines if not one.is_detail]
    head = [circumstances, "", "| part | what | measured | load |", "|---|---|---:|---:|"]
    replace_table(page, [*head, *(line for of_part in rows.values() for line in of_part)])


def replace_table(page: Path, lines: Sequence[str]) -> None:
    """Replace what is between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.partition(MARK)[0], text.partition(MARK)[2].partition(END)[2]
    page.write_text(before + "\n".join([MARK, *lines, END]) + rest, encoding="utf-8")
