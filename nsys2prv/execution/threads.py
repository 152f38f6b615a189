"""Work on threads of this process. The expensive steps are those of polars, Arrow and zlib, which release Python's lock."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, BinaryIO, TypeVar

from nsys2prv.execution import memory

S = TypeVar("S")
T = TypeVar("T")

_MOST_THREADS = 2
"""Pieces of work at once, where memory and cores allow it; more would hold more memory than they save time."""
_SHARE_OF_ALL_THREADS = 0.6
"""Share of the usual sizes of pieces below which one thread works at a time."""
_BLOCK_BYTES = 1 << 20
"""Bytes of a block before compression: what repeats is found within 32 KiB, so larger blocks give no smaller file."""
_LEVEL = 4
"""Half the time of the default for a few percent more bytes."""
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS
"""Its header has neither name nor time: the same content gives the same file."""


def max_threads() -> int:
    """Number of pieces of work that run at once; one, where polars may use one core, or memory is short."""
    # Read, not asked of polars, which takes long to load.
    cores = os.environ.get("POLARS_MAX_THREADS") or os.cpu_count() or 1
    return _MOST_THREADS if str(cores) != "1" and memory.share() >= _SHARE_OF_ALL_THREADS else 1


class Stopped(BaseException):
    """Raised in work that is no longer needed, because other work failed or the user interrupted."""


class Stop(threading.Event):
    """Asks work on other threads to end when it is set: long work calls `check` from time to time."""

    def check(self) -> None:
        """Raises `Stopped` when the end was requested."""
        if self.is_set():
            raise Stopped


def run_all(work: Iterable[Callable[[Stop], T]]) -> list[T]:
    """Results of pieces of work, in the order of the pieces; on as many threads as `max_threads` says.

    The first error of a piece ends the others and is raised.
    """
    stop, threads = Stop(), max_threads()
    if threads == 1:
        return [piece(stop) for piece in work]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(piece, stop) for piece in work]
        try:
            ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in futures if future in ended and future.exception() is not None]
            return [future.result() for future in (*failed[:1], *futures)]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def map_ahead(function: Callable[[S], T], arguments: Iterable[S], most: int = _MOST_THREADS) -> Iterator[T]:
    """Results of a function for each argument, in order, computed on other threads while earlier results are in use: on as many
    as `max_threads` says, and at most `most`. Where that is one thread for all work, results are computed when they are needed.
    """
    if max_threads() == 1:
        yield from map(function, arguments)
        return
    waiting: collections.deque[Future[T]] = collections.deque()
    threads = min(max_threads(), most)
    with ThreadPoolExecutor(threads) as pool:
        try:
            for argument in arguments:
                waiting.append(pool.submit(function, argument))
                # One more than there are threads, so that none waits while a result is in use.
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def prefetch(values: Iterable[T]) -> Iterator[T]:
    """The same values, in order, each computed on another thread while the one before is in use, as `max_threads` allows it."""
    source, end = iter(values), object()
    coming: Iterator[Any] = map_ahead(lambda _: next(source, end), itertools.repeat(None), most=1)
    yield from itertools.takewhile(lambda value: value is not end, coming)


@contextlib.contextmanager
def gzip_blocks(file: BinaryIO) -> Iterator[Callable[[bytes | memoryview], object]]:
    """What writes to a gzip file that several threads compress, in blocks of one size: each is a member of the file, and
    readers decompress all of them as one stream (RFC 1952, 2.2).

    The file depends on the bytes that are written alone, not on how they are divided, nor on the number of threads.

    Parameters
    ----------
    file
        The compressed file; it is not closed.
    """
    content, threads = bytearray(), max_threads()
    members: collections.deque[Future[bytes]] = collections.deque()

    def write(more: bytes | memoryview, least: int = _BLOCK_BYTES) -> None:
        content.extend(more)
        while len(content) >= least:
            members.append(pool.submit(_member, bytes(content[:_BLOCK_BYTES])))
            del content[:_BLOCK_BYTES]
            # Each thread has a block to go on with while finished ones are written.
            while len(members) > 2 * threads:
                file.write(members.popleft().result())

    with ThreadPoolExecutor(threads) as pool:
        try:
            yield write
            if content:
                write(b"", least=1)
            for member in members:
                file.write(member.result())
        finally:
            pool.shutdown(cancel_futures=True)


def _member(block: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WITH_GZIP_HEADER)
    return compressor.compress(block) + compressor.flush()
