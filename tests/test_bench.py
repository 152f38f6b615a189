"""The benchmark writes one table of the documentation: each of its parts has rows there."""

from bench.results import END, MARK, PAGE
from bench.run import PARTS


def test_each_part_has_rows_in_the_documentation() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition(END)[0]

    assert {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[5:]} == set(PARTS)
