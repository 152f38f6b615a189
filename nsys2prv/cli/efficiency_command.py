"""`nsys2prv efficiency`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import has_colors, print_summary, print_warnings, terminal_width
from nsys2prv.cli.options import AsJson, CsvFolder, ForceResults, JsonFile, check_json_flag, takes
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.errors import LEFT_OUT_EXIT_CODE


@takes(EfficiencyOptions)
def efficiency(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="REPORT...", help="Reports, as for translate.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PAGE.html", help="Write a page with charts and tables, which works offline."),
    ] = None,
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    talp: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a file in the format of DLB's TALP, for talp-pages.")
    ] = None,
    force: ForceResults = False,
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print evidence and advice with each finding, and what was not found.")
    ] = False,
    *,
    options: EfficiencyOptions,
) -> None:
    """Measure the efficiency of GPUs and hosts.

    Efficiency trees for the run, devices, nodes, NVTX regions, iterations and over time; overlap,
    kernels, gaps, copies, NCCL and MPI. docs/reference/efficiency-tables.md describes all tables.
    """
    from nsys2prv.efficiency.measure import measure
    from nsys2prv.efficiency.outputs.export import check_places, json_text
    from nsys2prv.efficiency.table_registry import TABLES
    from nsys2prv.execution.progress import progress_bar

    check_json_flag(as_json, inputs)
    places = {"json_path": json_file, "csv_folder": csv, "talp_path": talp, "page_path": out}
    check_places([*inputs, *options.files_read], {table.name: table.schema for table in TABLES}, force=force, **places)
    measured = measure(inputs, options)
    with progress_bar("writing"):
        measured.write(**places)
    if as_json:
        print(json_text(measured.as_json()), end="")
    else:
        print_summary(measured.as_text(verbose=verbose, colors=has_colors(), width=terminal_width()))
        print_warnings(measured.head["warnings"])
    if measured.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)
