"""What a program takes: time, memory, open files. Only the standard library is used in the process that measures: what it holds
would count for the programs that it starts.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SECONDS_BETWEEN_LOOKS = 0.05
_NOT_FOR_PROGRAMS = ("NSYS_HOME", "PYTHONDONTWRITEBYTECODE")
"""Variables that programs do not get: a program of a user starts with modules that are compiled."""


class Missing(Exception):
    """Something that the benchmark needs is not there; the sentence says what."""


class Run(NamedTuple):
    """What one run of a program took."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    together_megabytes: float = 0.0
    open_files: int = 0


def measure(
    command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None, *, watch: bool = False
) -> Run:
    """Run a program in a folder, where output.txt has what it says; `watch` looks again and again at its processes."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_PROGRAMS}
    with Path(folder, "output.txt").open("w+b") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env={**kept, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        watcher = _Watcher(process.pid)
        if watch:
            watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        if watch:
            watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            said = output.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise Missing(f"{' '.join(map(str, command))} ended with {process.returncode}: {said[-1]}")
    # Linux counts in KiB, macOS in bytes.
    megabytes = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Run(
        seconds, cpu_seconds, megabytes, max(watcher.kilobytes * 1.024e-3, megabytes if watch else 0), watcher.open_files
    )


class _Watcher(threading.Thread):
    """Looks at a process and its children until it has ended; where there is no /proc, it sees nothing."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.kilobytes = 0
        self.open_files = 0

    def run(self) -> None:
        while True:
            try:
                self.open_files = max(self.open_files, len(os.listdir(f"/proc/{self._process}/fd")))
            except OSError:
                return
            self.kilobytes = max(self.kilobytes, sum(map(_kilobytes, _with_children(self._process))))
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _with_children(process: int) -> Iterator[int]:
    yield process
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split():
                yield from _with_children(int(child))


def _kilobytes(process: int) -> int:
    """Resident memory of a process; of what several share, its part."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def call(command: Sequence[str | Path]) -> str:
    """What a program prints; Missing when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Missing(f"{' '.join(map(str, command))} ended with {done.returncode}: {last_line}")
    return done.stdout


def say(text: str) -> None:
    """Print what is going on, beside the results."""
    print(text, file=sys.stderr, flush=True)
