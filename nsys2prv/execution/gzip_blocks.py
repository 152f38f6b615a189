"""A gzip file that several threads compress, in blocks of one size: each is a member of the file."""

from __future__ import annotations

import collections
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO

from nsys2prv.execution.threads import at_once

_BLOCK_BYTES = 1 << 20
"""Bytes of a block before compression: what repeats is found within 32 KiB, so larger blocks give no smaller file."""
_LEVEL = 4
"""Half the time of the default for a few percent more bytes."""
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS
"""Its header has neither name nor time: the same content gives the same file."""


class GzipBlocks:
    """Compresses what is written; readers decompress all blocks as one stream (RFC 1952, 2.2).

    The file depends on the bytes that are written alone, not on how they are divided, nor on the number of threads.

    Parameters
    ----------
    file
        The compressed file; it is not closed.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._content = bytearray()
        self._threads = at_once()
        self._pool = ThreadPoolExecutor(self._threads)
        self._compressed: collections.deque[Future[bytes]] = collections.deque()

    def __enter__(self) -> GzipBlocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                if self._content:
                    self._compress(bytes(self._content))
                self._write(0)
        finally:
            self._pool.shutdown(cancel_futures=True)

    def write(self, content: bytes | memoryview) -> None:
        """Append bytes."""
        self._content += content
        whole = len(self._content) // _BLOCK_BYTES * _BLOCK_BYTES
        for start in range(0, whole, _BLOCK_BYTES):
            self._compress(bytes(memoryview(self._content)[start : start + _BLOCK_BYTES]))
        del self._content[:whole]

    def _compress(self, block: bytes) -> None:
        self._compressed.append(self._pool.submit(_member, block))
        # Each thread has a block to go on with while finished ones are written.
        self._write(2 * self._threads)

    def _write(self, most: int) -> None:
        """Write finished blocks, until so many are left."""
        while len(self._compressed) > most:
            self._file.write(self._compressed.popleft().result())


def _member(block: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WITH_GZIP_HEADER)
    return compressor.compress(block) + compressor.flush()
