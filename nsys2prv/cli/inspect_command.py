"""`nsys2prv inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from nsys2prv.cli.console import print_json, print_result
from nsys2prv.cli.options import AsJson, Reports, takes
from nsys2prv.run.options import ReadOptions


@takes(ReadOptions, "unrelated", "nsys")
def inspect(
    reports: Reports,
    as_json: AsJson = False,
    clocks: Annotated[
        bool,
        typer.Option("--clocks", help="Estimate the clocks of the reports, as those of one run, and how well they are known."),
    ] = False,
    nvtx: Annotated[
        bool,
        typer.Option("--nvtx", help="List the names of NVTX ranges of all reports together, which --regions and others take."),
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Names to list with --nvtx; --json has all.")] = 40,
    *,
    options: ReadOptions,
) -> None:
    """Summarize reports.

    Prints versions, host, ranks, GPUs, time span, what is known of the clock, rows per source, and what is lost or unusual.
    """
    from nsys2prv.exports.nsys import NsysExport
    from nsys2prv.run.inspect import as_text, inspect, with_clocks

    if nvtx:
        from nsys2prv.run.inspect import names_as_text, nvtx_names

        names = nvtx_names(reports, NsysExport(options.nsys))
        if as_json:
            print_json(names.to_dicts())
        else:
            print_result(names_as_text(names, limit))
        return
    found = inspect(reports, NsysExport(options.nsys))
    if clocks:
        found = with_clocks(found, reports, options)
    if as_json:
        print_json(found)
    else:
        print_result("\n\n".join(map(as_text, found)))
