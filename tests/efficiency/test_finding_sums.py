"""Occurrences summed by device and part of the run, and what a finding says of them: numbers on small frames."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsys2prv.efficiency.findings.finding import Finding, Loss, Losses, Number, over_parts, summed, with_top

LENGTH = 1000
"""Of a run whose 100 parts are 10 ns long."""


def occurrences(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """From device, begin, end and cost."""
    return pl.DataFrame(rows, ["device", "begin", "end", "cost"], orient="row").with_columns(count=pl.lit(1))


def test_an_occurrence_counts_in_its_first_part_and_costs_in_all_by_its_time_there() -> None:
    pieces = over_parts(occurrences((0, 5, 9, 4), (0, 25, 50, 20)), ("count",), LENGTH).sort("begin", "part")

    # 5, 10 and 10 of 25 ns; what is lost by rounding is in the first part.
    assert pieces.select("part", "count", "cost", "top_cost").rows() == [
        (0, 1, 4, 4), (2, 1, 4, 20), (3, 0, 8, 20), (4, 0, 8, 20)
    ]  # fmt: skip


def test_sums_by_key_have_the_most_costly_occurrence_and_of_equal_ones_the_first() -> None:
    rows = occurrences((0, 30, 40, 7), (0, 10, 20, 7), (1, 50, 60, 1), (0, 70, 90, 3)).with_columns(row=pl.col("begin") // 10)
    frame = with_top(rows, LENGTH)
    expected = pl.DataFrame(
        {
            "device": [0, 1], "count": [3, 1], "cost": [17, 1], "begin": [10, 50], "end": [90, 60],
            "top_cost": [7, 1], "top_begin": [10, 50], "top_end": [20, 60], "top_row": [1, 5], "top_thread": [-1, -1],
        }
    )  # fmt: skip
    together = summed([frame], ("device",), ("count", "cost"))
    # Sums of blocks can be summed again.
    blocks = [summed([block], ("device",), ("count", "cost")) for block in (frame[:1], frame[1:])]

    assert_frame_equal(together, expected)
    assert_frame_equal(summed(blocks, ("device",), ("count", "cost")), expected)
    assert summed([], ("device",), ("count", "cost")).schema == expected.schema


def loss(device: int, costs: dict[int, int]) -> Loss:
    return Loss(device, len(costs), sum(costs.values()), 0, LENGTH, (0, 10), costs=costs)


def test_devices_that_lose_time_in_the_same_part_lose_it_together() -> None:
    losses = Losses([loss(0, {1: 5, 2: 1}), loss(1, {1: 3, 2: 4})])
    finding = Finding("", losses)

    assert (losses.cost, finding.saved, str(losses)) == (13, 9, "on 2 GPUs")
    assert Finding("", losses, wall=2).saved == 2
    # Where parts are not known, the device counts that loses most.
    assert Finding("", Losses([*losses, loss(2, {})])).saved == 7
    # Of devices of the same cost the first one is shown.
    assert Losses([loss(1, {1: 2}), loss(0, {1: 2})]).worst.index == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number("", 1200), "1,200"), (Number("", 1_500_000, "ns"), "1.500 ms"), (Number("", 2048, "bytes"), "2.000 KiB"),
        (Number("", 0.25, "0 to 1"), "25.0 %"), (Number("", 1.2e9, "Hz"), "1,200 MHz"),
    ],
)  # fmt: skip
def test_numbers_are_worded_by_their_unit(number: Number, text: str) -> None:
    assert str(number) == text
