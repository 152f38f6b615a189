"""`nsys2prv compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import print_warnings
from nsys2prv.cli.options import CsvFolder, JsonFile, takes
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, EfficiencyOptions


@takes(EfficiencyOptions, *COMPARE_OPTIONS)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C...]",
            help="One argument per run: a report, a folder or a quoted glob of reports, a trace, or a JSON of `efficiency`.",
            show_default=False,
        ),
    ],
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    *,
    options: EfficiencyOptions,
) -> None:
    """Compare runs.

    For scaling, or before and after a change: efficiency trees, kernels by name and family, largest changes.
    """
    from nsys2prv.efficiency.comparison import compare
    from nsys2prv.efficiency.outputs.export import check_places, json_text

    json_path = Path(json_file) if json_file not in (None, "-") else None
    check_places([json_path] if json_path is not None else [], csv)
    compared = compare(runs, options)
    compared.write(json_path=json_path, csv_folder=csv)
    if json_file == "-":
        print(json_text(compared.as_json()), end="")
    else:
        print(compared.as_text())
        print_warnings(compared.head["warnings"])
