"""Entry point of the program: the commands, signals, and exit codes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

# Nothing here is linear algebra: numpy need not start threads for it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The allocator of the C library holds less memory, and returns it less often, for blocks of one size.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
# One arena is enough for the few threads that work at once, and holds less memory.
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1")

import typer

from nsys2prv.cli.check_command import check
from nsys2prv.cli.compare_command import compare
from nsys2prv.cli.console import end, end_with, hold_standard_streams
from nsys2prv.cli.demo_command import demo
from nsys2prv.cli.efficiency_command import efficiency
from nsys2prv.cli.inspect_command import inspect
from nsys2prv.cli.translate_command import translate
from nsys2prv.cli.views_command import views
from nsys2prv.errors import INTERRUPTED_EXIT_CODE, TERMINATED_EXIT_CODE, NoResources, Nsys2prvError, UsageError
from nsys2prv.vocabulary.version import __version__

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_THREADS_REFUSED = "can't start new thread"
"""What Python says then, in a RuntimeError."""

app = typer.Typer(
    name="nsys2prv",
    help="Translate NVIDIA Nsight Systems reports, one or thousands of them, into one Paraver trace, and measure efficiency.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (translate, inspect, check, efficiency, compare, views, demo):
    app.command()(command)


def main() -> None:
    """Entry point of the console script."""
    hold_standard_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    # Millions of rows are a few objects: there is little to collect, and looking for garbage takes time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        # Typer returns the exit code, also for Ctrl-C.
        code = app(standalone_mode=False)
    except Nsys2prvError as error:
        end_with(str(error), error.exit_code)
    except MemoryError:
        end_with(str(NoResources("memory")), NoResources.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # The reader of the output ended (`| head`): nobody reads a message.
        os._exit(1)
    except Exception as error:
        if _THREADS_REFUSED in str(error):
            end_with(str(NoResources("threads")), NoResources.exit_code)
        # Newer versions of Typer contain their own copy of click: its errors are recognized by their attributes.
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        end_with(error.format_message(), UsageError.exit_code)
    if code == INTERRUPTED_EXIT_CODE:
        end_with("interrupted; nothing was written", INTERRUPTED_EXIT_CODE)
    end(code or 0)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End after Ctrl-C, or after the SIGTERM by which a batch system ends a job.

    Not by an exception: it could be raised anywhere, and the destructor of a database cursor swallows it.
    """
    from nsys2prv.execution.scratch import remove_temporary

    if "nsys2prv.execution.workers" in sys.modules:
        from nsys2prv.execution.workers import kill_local_workers

        # Before the files that they write are removed.
        kill_local_workers()
    remove_temporary()
    if number == signal.SIGINT:
        end_with("interrupted; nothing was written", INTERRUPTED_EXIT_CODE)
    end_with("interrupted by SIGTERM; nothing was written", TERMINATED_EXIT_CODE)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"nsys2prv {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
