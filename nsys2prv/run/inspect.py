"""Summaries of reports, without translating them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS
from nsys2prv.errors import counted
from nsys2prv.execution.output_files import scratch_folder
from nsys2prv.execution.progress import progress_bar
from nsys2prv.execution.workers import workers
from nsys2prv.exports import Report, describe, find_reports, open_report
from nsys2prv.exports.columns import pid_of
from nsys2prv.exports.nsys import NsysExport
from nsys2prv.run.clock_check import disagreement_text
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.run.session import RunSession
from nsys2prv.sources.registry import SOURCES, present_sources
from nsys2prv.timeline import coverage
from nsys2prv.timeline.survey import count_events, whole_survey
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.wording import known_to, ranges, time


def inspect(arguments: Sequence[str | Path], nsys: NsysExport | None = None) -> list[dict[str, Any]]:
    """Versions, host, ranks, GPUs, time span, rows per source, and what is lost or unusual, of each report.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    nsys
        How .nsys-rep files are exported.

    Returns
    -------
    list
        An object per report, as `inspect --json` prints it. Times are in ns of the report's own clock.

    Raises
    ------
    ReportError
        When a report can't be read.
    """
    paths = find_reports(arguments)
    found = []
    with progress_bar("inspecting", "report", len(paths)) as bar:
        for path in paths:
            found.append(_inspect(open_report(path, nsys)))
            bar.update()
    return found


def with_clocks(found: list[dict[str, Any]], arguments: Sequence[str | Path], options: ReadOptions) -> list[dict[str, Any]]:
    """What `inspect` found, with an estimate of the clocks.

    Parameters
    ----------
    found, arguments
        The result of `inspect`, and its arguments: the reports of one run.
    options
        How reports are read.

    Returns
    -------
    list
        The same objects. `clock` has also what OUT.json has of its clock in `clocks`, `group` and `of_report_ns` as in
        `alignment` there, and `disagreements`: a sentence for each contradiction that its host is part of.

    Raises
    ------
    Nsys2prvError
        With one sentence for the user.
    """
    with (
        scratch_folder(options.scratch) as folder,
        workers(options.workers, options.scheduler, options.memory, [folder]) as pool,
    ):
        session = RunSession(arguments, SOURCES, options, folder, pool)
    plan = session.plan
    of_report = {}
    for opened, alignment in zip(plan.reports, plan.alignment, strict=True):
        clock = plan.axis.clocks[alignment["clock"]]
        contradictions = [disagreement_text(one) for one in plan.axis.disagreements if clock.name in one.hosts]
        ties = {name: alignment[name] for name in ("group", "of_report_ns")}
        of_report[str(opened.report.path)] = {**clock.as_json(), **ties, "disagreements": contradictions}
    return [{**one, "clock": {**one["clock"], **of_report[one["path"]]}} for one in found]


def _inspect(report: Report) -> dict[str, Any]:
    identity = describe(report)
    # Derived sources reuse the tables of others.
    present = [source for source in present_sources(report, SOURCES) if not source.derived]
    surveys = [found for source in present if not (found := whole_survey(report, source)).is_empty]
    counts = {id(found): count_events(report, found) for found in surveys}
    spans = [found.span for found in surveys if found.span is not None]
    read: Counter[str] = Counter()
    for found in surveys:
        read[found.source.table] += counts[id(found)]
    tables = [
        {
            "table": table,
            "rows": rows,
            "sources": [
                {
                    "source": found.source.name,
                    "title": found.source.title,
                    "rows": counts[id(found)],
                    "trace_rows": found.keys.height,
                }
                for found in surveys
                if found.source.table == table
            ],
            "left_out": left_out,
        }
        for table, rows, left_out in coverage.walk(report, read, SOURCES, SOURCES)
    ]
    report.tables.check_unchanged()
    return {
        "path": str(report.path),
        "form": report.tables.form,
        "nsys": identity.tool,
        "schema": ".".join(map(str, identity.schema)) if identity.schema else None,
        "host": identity.host,
        "cpus": identity.cpus,
        "utc_ns": identity.utc_ns,
        "monotonic_ns": identity.monotonic_ns,
        "clock": {
            "start": "monotonic" if identity.monotonic_ns is not None else "utc" if identity.utc_ns is not None else None
        },
        "first_ns": min((span[0] for span in spans), default=None),
        "last_ns": max((span[1] for span in spans), default=None),
        "ranks": identity.known_ranks,
        "rank_source": identity.known_ranks_source,
        "processes": {str(pid_of(pid)): name for pid, name in identity.processes.items()},
        "gpus": [{"id": gpu.id, "name": gpu.name, "bus": gpu.bus} for gpu in identity.gpus],
        "nics": [nic.as_json() for nic in identity.nics],
        "tables": tables,
        "warnings": list(identity.warnings),
    }


_STARTS = {
    "monotonic": "the start of the session is known in UTC and by the monotonic clock of the host",
    "utc": f"the start of the session is known in UTC, to about {time(UTC_READINGS_APART_NS)}, and by no monotonic clock",
    None: "the start of the session is not known",
}


def _clock_lines(clock: dict[str, Any]) -> list[str]:
    """What is known of the clock of a report; more with an estimate."""
    lines = [f"  clock: {_STARTS[clock['start']]}"]
    if "method" not in clock:
        return lines
    interval = clock["interval_ns"]
    lines.append(
        f"  clock of {clock['host']}, by {clock['method']}: {known_to([interval['worst']])}"
        + (f" ({time(interval['best'])} where it is known best)" if interval["best"] not in (None, interval["worst"]) else "")
        + (f"; the report to within {time(clock['of_report_ns'])} against others of it" if clock["of_report_ns"] else "")
    )
    details = []
    if "offset_ns" in clock:
        details.append(f"offset {time(clock['offset_ns'])}, drift {clock['drift_ppm']} ppm")
    anchors = clock["anchors_by_kind"].items()
    details += [f"{count['used']:,} anchors by {kind} ({count['outliers']:,} more do not fit)" for kind, count in anchors]
    if clock["contradiction_ns"] is not None:
        details.append(f"largest contradiction {time(clock['contradiction_ns'])}")
    details += [f"a jump by {time(step['size_ns'])}" for step in clock.get("steps", ())]
    if details:
        lines.append(f"    {'; '.join(details)}")
    return lines + [f"  warning: {text}" for text in clock["disagreements"]]


def as_text(found: dict[str, Any]) -> str:
    """One report of `inspect` as text."""
    schema = found["schema"] or "unknown (2021 or earlier)"
    lines = [found["path"], f"  nsys {found['nsys'] or 'version unknown'}, schema {schema}, {found['form']}"]
    lines.append(f"  host {found['host'] or 'unknown'}" + (f", {found['cpus']} CPUs" if found["cpus"] else ""))
    if found["ranks"]:
        lines.append(f"  {counted(len(found['ranks']), 'rank')}: {ranges(found['ranks'])} (from {found['rank_source']})")
    if found["processes"]:
        named = [f"{name or 'process'} {pid}" for pid, name in list(found["processes"].items())[:4]]
        more = f" and {len(found['processes']) - 4} more" if len(found["processes"]) > 4 else ""
        lines.append(f"  processes: {', '.join(named)}{more}")
    names = [gpu["name"] for gpu in found["gpus"]]
    if names:
        lines.append(f"  GPUs: {', '.join(f'{names.count(name)} x {name}' for name in dict.fromkeys(names))}")
    for nic in found["nics"]:
        details = ", ".join(text for text in (nic["device"], nic["link"], f"GUID {nic['guid']}" if nic["guid"] else "") if text)
        lines.append(f"  network adapter {nic['name']}" + (f": {details}" if details else ""))
    if found["first_ns"] is not None:
        lines.append(f"  {(found['last_ns'] - found['first_ns']) / 1e9:.6f} s from the first event to the last")
    lines += _clock_lines(found["clock"])
    for table in found["tables"]:
        for source in table["sources"]:
            lines.append(
                f"  {source['rows']:>12,}  {source['title']} ({source['source']}) on {counted(source['trace_rows'], 'row')}"
            )
    left_out = [(table["table"], reason, rows) for table in found["tables"] for reason, rows in table["left_out"].items()]
    if left_out:
        lines.append("  not translated:")
        lines += [f"  {rows:>12,}  {table}: {reason}" for table, reason, rows in left_out]
    return printable_lines(lines + [f"  warning: {warning}" for warning in found["warnings"]])
