"""nsys2prv as users call it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .checkout import CHECKOUT


@dataclass(frozen=True)
class CommandLine:
    """nsys2prv in a separate process, in English, without an nsys that may be installed here."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str | Path, prepare: Callable[[], object] | None = None) -> subprocess.Popen[str]:
        """A running nsys2prv; `prepare` is called in the new process before it starts."""

        def prepared() -> None:
            # A test run in the background ignores Ctrl-C, and so would its children.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        kept = {name: value for name, value in os.environ.items() if name not in {"NSYS_HOME", "COLUMNS"}}
        return subprocess.Popen(
            [sys.executable, "-m", "nsys2prv", *map(str, arguments)],
            cwd=self.folder,
            env={**kept, "PATH": str(self.folder / "no-programs"), "PYTHONPATH": str(CHECKOUT), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            preexec_fn=prepared,
        )

    def run(self, *arguments: str | Path, prepare: Callable[[], object] | None = None) -> subprocess.CompletedProcess[str]:
        """Run nsys2prv to its end."""
        process = self.start(*arguments, prepare=prepare)
        stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
