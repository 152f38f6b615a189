"""gzip in blocks: one stream for readers, the same bytes however it is written."""

from __future__ import annotations

import gzip
import io
import random

import pytest

from nsys2prv.execution import threads
from nsys2prv.execution.threads import gzip_blocks


@pytest.mark.parametrize("cores", ["1", "2"])
def test_a_file_of_blocks_depends_on_its_content_alone(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", cores)
    monkeypatch.setattr(threads, "_BLOCK_BYTES", 100)
    content = random.Random(1).randbytes(1_230)
    files = []
    for size in (7, 100, 1_000, 2_000):
        file = io.BytesIO()
        with gzip_blocks(file) as write:
            for start in range(0, len(content), size):
                write(memoryview(content)[start : start + size])
        files.append(file.getvalue())
    assert gzip.decompress(files[0]) == content
    assert set(files) == {files[0]}
    assert files[0].count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00") == 13


def test_work_that_breaks_off_writes_no_last_block() -> None:
    file = io.BytesIO()

    def break_off() -> None:
        with gzip_blocks(file) as write:
            write(b"some")
            raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        break_off()
    assert file.getvalue() == b""
