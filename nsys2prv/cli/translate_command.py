"""`nsys2prv translate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import print_json, print_summary, print_warnings
from nsys2prv.cli.options import AsJson, Reports, takes
from nsys2prv.cli.translation_text import translation_text, translation_warnings
from nsys2prv.errors import LEFT_OUT_EXIT_CODE
from nsys2prv.trace.translate_options import TranslateOptions


@takes(TranslateOptions)
def translate(
    reports: Reports,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Output: OUT.prv, OUT.pcf, OUT.row, OUT.json and OUT.cfgs.", show_default=False),
    ],
    as_json: AsJson = False,
    *,
    options: TranslateOptions,
) -> None:
    """Translate reports into one Paraver trace.

    Reports of several ranks and nodes become one trace on one time axis. Content is detected automatically. `nsys2prv inspect`
    lists the names of sources.
    """
    from nsys2prv.trace.translate import translate

    summary = translate(reports, out, options)
    if as_json:
        print_json(summary.content)
    else:
        print_summary(translation_text(summary.prv, summary.content))
        print_warnings(translation_warnings(summary.content))
    if summary.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)
