"""Where independent pieces of work run: in this process, in workers on this machine, or on a Dask cluster.

The same function with the same arguments gives the same results in all three, in the order of the arguments. Function,
arguments and results travel between processes, so they must be picklable; what is large goes through files that all see.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Generic, TypeVar

from nsys2prv.errors import UsageError, WorkerDied

S = TypeVar("S")
T = TypeVar("T")

_TRIES = 3
"""How often a piece of work is begun when workers die under it."""


class Workers(ABC):
    """Something that does pieces of work."""

    @abstractmethod
    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """Results of a function for each item, in order.

        The first error of the function is raised in the place of its result; work that was not begun then isn't done.

        Raises
        ------
        WorkerDied
            When workers died under a piece of work again and again.
        """


class InThisProcess(Workers):
    """One piece after the other, when its result is asked for."""

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        return map(function, items)


class _Waiting(Generic[S, T]):
    """A piece of work on its way."""

    def __init__(self, item: S, future: Future[T]) -> None:
        self.item = item
        self.future = future
        self.tries = 1


class LocalWorkers(Workers):
    """Processes on this machine.

    Parameters
    ----------
    count
        How many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Threads of polars do not survive a fork.
        return ProcessPoolExecutor(self._count, multiprocessing.get_context("spawn"), initializer=_begin_worker)

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        waiting: collections.deque[_Waiting[S, T]] = collections.deque()
        left = iter(items)
        try:
            while True:
                for item in left:
                    waiting.append(_Waiting(item, self._submit(function, item)))
                    # One more than are worked on: no worker waits for what is in use, and not all results are held.
                    if len(waiting) > self._count:
                        break
                if not waiting:
                    return
                yield self._result(function, waiting)
        finally:
            for one in waiting:
                one.future.cancel()

    def _submit(self, function: Callable[[S], T], item: S) -> Future[T]:
        try:
            return self._pool.submit(function, item)
        except BrokenProcessPool as error:
            # Told as a result, where it is dealt with.
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _result(self, function: Callable[[S], T], waiting: collections.deque[_Waiting[S, T]]) -> T:
        first = waiting[0]
        while True:
            try:
                result = first.future.result()
            except BrokenProcessPool as error:
                # All that the workers had is lost with the one that died.
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = self._new_pool()
                for one in waiting:
                    if one.future.done() and not one.future.cancelled() and one.future.exception() is None:
                        continue
                    one.tries += 1
                    if one.tries > _TRIES:
                        raise WorkerDied(_TRIES) from error
                    one.future = self._submit(function, one.item)
                continue
            waiting.popleft()
            return result

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class DaskCluster(Workers):
    """Workers of a Dask cluster; reports and intermediate files lie where all of them see them.

    Parameters
    ----------
    client
        A `distributed.Client`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        from distributed import KilledWorker

        waiting: collections.deque[Any] = collections.deque()
        most = 2 * max(len(self._client.scheduler_info()["workers"]), 1)
        left = iter(items)
        try:
            while True:
                for item in left:
                    # Not pure: the result depends on files, and is not to be kept under the name of its arguments.
                    waiting.append(self._client.submit(function, item, pure=False, retries=_TRIES - 1))
                    if len(waiting) > most:
                        break
                if not waiting:
                    return
                try:
                    result = waiting[0].result()
                except KilledWorker as error:
                    raise WorkerDied(_TRIES) from error
                waiting.popleft().release()
                yield result
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Leave the cluster, which goes on."""
        self._client.close()


@contextlib.contextmanager
def workers(count: int = 0, scheduler: str = "") -> Iterator[Workers]:
    """Workers as the user asks for them.

    Parameters
    ----------
    count
        Processes on this machine; 0: none, the work runs in this process.
    scheduler
        Address of a Dask scheduler (tcp://...), or its scheduler file; "": none.

    Raises
    ------
    UsageError
        When both are asked for, Dask is not installed, or no scheduler answers.
    """
    if count and scheduler:
        raise UsageError("--workers and --scheduler exclude each other: a cluster has its own workers")
    if not count and not scheduler:
        yield InThisProcess()
        return
    made: LocalWorkers | DaskCluster = DaskCluster(_client(scheduler)) if scheduler else LocalWorkers(count)
    try:
        yield made
    finally:
        made.close()


def _client(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--scheduler needs Dask, which is not installed: pip install 'nsys2prv[dask]'") from error
    # Its types are partial.
    connect: Any = Client
    try:
        return connect(scheduler_file=scheduler) if Path(scheduler).is_file() else connect(scheduler, timeout="30s")
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"--scheduler {scheduler}: no Dask scheduler answers there ({error})") from error


def _begin_worker() -> None:
    # Ctrl-C reaches all processes of a terminal: the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
