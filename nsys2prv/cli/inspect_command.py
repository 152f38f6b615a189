"""`nsys2prv inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from nsys2prv.cli.console import print_json, print_result
from nsys2prv.cli.options import AsJson, Reports, takes
from nsys2prv.run.read_options import ReadOptions


@takes(ReadOptions, "unrelated", "nsys", "cache")
def inspect(
    reports: Reports,
    as_json: AsJson = False,
    clocks: Annotated[
        bool,
        typer.Option("--clocks", help="Estimate the clocks of the reports, as those of one run, and how well they are known."),
    ] = False,
    *,
    options: ReadOptions,
) -> None:
    """Summarize reports.

    Prints versions, host, ranks, GPUs, time span, what is known of the clock, rows per source, and what is lost or unusual.
    """
    from nsys2prv.exports.nsys import NsysExport
    from nsys2prv.run.inspect import as_text, inspect, with_clocks

    found = inspect(reports, NsysExport(options.nsys, options.cache))
    if clocks:
        found = with_clocks(found, reports, options)
    if as_json:
        print_json(found)
    else:
        print_result("\n\n".join(map(as_text, found)))
