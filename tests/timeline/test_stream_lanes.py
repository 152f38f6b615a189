"""A stream gets as many lanes as events run on it at once."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from nsys2prv.sources.lanes import Lanes
from nsys2prv.timeline.survey import _most_at_once


@pytest.mark.parametrize("longest", [1, 8, 40])
def test_as_many_lanes_are_counted_as_are_given(longest: int) -> None:
    random = np.random.default_rng(longest)
    for _ in range(20):
        start = np.sort(random.integers(0, 200, 100))
        length = random.integers(0, longest, 100)
        events = pl.DataFrame({"stream": random.integers(0, 3, 100), "start": start, "end": start + length})
        lanes = Lanes("stream")
        # All that start together are in one piece there, and need not be here.
        given = pl.concat([lanes(events.filter(pl.col("start") // 70 == part)) for part in range(3)])
        expected = given.group_by("stream").agg(pl.col("lane").max() + 1)

        assert _most_at_once([events[:35], events[35:35], events[35:]], ["stream"]) == {
            (stream,): most for stream, most in expected.iter_rows()
        }


def test_events_in_another_order_are_not_counted() -> None:
    events = pl.DataFrame({"start": [0, 10, 5], "end": [3, 12, 11]})

    assert _most_at_once([events], []) is None
    assert _most_at_once([events[1:2], events[2:]], []) is None
    assert _most_at_once([events.sort("start")], []) == {(): 2}
