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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all that is known of each report.")] = False,
    clocks: Annotated[
        bool,
        typer.Option("--clocks", help="Of each report, how well its clock is known in the run; with --json, too."),
    ] = False,
    nvtx: Annotated[
        bool,
        typer.Option("--nvtx", help="List the names of NVTX ranges of all reports together, which --regions and others take."),
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Names to list with --nvtx; --json has all.")] = 40,
    *,
    options: ReadOptions,
) -> None:
    """Summarize a run and its reports.

    Prints ranks that are there and missing, hosts, GPUs, how well clocks are known, rows per source, and what is lost or
    unusual; and a line for each report, or with -v all that is known of it.
    """
    from nsys2prv.exports.nsys import NsysExport
    from nsys2prv.run.inspect import inspect, inspect_run, run_as_text

    if nvtx:
        from nsys2prv.run.inspect import names_as_text, nvtx_names

        names = nvtx_names(reports, NsysExport(options.nsys))
        if as_json:
            print_json(names.to_dicts())
        else:
            print_result(names_as_text(names, limit))
    elif as_json:
        print_json(inspect_run(reports, options)[1] if clocks else inspect(reports, NsysExport(options.nsys)))
    else:
        print_result(run_as_text(*inspect_run(reports, options), with_clocks=clocks, verbose=verbose))
