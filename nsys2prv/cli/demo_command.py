"""`nsys2prv demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import print_json, print_lines, print_summary
from nsys2prv.cli.options import AsJson
from nsys2prv.cli.translate_command import translation_text


def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for reports and trace; new, or that of an earlier demo.")
    ] = Path("nsys2prv-demo"),
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=1_024, help="Nodes of the run.")] = 2,
    gpus: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="GPUs, and ranks, per node.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Simulate a small run and analyze it.

    Writes reports of a training run on several nodes, translates, checks and measures them.
    """
    from nsys2prv.demo.run_demo import run_demo

    result = run_demo(directory, nodes, gpus)
    if as_json:
        print_json(result.summary.content)
        return
    print_lines([f"{len(result.reports)} reports of {nodes} nodes with {gpus} GPUs each: {result.reports[0].parent}"])
    print_summary(translation_text(result.summary.prv, result.summary.content))
    lines = [
        f"efficiency: {result.page}, as JSON in {result.json}",
        f"check: {'valid' if result.check.valid else 'not valid'}",
        *(violation.text for violation in result.check.violations),
    ]
    print_lines(lines)
    if not result.check.valid:
        raise typer.Exit(1)
    print_lines([f"to open: wxparaver {result.summary.prv}, and {result.page} in a browser"])
