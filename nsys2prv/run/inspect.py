"""Summaries of reports, without translating them: what is in them, and the names of their NVTX ranges."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS
from nsys2prv.errors import NothingToTranslate, SameReportTwice, UnrelatedReports, counted
from nsys2prv.execution.output_files import scratch_folder
from nsys2prv.execution.progress import progress_bar
from nsys2prv.execution.workers import workers
from nsys2prv.exports import Report, describe, find_reports, open_report
from nsys2prv.exports.columns import pid_of
from nsys2prv.run.frames import devices_frame
from nsys2prv.run.open import with_events_only
from nsys2prv.run.options import ReadOptions
from nsys2prv.run.ranks import check_related
from nsys2prv.run.session import RunPlan, RunSession, disagreement_text
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.sources.registry import SOURCES, present_sources
from nsys2prv.timeline import coverage
from nsys2prv.timeline.rows import UNKNOWN_HOST
from nsys2prv.timeline.survey import Survey, count_events, whole_survey
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.terminal import grid
from nsys2prv.vocabulary.wording import known_to, ranges, ranked_warnings, ranks_of_run, short, time

T = TypeVar("T")

_SHOWN = 8  # names of hosts that are listed


def inspect(arguments: Sequence[str | Path], nsys: Path | None = None) -> list[dict[str, Any]]:
    """An object per report, as `inspect --json` prints it: versions, host, ranks, GPUs, time span, rows per source, and what is
    lost or unusual. Times are in ns of the clock of the report. Raises ReportError when a report can't be read."""
    return _of_each_report(arguments, nsys, _inspect)


def _of_each_report(arguments: Sequence[str | Path], nsys: Path | None, step: Callable[[Report], T]) -> list[T]:
    paths = find_reports(arguments)
    results = []
    with progress_bar("inspecting", "report", len(paths)) as bar:
        for path in paths:
            results.append(step(open_report(path, nsys)))
            bar.update()
    return results


def inspect_run(arguments: Sequence[str | Path], options: ReadOptions) -> tuple[list[str], list[dict[str, Any]], bool]:
    """What is known of a run, and of its reports with the clocks of the run.

    Returns
    -------
    Lines of text about the run: its ranks, hosts, GPUs, clocks, activity and warnings. And what `inspect` returns, where
    `clock` has also what OUT.json has of its clock in `clocks`, `group` and `of_report_ns` as in `alignment` there, and
    `disagreements`: a sentence for each contradiction that its host is part of. Clocks are not compared without events, or
    where a report is there twice. And whether reports were left out.
    """
    with (
        scratch_folder(options.scratch) as folder,
        workers(options.workers, options.scheduler, options.memory, [folder]) as pool,
    ):
        try:
            # Reports that are not of one run are no error here: it is said.
            session = RunSession(arguments, SOURCES, replace(options, unrelated=True), folder, pool)
        except (NothingToTranslate, SameReportTwice) as error:
            return [str(error)], inspect(arguments, options.nsys), False
        reports = [_inspect(opened.report, opened.surveys) for opened in session.plan.reports]
    axis, warnings = session.plan.axis, session.warnings
    for report, alignment in zip(reports, session.plan.alignment, strict=True):
        clock = axis.clocks[alignment["clock"]]
        contradictions = [disagreement_text(contra) for contra in axis.disagreements if clock.name in contra.hosts]
        ties = {name: alignment[name] for name in ("group", "of_report_ns")}
        report["clock"] |= {**clock.as_json(), **ties, "disagreements": contradictions}
    try:
        if not options.unrelated:
            spans = [opened.span for opened in session.plan.reports]
            check_related([Path(report["path"]) for report in reports], session.plan.run.identities, spans)
    except UnrelatedReports as error:
        warnings = [str(error), *warnings]
    warning_lines = [f"  warning: {text}" for text in ranked_warnings(warnings)]
    return [*_run_lines(session.plan), *_activity_lines(reports), *warning_lines], reports, bool(session.left_out)


def _run_lines(plan: RunPlan) -> list[str]:
    """Ranks, hosts, GPUs and clocks of a run."""
    names = (node.name for node in plan.timeline.rows.nodes)
    run, hosts = plan.run, ["name not known" if name == UNKNOWN_HOST else name for name in names]
    ranks = "not known"
    if run.ranks:
        sources = sorted({opened.identity.known_ranks_source for opened in plan.reports} - {""})
        missing = f"; missing: {ranges(run.missing)}" if run.missing else ""
        ranks = f"{ranks_of_run(run.ranks, run.size)}, from {', '.join(sources)}{missing}"
    devices = devices_frame(plan).with_columns(pl.col("name").replace("", None).fill_null("GPU of unknown model"))
    gpus = [f"{len(of)} x {name} (D{ranges(of['device'])})" for (name,), of in devices.group_by("name", maintain_order=True)]
    clocks = [clock.as_json()["interval_ns"]["worst"] for clock in plan.axis.clocks]
    methods = ", ".join(sorted({alignment["method"] for alignment in plan.alignment}))
    return [
        f"{counted(len(plan.reports), 'report')}, {time(plan.timeline.selection.length)}",
        f"  ranks: {ranks}",
        f"  hosts: {len(hosts)} ({', '.join(hosts[:_SHOWN])}{', ...' if len(hosts) > _SHOWN else ''})",
        f"  GPUs: {', '.join(gpus) or 'none used'}",
        f"  clocks: {len(clocks)}" + (f", synchronized by {methods}; {known_to(clocks)}" if len(clocks) > 1 else ""),
    ]


def _activity_lines(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of each source in all reports, and in how many of them; and those that no source translates, by the reason."""
    rows, in_reports, left_out = Counter[str](), Counter[str](), Counter[str]()
    for report in reports:
        for table in report["tables"]:
            left_out.update(table["left_out"])
        sources = [source for table in report["tables"] for source in table["sources"]]
        in_reports.update({f"{source['title']} ({source['source']})" for source in sources})
        for source in sources:
            rows[f"{source['title']} ({source['source']})"] += source["rows"]
    parts = {name: f", in {count:,} of {len(reports):,} reports" for name, count in in_reports.items() if count < len(reports)}
    lines = [f"  {count:>12,}  {title}{parts.get(title, '')}" for title, count in rows.items()]
    return lines + [f"  {count:>12,}  not translated: {reason}" for reason, count in left_out.items()]


def run_as_text(of_run: Sequence[str], reports: Sequence[dict[str, Any]], *, with_clocks: bool, verbose: bool) -> str:
    """What `inspect_run` gives as text: a line for each report, perhaps with how well its clock is known; or all of each."""
    if verbose:
        return "\n\n".join([printable_lines(of_run), *map(as_text, reports)])
    cells = [
        [
            report["path"],
            ranges(report["ranks"]) or "-",
            report["host"] or "-",
            report["nsys"] or "-",
            "-" if report["first_ns"] is None else time(report["last_ns"] - report["first_ns"]),
            f"{sum(source['rows'] for table in report['tables'] for source in table['sources']):,}",
        ]
        for report in reports
    ]
    lines = [*of_run, *grid(["report", "ranks", "host", "nsys", "length", "events"], cells, frozenset({0, 1, 2, 3}))]
    # Reports of a host have the same clock.
    of_clocks: dict[str, list[str]] = {}
    for report in reports if with_clocks else ():
        of_report, *of_host = _clock_lines(report["clock"])
        of_clocks.setdefault("".join(of_host), []).append(f"    {report['path']}: {of_report.removeprefix('  clock: ')}")
    lines += [line for of_host, of_reports in of_clocks.items() for line in (of_host, *of_reports) if line]
    return printable_lines(lines)


def _inspect(report: Report, surveys: Iterable[Survey] | None = None) -> dict[str, Any]:
    identity = describe(report)
    if surveys is None:
        surveys = (whole_survey(report, source) for source in present_sources(report, SOURCES) if not source.derived)
    # Derived sources reuse the tables of others.
    surveys = [survey for survey in surveys if not (survey.source.derived or survey.is_empty)]
    spans = [survey.span for survey in surveys if survey.span is not None]
    of_table: dict[str, list[dict[str, Any]]] = {}
    for survey in surveys:
        source = survey.source
        counts = {"rows": count_events(report, survey), "trace_rows": survey.keys.height}
        of_table.setdefault(source.table, []).append({"source": source.name, "title": source.title, **counts})
    read = {table: sum(source["rows"] for source in sources) for table, sources in of_table.items()}
    tables = [
        {"table": table, "rows": rows, "sources": of_table.get(table, []), "left_out": left_out}
        for table, rows, left_out in coverage.walk(report, read, SOURCES, SOURCES)
    ]
    report.tables.check_unchanged()
    utc = None if identity.utc_ns is None else "utc"
    return {
        "path": str(report.path),
        "form": report.tables.form,
        "nsys": identity.tool,
        "schema": ".".join(map(str, identity.schema)) if identity.schema else None,
        "host": identity.host,
        "cpus": identity.cpus,
        "utc_ns": identity.utc_ns,
        "monotonic_ns": identity.monotonic_ns,
        "clock": {"start": "monotonic" if identity.monotonic_ns is not None else utc},
        "first_ns": min((span[0] for span in spans), default=None),
        "last_ns": max((span[1] for span in spans), default=None),
        "ranks": identity.known_ranks,
        "rank_source": identity.known_ranks_source,
        "processes": {str(pid_of(pid)): name for pid, name in with_events_only(identity, surveys).processes.items()},
        "gpus": [{"id": gpu.id, "name": gpu.name, "bus": gpu.bus} for gpu in identity.gpus],
        "nics": [asdict(nic) for nic in identity.nics],
        "tables": tables,
        "warnings": list(identity.warnings),
    }


_STARTS = {
    "monotonic": "the start of the session is known in UTC and by the monotonic clock of the host",
    "utc": f"the start of the session is known in UTC, to about {time(UTC_READINGS_APART_NS)}, and by no monotonic clock",
    None: "the start of the session is not known",
}


def _clock_lines(clock: dict[str, Any]) -> list[str]:
    """How well the clock of a report is known, and, as a second line, that of its host."""
    off = f"; it may be off the clock of its host by up to {time(clock['of_report_ns'])}" if clock.get("of_report_ns") else ""
    start = f"  clock: {_STARTS[clock['start']]}{off}"
    if "method" not in clock:
        return [start]
    best, worst = (clock["interval_ns"][name] for name in ("best", "worst"))
    quality = known_to([worst]) + (f" ({time(best)} where it is known best)" if best not in (None, worst) else "")
    # Nothing is unknown of the only clock.
    details = [f"  clock of {clock['host']}, by {clock['method']}: {quality if worst != 0 else 'the only one of the run'}"]
    if "offset_ns" in clock:
        details.append(f"offset {time(clock['offset_ns'])}, drift {clock['drift_ppm']} ppm")
    for kind, count in clock["anchors_by_kind"].items():
        unfit = f" ({count['outliers']:,} more do not fit)" if count["outliers"] else ""
        details.append(f"{counted(count['used'], 'anchor')} by {kind}{unfit}")
    if clock["contradiction_ns"] is not None:
        details.append(f"largest contradiction {time(clock['contradiction_ns'])}")
    return [start, "; ".join([*details, *(f"a jump by {time(step['size_ns'])}" for step in clock.get("steps", ()))])]


def as_text(report: dict[str, Any]) -> str:
    """One report of `inspect` as text."""
    schema = report["schema"] or "unknown (2021 or earlier)"
    lines = [report["path"], f"  nsys {report['nsys'] or 'version unknown'}, schema {schema}, {report['form']}"]
    lines.append(f"  host {report['host'] or 'unknown'}" + (f", {report['cpus']} CPUs" if report["cpus"] else ""))
    if report["ranks"]:
        lines.append(f"  {counted(len(report['ranks']), 'rank')}: {ranges(report['ranks'])} (from {report['rank_source']})")
    if report["processes"]:
        named = [f"{name or 'process'} {pid}" for pid, name in report["processes"].items()]
        lines.append(f"  processes: {', '.join(named)}")
    if gpus := [f"D{gpu['id']} {gpu['name']}{gpu['bus'] and ' at '}{gpu['bus']}" for gpu in report["gpus"]]:
        lines.append(f"  GPUs of the host: {', '.join(gpus)}")
    for nic in report["nics"]:
        details = ", ".join(text for text in (nic["device"], nic["link"], f"GUID {nic['guid']}" if nic["guid"] else "") if text)
        lines.append(f"  network adapter {nic['name']}" + (f": {details}" if details else ""))
    if report["first_ns"] is not None:
        lines.append(f"  {(report['last_ns'] - report['first_ns']) / 1e9:.6f} s from the first event to the last")
    lines += _clock_lines(report["clock"])
    for source in (source for table in report["tables"] for source in table["sources"]):
        rows = counted(source["trace_rows"], "row")
        lines.append(f"  {source['rows']:>12,}  {source['title']} ({source['source']}) on {rows}")
    if left_out := [(table["table"], reason, rows) for table in report["tables"] for reason, rows in table["left_out"].items()]:
        lines.append("  not translated:")
        lines += [f"  {rows:>12,}  {table}: {reason}" for table, reason, rows in left_out]
    return printable_lines(lines + [f"  warning: {warning}" for warning in report["warnings"]])


_OF_REPORT = {
    **dict.fromkeys(("name", "domain"), pl.String),
    **dict.fromkeys(("count", "total_ns", "longest_ns", "threads", "closed"), pl.Int64),
}
_LONGEST_NAME, _LONGEST_DOMAIN = 100, 30


def nvtx_names(arguments: Sequence[str | Path], nsys: Path | None = None) -> pl.DataFrame:
    """Names of the NVTX ranges of reports, those first that take most time. Raises ReportError when a report can't be read.

    A row per `name` and `domain`: `count` of ranges, `total_ns` and `longest_ns` of those that were closed, `mean_ns` over
    them, and the numbers of `threads` and of `reports` that have it."""
    by_name = (
        pl.concat([pl.DataFrame(schema=_OF_REPORT), *_of_each_report(arguments, nsys, _names_in)])
        .group_by("name", "domain")
        .agg(pl.col("count", "total_ns", "threads", "closed").sum(), pl.col("longest_ns").max(), reports=pl.len())
        .with_columns(mean_ns=pl.when(pl.col("closed") > 0).then(pl.col("total_ns") / pl.col("closed")))
        .sort("total_ns", "name", "domain", descending=[True, False, False])
    )
    return by_name.select(
        "name", "domain", "count", "total_ns", "mean_ns", "longest_ns", "threads", pl.col("reports").cast(pl.Int64)
    )


def _names_in(report: Report) -> pl.DataFrame:
    """Names and domains of the ranges of a report; `closed`: how many of them have an end."""
    length = pl.col("end") - pl.col("start")
    counts = {"count": pl.len(), "closed": length.count(), "threads": pl.col("globalTid").n_unique()}
    names = nvtx_ranges.all_ranges(report).group_by("domain", name=nvtx_ranges.name_of(pl.col("label")))
    by_name = names.agg(total_ns=length.sum(), longest_ns=length.max(), **counts)
    return report.collect(by_name.select(pl.col(name).cast(dtype) for name, dtype in _OF_REPORT.items()))


def names_as_text(names: pl.DataFrame, most: int) -> str:
    """Names as lines of text, so many of them."""
    if names.is_empty():
        return "the reports have no NVTX ranges (nsys profile --trace=nvtx records them)"
    cells = [
        [
            short(row["name"], _LONGEST_NAME),
            short(row["domain"], _LONGEST_DOMAIN),
            f"{row['count']:,}",
            *("-" if row[length] is None else time(row[length]) for length in ("total_ns", "mean_ns", "longest_ns")),
            f"{row['threads']:,}",
        ]
        for row in names.head(most).iter_rows(named=True)
    ]
    title = f"{counted(int(names['count'].sum()), 'NVTX range')} with {counted(names.height, 'name')}"
    headings = ["name", "domain", "count", "total", "mean", "longest", "threads"]
    more = [f"  ... and {counted(names.height - most, 'more name')}; --limit {names.height} shows all"]
    return printable_lines([title, *grid(headings, cells, frozenset({0, 1})), *(more if names.height > most else [])])
