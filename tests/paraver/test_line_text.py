"""Lines out of columns are those that are joined one by one."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv.paraver import line_text
from nsys2prv.paraver.line_text import Cells, LineText, Same, Words, numbers, word

_TEXTS = ["a", "bc", "def", "ghij", "0:1:12:3", "0:1:12345:6", "0:1:1234567890:12345678"]
_number = st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9) | st.integers(0, 10**11) | st.sampled_from([0, 10, 999, 1000])
_cells = st.lists(st.tuples(_number, st.booleans(), st.integers(0, len(_TEXTS) - 1)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=150)
@given(
    cells=_cells, kinds=st.lists(st.sampled_from("nNwWsS"), min_size=1, max_size=6), rows_of_pattern=st.sampled_from([1, 200])
)
def test_columns_are_joined(cells: list[tuple[int, bool, int]], kinds: list[str], rows_of_pattern: int) -> None:
    words = Words(pl.Series(_TEXTS))
    values = np.array([number for number, _, _ in cells], np.int64)
    is_there = np.array([one for _, one, _ in cells])
    chosen = np.array([one for _, _, one in cells])
    columns: list[Cells] = []
    wanted = [""] * len(cells)
    for kind in kinds:
        present = is_there if kind.isupper() else None
        if kind in "nN":
            columns.append(numbers(values, ":7:", present))
            texts = [f":7:{number}" for number in values.tolist()]
        elif kind in "wW":
            columns.append(word(words, chosen, present))
            texts = [_TEXTS[one] for one in chosen.tolist()]
        else:
            columns.append(Same(b";same", present))
            texts = [";same"] * len(cells)
        here = is_there if present is not None else np.ones(len(cells), dtype=bool)
        wanted = [before + text * bool(has) for before, text, has in zip(wanted, texts, here, strict=True)]
    with patch.object(line_text, "_ROWS_OF_PATTERN", rows_of_pattern):
        lines = LineText(len(cells), columns)
    assert lines.lengths.tolist() == [len(text) for text in wanted]
    # The last line first: a line is written to any place.
    begins = np.cumsum(lines.lengths[::-1])[::-1] - lines.lengths
    text = np.zeros(lines.lengths.sum(), np.uint8)
    lines.write(text, begins)
    assert text.tobytes().decode() == "".join(reversed(wanted))
