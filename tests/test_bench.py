"""The benchmark writes the tables of the documentation: each of its parts has one."""

from __future__ import annotations

from pathlib import Path

from bench.results import PAGE, Line, at_least, at_most, lines_text, mark, plain, with_lines, write_table
from bench.run import PARTS

FOUND = with_lines(
    [at_most("time", 0.1234, 0.2, "s"), at_least("speed", 1234.5, 2_000, "MB/s", " (9 s)"), plain("size", 3, "MB")]
)


def test_each_part_has_a_table_in_the_documentation() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert all(page.count(mark(part)) == 1 for part in PARTS if part != "clocks")


def test_lines_say_whether_goals_are_reached() -> None:
    assert [Line(**one).verdict for one in FOUND["lines"]] == ["reached", "MISSED", ""]
    assert [line.split()[0] for line in lines_text("part", FOUND).splitlines()] == ["part", "time", "speed", "size"]


def test_a_table_is_replaced_and_others_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"a\n{mark('speed')}\nold\n<!-- end -->\nb\n{mark('floor')}\nother\n<!-- end -->\nc\n")

    for _ in range(2):
        write_table("speed", FOUND, "two cores:", page)

    assert (
        page.read_text()
        == f"""a
{mark("speed")}
two cores:

| | measured | goal | |
|---|---:|---|---|
| time | 0.123 s | at most 0.2 s | reached |
| speed | 1,234 MB/s (9 s) | at least 2000 MB/s | MISSED |
| size | 3 MB |  |  |
<!-- end -->
b
{mark("floor")}
other
<!-- end -->
c
"""
    )
