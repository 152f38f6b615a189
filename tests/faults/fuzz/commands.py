"""Runs commands of nsys2prv, each in a process of its own that is forked off one that has imported everything.

Importing takes longer than most inputs do; a fork has it done. The process that forks never uses polars, which starts no
thread before its first query.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil
from support.checkout import CHECKOUT

import nsys2prv

MOST_SECONDS = 60.0
"""Processor time of a command and of all that it started."""
_WAITING = 5
"""A command that does nothing, or waits for a busy machine, may take so many times as long."""
_SECONDS_TO_END = 30.0
"""How long what a command started may run after its end."""
MOST_ADDRESS_SPACE = 16 << 30
"""Bytes that a command may ask for before the system refuses: it keeps the machine, the oracle's limit is far below."""


@dataclass(frozen=True)
class Run:
    """How a command ended.

    Attributes
    ----------
    code
        Exit code, negative for a signal.
    stdout, stderr
        What was printed; bytes that are not UTF-8 as lone surrogates.
    seconds
        Wall time.
    peak_bytes
        Most memory that was resident at once.
    timed_out
        Whether it was killed because it took too long.
    survivors
        Processes that it had started and that still ran some seconds after its end.
    """

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int
    timed_out: bool
    survivors: int = 0


@dataclass(frozen=True)
class Kill:
    """A signal for a command: after some seconds, to the process itself, to a worker of it, or to all of them."""

    seconds: float
    number: int
    whom: Literal["first", "worker", "all"] = "first"


class Commands:
    """Runs commands, one at a time."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "faults.fuzz.commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "tests")])},
            text=True,
        )

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def run(
        self,
        *arguments: str | Path,
        folder: Path,
        environment: Mapping[str, str | None] | None = None,
        seconds: float = MOST_SECONDS,
        limits: Mapping[str, int] | None = None,
        kills: Sequence[Kill] = (),
        streams: Mapping[int, str] | None = None,
        without_rights: bool = False,
    ) -> Run:
        """Run `nsys2prv ARGUMENTS` in a folder to its end.

        Parameters
        ----------
        environment
            Variables besides those that are set here; None: not set.
        seconds
            After so much processor time, or some times as long, it is killed, with all that it started.
        limits
            Limits of the system by their names in `resource`, as {"RLIMIT_FSIZE": 4096}.
        kills
            Signals that it gets.
        streams
            For the number of a standard stream, the file that it is instead, as /dev/full; "": closed.
        without_rights
            Permissions count, also when this is root.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as prints:
            request = {
                "arguments": [os.fsdecode(argument) for argument in arguments],
                "folder": os.fspath(folder),
                "environment": {"NSYS_HOME": "", "COLUMNS": "80", **(environment or {})},
                "seconds": seconds,
                "kills": [asdict(kill) for kill in sorted(kills, key=lambda kill: kill.seconds)],
                "streams": {str(number): file for number, file in (streams or {}).items()},
                "without_rights": without_rights,
                "limits": {"RLIMIT_AS": MOST_ADDRESS_SPACE, "RLIMIT_CORE": 0, **(limits or {})},
                "prints": prints,
            }
            # ASCII: names that are not UTF-8 go through as escapes of lone surrogates.
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            ended = json.loads(self._server.stdout.readline())
            os.chmod(prints, 0o700)
            stdout, stderr = (
                path.read_bytes().decode("utf-8", "surrogateescape") if (path := Path(prints, name)).exists() else ""
                for name in ("stdout", "stderr")
            )
        return Run(tuple(request["arguments"]), stdout=stdout, stderr=stderr, **ended)  # type: ignore[arg-type]


def _serve() -> None:
    """Read requests, a line each, and fork a process for each."""
    from nsys2prv.cli.main import LIBRARY_SETTINGS

    for name, value in LIBRARY_SETTINGS.items():
        os.environ.setdefault(name, value)
    # Also what is loaded late.
    for module in pkgutil.walk_packages(nsys2prv.__path__, "nsys2prv."):
        if module.name != "nsys2prv.__main__":
            importlib.import_module(module.name)

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _become(request)
        timed_out = False
        kills = request["kills"]
        limit = request["seconds"]
        looks_at = began + limit
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                break
            while kills and time.monotonic() - began > kills[0]["seconds"]:
                _send(child, **kills.pop(0))
            if time.monotonic() > looks_at:
                looks_at += 1
                timed_out = _processor_time(child) > limit or looks_at > began + _WAITING * limit
            if timed_out:
                os.killpg(child, signal.SIGKILL)
                _, status, usage = os.wait4(child, 0)
                break
            time.sleep(0.005)
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": time.monotonic() - began,
            "peak_bytes": usage.ru_maxrss * 1024,
            "timed_out": timed_out,
            "survivors": _survivors(child),
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _processor_time(child: int) -> float:
    """Seconds that a process and all that it started took so far."""
    try:
        first = psutil.Process(child)
        taken = [process.cpu_times() for process in (first, *first.children(recursive=True))]
    except psutil.Error:
        return 0.0
    return sum(times.user + times.system + times.children_user + times.children_system for times in taken)


def _drop_rights() -> None:
    """Let root be a user like others, as which it can still load modules."""
    libc = ctypes.CDLL(None, use_errno=True)
    # What is started gets none either: PR_SET_SECUREBITS, SECBIT_NOROOT and its lock.
    libc.prctl(28, 3, 0, 0, 0)
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if libc.capset(version_3, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


def _send(child: int, seconds: float, number: int, whom: str) -> None:
    with contextlib.suppress(ProcessLookupError, psutil.Error):
        if whom == "all":
            os.killpg(child, number)
        elif whom == "worker":
            workers = [one for one in psutil.Process(child).children() if "spawn_main" in " ".join(one.cmdline())]
            if workers:
                workers[int(seconds * 1000) % len(workers)].send_signal(number)
        else:
            os.kill(child, number)


def _survivors(group: int) -> int:
    """Processes of a group that still run after some seconds; they are killed."""
    until = time.monotonic() + _SECONDS_TO_END
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return 0
        found = [one for one in psutil.process_iter(["status"]) if _is_in(one, group)]
        if not found:
            return 0
        if time.monotonic() > until:
            os.killpg(group, signal.SIGKILL)
            return len(found)
        time.sleep(0.02)


def _is_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False


def _become(request: dict[str, Any]) -> None:
    """Run the command in this process, which ends with it."""
    import resource

    from nsys2prv.cli.main import main

    os.setpgid(0, 0)
    prints, streams = request["prints"], request["streams"]
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, f"{prints}/stdout", os.O_WRONLY | os.O_CREAT),
        (2, f"{prints}/stderr", os.O_WRONLY | os.O_CREAT),
    ):
        file = streams.get(str(number), name)
        if not file:
            os.close(number)
            continue
        opened = os.open(file, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    for name, value in request["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(request["folder"])
    for name, limit in request["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    if request["without_rights"]:
        _drop_rights()
    # As Python sets them when it starts.
    encoding = request["environment"].get("PYTHONIOENCODING", "utf-8")
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding=encoding, errors=how) if streams.get(str(number), "-") else None
        for number, how in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.argv = ["nsys2prv", *request["arguments"]]
    try:
        main()
    except BaseException:
        # What the program does not catch, Python prints, and the process ends with 1.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    _serve()
