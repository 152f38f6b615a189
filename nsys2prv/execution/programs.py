"""Other programs that are called: they end with this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from nsys2prv.execution.signals import signals_held

_running: set[subprocess.Popen[str]] = set()


def run_program(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Call a program and wait for its end; OSError when it can't be called."""
    # A program that is not known yet would not be ended.
    with signals_held():
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Signals of a terminal end this process, which ends the program with all that it started.
            start_new_session=True,
        )
        _running.add(process)
    try:
        stdout, stderr = process.communicate()
    except BaseException:
        _kill(process)
        process.wait()
        raise
    finally:
        _running.discard(process)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def kill_programs() -> None:
    """End all programs that were called; for a process that ends at once."""
    for process in tuple(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
