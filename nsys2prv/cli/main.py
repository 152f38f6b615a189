"""The command line: parses, calls one function, prints, and turns errors into exit codes."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

# Nothing here is linear algebra: numpy need not start threads for it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The pool of the C library holds less, and gives pages back less often, for pieces that are all of one size.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
# So does one arena for the few threads that work at once.
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1")

import typer

import nsys2prv
from nsys2prv.errors import INTERRUPTED_EXIT_CODE, LEFT_OUT_EXIT_CODE, TERMINATED_EXIT_CODE, Nsys2prvError, UsageError, counted

app = typer.Typer(
    name="nsys2prv",
    help="Turn NVIDIA Nsight Systems reports, one or thousands of them, into one Paraver trace.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}


def _completed(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Values for the shell to complete an option with: the names that begin like what is typed; after a comma, the next one."""

    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(begun)]

    return complete


def _methods() -> Iterable[str]:
    from nsys2prv.clocks.align import METHODS

    return METHODS


def _readings() -> Iterable[str]:
    from nsys2prv.efficiency.activity_times import NCCL_POLICIES

    return NCCL_POLICIES


def _sources() -> Iterable[str]:
    from nsys2prv.sources.registry import NAMES

    return NAMES


Reports = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORT...",
        help="Reports: .nsys-rep, .sqlite, folders of Parquet or Arrow tables, folders that hold reports, globs.",
        show_default=False,
    ),
]
Nsys = Annotated[Path | None, typer.Option(help="The nsys that exports .nsys-rep files (default: $NSYS_HOME, then PATH).")]
Cache = Annotated[Path | None, typer.Option(help="Folder for exports of .nsys-rep files (default: beside each report).")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write all tables as JSON; - prints it, and no summary.")
]
AlignAsForTranslate = Annotated[
    str,
    typer.Option(metavar="METHOD", autocompletion=_completed(_methods), help="How clocks are tied together, as for translate."),
]
NcclReading = Annotated[
    str,
    typer.Option(
        metavar="READING",
        autocompletion=_completed(_readings),
        help="What NCCL kernels count as: communication (BSC's views) or useful (TALP).",
    ),
]
LocalWorkers = Annotated[
    int,
    typer.Option(
        "--workers", metavar="N", min=0, help="Processes on this machine that share the work (default: only this one)."
    ),
]
Scheduler = Annotated[
    str, typer.Option(metavar="ADDRESS|FILE", help="Dask cluster that does the work: its scheduler's address or file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def main() -> None:
    """Entry point of the console script."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    # Millions of rows are a few objects here: there is little to collect, and looking for it takes time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        # Typer gives the exit code back, and makes one of Ctrl-C.
        code = app(standalone_mode=False)
    except Nsys2prvError as error:
        _end(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nobody is left to tell.
        os._exit(1)
    except Exception as error:
        if not _is_usage_error(error):
            raise
        _end(error.format_message(), UsageError.exit_code)  # type: ignore[attr-defined]
    if code == INTERRUPTED_EXIT_CODE:
        _end("interrupted; nothing was written", INTERRUPTED_EXIT_CODE)
    _leave_at_once(code or 0)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End after Ctrl-C, or after the SIGTERM by which a batch system ends a job.

    Not by an exception: it would come up anywhere, and the destructor of a database cursor swallows it.
    """
    from nsys2prv.execution.scratch import remove_temporary

    if "nsys2prv.execution.workers" in sys.modules:
        from nsys2prv.execution.workers import kill_local_workers

        # Before what they write is removed.
        kill_local_workers()
    remove_temporary()
    is_interrupt = number == signal.SIGINT
    _end(
        f"interrupted{'' if is_interrupt else ' by SIGTERM'}; nothing was written",
        INTERRUPTED_EXIT_CODE if is_interrupt else TERMINATED_EXIT_CODE,
    )


def _is_usage_error(error: Exception) -> bool:
    # Typer carries its own copy of click in newer versions: its errors are told by what they offer.
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _end(sentence: str, code: int) -> NoReturn:
    print(f"nsys2prv: {sentence}", file=sys.stderr)
    _leave_at_once(code)


def _leave_at_once(code: int) -> NoReturn:
    """End without taking the interpreter down.

    A scan that was broken off may still have threads of polars in Python code, which abort the process when the interpreter
    goes away under them. And to take all modules apart takes longer than a small report.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = 1
    os._exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"nsys2prv {nsys2prv.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def translate(
    reports: Reports,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Where to write: OUT.prv, OUT.pcf, OUT.row, OUT.json and OUT.cfgs.", show_default=False
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=_completed(_sources), help="Sources to translate, by name, separated by commas (default: all)."
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(autocompletion=_completed(_sources), help="Sources to leave out, by name, separated by commas."),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="BEGIN:END", help="Time to keep, from the first event on: 1.5s:2s, 200ms:, :30s.")
    ] = None,
    nvtx: Annotated[
        str | None, typer.Option(metavar="NAME[@DOMAIN]", help="Keep the time inside NVTX ranges of this name.")
    ] = None,
    ranks: Annotated[str | None, typer.Option(metavar="LIST", help="Ranks to keep: 0-7,12.")] = None,
    min_duration: Annotated[str | None, typer.Option(metavar="TIME", help="Leave out shorter intervals: 10us.")] = None,
    align: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            autocompletion=_completed(_methods),
            help="How clocks are tied together: auto, none, utc, monotonic (of each host), messages, mpi, nccl (collectives).",
        ),
    ] = "auto",
    rank_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help=r"Where the rank stands in the path of a report: 'rank(\d+)'; counts before all else."
        ),
    ] = None,
    host_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX|NAMES", help=r"Where the host stands in the path of a report: '(node\\d+)'; or names: node01,node02."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Duplicate or missing ranks, and reports of different runs or versions, are an error."),
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out reports that can't be read; the exit code tells of it.")
    ] = False,
    fold_streams: Annotated[
        bool, typer.Option("--fold-streams", help="One row for all streams of a device; more only where events overlap.")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(metavar="EARLIER.pcf", help="Names keep the numbers of this trace, so that the two compare.")
    ] = None,
    no_views: Annotated[bool, typer.Option("--no-views", help="Leave out the views, OUT.cfgs.")] = False,
    kernel_families: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Own rules for families of kernels (CSV: what,value,pattern), tried first."),
    ] = None,
    gzip: Annotated[bool, typer.Option("--gzip", "-z", help="Write OUT.prv.gz, which Paraver reads too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a former output.")] = False,
    as_json: AsJson = False,
    nsys: Nsys = None,
    cache: Cache = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder for intermediate files (default: beside the output).")] = None,
    workers: LocalWorkers = 0,
    scheduler: Scheduler = "",
) -> None:
    """Translate reports into one Paraver trace.

    Reports of several ranks and nodes become one trace on one time axis. What is in a report is found out; nothing has to
    be named. Names of sources: see `nsys2prv inspect`.
    """
    from nsys2prv.trace.translate import Options
    from nsys2prv.trace.translate import translate as run

    options = Options(
        only=_names(only),
        skip=_names(skip),
        time=_time_range(time) if time is not None else None,
        nvtx=_nvtx_range(nvtx) if nvtx is not None else None,
        ranks=_rank_list(ranks) if ranks is not None else None,
        min_duration=_duration(min_duration, "--min-duration") if min_duration is not None else 0,
        align=_align_method(align),
        rank_pattern=rank_pattern,
        host_pattern=host_pattern,
        strict=strict,
        keep_going=keep_going,
        fold_streams=fold_streams,
        labels=labels,
        no_views=no_views,
        kernel_families=kernel_families,
        gzip=gzip,
        force=force,
        nsys=nsys,
        cache=cache,
        scratch=scratch,
        workers=workers,
        scheduler=scheduler,
    )
    summary = run(reports, out, options)
    print(json.dumps(summary.content, indent=1, ensure_ascii=False) if as_json else _summary_text(summary.prv, summary.content))
    if not as_json:
        for warning in _grouped(summary.content):
            print(f"warning: {warning}", file=sys.stderr)
    if summary.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)


@app.command()
def inspect(reports: Reports, as_json: AsJson = False, nsys: Nsys = None, cache: Cache = None) -> None:
    """Tell what reports hold: versions, host, ranks, GPUs, time span, rows per source, what is lost or odd."""
    from nsys2prv.exports.nsys import NsysExport
    from nsys2prv.run.inspect import as_text
    from nsys2prv.run.inspect import inspect as run

    found = run(reports, NsysExport(nsys, cache))
    print(json.dumps(found, indent=1, ensure_ascii=False) if as_json else "\n\n".join(map(as_text, found)))


@app.command()
def check(
    trace: Annotated[
        Path, typer.Argument(metavar="OUT.prv", help="A trace, .prv or .prv.gz, with its .pcf and .row beside it.")
    ],
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, help="Places to tell of each promise that is broken.")] = 20,
) -> None:
    """Read a trace strictly; exit with 1 and the first places where it breaks a promise."""
    from nsys2prv.paraver.check import check_trace

    result = check_trace(trace, limit)
    if as_json:
        findings = [
            {"promise": finding.promise.name.lower(), "line": finding.line, "text": finding.text} for finding in result.findings
        ]
        found = {promise.name.lower(): count for promise, count in result.found.items()}
        print(json.dumps({"ok": result.ok, "findings": findings, "found": found, "counts": dict(result.counts)}, indent=1))
    else:
        for finding in result.findings:
            print(finding.text)
        for promise, count in result.found.items():
            shown = sum(finding.promise is promise for finding in result.findings)
            if count > shown:
                print(f"... and {count - shown} more places where not {promise.value}")
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.counts.items() if count)
        print(f"{trace}: {'keeps every promise' if result.ok else 'breaks promises'} ({counts or 'nothing was read'})")
    if not result.ok:
        raise typer.Exit(1)


@app.command()
def efficiency(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="REPORT...|OUT.prv", help="Reports, as for translate; or one trace.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PAGE.html", help="Write a page with figures and tables, for any browser, offline."
        ),
    ] = None,
    json_file: JsonFile = None,
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each table as a CSV file into a folder.")] = None,
    talp: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a file as DLB's TALP does, which talp-pages draws.")
    ] = None,
    regions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NVTX",
            help="Efficiencies of NVTX ranges: NAME or NAME@DOMAIN, with * and ? for anything; '*' takes all. May be repeated.",
        ),
    ] = None,
    per_iteration: Annotated[
        str | None,
        typer.Option(metavar="NAME[@DOMAIN]", help="Efficiencies of each iteration: of the n-th NVTX range of this name."),
    ] = None,
    nccl: NcclReading = "communication",
    time: Annotated[
        str | None, typer.Option(metavar="BEGIN:END", help="Time to measure, from the first event on: 1.5s:2s, 200ms:, :30s.")
    ] = None,
    ranks: Annotated[str | None, typer.Option(metavar="LIST", help="Ranks to measure: 0-7,12.")] = None,
    bins: Annotated[int, typer.Option(min=1, max=10_000, help="Bins of the tables over time.")] = 100,
    align: AlignAsForTranslate = "auto",
    rank_pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Where the rank stands in the path of a report, as for translate.")
    ] = None,
    host_pattern: Annotated[
        str | None, typer.Option(metavar="REGEX|NAMES", help="Where the host stands in it, as for translate.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Reports that are not one complete run are an error.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out reports that can't be read; the exit code tells of it.")
    ] = False,
    kernel_families: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Own rules for families of kernels, as for translate.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file PAGE.html that is not such a page.")] = False,
    nsys: Nsys = None,
    cache: Cache = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder for intermediate files (default: that of the system).")] = None,
    workers: LocalWorkers = 0,
    scheduler: Scheduler = "",
) -> None:
    """Tell how efficiently a run used its GPUs and hosts, from reports or from a trace.

    The trees of efficiencies, per device, node, NVTX region, iteration and over time; overlap, kernels, gaps, copies, NCCL and
    MPI. docs/efficiency-json.md tells every table.
    """
    from nsys2prv.efficiency.measure import Options, measure
    from nsys2prv.efficiency.outputs.export import check_page_path, check_places, csv_files, json_text, write_files
    from nsys2prv.efficiency.outputs.talp import as_talp
    from nsys2prv.efficiency.outputs.text import as_text
    from nsys2prv.run.session import ReadOptions

    json_path = _json_path(json_file)
    check_places([path for path in (out, json_path, talp) if path is not None], csv)
    if out is not None:
        check_page_path(out, force=force)
    options = Options(
        nccl=_nccl_reading(nccl),
        regions=tuple(regions or ()),
        per_iteration=per_iteration,
        bins=bins,
        read=ReadOptions(
            time=_time_range(time) if time is not None else None,
            ranks=_rank_list(ranks) if ranks is not None else None,
            align=_align_method(align),
            rank_pattern=rank_pattern,
            host_pattern=host_pattern,
            strict=strict,
            keep_going=keep_going,
            kernel_families=kernel_families,
            nsys=nsys,
            cache=cache,
            scratch=scratch,
            workers=workers,
            scheduler=scheduler,
        ),
    )
    measured = measure(inputs, options)
    files: dict[Path, str | None] = csv_files(csv, measured.tables) if csv is not None else {}
    if json_path is not None:
        files[json_path] = json_text(measured.as_json())
    if talp is not None:
        files[talp] = json_text(as_talp(measured.head, measured.tables))
    if out is not None:
        from nsys2prv.efficiency.outputs.page import page

        files[out] = page(measured.head, measured.tables)
    write_files(files)
    if json_file == "-":
        print(json_text(measured.as_json()), end="")
    else:
        print(as_text(measured.head, measured.tables))
        for warning in measured.head["warnings"]:
            print(f"warning: {warning}", file=sys.stderr)
    if measured.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)


@app.command()
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
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each table as a CSV file into a folder.")] = None,
    nccl: NcclReading = "communication",
    align: AlignAsForTranslate = "auto",
    kernel_families: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Own rules for families of kernels, as for translate.")
    ] = None,
    nsys: Nsys = None,
    cache: Cache = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder for intermediate files (default: that of the system).")] = None,
    workers: LocalWorkers = 0,
    scheduler: Scheduler = "",
) -> None:
    """Lay runs side by side, for scaling or before and after: trees, kernels by name and family, what changed most."""
    from nsys2prv.efficiency.comparison import compare as run
    from nsys2prv.efficiency.measure import Options
    from nsys2prv.efficiency.outputs.export import check_places, csv_files, json_text, write_files
    from nsys2prv.efficiency.outputs.text import comparison_as_text
    from nsys2prv.run.session import ReadOptions

    json_path = _json_path(json_file)
    check_places([json_path] if json_path is not None else [], csv)
    read = ReadOptions(
        align=_align_method(align),
        kernel_families=kernel_families,
        nsys=nsys,
        cache=cache,
        scratch=scratch,
        workers=workers,
        scheduler=scheduler,
    )
    compared = run(runs, Options(nccl=_nccl_reading(nccl), read=read))
    files: dict[Path, str | None] = csv_files(csv, compared.tables) if csv is not None else {}
    if json_path is not None:
        files[json_path] = json_text(compared.as_json())
    write_files(files)
    if json_file == "-":
        print(json_text(compared.as_json()), end="")
        return
    print(comparison_as_text(compared.head, compared.tables))
    for warning in compared.head["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)


@app.command()
def views(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT.prv]", help="A trace, .prv or .prv.gz, with its .pcf and .row beside it.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where to write (default: OUT.cfgs).")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Views or groups to render, by name, separated by commas (default: all that fit).")
    ] = None,
    list_views: Annotated[
        bool, typer.Option("--list", help="Print the table of views, or what of it fits the trace; write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that is not one of views.")] = False,
    as_json: AsJson = False,
) -> None:
    """Render Paraver views for a trace, also one of another tool; replaces those that are there."""
    from nsys2prv.paraver.views.of_trace import as_text, listed, render_views

    if list_views:
        found = listed(trace, _names(only))
        print(json.dumps(found, indent=1, ensure_ascii=False) if as_json else as_text(found))
        return
    if trace is None:
        raise UsageError("views: no trace is named; give the .prv of a trace, or --list for the table of all views")
    folder, rendered = render_views(trace, out, _names(only), force=force)
    written = [{"path": one.path, "title": one.title} for one in rendered]
    if as_json:
        print(json.dumps({"folder": str(folder), "views": written}, indent=1, ensure_ascii=False))
    else:
        print(f"{folder}: {counted(len(written), 'view')}; the list is in {folder / 'index.html'}")


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder for reports and trace; made when it is not there.")
    ] = Path("nsys2prv-demo"),
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the run.")] = 2,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs, and ranks, of each node.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Make a small multi-node report set and run everything on it."""
    from nsys2prv.demo.run_demo import run_demo

    result = run_demo(directory, nodes, gpus)
    if as_json:
        print(json.dumps(result.summary.content, indent=1, ensure_ascii=False))
        return
    print(f"{len(result.reports)} reports of {nodes} nodes with {gpus} GPUs each: {result.reports[0].parent}")
    print(_summary_text(result.summary.prv, result.summary.content))
    print(f"efficiency: {result.page}, the same as JSON in {result.json}")
    print(f"check: {'every promise is kept' if result.check.ok else 'promises are broken'}")
    for finding in result.check.findings:
        print(finding.text)
    if not result.check.ok:
        raise typer.Exit(1)
    print(f"open it: wxparaver {result.summary.prv}, and {result.page} in a browser")


def _summary_text(prv: Path, content: Any) -> str:
    trace = content["trace"]
    written: dict[str, int] = {}
    left_out: dict[str, int] = {}
    for report in content["reports"]:
        for table in report["tables"]:
            for source in table["sources"]:
                written[source["title"]] = written.get(source["title"], 0) + source["written"]
            for reason, rows in [
                *table["left_out"].items(),
                *(pair for source in table["sources"] for pair in source["left_out"].items()),
            ]:
                left_out[reason] = left_out.get(reason, 0) + rows
    methods = ", ".join(sorted({report["alignment"]["method"] for report in content["reports"]}))
    sizes = ", ".join(counted(trace[what], what[:-1]) for what in ("records", "nodes", "tasks", "rows"))
    lines = [
        f"{prv}: {trace['bytes'] / 1e6:.1f} MB, {trace['length_ns'] / 1e9:.6f} s, {sizes}; made in {content['seconds']:.1f} s"
    ]
    if content["run"]["ranks"]:
        lines.append(_ranks_text(content))
    lines += [f"  {count:>12,}  {title}" for title, count in written.items() if count]
    lines += _messages_text(content["messages"])
    lines += [f"  {count:>12,}  rows left out: {reason}" for reason, count in left_out.items()]
    account = prv.with_name(prv.name.removesuffix(".gz").removesuffix(".prv") + ".json")
    if "views" in content:
        lines.append(f"  {len(content['views']):>12,}  views, listed in {account.with_suffix('.cfgs') / 'index.html'}")
    lines.append(f"  {counted(len(content['reports']), 'report')} on one time axis by {methods}; the account is in {account}")
    return "\n".join(lines)


def _messages_text(messages: Any) -> list[str]:
    """What became of messages between ranks: nothing where there are none."""
    lines = [(messages["written"], "messages between ranks")] if messages["matched"] else []
    if messages["backward"]:
        lines.append((messages["backward"], "of these arrive before they are sent: the clocks of their reports don't fit"))
    lines += [(count, f"messages left out: {reason}") for reason, count in messages["left_out"].items()]
    for what, reasons in messages["unmatched"].items():
        lines += [(count, f"{what} without a message: {reason}") for reason, count in reasons.items()]
    return [f"  {count:>12,}  {text}" for count, text in lines]


def _ranks_text(content: Any) -> str:
    from nsys2prv.vocabulary.wording import ranges

    run = content["run"]
    sources = sorted({report["rank_source"] for report in content["reports"] if report["rank_source"]})
    what = "rank" if len(run["ranks"]) == 1 else "ranks"
    return f"  {what} {ranges(run['ranks'])} of {run['size']:,}, known by {', '.join(sources)}"


def _grouped(content: Any) -> list[str]:
    """Warnings, equal ones of several reports as one."""
    reports: dict[str, list[str]] = {}
    for report in content["reports"]:
        for warning in report["warnings"]:
            reports.setdefault(warning, []).append(report["path"])
    of_reports = [
        f"{paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {warning}" for warning, paths in reports.items()
    ]
    return [*of_reports, *content["warnings"]]


def _json_path(option: str | None) -> Path | None:
    """Where `--json` writes a file; None: nowhere, or on the screen."""
    return Path(option) if option is not None and option != "-" else None


def _names(options: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for option in options or [] for name in option.split(",") if name.strip())


def _duration(text: str, option: str) -> int:
    """A time with its unit, in ns.

    >>> _duration("1.5s", "--time"), _duration("10us", "--time")
    (1500000000, 10000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s|m)\s*", text)
    if found is None:
        raise UsageError(f"{option} {text}: not a time; write a number with its unit (ns, us, ms, s, m), such as 1.5s or 10us")
    whole, _, fraction = found[1].partition(".")
    unit = _UNITS[found[2]]
    # Not as a float: nanoseconds of a long trace have more digits than one holds.
    return int(whole or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def _time_range(text: str) -> Any:
    from nsys2prv.run.session import TimeRange

    begin, colon, end = text.partition(":")
    if not colon:
        raise UsageError(f"--time {text}: not a stretch of time; write BEGIN:END, such as 1.5s:2s, 200ms: or :30s")
    chosen = TimeRange(
        _duration(begin, "--time") if begin.strip() else None,
        _duration(end, "--time") if end.strip() else None,
    )
    if chosen.end is not None and chosen.end <= (chosen.begin or 0):
        raise UsageError(f"--time {text}: the end is not after the begin; write BEGIN:END, such as 1.5s:2s")
    return chosen


def _nvtx_range(text: str) -> Any:
    from nsys2prv.run.session import NvtxRange

    name, at, domain = text.rpartition("@")
    if not at:
        name, domain = text, ""
    if not name:
        raise UsageError(f"--nvtx {text}: no name of a range; write NAME or NAME@DOMAIN")
    return NvtxRange(name, domain or None)


def _align_method(text: str) -> str:
    from nsys2prv.clocks.align import METHODS

    if text not in METHODS:
        raise UsageError(f"--align {text}: the methods are {', '.join(METHODS)}")
    return text


def _nccl_reading(text: str) -> str:
    from nsys2prv.efficiency.activity_times import NCCL_POLICIES

    if text not in NCCL_POLICIES:
        raise UsageError(f"--nccl {text}: NCCL kernels count as {' or '.join(NCCL_POLICIES)}")
    return text


def _rank_list(text: str) -> frozenset[int]:
    """Ranks of a list such as 0-7,12.

    >>> sorted(_rank_list("0-2,12"))
    [0, 1, 2, 12]
    """
    ranks: set[int] = set()
    for piece in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", piece)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise UsageError(f"--ranks {text}: not a list of ranks; write numbers and ranges, such as 0-7,12")
        ranks.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return frozenset(ranks)
