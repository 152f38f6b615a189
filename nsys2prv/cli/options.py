"""Options of the command line: those of an `OptionSet` become options of a command; what commands share; and their help."""

import enum
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import Field
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from nsys2prv.cli.console import withhold
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
Inputs = Annotated[list[str], typer.Argument(metavar="REPORT...", help="Reports, as for translate.", show_default=False)]
TracePath = typer.Argument(
    metavar="OUT.prv", help="A trace, .prv or .prv.gz, with its .pcf and .row beside it.", show_default=False
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, in place of text.")]
Page = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="PAGE.html", help="Write a page with charts and tables, which works offline."),
]
JsonFile = Annotated[Path | None, typer.Option("--json-file", metavar="FILE", help="Write all tables into a file, as JSON.")]
ForceResults = Annotated[bool, typer.Option("--force", help="Replace files of others, too; never inputs or reports.")]
CsvFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="Write each table as a CSV file into a folder.")]


def check_json_flag(as_json: bool, inputs: Iterable[str]) -> None:
    """Raise a UsageError for `--json FILE` and `--json -`: the flag takes no file, and one behind it looks like an input."""
    named = next((name for name in inputs if name == "-" or (name.endswith(".json") and not os.path.exists(name))), None)
    if as_json and named is not None:
        raise UsageError(f"{named}: there is no such input; --json prints and takes no value, --json-file FILE writes a file")


def _flag(name: str, spellings: tuple[str, ...], help: str, what: str) -> inspect.Parameter:
    """An option that all commands have, and that withholds something at once."""
    info = typer.Option(*spellings, help=help, callback=lambda is_set: withhold(what) if is_set else None, is_eager=True)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, info])


_SHARED = (
    _flag("quiet", ("--quiet", "-q"), "Print errors only, and what is asked for (inspect, --json, --list).", "summaries"),
    _flag("no_color", ("--no-color",), "Print without colors, as with NO_COLOR in the environment.", "colors"),
)
SHARED_OPTIONS = tuple(parameter.name for parameter in _SHARED)
"""Names of the options that the program and all commands have."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command, or the program, with the options that all have, and those of a set in the place of its parameter `options`,
    which gets the set; of `Annotated[SET, names]`, some of them."""
    parameters = inspect.signature(command, eval_str=True).parameters
    hint = parameters["options"].annotation if "options" in parameters else OptionSet
    options, names = getattr(hint, "__origin__", hint), getattr(hint, "__metadata__", [()])[0]
    hints = get_type_hints(options)
    of_set = [_parameter(declared, text, hints[declared.name]) for declared, text in declared_options(options, names)]
    new = [*(option for name, old in parameters.items() for option in (of_set if name == "options" else [old])), *_SHARED]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in new]

    @wraps(command)
    def run(**values: Any) -> None:
        set_values = {option.name: values.pop(option.name) for option in of_set}
        if "options" in parameters:
            values["options"] = options(**{name: value for name, value in set_values.items() if value is not None})
        command(**{name: value for name, value in values.items() if name not in SHARED_OPTIONS})

    # Typer looks for parameters in both.
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


def _parameter(declared: Field[Any], text: OptionText, hint: Any) -> inspect.Parameter:
    flag = f"--{declared.name.replace('_', '-')}"
    default = declared.default
    is_list = isinstance(default, tuple)
    names = text.names
    if isinstance(default, enum.Enum):
        # Versions of Typer say in different words what is wrong with an enumeration.
        hint, names = str, partial(map, str, [choice.value for choice in type(default)])
    info = typer.Option(
        flag,
        *([text.short] if text.short else []),
        help=text.help,
        metavar=text.metavar,
        parser=_parser(flag, text.read, is_list=is_list) if text.read not in (None, Path) else None,
        autocompletion=completion(names) if names is not None else None,
        show_default=bool(default),
        rich_help_panel=text.group,
    )
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if is_list else default,
        annotation=Annotated[list[str] | None if is_list else hint, info],
    )


def _parser(flag: str, read: Callable[[Any], Any], *, is_list: bool) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        try:
            check_utf8(value)
            # Elements of a list are tried here, so that a message names one, and are read together.
            result = read((value,) if is_list else value)
        except ValueError as error:
            raise UsageError(f"{flag} {short(str(value), 200)}: {error}") from error
        return value if is_list else result

    return parse


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Values for the shell to complete: names that start with what is typed; after a comma, the next name."""

    def complete(incomplete: str) -> list[str]:
        before, comma, typed = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(typed)]

    return complete


class Command(TyperCommand):
    """A command; `rich_help_panel` of an option is its group."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the name of the command."""
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(part.metavar) if part.required else f"[{part.metavar}]" for part in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write all groups, those first that come first among the parameters. Where some options have a group, the others are
        about what is printed and written."""
        panels = {parameter.name: getattr(parameter, "rich_help_panel", None) for parameter in self.params}
        ungrouped = "Output" if any(panels.values()) else "Options"
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                groups.setdefault("Arguments", []).append((str(parameter.metavar), getattr(parameter, "help", None) or ""))
            else:
                group = "General" if parameter.name in (*SHARED_OPTIONS, "help") else panels[parameter.name] or ungrouped
                groups.setdefault(group, []).append(_option(parameter))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _option(parameter: Any) -> tuple[str, str]:
    value = "" if parameter.is_flag or parameter.count else f" {parameter.metavar or parameter.name.upper()}"
    has_default = parameter.show_default and parameter.default not in (None, False)
    default = f" [default: {getattr(parameter.default, 'value', parameter.default)}]" if has_default else ""
    return ", ".join(sorted(parameter.opts, key=len)) + value, f"{parameter.help or ''}{default}"
