"""Rows that have events of each type, however the events are divided into frames."""

from __future__ import annotations

import random

import polars as pl
import pytest

from nsys2prv.timeline import records
from nsys2prv.timeline.records import RowsOfTypes, row_ranges
from nsys2prv.vocabulary.event_types import CORRELATION_ID, KERNEL, NVTX_PUSHPOP

ATTRIBUTES = ("9101", "9102")


@pytest.mark.parametrize("known", [0, 3, 100_000])
def test_rows_have_the_types_of_their_events_and_attributes_that_are_not_0(known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_KNOWN", known)
    chance = random.Random(known)
    found = RowsOfTypes()
    expected: set[tuple[int, int]] = set()
    for number in range(40):
        # Rows and types appear one after the other, and attributes are 0 or missing at first.
        events = [
            {
                "row": chance.randrange(1 + number // 8),
                "number": chance.choice([KERNEL.number, NVTX_PUSHPOP.number][: 1 + number // 20]),
                "value": chance.randrange(2),
                **{name: chance.choice([None, 0, number // 30]) for name in ATTRIBUTES},
            }
            for _ in range(chance.randrange(1, 6))
        ]
        schema = dict.fromkeys(("row", "number", "value", *ATTRIBUTES), pl.Int64)
        found.add_events(pl.DataFrame(events, schema=schema))
        expected |= {(one["row"], one["number"]) for one in events}
        expected |= {(one["row"], int(name)) for one in events for name in ATTRIBUTES if one[name]}

    types = {number for _, number in expected}
    assert {int(name) for name in ATTRIBUTES} < types
    assert found.ranges() == {number: row_ranges(sorted(row for row, of in expected if of == number)) for number in types}


def test_events_that_are_nothing_but_an_attribute_count_where_it_is_not_0() -> None:
    found = RowsOfTypes()
    for row, value in ((0, 0), (1, 0), (1, 5), (1, 0), (0, 0)):
        found.add_events(pl.DataFrame({"row": [row], "number": [CORRELATION_ID.number], "value": [value]}))

    assert found.ranges() == {CORRELATION_ID.number: ((1, 1),)}
