"""Where independent pieces of work run: in this process, in workers on this machine, or on a Dask cluster.

The same function with the same arguments gives the same results in all three, in the order of the arguments. Function,
arguments and results are sent between processes, so they must be picklable; large data are in files that all processes see.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import math
import os
import re
import shutil
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from nsys2prv.errors import NoResources, UsageError, WorkerDied
from nsys2prv.execution import memory
from nsys2prv.execution.lacks import lack_in
from nsys2prv.execution.programs import kill_programs
from nsys2prv.execution.scratch import remove_temporary
from nsys2prv.execution.signals import ENDING_SIGNALS, TO_ALL_PROCESSES, leave_by_signals, signals_held
from nsys2prv.vocabulary.version import __version__

if TYPE_CHECKING:
    # Most commands start no processes.
    from concurrent.futures import Future, ProcessPoolExecutor

S = TypeVar("S")
T = TypeVar("T")

_TRIES = 3
"""How often a piece of work is started when workers die during it."""
_PIECES_PER_WORKER = 4
"""Approximate number of groups for each worker; a worker with longer groups gets fewer."""
_SECONDS_TO_LEAVE = 2.0
"""How long a worker may take to clean up when it has to end."""
_SECONDS_BETWEEN_LOOKS = 1.0
"""How often it is looked whether a result can still come."""
_LONGEST_SCHEDULER_FILE = 1_000_000
"""Characters; it has the addresses of all workers."""
_SECONDS_TO_ANSWER = 30
_SECONDS_TO_COME = 120
"""How long a scheduler may take to answer, and its first worker to connect."""


class Workers(ABC):
    """Executes pieces of work.

    Attributes
    ----------
    count
        How many pieces run at once.
    is_here
        Whether the work runs in this process: its results may stay in memory then.
    """

    count: int = 1
    is_here: bool = False

    def groups(self, sizes: Sequence[int], most: int, largest: float = math.inf) -> list[range]:
        """Groups of neighbours as pieces of work: each of about the same size, and enough of them for all workers.

        Parameters
        ----------
        sizes
            Amount of work of each item.
        most
            Largest number of items in a group.
        largest
            Size from which nothing is added to a group.

        >>> InThisProcess().groups([1, 1, 1, 1, 1], 3)
        [range(0, 3), range(3, 5)]
        """
        enough = self._enough(sizes, largest)
        found: list[range] = []
        first = total = 0
        for index, size in enumerate(sizes):
            total += size
            if total >= enough or index - first + 1 >= most or index + 1 == len(sizes):
                found.append(range(first, index + 1))
                first, total = index + 1, 0
        return found

    def shares(self, sizes: Sequence[int], least: int, largest: float = math.inf) -> list[int]:
        """Into how many shares each item is divided: one, unless it is larger than a group (`groups`) need be. No share is
        smaller than `least`.

        >>> InThisProcess().shares([10, 1000], 10)
        [1, 1]
        """
        if self.is_here:
            return [1] * len(sizes)
        enough = max(self._enough(sizes, largest), 1)
        return [max(min(math.ceil(size / enough), size // least), 1) for size in sizes]

    def _enough(self, sizes: Sequence[int], largest: float) -> float:
        """Size of a group to which nothing need be added."""
        return min(sum(sizes) / (1 if self.is_here else _PIECES_PER_WORKER * self.count), largest)

    def for_pieces(self, count: int) -> Workers:
        """Who does so many pieces of work best."""
        return self

    def share(self, *folders: Path) -> None:  # noqa: B027  # most need nothing
        """Name the folders where pieces of work write, which are removed when the work ends; UsageError when not all workers
        see them.
        """

    def prepare(self, function: Callable[..., object]) -> None:  # noqa: B027  # most need nothing
        """Have all workers load the module of a function, while the first ones may work already."""

    def finish(self) -> None:  # noqa: B027  # most need nothing
        """No more work comes: who was made for it may end meanwhile."""

    @abstractmethod
    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """Results of a function for each item, in order.

        The first error of the function is raised in place of its result; work that has not started is then cancelled.

        Raises
        ------
        WorkerDied
            When workers died repeatedly during a piece of work.
        """


class InThisProcess(Workers):
    """Runs one piece after the other, when its result is requested."""

    is_here = True

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        return map(function, items)


@dataclass
class _Waiting(Generic[S, T]):
    """A submitted piece of work."""

    item: S
    future: Future[T]
    tries: int = 1


class LocalWorkers(Workers):
    """Some processes on this machine."""

    def __init__(self, count: int, allotment: memory.Allotment = memory.USUAL) -> None:
        self.count = count
        self._allotment = allotment
        threading.excepthook = _hide_end_of_manager
        self._pool = self._new_pool()
        self._ending: tuple[Any, tuple[Any, ...]] | None = None
        _local.add(self)

    def for_pieces(self, count: int) -> Workers:
        # A worker has fewer threads than this process, and has to start first.
        return InThisProcess() if count == 1 else self

    def _new_pool(self) -> ProcessPoolExecutor:
        import multiprocessing.resource_tracker
        from concurrent.futures import ProcessPoolExecutor

        # Polars threads do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        # Most threads are those of polars: all workers together have one per core.
        threads = max((os.cpu_count() or 1) // self.count, 1)
        # What counts semaphores ends when all others have ended. If it were started by what needs it, it would let signals
        # through that are held here.
        with signals_held(ENDING_SIGNALS):
            multiprocessing.resource_tracker.ensure_running()
        with signals_held(TO_ALL_PROCESSES):
            return ProcessPoolExecutor(self.count, spawn, initializer=_start_worker, initargs=(threads, self._allotment))

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        waiting: collections.deque[_Waiting[S, T]] = collections.deque()
        left = iter(items)
        try:
            while True:
                for item in left:
                    waiting.append(_Waiting(item, self._submit(function, item)))
                    # More than there are workers, so that no worker waits for a longer piece that was submitted earlier.
                    if len(waiting) >= 2 * self.count:
                        break
                if not waiting:
                    return
                yield self._result(function, waiting)
        finally:
            for one in waiting:
                one.future.cancel()

    def prepare(self, function: Callable[..., object]) -> None:
        # A process starts when there is work for it.
        for _ in range(min(self.count, os.cpu_count() or 1)):
            self._submit(_load, function)

    def _submit(self, function: Callable[[S], T], item: S) -> Future[T]:
        from concurrent.futures import Future
        from concurrent.futures.process import BrokenProcessPool

        try:
            # It may start processes: a worker that is not known yet would not be ended, and say so.
            with signals_held(TO_ALL_PROCESSES):
                return self._pool.submit(function, item)
        except (RuntimeError, OSError) as error:
            if type(error) is RuntimeError:
                raise NoResources(_THREADS) from error
            # `_result` handles the error. While the pool breaks, its pipe may be closed already.
            failed: Future[T] = Future()
            failed.set_exception(BrokenProcessPool(str(error)))
            return failed

    def _result(self, function: Callable[[S], T], waiting: collections.deque[_Waiting[S, T]]) -> T:
        import concurrent.futures
        from concurrent.futures.process import BrokenProcessPool

        first = waiting[0]
        while True:
            try:
                result = first.future.result(_SECONDS_BETWEEN_LOOKS)
            except (TimeoutError, concurrent.futures.TimeoutError) as error:
                if first.future.done():
                    # Of the work itself.
                    raise
                self._check_manager(error)
                continue
            except BrokenProcessPool as error:
                # All pieces that the workers had are lost with the one that died.
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

    def _check_manager(self, error: BaseException) -> None:
        """Raise NoResources when the thread has ended that gives work to the processes: nothing would ever come."""
        manager: Any = self._pool._executor_manager_thread
        if manager is not None and not manager.is_alive():
            raise NoResources(_THREADS) from error

    def finish(self) -> None:
        # Afterwards the executor does not know them any more.
        self._ending = self._pool._executor_manager_thread, tuple((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the processes, which have no work left."""
        if self._ending is None:
            self.finish()
        _local.discard(self)
        assert self._ending is not None
        manager, _ = self._ending
        # A thread that could not start can't be waited for.
        if manager is not None and manager.is_alive():
            manager.join()

    def kill(self) -> None:
        """End the processes at once, even during work: their files can be removed afterwards."""
        _local.discard(self)
        # The executor has no public access to its processes.
        processes = self._ending[1] if self._ending is not None else tuple((self._pool._processes or {}).values())
        for process in processes:
            process.terminate()
        until = time.monotonic() + _SECONDS_TO_LEAVE
        for process in processes:
            process.join(max(until - time.monotonic(), 0))
            if process.is_alive():
                process.kill()


_THREADS = "threads or processes"


def _hide_end_of_manager(arguments: threading.ExceptHookArgs) -> None:
    """In place of a traceback of the thread that gives work to processes: `LocalWorkers` raises an error for its end."""
    from concurrent.futures.process import _ExecutorManagerThread

    if not isinstance(arguments.thread, _ExecutorManagerThread):
        threading.__excepthook__(arguments)


_local: set[LocalWorkers] = set()
"""Running workers on this machine."""


def kill_local_workers() -> None:
    """End all workers on this machine; for a process that ends at once."""
    if not _local:
        return
    # Threads of the executor need not report that their workers ended.
    threading.excepthook = lambda _: None
    for some in tuple(_local):
        some.kill()
    import multiprocessing.util

    # Without it, a process that ends without its exit functions gets a warning about leaked semaphores.
    multiprocessing.util._run_finalizers(0)  # type: ignore[attr-defined]


class DaskCluster(Workers):
    """Workers of a Dask cluster, of which a `distributed.Client` is given; all must see the reports and intermediate files."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._folders: tuple[Path, ...] = ()
        self.count = max(sum(client.nthreads().values()), 1)

    def share(self, *folders: Path) -> None:
        for folder in folders:
            for worker, (there, host) in self._client.run(_look_for, folder).items():
                if not there:
                    raise UsageError(
                        f"the worker {worker} of the Dask cluster, on {host}, can't write to {folder}: reports, the output, "
                        f"and the folder of --scratch must be on a file system that all workers share, and the workers must be "
                        f"yours"
                    )
        for folder in folders:
            (folder / _IN_USE).touch()
        self._folders = folders

    def map(self, function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        from distributed import KilledWorker

        waiting: collections.deque[Any] = collections.deque()
        most = 2 * self.count
        left = iter(items)
        try:
            while True:
                for item in left:
                    # Not pure: the result depends on files, so it must not be cached by its arguments.
                    # The scheduler repeats it when a worker died (its allowed-failures); an error is a result.
                    waiting.append(self._client.submit(_inside, self._folders, function, item, pure=False))
                    if len(waiting) >= most:
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
        """Disconnect from the cluster, which keeps running."""
        self._client.close()

    def kill(self) -> None:
        """Disconnect from the cluster at once: pieces that it works on still finish, and leave no files."""
        self._client.close(timeout=_SECONDS_TO_LEAVE)


@contextlib.contextmanager
def workers(count: int = 0, scheduler: str = "", cap: int | None = None) -> Iterator[Workers]:
    """Workers as the options request them.

    Parameters
    ----------
    count
        Processes on this machine; 0: none, the work runs in this process.
    scheduler
        Address of a Dask scheduler (tcp://...), or its scheduler file; "": none.
    cap
        Bytes that all processes of this machine may take together; None: as much as is free.

    Raises
    ------
    UsageError
        When count or cap are given with a scheduler, the cap is too low, Dask is not installed, or no scheduler answers.
    """
    if count and scheduler:
        raise UsageError("--workers and --scheduler exclude each other: a cluster has its own workers")
    if cap is not None and scheduler:
        raise UsageError("--memory and --scheduler exclude each other: the workers of a cluster have separate limits")
    own, of_worker = memory.allotments(cap, count)
    with memory.limited(own):
        if not count and not scheduler:
            yield InThisProcess()
            return
        made: LocalWorkers | DaskCluster = _cluster(scheduler) if scheduler else LocalWorkers(count, of_worker)
        try:
            yield made
        except BaseException:
            made.kill()
            made.close()
            raise
        made.close()


def _cluster(scheduler: str) -> DaskCluster:
    import asyncio

    client = _client(scheduler)
    try:
        try:
            client.wait_for_workers(1, timeout=_SECONDS_TO_COME)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise UsageError(
                f"--scheduler {scheduler}: no worker came within {_SECONDS_TO_COME} s; start some, or wait for their job"
            ) from error
        try:
            versions = client.run(_version)
        except Exception as error:
            # Any error of the worker means that it can't run nsys2prv.
            raise UsageError(
                f"--scheduler {scheduler}: its workers can't run nsys2prv ({error}); start them in the environment in which it "
                f"is installed"
            ) from error
        others = {worker: version for worker, version in versions.items() if version != __version__}
        if others:
            worker, version = next(iter(others.items()))
            raise UsageError(
                f"--scheduler {scheduler}: the worker {worker} has nsys2prv {version} and this is {__version__}; "
                f"install the same on all machines"
            )
        return DaskCluster(client)
    except BaseException:
        client.close()
        raise


def _client(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--scheduler needs Dask, which is not installed: pip install 'dask[distributed]'") from error
    is_address = "://" in scheduler or scheduler.rpartition(":")[2].isdecimal()
    address = scheduler if is_address else _address_in(scheduler)
    # Its type hints are incomplete.
    client: Any = Client.__new__(Client)
    try:
        client.__init__(address=address, timeout=f"{_SECONDS_TO_ANSWER}s")
        return client
    except Exception as error:
        # It is half made. When the interpreter collected it, perhaps while another one is made, both would wait for each other.
        client.close()
        # Whatever is wrong with an address, it is found out by many libraries, each with its own errors.
        if (lack := lack_in(error)) is not None:
            raise lack from error
        if address.startswith("tls://") and isinstance(error, TypeError):
            raise UsageError(
                f"--scheduler {scheduler}: tls:// needs certificates, and Dask has none: name them in its configuration, "
                f"distributed.comm.tls (docs/scale.md)"
            ) from error
        raise UsageError(
            f"--scheduler {scheduler}: no Dask scheduler answers there ({' '.join(str(error).split())[:300]})"
        ) from error


def _address_in(file: str) -> str:
    """The address in a scheduler file; UsageError when it is none."""
    why = "there is no such file"
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if Path(file).is_file():
            why = "this is no scheduler file, or it is not complete"
            with Path(file).open(encoding="utf-8") as opened:
                content = json.loads(opened.read(_LONGEST_SCHEDULER_FILE))
            address = content.get("address") if isinstance(content, dict) else None
            if isinstance(address, str) and re.fullmatch(r"[a-z]+://\S+", address):
                return address
    raise UsageError(
        f"--scheduler {file}: {why}; give the address of a Dask scheduler (tcp://HOST:PORT), or the file that it writes "
        f"(dask scheduler --scheduler-file)"
    )


_IN_USE = ".in-use"
"""File in a shared folder while the files of the folder are needed."""


def _inside(folders: tuple[Path, ...], function: Callable[[S], T], item: S) -> T:
    """Do a piece of work for a process that may have ended: the worker keeps running, and may create removed folders again."""
    left = [folder for folder in folders if not (folder / _IN_USE).exists()]
    if left:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(left[0]))
    try:
        return function(item)
    finally:
        for folder in folders:
            if not (folder / _IN_USE).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _look_for(folder: Path) -> tuple[bool, str]:
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK), socket.gethostname()


def _version() -> str:
    return __version__


def _start_worker(threads: int, allotment: memory.Allotment) -> None:
    memory.limit_process(allotment)
    memory.keep_freed()
    # Before polars is imported: it counts cores when it is loaded.
    os.environ.setdefault("POLARS_MAX_THREADS", str(threads))
    leave_by_signals(_leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _load(_function: Callable[..., object]) -> None:
    """To get a function is to load its module."""


def _leave_with_parent() -> None:
    """End the worker when the main process has ended: it may have been killed."""
    import multiprocessing.connection

    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    _leave()


def _leave() -> NoReturn:
    kill_programs()
    remove_temporary()
    os._exit(1)
