"""Steps that place events on rows and give them numbers."""

from __future__ import annotations

import itertools

import polars as pl

from nsys2prv.timeline.reader import look_up


def test_what_is_looked_up_does_not_depend_on_what_all_events_have_in_common() -> None:
    key = ["type", "series", "label"]
    table = pl.DataFrame(
        [(1, None, "a", 10), (1, None, None, 11), (1, "s", "a", 12), (2, None, "a", 13)],
        schema={"type": pl.Int64, "series": pl.String, "label": pl.String, "number": pl.Int64},
        orient="row",
    )
    events = pl.DataFrame(
        [(1, None, "a"), (1, None, None), (1, "s", "a"), (2, None, "a"), (2, "s", "a"), (None, None, "a")],
        schema=table.drop("number").schema,
        orient="row",
    )
    numbers = [10, 11, 12, 13, None, None]
    for count in range(len(numbers) + 1):
        for chosen in itertools.combinations(range(len(numbers)), count):
            found = look_up(events[list(chosen)], table, key)
            assert found["number"].to_list() == [numbers[place] for place in chosen]
            assert found.columns == ["number"]
