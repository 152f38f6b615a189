"""`nsys2prv whatif`."""

from __future__ import annotations

from typing import Annotated

import typer

from nsys2prv.cli.console import print_summary, print_warnings, terminal_width
from nsys2prv.cli.options import AsJson, CsvFolder, ForceResults, JsonFile, check_json_flag, takes
from nsys2prv.efficiency.what_if_options import WhatIfOptions


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
    from nsys2prv.efficiency.outputs.export import check_places, json_text
    from nsys2prv.efficiency.what_if import TABLES, what_if

    check_json_flag(as_json, inputs)
    tables = {table.name: table.schema for table in TABLES}
    check_places([*inputs, *options.files_read], tables, force=force, json_path=json_file, csv_folder=csv)
    replayed = what_if(inputs, options)
    replayed.write(json_path=json_file, csv_folder=csv)
    if as_json:
        print(json_text(replayed.as_json()), end="")
    else:
        print_summary(replayed.as_text(width=terminal_width()))
        print_warnings(replayed.head["warnings"])
