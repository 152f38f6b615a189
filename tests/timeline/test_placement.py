"""Steps that place events on rows and give them numbers and labels."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.report_builder import ReportBuilder

from nsys2prv.sources.lanes import Lanes
from nsys2prv.timeline import records
from nsys2prv.timeline.reader import look_up
from nsys2prv.timeline.records import RowsOfTypes, row_ranges
from nsys2prv.timeline.survey import _most_at_once
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.event_types import CORRELATION_ID, KERNEL, NVTX_PUSHPOP


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


def test_names_that_are_cleaned_into_one_stay_apart(tmp_path: Path) -> None:
    report = ReportBuilder()
    for place, name in enumerate(["gemm(float[4])", "gemm(float(4))", "copy"]):
        report.kernel(name, 10 * place, 10 * place + 5)
    for place, name in enumerate(["a\tb", "a\nb", "a b"]):
        report.nvtx_range(name, 10 * place, 10 * place + 5)

    trace = translate([report.write(tmp_path / "a.sqlite")], tmp_path / "out", TranslateOptions(no_views=True))

    lines = trace.prv.with_suffix(".pcf").read_text().splitlines()
    for label in ("gemm(float(4))", "a b"):
        alike = [line.split(maxsplit=1)[1] for line in lines if label in line]
        assert label in alike
        assert len(set(alike)) == len(alike) == (2 if label.startswith("gemm") else 3)
    assert [line.split(maxsplit=1)[1] for line in lines if "copy" in line] == ["copy"]


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
    events = pl.DataFrame({"stream": 7, "start": [0, 10, 5], "end": [3, 12, 11]})

    assert _most_at_once([events], ["stream"]) is None
    assert _most_at_once([events[1:2], events[2:]], ["stream"]) is None
    assert _most_at_once([events.sort("start")], ["stream"]) == {(7,): 2}


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
