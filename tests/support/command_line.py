"""nsys2prv as users call it."""

import contextlib
import gc
import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn
from unittest import mock

from nsys2prv.cli.main import main
from nsys2prv.execution.process import ENDING_SIGNALS

from .checkout import CHECKOUT


class _Ended(SystemExit):
    """Raised where the program would end this process, also in the handler of a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _raise_ended(code: int) -> NoReturn:
    raise _Ended(code)


class CommandLine(NamedTuple):
    """nsys2prv in English, called in a folder, without an nsys that may be installed here."""

    folder: Path

    def run(self, *arguments: str | Path, prepare: Callable[[], object] | None = None) -> subprocess.CompletedProcess[str]:
        """Run nsys2prv to its end: in this process, which saves its start, or in a separate one that `prepare` is called in."""
        if prepare is None:
            return self._run_here(*arguments)
        process = self.start(*arguments, prepare=prepare)
        stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def start(self, *arguments: str | Path, prepare: Callable[[], object] | None = None) -> subprocess.Popen[str]:
        """A running nsys2prv in a separate process; `prepare` is called in the new process before it starts."""

        def prepared() -> None:
            # A test run in the background ignores Ctrl-C, and so would its children.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        return subprocess.Popen(
            [sys.executable, "-m", "nsys2prv", *map(str, arguments)],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            preexec_fn=prepared,
        )

    def on_terminal(self, *arguments: str | Path, with_errors: bool = True, **environment: str) -> str:
        """What nsys2prv prints on a terminal; without errors there is also no progress bar."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "nsys2prv", *map(str, arguments)],
            cwd=self.folder,
            env={**self._environment(), "TERM": "xterm", "NO_COLOR": "", **environment},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs if with_errors else subprocess.DEVNULL,
        )
        os.close(theirs)
        shown = b""
        # Linux ends a terminal that nobody writes to any more by an error.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65_536):
                shown += piece
        os.close(ours)
        process.wait()
        return shown.decode().replace("\r\n", "\n")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in {"NSYS_HOME", "COLUMNS"}}
        return {**kept, "PATH": str(self.folder / "no-programs"), "PYTHONPATH": str(CHECKOUT)}

    def _run_here(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["nsys2prv", *map(str, arguments)]
        stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with (
            _process_state_kept(),
            mock.patch.object(sys, "argv", command),
            mock.patch.object(os, "_exit", _raise_ended),
            mock.patch.dict(os.environ, self._environment(), clear=True),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            os.chdir(self.folder)
            try:
                main()
            except _Ended as ended:
                code = ended.code
            else:
                raise AssertionError("the program returned without an exit code")
        printed, complaints = (stream.buffer.getvalue().decode() for stream in (stdout, stderr))  # type: ignore[attr-defined]
        return subprocess.CompletedProcess(command, code, printed, complaints)


@contextlib.contextmanager
def _process_state_kept() -> Iterator[None]:
    """What the program sets for its process is as before afterwards."""
    folder, threshold = Path.cwd(), gc.get_threshold()
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        os.chdir(folder)
        gc.set_threshold(*threshold)
        for number, handler in handlers.items():
            signal.signal(number, handler)
