"""The commands of the program."""

from __future__ import annotations

from typing import Annotated

import typer

from nsys2prv.cli.console import print_version
from nsys2prv.cli.demo_command import demo
from nsys2prv.cli.inspect_command import inspect
from nsys2prv.cli.measuring_commands import compare, efficiency, whatif
from nsys2prv.cli.options import Command, shares
from nsys2prv.cli.trace_commands import check, views
from nsys2prv.cli.translate_command import translate

app = typer.Typer(
    name="nsys2prv",
    help="Translate NVIDIA Nsight Systems reports, one or thousands of them, into one Paraver trace, and measure efficiency.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for command in (translate, inspect, check, efficiency, compare, whatif, views, demo):
    app.command(cls=Command)(shares(command))


def _show_version(requested: bool) -> None:
    if requested:
        print_version()
        raise typer.Exit


@app.callback()
@shares
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
