"""Runs commands of nsys2prv, each in a process of its own that is forked off one that has imported everything."""

import contextlib
import ctypes
import multiprocessing
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

import nsys2prv
from nsys2prv.cli.main import LIBRARY_SETTINGS, main

MOST_SECONDS = 60.0
"""Processor time of a command and of all that it started."""
_WAITING = 5
"""A command that does nothing, or waits for a busy machine, may take so many times as long."""
_SECONDS_TO_END = 30.0
"""How long what a command started may run after its end."""
MOST_ADDRESS_SPACE = 16 << 30
"""Bytes that a command may ask for before the system refuses: it keeps the machine, the oracle's limit is far below."""
_FORKS = multiprocessing.get_context("forkserver")


class Run(NamedTuple):
    """How a command ended."""

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int
    timed_out: bool
    survivors: int = 0


class Kill(NamedTuple):
    """A signal for a command: after some seconds, to the process itself, to a worker of it, or to all of them."""

    seconds: float
    number: int
    whom: Literal["first", "worker", "all"] = "first"

    def send(self, group: int) -> None:
        """Send it to a group of processes, or one of them."""
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if self.whom == "all":
                os.killpg(group, self.number)
            elif self.whom == "first":
                os.kill(group, self.number)
            else:
                workers = [one for one in psutil.Process(group).children() if "spawn_main" in " ".join(one.cmdline())]
                if workers:
                    workers[int(self.seconds * 1000) % len(workers)].send_signal(self.number)


class _Surroundings(NamedTuple):
    """What a command runs in; parameters are those of `run_command`."""

    folder: Path
    environment: Mapping[str, str | None]
    limits: Mapping[str, int]
    streams: Mapping[int, str]
    without_rights: bool


for _name, _value in LIBRARY_SETTINGS.items():
    os.environ.setdefault(_name, _value)
# Also what is loaded late.
_MODULES = [one.name for one in pkgutil.walk_packages(nsys2prv.__path__, "nsys2prv.") if "__main__" not in one.name]
_FORKS.set_forkserver_preload([__name__, *_MODULES])


def run_command(
    *arguments: str | Path,
    folder: Path,
    environment: Mapping[str, str | None] | None = None,
    seconds: float = MOST_SECONDS,
    limits: Mapping[str, int] | None = None,
    kills: Sequence[Kill] = (),
    streams: Mapping[int, str] | None = None,
    without_rights: bool = False,
) -> Run:
    """Run `nsys2prv ARGUMENTS` in a folder to its end."""
    told = tuple(os.fsdecode(argument) for argument in arguments)
    with tempfile.TemporaryDirectory() as prints:
        surroundings = _Surroundings(
            folder.absolute(),
            {"NSYS_HOME": "", "COLUMNS": "80", **(environment or {})},
            {"RLIMIT_AS": MOST_ADDRESS_SPACE, "RLIMIT_CORE": 0, **(limits or {})},
            {0: os.devnull, 1: f"{prints}/stdout", 2: f"{prints}/stderr", **(streams or {})},
            without_rights,
        )
        process = _FORKS.Process(target=_become, args=(told, surroundings))
        process.start()
        assert process.pid is not None
        began, due, peak, timed_out = time.monotonic(), sorted(kills, key=lambda kill: kill.seconds), 0, False
        looks_at = began + seconds
        while process.is_alive():
            now = time.monotonic()
            while due and now - began > due[0].seconds:
                due.pop(0).send(process.pid)
            if now > looks_at and not timed_out:
                looks_at += 1
                timed_out = _processor_time(process.pid) > seconds or now > began + _WAITING * seconds
                if timed_out:
                    Kill(0, signal.SIGKILL, "all").send(process.pid)
            with contextlib.suppress(psutil.Error):
                peak = max(peak, psutil.Process(process.pid).memory_info().rss)
            process.join(0.01)
        taken = time.monotonic() - began
        assert process.exitcode is not None
        stdout, stderr = (
            Path(prints, name).read_bytes().decode("utf-8", "surrogateescape") if Path(prints, name).exists() else ""
            for name in ("stdout", "stderr")
        )
        return Run(told, process.exitcode, stdout, stderr, taken, peak, timed_out, _survivors(process.pid))


def _processor_time(group: int) -> float:
    """Seconds that a process and all that it started took so far."""
    try:
        first = psutil.Process(group)
        return sum(sum(process.cpu_times()[:4]) for process in (first, *first.children(recursive=True)))
    except psutil.Error:
        return 0.0


def _survivors(group: int) -> int:
    """Processes of a group that still run after some seconds; they are killed."""
    until = time.monotonic() + _SECONDS_TO_END
    while True:
        running = [one for one in psutil.process_iter(["status"]) if _is_in(one, group)]
        if not running:
            return 0
        if time.monotonic() > until:
            os.killpg(group, signal.SIGKILL)
            return len(running)
        time.sleep(0.02)


def _is_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False


def _drop_rights() -> None:
    """Let root be a user like others, as which it can still load modules."""
    libc = ctypes.CDLL(None, use_errno=True)
    # What is started gets none either: PR_SET_SECUREBITS, SECBIT_NOROOT and its lock.
    libc.prctl(28, 3, 0, 0, 0)
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if libc.capset(version_3, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


def _become(arguments: tuple[str, ...], surroundings: _Surroundings) -> None:
    """Run the command in this process, which ends with it."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in surroundings.streams.items():
        if file:
            opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        else:
            os.close(number)
    for name, value in surroundings.environment.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    os.chdir(surroundings.folder)
    # As Python sets them when it starts, for which it needs no further file.
    encoding = surroundings.environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding=encoding, errors=how) if surroundings.streams[number] else None  # type: ignore[misc]
        for number, how in ((1, "strict"), (2, "backslashreplace"))
    )
    for name, limit in surroundings.limits.items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    if surroundings.without_rights:
        _drop_rights()
    sys.argv = ["nsys2prv", *arguments]
    try:
        main()
    except BaseException:
        # What the program does not catch, Python prints, and the process ends with 1.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    os._exit(1)
