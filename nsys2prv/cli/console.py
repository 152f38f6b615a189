"""What commands print, and how the process ends."""

from __future__ import annotations

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
        print(f"warning: {warning}", file=sys.stderr)


def end_with(sentence: str, code: int) -> NoReturn:
    """Print why the program ends to stderr, and end with an exit code."""
    print(f"nsys2prv: {sentence}", file=sys.stderr)
    end(code)


def end(code: int) -> NoReturn:
    """End without finalizing the interpreter.

    A scan that was interrupted may still have threads of polars in Python code, which abort the process when the interpreter is
    finalized. Finalizing all modules also takes longer than translating a small report.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = 1
    os._exit(code)
