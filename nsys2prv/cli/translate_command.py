"""`nsys2prv translate`, and the summary of a translation as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from nsys2prv.cli.console import print_json, print_summary, print_warnings
from nsys2prv.cli.options import AsJson, Reports, takes
from nsys2prv.errors import LEFT_OUT_EXIT_CODE, counted
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.wording import known_to, ranges


@takes(TranslateOptions)
def translate(
    reports: Reports,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Output: OUT.prv, OUT.pcf, OUT.row, OUT.json and OUT.cfgs.", show_default=False),
    ],
    as_json: AsJson = False,
    *,
    options: TranslateOptions,
) -> None:
    """Translate reports into one Paraver trace.

    Reports of several ranks and nodes become one trace on one time axis. Content is detected automatically. `nsys2prv inspect`
    lists the names of sources.
    """
    from nsys2prv.trace.translate import translate

    summary = translate(reports, out, options)
    if as_json:
        print_json(summary.content)
    else:
        print_summary(translation_text(summary.prv, summary.content))
        print_warnings(translation_warnings(summary.content))
    if summary.left_out:
        raise typer.Exit(LEFT_OUT_EXIT_CODE)


def translation_text(prv: Path, content: Any) -> str:
    """Summary of a translation.

    Parameters
    ----------
    prv
        The trace.
    content
        What is in its OUT.json.
    """
    trace = content["trace"]
    written: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for table in (table for report in content["reports"] for table in report["tables"]):
        left_out.update(table["left_out"])
        for source in table["sources"]:
            written[source["title"]] += source["written"]
            left_out.update(source["left_out"])
    methods = ", ".join(sorted({report["alignment"]["method"] for report in content["reports"]}))
    sizes = ", ".join(counted(trace[what], what[:-1]) for what in ("records", "nodes", "tasks", "rows"))
    lines = [
        f"{prv}: {trace['bytes'] / 1e6:.1f} MB, {trace['length_ns'] / 1e9:.6f} s, {sizes}; made in {content['seconds']:.1f} s"
    ]
    if content["run"]["ranks"]:
        lines.append(_ranks_text(content))
    lines += [_count_line(count, title) for title, count in written.items() if count]
    lines += _messages_text(content["messages"])
    lines += [_count_line(count, f"rows left out: {reason}") for reason, count in left_out.items()]
    summary = prv.with_name(prv.name.removesuffix(".gz").removesuffix(".prv") + ".json")
    if "views" in content:
        lines.append(_count_line(len(content["views"]), f"views, listed in {summary.with_suffix('.cfgs') / 'index.html'}"))
    reports = counted(len(content["reports"]), "report")
    clocks = [clock["interval_ns"]["worst"] for clock in content["clocks"]]
    known = f" ({known_to(clocks)})" if len(clocks) > 1 else ""
    return printable_lines([*lines, f"  {reports}, clocks synchronized by {methods}{known}; full summary in {summary}"])


def translation_warnings(content: Any) -> list[str]:
    """Warnings of a translation; one that several reports share appears once."""
    reports: dict[str, list[str]] = {}
    for report in content["reports"]:
        for warning in report["warnings"]:
            reports.setdefault(warning, []).append(report["path"])
    of_reports = [
        f"{paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {warning}" for warning, paths in reports.items()
    ]
    return [*of_reports, *content["warnings"]]


def _count_line(count: int, text: str) -> str:
    return f"  {count:>12,}  {text}"


def _messages_text(messages: Any) -> list[str]:
    """Messages between ranks that were written or left out; nothing where there are none."""
    lines = [(messages["written"], "messages between ranks")] if messages["matched"] else []
    if messages["backward"]:
        lines.append((messages["backward"], "of these arrive before they are sent: clocks are not well synchronized"))
    lines += [(count, f"messages left out: {reason}") for reason, count in messages["left_out"].items()]
    for what, reasons in messages["unmatched"].items():
        lines += [(count, f"{what} without a message: {reason}") for reason, count in reasons.items()]
    return [_count_line(count, text) for count, text in lines]


def _ranks_text(content: Any) -> str:
    run = content["run"]
    sources = sorted({report["rank_source"] for report in content["reports"] if report["rank_source"]})
    what = "rank" if len(run["ranks"]) == 1 else "ranks"
    return f"  {what} {ranges(run['ranks'])} of {run['size']:,}, from {', '.join(sources)}"
