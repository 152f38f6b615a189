"""Work on threads: the same results in the same order, and errors that end it."""

from __future__ import annotations

import threading
import time

import pytest

from nsys2prv.execution.threads import Stop, map_ahead, run_all


def test_results_come_in_the_order_of_the_work_whatever_is_done_first() -> None:
    def piece(number: int, stop: Stop) -> int:
        time.sleep(0.01 * (3 - number % 4))
        stop.check()
        return number

    assert run_all([lambda stop, number=number: piece(number, stop) for number in range(12)]) == list(range(12))  # type: ignore[misc]


def test_the_first_error_ends_the_other_work() -> None:
    ended = threading.Event()

    def endless(stop: Stop) -> None:
        try:
            while True:
                stop.check()
                time.sleep(0.001)
        finally:
            ended.set()

    def failing(stop: Stop) -> None:
        raise ValueError("the second piece")

    with pytest.raises(ValueError, match="the second piece"):
        run_all([endless, failing])
    assert ended.is_set()


def test_items_are_made_ahead_in_order_and_an_error_comes_in_its_place() -> None:
    def invert(number: int) -> float:
        return 1 / (5 - number)

    made = map_ahead(invert, range(10))
    assert [next(made) for _ in range(5)] == [1 / 5, 1 / 4, 1 / 3, 1 / 2, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(made)
