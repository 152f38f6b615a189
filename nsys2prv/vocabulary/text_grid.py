"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int]) -> list[str]:
    """Cells in columns of equal width.

    Parameters
    ----------
    columns
        Headings.
    rows
        Cells, as many as headings in each.
    left
        Places of the columns that are aligned to the left.

    >>> grid(["name", "count"], [["a", "7"], ["long", "12"]], frozenset({0}))
    ['  name  count', '  a         7', '  long     12']
    """
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            f"{cell:<{width}}" if place in left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  " + "  ".join(aligned).rstrip()

    return [line(columns), *map(line, rows)]
