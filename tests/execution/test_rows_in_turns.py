"""Rows in an order that depends on what is in them."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.execution.row_order import in_turns, order_ties

SCHEMA = {"start": pl.Int64, "what": pl.String}


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc") | st.none())),
    sizes=st.lists(st.integers(0, 4), max_size=20),
)
def test_what_starts_together_comes_in_one_piece_and_in_one_order(rows: list[tuple[int, str | None]], sizes: list[int]) -> None:
    ordered = pl.DataFrame(sorted(rows, key=lambda row: row[0]), schema=SCHEMA, orient="row")
    pieces, first = [], 0
    for size in [*sizes, len(rows)]:
        pieces.append(ordered[first : first + size])
        first += size

    found = list(in_turns(iter(pieces), "start"))

    assert pl.concat([ordered.clear(), *found]).equals(order_ties(ordered, ["start"]))
    starts = [piece["start"].unique().to_list() for piece in found]
    assert sum(map(len, starts)) == ordered["start"].n_unique()
    assert all(starts)
