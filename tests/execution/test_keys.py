"""Different numbers of a column, and keys of several columns, against the plain way to find them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.execution.row_order import distinct, one_key, order_of_keys

numbers = st.one_of(st.integers(-3, 70_000), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(numbers, max_size=40))
def test_different_numbers_are_in_order_and_each_row_has_its_own(values: list[int]) -> None:
    column = np.array(values, dtype=np.int64)
    found = distinct(column)

    assert found.numbers.tolist() == sorted(set(values))
    assert found.numbers[found.place].tolist() == values
    assert found.count.tolist() == [values.count(number) for number in sorted(set(values))]


@pytest.mark.parametrize("different", [3, 900, 5_000, 200_000])
def test_few_and_many_different_numbers_are_found(different: int) -> None:
    column = (np.arange(300_000) * 7_919 % different) << 16
    found = distinct(column)

    assert found.numbers.tolist() == [number << 16 for number in range(different)]
    assert np.array_equal(found.numbers[found.place], column)
    assert int(found.count.sum()) == len(column)


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=20))
def test_a_key_is_equal_where_all_columns_are(rows: list[tuple[int, int, int]]) -> None:
    key = one_key([np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)])

    assert len(set(key.tolist())) == len(set(rows))
    assert len(set(zip(key.tolist(), rows, strict=True))) == len(set(rows))


@given(st.lists(st.integers(0, 100_000), max_size=30))
def test_keys_are_ordered_and_equal_ones_stay_in_their_order(keys: list[int]) -> None:
    assert order_of_keys(np.array(keys, dtype=np.int64)).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
