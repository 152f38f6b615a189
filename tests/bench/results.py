"""Results as text and as tables of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "performance.md"
CLOCKS_PAGE = CHECKOUT / "docs" / "reference" / "simulated-clusters.md"
END = "<!-- end -->"


@dataclass(frozen=True)
class Line:
    """A measured value and its goal; `reached` is None where there is no goal."""

    what: str
    measured: str
    goal: str = ""
    reached: bool | None = None

    @property
    def verdict(self) -> str:
        """Whether the goal was reached."""
        return {None: "", True: "reached", False: "MISSED"}[self.reached]


def at_least(what: str, value: float, goal: float, unit: str, more: str = "") -> Line:
    """A value that is to be as large as the goal."""
    return Line(what, f"{_number(value)} {unit}{more}", f"at least {goal:g} {unit}", value >= goal)


def at_most(what: str, value: float, goal: float, unit: str, more: str = "") -> Line:
    """A value that is to be no larger than the goal."""
    return Line(what, f"{_number(value)} {unit}{more}", f"at most {goal:g} {unit}", value <= goal)


def plain(what: str, value: float, unit: str, more: str = "") -> Line:
    """A value without a goal."""
    return Line(what, f"{_number(value)} {unit}{more}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def with_lines(lines: Sequence[Line], **numbers: Any) -> dict[str, Any]:
    """The result of a part: its lines, and the numbers that they come from."""
    return {"lines": [asdict(line) for line in lines], **numbers}


def lines_text(title: str, found: dict[str, Any]) -> str:
    """The result of a part as text."""
    lines = [Line(**one) for one in found["lines"]]
    width = max(len(one.what) for one in lines)
    rows = [f"  {one.what:{width}}  {one.measured:>34}  {one.goal:28} {one.verdict}".rstrip() for one in lines]
    return "\n".join([title, *rows])


MARK = "<!-- measured by make bench -->"
DETAIL = "..."
"""A line that begins so is printed only."""


def write_rows(part: str, found: dict[str, Any], circumstances: str, load: str, page: Path = PAGE) -> None:
    """Replace the rows of a part in the one table of the documentation; what the machine did besides is in its last column."""
    text = page.read_text(encoding="utf-8")
    first = text.index(MARK)
    rows: dict[str, list[str]] = {}
    for line in text[first : text.index(END, first)].splitlines():
        if line.startswith("| ") and not line.startswith("| part |"):
            rows.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)
    shown = (one for one in found["lines"] if not one["what"].startswith(DETAIL))
    rows[part] = [f"| {part} | {one['what']} | {one['measured']} | {load} |" for one in shown]
    head = [circumstances, "", "| part | what | measured | load |", "|---|---|---:|---:|"]
    replace_between(page, MARK, [*head, *(line for of_part in rows.values() for line in of_part)])


def replace_between(page: Path, start: str, lines: Sequence[str]) -> None:
    """Replace what is between a mark and the next end of a table."""
    text = page.read_text(encoding="utf-8")
    first = text.index(start)
    end = text.index(END, first)
    page.write_text(text[:first] + "\n".join([start, *lines, ""]) + text[end:], encoding="utf-8")
