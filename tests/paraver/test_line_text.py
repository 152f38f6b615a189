"""Lines out of columns are those that are joined one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.paraver.record_text import Cell, LineText, cell

_number = st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9) | st.integers(0, 10**11) | st.sampled_from([0, 10, 999, 1000])
_cells = st.lists(st.tuples(_number, st.booleans()), min_size=1, max_size=12)


@given(cells=_cells, kinds=st.lists(st.sampled_from("nNsS"), min_size=1, max_size=6))
def test_columns_are_joined(cells: list[tuple[int, bool]], kinds: list[str]) -> None:
    values, is_there = np.array([number for number, _ in cells], np.int64), np.array([present for _, present in cells])
    columns: list[Cell] = []
    expected = [""] * len(cells)
    for kind in kinds:
        present = is_there if kind.isupper() else None
        is_number = kind in "nN"
        columns.append(cell(":1234567:" if is_number else ";same", values if is_number else None, present))
        texts = [f":1234567:{number}" if is_number else ";same" for number in values.tolist()]
        here = np.ones(len(cells), dtype=bool) if present is None else present
        expected = [before + text * bool(has) for before, text, has in zip(expected, texts, here, strict=True)]
    lines = LineText(len(cells), columns)
    assert lines.lengths.tolist() == [len(text) for text in expected]
    # The last line first: a line is written to any place.
    begins = np.cumsum(lines.lengths[::-1])[::-1] - lines.lengths
    text = np.zeros(lines.lengths.sum(), np.uint8)
    lines.write(text, begins)
    assert text.tobytes().decode() == "".join(reversed(expected))
