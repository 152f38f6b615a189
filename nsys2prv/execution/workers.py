"""Where independent pieces of work run: in this process, in workers on this machine, or on a Dask cluster.

The same function with the same arguments gives the same results in all three, in the order of the arguments. Function,
arguments and results are sent between processes, so they must be picklable; large data are in files that all processes see."""

import concurrent.futures
import contextlib
import functools
import json
import logging
import math
import os
import pickle
import re
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from nsys2prv.errors import NoResources, NotPrivate, UsageError, WorkerDied
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import make_folder
from nsys2prv.execution.process import ENDING_SIGNALS, clean_up, cleaned_up, cores, in_order, signals_held
from nsys2prv.execution.progress import say
from nsys2prv.vocabulary import __version__

S = TypeVar("S")
T = TypeVar("T")

_GROUPS_PER_WORKER = 4
"""Approximate number of groups for each worker; a worker with longer groups gets fewer."""
_SECONDS_TO_LEAVE, _LOOKS_AT_STOPPED = 2.0, 40
"""How long workers may take to clean up when they have to end; and looks (one each second) at a stopped worker until it counts
as dead: while all are stopped, nobody looks."""
_SECONDS_BETWEEN_LOOKS, _SECONDS_TO_ANSWER, _SECONDS_TO_COME = 15.0, 30.0, 120.0
"""Of a cluster: how often it is asked whether it is there, how long it may take to answer, and its first worker to connect."""
_NO_SCHEDULER = "or the scheduler of the Dask cluster does not answer"


class Workers:
    """Executes pieces of work: this class in this process, when their results are requested, the others in other processes.

    Attributes
    ----------
    count
        How many pieces run at once.
    is_here
        Whether the work runs in this process: its results may stay in memory then.
    """

    count: int = 1
    is_here: bool = True

    def submit(self, function: Callable[[S], T], argument: S) -> Any:
        """Have a piece of work done: a future, which `gather` takes."""
        return functools.partial(function, argument)

    def gather(self, future: Any) -> Any:
        """The result of a piece of work, or its error.

        Raises
        ------
        WorkerDied
            When a worker died, or is silent.
        """
        return future()

    def close(self) -> None:
        """End the workers, or leave them, also during work."""

    def map(self, function: Callable[[S], T], arguments: Iterable[S]) -> Iterator[T]:
        """Results of a function for each argument, in order; the first error is raised in place of its result, also those of
        `gather`."""
        # More than there are workers, so that no worker waits for a longer piece that was submitted earlier.
        return in_order(functools.partial(self.submit, function), self.gather, arguments, 2 * self.count - 1)

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

        >>> Workers().groups([1, 1, 1, 1, 1], 3)
        [range(0, 3), range(3, 5)]
        """
        enough = self._enough(sizes, largest)
        groups: list[range] = []
        first = total = 0
        for index, size in enumerate(sizes):
            total += size
            if total >= enough or index - first + 1 >= most or index + 1 == len(sizes):
                groups.append(range(first, index + 1))
                first, total = index + 1, 0
        return groups

    def shares(self, sizes: Sequence[int], least: int, largest: float = math.inf) -> list[int]:
        """Into how many shares each item is divided: one, unless it is larger than a group (`groups`) need be. No share is
        smaller than `least`."""
        enough = max(self._enough(sizes, largest), 1)
        return [1 if self.is_here else max(min(math.ceil(size / enough), size // least), 1) for size in sizes]

    def _enough(self, sizes: Sequence[int], largest: float) -> float:
        """Size of a group to which nothing need be added."""
        return min(sum(sizes) / (1 if self.is_here else _GROUPS_PER_WORKER * self.count), largest)


@contextlib.contextmanager
def workers(count: int = 0, scheduler: str = "", cap: int | None = None, folders: Collection[Path] = ()) -> Iterator[Workers]:
    """Workers as the options request them.

    Parameters
    ----------
    count
        Processes on this machine; 0: none, the work runs in this process.
    scheduler
        Address of a Dask scheduler (tcp://...), or its scheduler file; "": none.
    cap
        Bytes that all processes of this machine may take together; None: as much as is free.
    folders
        Temporary folders where pieces of work write.

    Raises
    ------
    UsageError
        When count or cap are given with a scheduler, the cap is too low, Dask is not installed, no scheduler answers, or not
        all workers see the folders.
    """
    if scheduler and (count or cap is not None):
        option, why = ("--workers", "own workers") if count else ("--memory", "workers with separate limits")
        raise UsageError(f"{option} and --scheduler exclude each other: a cluster has {why}")
    most = memory.bytes_of_process(cap, count)
    with memory.limited(most):
        pool = _cluster(scheduler, folders) if scheduler else LocalWorkers(count, most) if count else Workers()
        with cleaned_up(pool.close):
            yield pool


class LocalWorkers(Workers):
    """Some processes on this machine. They leave at the end of a pipe, which comes also when this process is killed."""

    is_here = False

    def __init__(self, count: int, most_bytes: int = memory.USUAL_BYTES) -> None:
        # Most commands start no processes.
        import multiprocessing

        self.count = count
        # Polars threads do not survive a fork.
        self._context = multiprocessing.get_context("spawn")
        self._leave, self._until_leave = self._context.Pipe(duplex=False)
        self._processes: set[multiprocessing.process.BaseProcess] = set()
        self._refused: NoResources | None = None
        self._excepthook, threading.excepthook = threading.excepthook, self._note_end_of_thread
        # Most threads are those of polars: all workers together have one per core.
        arguments = max(cores() // count, 1), most_bytes, self._leave
        # It starts what counts semaphores, which ends when all others have ended.
        with signals_held(ENDING_SIGNALS):
            self._pool = concurrent.futures.ProcessPoolExecutor(count, self._context, _start_worker, arguments)

    def submit(self, function: Callable[[S], T], argument: S) -> concurrent.futures.Future[T]:
        # It may start processes: who acts on a signal has to know of them.
        with signals_held(ENDING_SIGNALS):
            before = self._context.active_children()
            try:
                return self._pool.submit(function, argument)
            except (OSError, RuntimeError) as error:
                raise memory.resource_error_in(error) or WorkerDied() from error
            finally:
                self._processes |= set(self._context.active_children()).difference(before)

    def gather(self, future: concurrent.futures.Future[T]) -> T:
        looks = 0
        while not concurrent.futures.wait([future], 1.0).done:
            if self._refused is not None:
                raise self._refused
            looks = looks + 1 if any(_is_stopped(process.pid) for process in self._processes) else 0
            if looks > _LOOKS_AT_STOPPED:
                raise WorkerDied("is stopped, and gave no sign of life for some time")
        try:
            return future.result()
        except concurrent.futures.BrokenExecutor as error:
            raise WorkerDied() from error

    def _note_end_of_thread(self, arguments: threading.ExceptHookArgs) -> None:
        """A thread of the executor that gets no further thread ends, and with it all work."""
        self._refused = memory.resource_error_in(arguments.exc_value)
        if self._refused is None:
            self._excepthook(arguments)

    def close(self) -> None:
        # First the processes: one that still starts would miss what the pool removes. When they have ended, their files can be
        # removed; threads of the executor need not report it.
        threading.excepthook = lambda _: None
        self._until_leave.close()
        self._leave.close()
        until = time.monotonic() + _SECONDS_TO_LEAVE
        for process in self._processes:
            process.join(max(until - time.monotonic(), 0.0))
            process.kill()
        # A signal that came meanwhile would wait for its lock.
        with signals_held():
            self._pool.shutdown(wait=False, cancel_futures=True)
        threading.excepthook = self._excepthook


def _is_stopped(process: int | None) -> bool:
    """Whether a signal stopped a process, as far as the system says."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def _start_worker(threads: int, most_bytes: int, leave: Any) -> None:
    memory.in_force.append(most_bytes)
    # Before polars is imported: it counts cores when it is loaded.
    os.environ["POLARS_MAX_THREADS"] = str(min(threads, int(os.environ.get("POLARS_MAX_THREADS", threads))))
    # They reach the first process too, which ends its workers; held while this one was started.
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    threading.Thread(target=_leave, args=(leave,), daemon=True).start()


def _leave(leave: Any) -> NoReturn:
    """End a worker when the first process has ended, or closes its end of the pipe."""
    with contextlib.suppress(OSError):
        leave.poll(None)
    clean_up()
    os._exit(1)


class DaskCluster(Workers):
    """Workers of a Dask cluster, of which a `distributed.Client` is given; all must see the reports and intermediate files."""

    is_here = False

    def __init__(self, client: Any, folders: Collection[Path] = ()) -> None:
        self._client = client
        self.count = max(sum(_within(_SECONDS_TO_ANSWER, client.nthreads).values()), 1)
        for worker, (host, missing) in _within(_SECONDS_TO_ANSWER, client.run, _look_for, tuple(folders)).items():
            if missing:
                raise UsageError(
                    f"the worker {worker} of the Dask cluster, on {host}, can't write to {missing[0]}: reports, the output, "
                    "and the folder of --scratch must be on a file system that all workers share, and the workers must be yours"
                )

    def submit(self, function: Callable[[S], T], argument: S) -> Any:
        # Not pure: the result depends on files, so it must not be looked up by its arguments.
        # The scheduler repeats it when a worker died (its allowed-failures); an error is a result.
        return self._asked(self._client.submit, function, argument, pure=False)

    def gather(self, future: Any) -> Any:
        import distributed

        while True:
            try:
                return future.result(_SECONDS_BETWEEN_LOOKS)
            except distributed.KilledWorker as error:
                raise WorkerDied() from error
            except distributed.CancelledError as error:
                raise WorkerDied(_NO_SCHEDULER) from error
            except distributed.TimeoutError:
                # Of the work itself.
                if future.status == "error":
                    raise
            if not self._asked(self._client.run, _version, on_error="ignore"):
                # What started them may start others.
                say("no worker of the Dask cluster is there; waiting for another")
                self._asked(self._client.wait_for_workers, 1, timeout=_SECONDS_TO_ANSWER)

    def _asked(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        try:
            return _within(_SECONDS_TO_ANSWER, function, *arguments, **named)
        except Exception as error:
            # Each transport of Dask has its own errors.
            raise WorkerDied(_NO_SCHEDULER) from error

    def close(self) -> None:
        """Disconnect from the cluster, which keeps running: what it still works on finds no folders any more."""
        with contextlib.suppress(Exception):
            _within(2 * _SECONDS_TO_LEAVE, self._client.close, timeout=_SECONDS_TO_LEAVE)


def _within(seconds: float, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """What a function gives; TimeoutError when it takes longer: limits of Dask do not cover all that it waits for."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future.result(seconds)


def _cluster(scheduler: str, folders: Collection[Path]) -> DaskCluster:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--scheduler needs Dask, which is not installed: pip install 'dask[distributed]'") from error
    # What it logs when a connection breaks is said in one sentence.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    address = scheduler if "://" in scheduler or scheduler.rpartition(":")[2].isdecimal() else _address_in(scheduler)
    # Its type hints are incomplete.
    client: Any = Client.__new__(Client)
    why = "no Dask scheduler answers there; start it, or give the address that it prints"
    try:
        _within(_SECONDS_TO_ANSWER, client.__init__, address=address, timeout=f"{_SECONDS_TO_ANSWER}s")
        why = f"no worker came within {_SECONDS_TO_COME:.0f} s; start some, or wait for their job"
        if not _within(_SECONDS_TO_ANSWER, client.nthreads):
            say(f"the Dask cluster has no worker yet; waiting for one, at most {_SECONDS_TO_COME:.0f} s")
            _within(_SECONDS_TO_COME + _SECONDS_TO_LEAVE, client.wait_for_workers, 1, timeout=_SECONDS_TO_COME)
        why = "its workers can't run nsys2prv, or do not answer; start them in the environment in which it is installed"
        versions = _within(_SECONDS_TO_ANSWER, client.run, _version)
        if set(versions.values()) != {__version__}:
            why = f"its workers have nsys2prv {', '.join(sorted(set(versions.values())))} and this is {__version__}"
            raise UsageError(f"--scheduler {scheduler}: {why}; install the same on all machines")
        return DaskCluster(client, folders)
    except BaseException as error:
        # When the interpreter collected one that is half made, perhaps while another is made, both would wait for each other.
        with contextlib.suppress(Exception):
            _within(_SECONDS_TO_LEAVE, client.close)
        if isinstance(error, UsageError) or not isinstance(error, Exception):
            raise
        details = " ".join(str(error).split())[:300]
        why += f" ({details})" if details else ""
        raise memory.resource_error_in(error) or UsageError(f"--scheduler {scheduler}: {why}") from error


def _address_in(file: str) -> str:
    """The address in a scheduler file; UsageError when it is none."""
    why = "there is no such file"
    with contextlib.suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        if Path(file).is_file():
            why = "this is no scheduler file, or it is not complete"
            address: str = json.loads(Path(file).read_text(encoding="utf-8"))["address"]
            if re.fullmatch(r"[a-z]+://\S+", address):
                return address
    raise UsageError(
        f"--scheduler {file}: {why}; give the address of a Dask scheduler (tcp://HOST:PORT), or the file that it writes "
        f"(dask scheduler --scheduler-file)"
    )


def _look_for(folders: Collection[Path]) -> tuple[str, list[Path]]:
    """The host of a worker, and folders that it can't use."""
    return socket.gethostname(), [folder for folder in folders if not os.access(folder, os.R_OK | os.W_OK | os.X_OK)]


def _version() -> str:
    return __version__


class Shared(Generic[T]):
    """A value that many pieces of work need, and that is too large to be sent with each of them: in this process the object,
    in other processes read once from a file.

    Who writes a pickle decides what is executed when it is read: nobody else may be able to.

    Parameters
    ----------
    value
        The value; it must not be changed.
    path
        File for other processes, on a disk that they see; None when the work stays in this process.
    """

    def __init__(self, value: T, path: Path | None = None) -> None:
        self.value, self._path = value, path
        if path is not None:
            make_folder(path.parent)
            with open(path, "xb", opener=functools.partial(os.open, mode=0o600)) as file:
                pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[object, ...]:
        assert self._path is not None, "it has no file for other processes"
        return _shared_at, (self._path,)


# Of one translation at a time; a process that is reused for others holds few of them.
@functools.lru_cache(maxsize=2)
def _shared_at(path: Path) -> Shared[Any]:
    with path.open("rb") as file:
        # The open file, which nobody can replace after it was looked at.
        for place, status in ((path, os.fstat(file.fileno())), (path.parent, path.parent.stat())):
            if status.st_uid != os.geteuid():
                raise NotPrivate(place, "it belongs to another user")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise NotPrivate(place, "other users can write to it")
        shared: Shared[Any] = Shared(pickle.load(file))
    shared._path = path
    return shared
