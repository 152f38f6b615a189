"""What commands print, and how the process ends."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn


def print_json(content: Any) -> None:
    """Print an object as JSON."""
    print(json.dumps(content, indent=1, ensure_ascii=False))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings to stderr, each on a line."""
    for warning in warnings:
        _print_to_stderr(f"warning: {warning}")


def end_with(sentence: str, code: int) -> NoReturn:
    """Print why the program ends to stderr, and end with an exit code."""
    _print_to_stderr(f"nsys2prv: {sentence}")
    end(code)


def _print_to_stderr(line: str) -> None:
    # Without an error stream nobody reads it, and the exit code counts; `print` would take the output stream for None.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr)


def end(code: int) -> NoReturn:
    """End without finalizing the interpreter.

    A scan that was interrupted may still have threads of polars in Python code, which abort the process when the interpreter is
    finalized. Finalizing all modules also takes longer than translating a small report.
    """
    if "multiprocessing.util" in sys.modules:
        # Without it, the semaphores of workers that failed are reported as leaked.
        sys.modules["multiprocessing.util"]._run_finalizers(0)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            # What was to be read did not arrive; an error stream that nobody reads is no failure.
            code = code or (1 if stream is sys.stdout else 0)
    os._exit(code)


def hold_standard_streams() -> None:
    """Open the null device in the place of standard streams that are closed: a file of the program would get their number, and
    what a library prints would be written into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
