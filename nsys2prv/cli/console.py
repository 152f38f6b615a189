"""What commands print, and how the process ends."""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from nsys2prv.errors import NOT_READ_EXIT_CODE, OutputError
from nsys2prv.execution import progress
from nsys2prv.vocabulary.printable import printable, safe_json
from nsys2prv.vocabulary.terminal import ERROR, WARNING, styled
from nsys2prv.vocabulary.wording import ranked_warnings

_withheld: set[str] = set()
"""What the user does not want in this call of the program."""


def withhold(what: str) -> None:
    """Print no `summaries`, warnings and progress, but results that were asked for and errors; or no `colors` on a terminal."""
    _withheld.add(what)
    if what == "summaries":
        progress.hide()


def has_colors(stream: Any = None) -> bool:
    """Whether a stream (None: that of results) is a terminal that shows colors, and the user wants them."""
    stream = sys.stdout if stream is None else stream
    if "colors" in _withheld or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    with contextlib.suppress(OSError, ValueError):
        return stream is not None and bool(stream.isatty())
    return False


def terminal_width() -> int | None:
    """Characters in a line of the terminal that shows results (as $COLUMNS has it, or the terminal); None where it is none."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None and sys.stdout.isatty():
            return shutil.get_terminal_size().columns
    return None


def print_summary(text: str) -> None:
    """Print what a command did or found, unless the user wants it quiet. The text is safe for a terminal."""
    if "summaries" not in _withheld:
        print(_expressible(text, sys.stdout))


def print_result(text: str) -> None:
    """Print what a command was asked for, also when it is to be quiet. The text is safe for a terminal."""
    print(_expressible(text, sys.stdout))


def print_json(content: Any, **form: Any) -> None:
    """Print an object as JSON, with escapes where the encoding lacks some of its signs; `form` as for `json.dumps`."""
    form = {"indent": 1, **form}
    text = safe_json(content, **form)
    print(text if _is_expressible(text, sys.stdout) else json.dumps(content, **form))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings to stderr as `ranked_warnings` has them, each on a line."""
    for warning in ranked_warnings(warnings) if "summaries" not in _withheld else ():
        _print_to_stderr("warning:", warning, WARNING)


def end_with(sentence: str, code: int) -> NoReturn:
    """Print why the program ends to stderr, and end with an exit code."""
    _print_to_stderr("nsys2prv:", sentence, ERROR)
    end(code)


def _print_to_stderr(label: str, sentence: str, style: str) -> None:
    # Without an error stream nobody reads it, and the exit code counts; `print` would take the output stream for None.
    if sys.stderr is not None:
        # A RuntimeError when a signal came while something was printed.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            label = styled(label, style if has_colors(sys.stderr) else "")
            print(label, _expressible(printable(sentence), sys.stderr), file=sys.stderr)


class _Results:
    """The output stream, whose errors are those of an output."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _output_errors():
            return int(self._stream.write(text))

    def flush(self) -> None:
        with _output_errors():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        # The reader has what it wanted. Not as an OSError, which Typer takes for its own.
        raise SystemExit(NOT_READ_EXIT_CODE) from error
    except (OSError, ValueError) as error:
        raise OutputError.not_writable("standard output", error, "another one (files of results are complete)") from error


def prepare_output() -> None:
    """Let text be printed that the encoding of the output stream can't express, and its errors become sentences.

    What an earlier call in this process chose is forgotten."""
    _withheld.clear()
    progress.hide(False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stdout is not None:
        sys.stdout = _Results(sys.stdout)


_IN_ASCII = str.maketrans(
    {"µ": "u", "█": "#", "▓": "=", "▒": "+", "░": "-", "→": ">", "×": "x", "–": "-", "≥": ">=", "…": "..."}
)
"""What stands for signs of our texts where the encoding lacks them."""


def _is_expressible(text: str, stream: Any) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="ignore").decode(encoding) == text


def _expressible(text: str, stream: Any) -> str:
    """A text with signs that the encoding of a stream has; others are escaped when it is printed."""
    return text if _is_expressible(text, stream) else text.translate(_IN_ASCII)


def end(code: int) -> NoReturn:
    """End without finalizing the interpreter.

    A scan that was interrupted may still have threads of polars in Python code, which abort the process when the interpreter is
    finalized. Finalizing all modules also takes longer than translating a small report."""
    if "multiprocessing.util" in sys.modules:
        # Without it, the semaphores of workers that failed are reported as leaked.
        sys.modules["multiprocessing.util"]._run_finalizers(0)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OutputError as error:
            # What was to be read did not arrive.
            if not code:
                _print_to_stderr("nsys2prv:", str(error), ERROR)
            code = code or error.exit_code
        except SystemExit:
            code = code or NOT_READ_EXIT_CODE
        except (OSError, ValueError, RuntimeError):
            # An error stream that nobody reads is no failure; and a signal may come while something is printed.
            pass
    os._exit(code)


def hold_standard_streams() -> None:
    """Open the null device in the place of standard streams that are closed: a file of the program would get their number, and
    what a library prints would be written into it."""
    # An error means that there is no number left.
    with contextlib.suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
