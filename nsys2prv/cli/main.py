"""Entry point of the program: signals and exit codes.

What a signal does is set before the commands are loaded, which takes a moment."""

import contextlib
import ctypes
import gc
import itertools
import os
import signal
import sys
import traceback
from typing import NoReturn

from nsys2prv.cli.console import end, end_with, hold_standard_streams, prepare_output, print_warnings
from nsys2prv.errors import TRACEBACK_VARIABLE, Defect, Nsys2prvError, UsageError
from nsys2prv.execution import memory
from nsys2prv.execution.process import clean_up, cores, end_by_signals, published
from nsys2prv.vocabulary import __version__

LIBRARY_SETTINGS = {
    # Nothing here is linear algebra: numpy need not start threads for it.
    "OPENBLAS_NUM_THREADS": "1",
    # Pieces of tables keep few threads busy, and each takes memory, and time to start.
    "POLARS_MAX_THREADS": str(min(cores(), 8)),
    # The allocator of the C library holds less memory, and returns it less often, for blocks of one size.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # One arena is enough for the few threads that work at once, and holds less memory; it keeps what is freed for 30 s, not 10.
    "_RJEM_MALLOC_CONF": "narenas:1,dirty_decay_ms:30000",
}
"""What libraries read when they are loaded, where the user has set nothing else."""
_KEPT_BY_GNU = (-1, 64 << 20), (-3, 32 << 20), (-8, 1)
"""For mallopt: bytes kept free at the end of a heap, bytes from which an array has its own pages, heaps. Else pages
go back to the system and are cleared before they are used again, for a tenth of the time of a translation."""

OTHER_PROGRAM = "parse_nsys_stats.py"
"""The module of the other program of this name that its command starts with."""


def prepare_libraries() -> None:
    """Have libraries that are loaded afterwards work as commands need them."""
    threads = os.environ.get("POLARS_MAX_THREADS", "1")
    if not (threads.isascii() and threads.isdigit() and int(threads) > 0):
        raise UsageError(f"POLARS_MAX_THREADS={threads}: no number of threads; give 1 or more, or leave it out")
    for name, value in LIBRARY_SETTINGS.items():
        os.environ.setdefault(name, value)
    # Other C libraries have no such function, and users may have their own settings.
    with contextlib.suppress(AttributeError):
        for setting, size in () if "MALLOC_ARENA_MAX" in os.environ else _KEPT_BY_GNU:
            ctypes.CDLL(None).mallopt(setting, size)
    # Millions of rows are a few objects: there is little to collect, and looking for garbage takes time.
    gc.set_threshold(250_000)


def main() -> None:
    """Entry point of the console script."""
    hold_standard_streams()
    prepare_output()
    end_by_signals(_leave)
    _warn_of_the_other_program()
    try:
        if "--version" in itertools.takewhile(lambda word: word.startswith("-"), sys.argv[1:]):
            print(f"nsys2prv {__version__}")
            end(0)
        prepare_libraries()
        memory.check_limits()
        from nsys2prv.cli.app import app

        code = app(standalone_mode=False, prog_name="nsys2prv")
    except Nsys2prvError as error:
        end_with(str(error), error.exit_code)
    except SystemExit as ended:
        end(ended.code if isinstance(ended.code, int) else 1)
    except BaseException as error:
        # Panics of polars are no Exceptions.
        if (lack := memory.resource_error_in(error)) is not None:
            end_with(str(lack), lack.exit_code)
        # Newer versions of Typer contain their own copy of click: its errors are recognized by their attributes.
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            if os.environ.get(TRACEBACK_VARIABLE):
                traceback.print_exception(error)
            end_with(str(Defect(error)), Defect.exit_code)
        if type(error).__name__ == "NoArgsIsHelpError":
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                print(error.format_message(), file=sys.stderr)
            end(UsageError.exit_code)
        program = getattr(getattr(error, "ctx", None), "command_path", "nsys2prv")
        sentence = f"{error.format_message().rstrip('.')};".replace("?;", "?")
        end_with(f"{sentence[:1].lower()}{sentence[1:]} `{program} -h` shows what it takes", UsageError.exit_code)
    end(code or 0)


def _warn_of_the_other_program() -> None:
    """Warn of a mix of two packages: the other nsys2prv of PyPI (up to 0.5.8) was installed over this one, or under it."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(folder, OTHER_PROGRAM)):
        other = f"{folder} also has files of the other program of this name (nsys2prv up to 0.5.8), and either may run in place"
        print_warnings([f"{other} of the other; run `pip uninstall nsys2prv` until none is left, and install this one again"])


def _leave(number: int) -> NoReturn:
    """End after Ctrl-C, or after the signal by which a batch system ends a job.

    Not by an exception: it could be raised anywhere, and the destructor of a database cursor swallows it."""
    clean_up()
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    written = "what was written before is complete" if published.is_set() else "nothing was written"
    end_with(f"interrupted{by}; {written}", 128 + number)
