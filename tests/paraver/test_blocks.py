"""Fields of lines of a trace as columns of numbers."""

from __future__ import annotations

import random

import pytest

from nsys2prv.paraver import blocks
from nsys2prv.paraver.blocks import Fields


@pytest.mark.parametrize("fields_at_once", [1, 7, 1 << 15])
def test_each_number_is_read(fields_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_FIELDS_AT_ONCE", fields_at_once)
    chance = random.Random(fields_at_once)
    numbers = [chance.choice([1, 1, 1, -1]) * chance.randrange(10 ** chance.randrange(1, 19)) for _ in range(600)]
    ends = [chance.choice(":::\n") for _ in numbers[1:]] + ["\n"]

    found = Fields("".join(f"{number}{end}" for number, end in zip(numbers, ends, strict=True)).encode())

    assert found.values.tolist() == numbers
    assert found.length.tolist() == [len(str(number)) for number in numbers]
    assert found.first.tolist() == [0, *(place + 1 for place, end in enumerate(ends[:-1]) if end == "\n")]


@pytest.mark.parametrize("lengths", [[255, 0, 256, 1], [511, 512, 2], [256], [3, 1000, 0, 0, 768]])
def test_fields_may_be_long(lengths: list[int]) -> None:
    found = Fields("".join("1:" * before + "0" * length + "\n" for before, length in enumerate(lengths)).encode())

    of_lines = [[1] * before + [length] for before, length in enumerate(lengths)]
    assert found.length.tolist() == [length for line in of_lines for length in line]


def test_numbers_at_the_limits_of_64_bits_and_with_zeros_in_front_are_read() -> None:
    found = Fields(b"9223372036854775807:-9223372036854775808:9223372036854775808\n" + b"0" * 300 + b"12:0007:-0\n")

    assert found.values.tolist() == [2**63 - 1, -(2**63), 0, 12, 7, 0]
    assert found.too_large.tolist() == [2]


def test_lines_and_fields_have_their_text() -> None:
    found = Fields("1:é:\n\n# x:y\n".encode())

    lines = zip(found.first.tolist(), found.count.tolist(), strict=True)
    assert [found.text(first, count) for first, count in lines] == ["1:é:", "", "# x:y"]
    assert [found.text(number) for number in range(6)] == ["1", "é", "", "", "# x", "y"]
    assert found.count.tolist() == [3, 1, 2]
