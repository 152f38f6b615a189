"""What meters keep of a chunk of time is small: memory does not grow with the length of a run."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.meters.gaps import MOST_GAPS, _longest
from nsys2prv.execution.memory import _resident


def test_the_longest_gaps_of_a_chunk_keep_no_other_gaps_in_memory() -> None:
    rows, columns, chunks = 20_000, 20, 60
    values = {f"column{number}": np.arange(rows) for number in range(columns)}
    gaps = pl.DataFrame(
        {"length": np.arange(rows) % 1000, "begin": np.arange(rows), "device": np.zeros(rows, np.int64), **values}
    )
    _longest(gaps)
    before = _resident()

    kept = [_longest(gaps) for _ in range(chunks)]

    assert [frame.height for frame in kept] == [MOST_GAPS] * chunks
    assert kept[0]["length"].is_sorted(descending=True)
    # All gaps of all chunks are 220 MB.
    assert _resident() - before < 60_000_000
