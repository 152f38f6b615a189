"""`nsys2prv compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import print_summary, print_warnings, terminal_width
from nsys2prv.cli.options import AsJson, CsvFolder, ForceResults, JsonFile, check_json_flag, takes
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, CompareOptions
from nsys2prv.errors import UsageError


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
    from nsys2prv.efficiency.outputs.export import check_places, json_text

    check_json_flag(as_json, runs)
    if as_json and as_markdown:
        raise UsageError("--json and --markdown: the result is printed once; give one of them, and --json-file FILE for a file")
    tables = {table.name: table.schema for table in TABLES}
    check_places([*runs, *options.files_read], tables, force=force, json_path=json_file, csv_folder=csv, page_path=out)
    compared = compare(runs, options)
    compared.write(json_path=json_file, csv_folder=csv, page_path=out)
    if as_json:
        print(json_text(compared.as_json()), end="")
    elif as_markdown:
        print(compared.as_markdown(), end="")
    else:
        print_summary(compared.as_text(width=terminal_width()))
        print_warnings(compared.head["warnings"])
    if (error := gate_error(compared.tables["gate"])) is not None:
        raise error
