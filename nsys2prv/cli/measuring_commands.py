"""`nsys2prv efficiency`, `compare` and `whatif`: how long things took, or would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsys2prv.cli.console import has_colors, print_summary, print_warnings, terminal_width
from nsys2prv.cli.options import AsJson, CsvFolder, ForceResults, JsonFile, check_json_flag, takes
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, CompareOptions, EfficiencyOptions
from nsys2prv.efficiency.what_if_options import WhatIfOptions
from nsys2prv.errors import LEFT_OUT_EXIT_CODE, UsageError

if TYPE_CHECKING:
    from nsys2prv.efficiency.results import Results


def _show(result: Results, text: str | None) -> None:
    """Print a result as text, with its warnings; None: as JSON."""
    from nsys2prv.efficiency.outputs.export import json_text

    if text is None:
        print(json_text(result.as_json()), end="")
    else:
        print_summary(text)
        print_warnings(result.head["warnings"])


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
        bool,
        typer.Option("--verbose", "-v", help="Print also what to do about each finding, what was not found, and the tables."),
    ] = False,
    *,
    options: EfficiencyOptions,
) -> None:
    """Measure the efficiency of GPUs and hosts.

    Efficiency trees for the run, devices, nodes, NVTX regions, iterations and over time; overlap,
    kernels, gaps, copies, NCCL and MPI.
    """
    from nsys2prv.efficiency.measure import measure
    from nsys2prv.efficiency.outputs.export import check_places
    from nsys2prv.efficiency.table_registry import TABLES
    from nsys2prv.execution.progress import progress_bar

    check_json_flag(as_json, inputs)
    places = {"json_path": json_file, "csv_folder": csv, "talp_path": talp, "page_path": out}
    check_places([*inputs, *options.files_read], TABLES, force=force, **places)
    measured = measure(inputs, options)
    with progress_bar("writing"):
        measured.write(**places)
    _show(measured, None if as_json else measured.as_text(verbose=verbose, colors=has_colors(), width=terminal_width()))
    if measured.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)


@takes(CompareOptions, *COMPARE_OPTIONS)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C...]",
            help="One argument per run: a report, a folder or a quoted glob of reports, or a JSON of `efficiency`.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PAGE.html", help="Write a page with drawings and tables, which works offline."),
    ] = None,
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    force: ForceResults = False,
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the result as Markdown, in place of text, for a merge request.")
    ] = False,
    *,
    options: CompareOptions,
) -> None:
    """Compare runs.

    For scaling, or before and after a change: efficiency trees, kernels by name and family, largest changes; and a gate for
    continuous integration (--fail-if).
    """
    from nsys2prv.efficiency.comparison import compare
    from nsys2prv.efficiency.comparison_tables import TABLES
    from nsys2prv.efficiency.gate import gate_error
    from nsys2prv.efficiency.outputs.export import check_places

    check_json_flag(as_json, runs)
    if as_json and as_markdown:
        raise UsageError("--json and --markdown: the result is printed once; give one of them, and --json-file FILE for a file")
    check_places([*runs, *options.files_read], TABLES, force=force, json_path=json_file, csv_folder=csv, page_path=out)
    compared = compare(runs, options)
    compared.write(json_path=json_file, csv_folder=csv, page_path=out)
    if as_markdown:
        print(compared.as_markdown(), end="")
    else:
        _show(compared, None if as_json else compared.as_text(width=terminal_width()))
    if (error := gate_error(compared.tables["gate"])) is not None:
        raise error


@takes(WhatIfOptions)
def whatif(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="REPORT...", help="Reports, as for translate.", show_default=False),
    ],
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    force: ForceResults = False,
    as_json: AsJson = False,
    *,
    options: WhatIfOptions,
) -> None:
    """How long would the run take if something were faster?

    Replays what waits for what, over all ranks, with other durations: length of the run and of each iteration, and what the
    critical path is then.
    """
    from nsys2prv.efficiency.outputs.export import check_places
    from nsys2prv.efficiency.what_if import TABLES, what_if

    check_json_flag(as_json, inputs)
    check_places([*inputs, *options.files_read], TABLES, force=force, json_path=json_file, csv_folder=csv)
    replayed = what_if(inputs, options)
    replayed.write(json_path=json_file, csv_folder=csv)
    _show(replayed, None if as_json else replayed.as_text(width=terminal_width()))
