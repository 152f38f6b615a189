"""Options of the command line: those of an `OptionSet` become options of a command; arguments and flags that commands share."""

from __future__ import annotations

import enum
import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from nsys2prv.cli.console import be_quiet, no_colors
from nsys2prv.errors import UsageError
from nsys2prv.run.options import OptionSet, OptionText, check_utf8, declared_options
from nsys2prv.vocabulary.wording import short

Reports = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORT...",
        help="Reports: .nsys-rep, .sqlite, folders of Parquet or Arrow tables, folders that contain reports, globs.",
        show_default=False,
    ),
]
TracePath = typer.Argument(metavar="OUT.prv", help="A trace, .prv or .prv.gz, with its .pcf and .row beside it.")
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, in place of text.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json-file", metavar="FILE", help="Write all tables into a file, as JSON."),
]
ForceResults = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace files of others, too; never inputs or reports.",
    ),
]
CsvFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="Write each table as a CSV file into a folder.")]


def check_json_flag(as_json: bool, inputs: Iterable[str]) -> None:
    """Raise a UsageError for `--json FILE` and `--json -`: the flag takes no file, and one behind it looks like an input."""
    named = next((one for one in inputs if one == "-" or (one.endswith(".json") and not os.path.exists(one))), None)
    if as_json and named is not None:
        raise UsageError(f"{named}: there is no such input; --json prints and takes no value, --json-file FILE writes a file")


def _chosen(choose: Callable[[], None]) -> Callable[[bool], None]:
    def read(is_chosen: bool) -> None:
        if is_chosen:
            choose()

    return read


_SHARED = {
    "quiet": typer.Option(
        "--quiet",
        "-q",
        help="Print errors only, and results that are asked for (--json, --list).",
        callback=_chosen(be_quiet),
        is_eager=True,
    ),
    "no_color": typer.Option(
        "--no-color",
        help="Print without colors, as with NO_COLOR in the environment.",
        callback=_chosen(no_colors),
        is_eager=True,
    ),
}
SHARED_OPTIONS = tuple(_SHARED)
"""Names of the options that the program and all commands have."""


def shares(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, or the program, the options that all have."""
    kind = inspect.Parameter.KEYWORD_ONLY
    own = [one.replace(kind=kind) for one in inspect.signature(command, eval_str=True).parameters.values()]
    added = [inspect.Parameter(name, kind, default=False, annotation=Annotated[bool, info]) for name, info in _SHARED.items()]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(**{name: value for name, value in given.items() if name not in _SHARED})

    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    return run


def takes(options: type[OptionSet], *names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all options of a set (or those named) in the place of its parameter `options`, which gets the set."""
    hints = get_type_hints(options)
    added = [_parameter(one, text, hints[one.name]) for one, text in declared_options(options, names)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [new for one in own for new in (added if one.name == "options" else [one])]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            chosen = {one.name: value for one in added if (value := given.pop(one.name)) is not None}
            command(**given, options=options(**chosen))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameter(declared: Field[Any], text: OptionText, hint: Any) -> inspect.Parameter:
    flag = f"--{declared.name.replace('_', '-')}"
    default = declared.default
    is_list = isinstance(default, tuple)
    # Typer reads enumerations and paths itself; elements of lists are read together.
    has_parser = text.read not in (None, Path) and not is_list and not isinstance(default, enum.Enum)
    info = typer.Option(
        flag,
        *([text.short] if text.short else []),
        help=text.help,
        metavar=text.metavar,
        parser=_parser(flag, text.read) if text.read is not None and has_parser else None,
        autocompletion=completion(text.names) if text.names is not None else None,
        show_default=bool(default),
        rich_help_panel=text.group,
    )
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if is_list else default,
        annotation=Annotated[list[str] | None if is_list else hint, info],
    )


def _parser(flag: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        try:
            check_utf8(value)
            return read(value)
        except ValueError as error:
            raise UsageError(f"{flag} {short(str(value), 200)}: {error}") from error

    return parse


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Values for the shell to complete: names that start with what is typed; after a comma, the next name."""

    def complete(incomplete: str) -> list[str]:
        before, comma, typed = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(typed)]

    return complete
