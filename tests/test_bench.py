"""The benchmark writes one table of the documentation: each of its parts has rows there."""

from __future__ import annotations

from pathlib import Path

from bench.results import END, MARK, PAGE, Line, lines_text, write_rows
from bench.run import PARTS

LINES = [
    Line("time", 0.1234, "s", at_most=0.2),
    Line("speed", 1234.5, "MB/s", " (9 s)", at_least=2_000, is_detail=True),
    Line("size", 3, "MB"),
]


def test_each_part_has_rows_in_the_documentation() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition(END)[0]

    assert {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[5:]} == set(PARTS)


def test_lines_say_whether_goals_are_reached() -> None:
    assert [line.verdict for line in LINES] == ["reached", "MISSED", ""]
    assert [line.split()[0] for line in lines_text("part", LINES).splitlines()] == ["part", "time", "speed", "size"]


def test_rows_of_a_part_are_replaced_and_others_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    head = "| part | what | measured | load |\n|---|---|---:|---:|\n"
    page.write_text(f"a\n{MARK}\nformer:\n\n{head}| speed | old | 1 s |  |\n| many | other | 2 s |  |\n{END}\nb\n")

    for _ in range(2):
        write_rows("speed", LINES, "two cores:", "1.5", page)

    rows = "| speed | time | 0.123 s | 1.5 |\n| speed | size | 3 MB | 1.5 |\n| many | other | 2 s |  |\n"
    assert page.read_text() == f"a\n{MARK}\ntwo cores:\n\n{head}{rows}{END}\nb\n"
