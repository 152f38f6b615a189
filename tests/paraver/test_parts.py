"""Parts of a trace that workers wrote become one file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nsys2prv.paraver.prv import join_parts


@pytest.mark.parametrize("fails_at", [(), (1, 2, 3), (2,)], ids=["always", "never", "now and then"])
def test_parts_follow_each_other_whether_or_not_the_system_moves_them(
    fails_at: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "OUT.prv", [tmp_path / f"part{number}" for number in range(3)]
    whole.write_bytes(b"header\n")
    for number, part in enumerate(parts):
        part.write_bytes(b"%d" % number * (3_000_000 * number + 10))
    expected = b"".join(path.read_bytes() for path in (whole, *parts))
    move, calls = getattr(os, "copy_file_range", None), 0

    def sometimes(source: int, target: int, _count: int) -> int:
        nonlocal calls
        calls += 1
        if calls in fails_at or move is None:
            raise OSError(errno.EXDEV, "other file systems")
        return int(move(source, target, 1_000_000))

    monkeypatch.setattr(os, "copy_file_range", sometimes, raising=False)
    join_parts(whole, parts)

    assert whole.read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["OUT.prv"]
