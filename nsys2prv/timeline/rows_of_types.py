"""Rows that have events of each type: who shows a type need not show the other rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution.row_order import Merging
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary.event_types import Role

RowRanges = tuple[tuple[int, int], ...]
"""First and last of rows without a gap, counted from 0."""
_SCHEMA = {"row": pl.Int64, "type": pl.Int64}
_MOST_PENDING = 1_000_000
_ABOVE_TYPES = 2**32
"""Above all event types."""
_MOST_KNOWN = 100_000
"""Rows with their types that are kept at hand to leave out what is known."""


class RowsOfTypes(Merging):
    """Distinct rows and event types, in frames with the columns `row` and `type`.

    A type is on a row that has an event of it. An attribute is on a row where it is not 0 throughout: an attribute of 0 looks
    like none.
    """

    def __init__(self) -> None:
        super().__init__(pl.DataFrame.unique, pl.DataFrame(schema=_SCHEMA), _MOST_PENDING)
        self._known: set[tuple[int, int]] = set()

    def add_events(self, events: pl.DataFrame) -> None:
        """Add events with the columns `row`, `number` and `value`, and attributes in columns named by their types."""
        rows, numbers = events["row"].unique().to_list(), events["number"].unique().to_list()
        found: set[tuple[int, int]] = set()
        # Frames of a source mostly have the same rows and types, and to look for them takes longer than to see that.
        if not self._knows(rows, numbers):
            # Some events are nothing but an attribute.
            alone = [number for number in numbers if is_attribute(number)]
            shown = events.filter(pl.col("value").ne(0) | ~pl.col("number").is_in(alone)) if alone else events
            # Both in one number: distinct pairs take five times as long.
            pairs = (shown["row"] * _ABOVE_TYPES + shown["number"]).unique()
            found.update(divmod(pair, _ABOVE_TYPES) for pair in pairs.to_list())
        for name in filter(str.isdigit, events.columns):
            if not self._knows(rows, [int(name)]):
                on_rows = events["row"].filter(events[name].ne(0)).unique()
                found.update((row, int(name)) for row in on_rows.to_list())
        found -= self._known
        if len(self._known) < _MOST_KNOWN:
            self._known |= found
        if found:
            self.add(pl.DataFrame(sorted(found), schema=_SCHEMA, orient="row"))

    def _knows(self, rows: Sequence[int], numbers: Sequence[int]) -> bool:
        return self._known.issuperset(itertools.product(rows, numbers))

    def ranges(self) -> dict[int, RowRanges]:
        """Rows of each type."""
        by_type = self.rows.sort("type", "row").group_by("type", maintain_order=True).agg("row")
        return {number: row_ranges(rows) for number, rows in by_type.iter_rows()}


def is_attribute(number: int) -> bool:
    """Whether a number is that of an attribute of ours."""
    kind = type_of(number)
    return kind is not None and kind.role is Role.ATTRIBUTE


def row_ranges(rows: Sequence[int] | npt.NDArray[np.int64]) -> RowRanges:
    """Ranges of distinct rows in their order.

    >>> row_ranges([0, 1, 2, 5, 7, 8])
    ((0, 2), (5, 5), (7, 8))
    """
    numbers = np.asarray(rows, dtype=np.int64)
    first = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    last = np.append(first[1:], len(numbers)) - 1
    return tuple(zip(numbers[first].tolist(), numbers[last].tolist(), strict=True)) if len(numbers) else ()


def as_json(ranges: Mapping[int, RowRanges]) -> list[dict[str, Any]]:
    """Rows of types for OUT.json: types that are on the same rows together, and rows counted from 1.

    >>> as_json({7: ((0, 2),), 8: ((0, 2),), 9: ((4, 4),)})
    [{'types': [7, 8], 'rows': [[1, 3]]}, {'types': [9], 'rows': [[5, 5]]}]
    """
    together: dict[RowRanges, list[int]] = {}
    for number, rows in sorted(ranges.items()):
        together.setdefault(rows, []).append(number)
    return [{"types": types, "rows": ranges_as_json(rows)} for rows, types in together.items()]


def ranges_as_json(rows: RowRanges) -> list[list[int]]:
    """Rows as OUT.json counts them, from 1."""
    return [[first + 1, last + 1] for first, last in rows]


def from_json(listed: Iterable[Mapping[str, Any]], rows: int) -> dict[int, RowRanges] | None:
    """What `as_json` made, of a trace with so many rows; None where it is of another one."""
    ranges: dict[int, RowRanges] = {}
    for together in listed:
        found = ranges_from_json(together.get("rows", ()), rows)
        if not found:
            return None
        ranges |= dict.fromkeys(together.get("types", ()), found)
    return ranges


def ranges_from_json(listed: Iterable[Sequence[int]], rows: int) -> RowRanges | None:
    """What `ranges_as_json` made, of a trace with so many rows; None where it is of another one."""
    pairs = list(listed)
    if not all(len(one) == 2 and 1 <= one[0] <= one[1] <= rows for one in pairs):
        return None
    return tuple((first - 1, last - 1) for first, last in pairs)
