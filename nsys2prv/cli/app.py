"""The commands of the program: each parses, calls one function, and prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsys2prv.cli.console import has_colors, print_json, print_result, print_summary, print_warnings, terminal_width
from nsys2prv.cli.options import (
    AsJson,
    Command,
    CsvFolder,
    ForceResults,
    Inputs,
    JsonFile,
    Page,
    Reports,
    TracePath,
    check_json_flag,
    with_options,
)
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, CompareOptions, EfficiencyOptions
from nsys2prv.efficiency.what_if_options import WhatIfOptions
from nsys2prv.errors import LEFT_OUT_EXIT_CODE, UsageError, counted
from nsys2prv.run.options import ReadOptions, name_list
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.printable import printable_lines

if TYPE_CHECKING:
    from nsys2prv.efficiency.results import Results


def translate(
    reports: Reports,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output: OUT.prv, OUT.pcf, OUT.row, OUT.json and OUT.cfgs.", show_default=False)
    ],
    as_json: AsJson = False,
    *,
    options: TranslateOptions,
) -> None:
    """Translate reports into one Paraver trace.

    Reports of several ranks and nodes become one trace on one time axis. Content is detected automatically. `nsys2prv inspect`
    lists the names of sources."""
    from nsys2prv.trace.translate import translate

    summary = translate(reports, out, options)
    if as_json:
        print_json(summary.content)
    else:
        print_summary(summary.as_text())
        print_warnings(summary.warnings)
    if summary.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)


def inspect(
    reports: Reports,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all that is known of each report.")] = False,
    clocks: Annotated[bool, typer.Option("--clocks", help="Add how well the clock of each report is known.")] = False,
    nvtx: Annotated[bool, typer.Option("--nvtx", help="List the names of NVTX ranges, as --regions takes them.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Names to list with --nvtx; --json has all.")] = 40,
    *,
    options: Annotated[ReadOptions, ("align", "rank_pattern", "host_pattern", "strict", "unrelated", "keep_going", "nsys")],
) -> None:
    """Summarize a run and its reports.

    Prints ranks that are there and missing, hosts, GPUs, how well clocks are known, rows per source, and what is lost or
    unusual; and a line for each report, or with -v all that is known of it."""
    from nsys2prv.run.inspect import inspect, inspect_run, names_as_text, nvtx_names, run_as_text

    if nvtx:
        names = nvtx_names(reports, options.nsys)
        if as_json:
            print_json(names.to_dicts())
        else:
            print_result(names_as_text(names, limit))
    elif as_json and not (clocks or options.keep_going):
        print_json(inspect(reports, options.nsys))
    else:
        of_run, of_reports, is_incomplete = inspect_run(reports, options)
        if as_json:
            print_json(of_reports)
        else:
            print_result(run_as_text(of_run, of_reports, with_clocks=clocks, verbose=verbose))
        if is_incomplete:
            raise typer.Exit(LEFT_OUT_EXIT_CODE)


def check(
    trace: Annotated[Path, TracePath],
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Places to list for each rule that is violated.")] = 20,
) -> None:
    """Check whether a trace is valid.

    Lists the first places where it is not, and exits with 1 then."""
    from nsys2prv.paraver.check import check_trace

    result = check_trace(trace, limit)
    if as_json:
        print_json(result.as_json())
    else:
        print_summary(result.as_text(trace))
    if not result.valid:
        raise typer.Exit(1)


def views(
    trace: Annotated[Path | None, TracePath] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Output folder (default: OUT.cfgs).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Views or groups to render, separated by commas (default: all that fit the trace); others are removed.",
        ),
    ] = None,
    list_views: Annotated[bool, typer.Option("--list", help="List all views, or those that fit the trace.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder that is not one of views.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write Paraver views for a trace.

    The trace may be from another tool. Existing views are replaced."""
    from nsys2prv.paraver.views.of_trace import list_views as listed_views
    from nsys2prv.paraver.views.of_trace import render_views, view_list_text

    names = name_list(only or ())
    if list_views:
        of_trace = listed_views(trace, names)
        if as_json:
            print_json(of_trace)
        else:
            print_result(view_list_text(of_trace))
        return
    if trace is None:
        raise UsageError("views: no trace given; give the .prv of a trace, or --list to list all views")
    folder, rendered = render_views(trace, out, names, force=force)
    written = [{"path": view.path, "title": view.title} for view in rendered]
    if as_json:
        print_json({"folder": str(folder), "views": written})
    else:
        print_summary(printable_lines([f"{folder}: {counted(len(written), 'view')}, listed in {folder / 'index.html'}"]))


def _show(result: Results, text: str | None, *written: Path | None) -> None:
    """Print a result as text, with its warnings, and where it was written; None: as JSON."""
    if text is None:
        print_json(result.as_json(), indent=None, allow_nan=False)
    else:
        places = ", ".join(str(path) for path in written if path is not None)
        print_summary(f"{text}\n\n{printable_lines([f'written: {places}'])}" if places else text)
        print_warnings(result.head["warnings"])


def efficiency(
    inputs: Inputs,
    out: Page = None,
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    talp: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a file in the format of DLB's TALP, for talp-pages.")
    ] = None,
    force: ForceResults = False,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Add advice, what was not found, and the tables.")] = False,
    *,
    options: EfficiencyOptions,
) -> None:
    """Measure the efficiency of GPUs and hosts.

    Efficiency trees for the run, devices, nodes, NVTX regions, iterations and over time; overlap,
    kernels, gaps, copies, NCCL and MPI."""
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
    text = None if as_json else measured.as_text(verbose=verbose, colors=has_colors(), width=terminal_width())
    _show(measured, text, *places.values())
    if measured.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C...]",
            help="One argument per run: a report, a folder or a quoted glob of reports, or a JSON of `efficiency`.",
            show_default=False,
        ),
    ],
    out: Page = None,
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    force: ForceResults = False,
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the result as Markdown, in place of text, for a merge request.")
    ] = False,
    *,
    options: Annotated[CompareOptions, COMPARE_OPTIONS],
) -> None:
    """Compare runs.

    For scaling, or before and after a change: efficiency trees, kernels by name and family, largest changes; and a gate for
    continuous integration (--fail-if)."""
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
        _show(compared, None if as_json else compared.as_text(width=terminal_width()), out, json_file, csv)
    if (error := gate_error(compared.tables["gate"])) is not None:
        raise error


def whatif(
    inputs: Inputs,
    json_file: JsonFile = None,
    csv: CsvFolder = None,
    force: ForceResults = False,
    as_json: AsJson = False,
    *,
    options: WhatIfOptions,
) -> None:
    """How long would the run take if something were faster?

    Replays what waits for what, over all ranks, with other durations: length of the run and of each iteration, and what the
    critical path is then."""
    from nsys2prv.efficiency.outputs.export import check_places
    from nsys2prv.efficiency.what_if import TABLES, what_if

    check_json_flag(as_json, inputs)
    check_places([*inputs, *options.files_read], TABLES, force=force, json_path=json_file, csv_folder=csv)
    replayed = what_if(inputs, options)
    replayed.write(json_path=json_file, csv_folder=csv)
    _show(replayed, None if as_json else replayed.as_text(width=terminal_width()), json_file, csv)


def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for reports and trace; new, or that of an earlier demo.")
    ] = Path("nsys2prv-demo"),
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=1_024, help="Nodes of the run.")] = 2,
    gpus: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="GPUs, and ranks, per node.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Simulate a small run and analyze it.

    Writes reports of a training run on several nodes, translates, checks and measures them."""
    from nsys2prv.demo.run_demo import run_demo

    result = run_demo(directory, nodes, gpus)
    if as_json:
        print_json(result.summary.content)
    else:
        print_summary(result.as_text())
    if not result.check.valid:
        raise typer.Exit(1)


app = typer.Typer(
    name="nsys2prv",
    help="Translate NVIDIA Nsight Systems reports, one or thousands of them, into one Paraver trace, and measure efficiency.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for command in (translate, inspect, check, efficiency, compare, whatif, views, demo):
    app.command(cls=Command)(with_options(command))


@app.callback()
@with_options
def _options(
    # Printed before the commands are loaded.
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    pass
