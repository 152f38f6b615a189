"""`nsys2prv check` and `nsys2prv views`, of a trace that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import print_json, print_lines, print_result
from nsys2prv.cli.options import AsJson, TracePath
from nsys2prv.errors import UsageError, counted
from nsys2prv.run.options import name_list


def check(
    trace: Annotated[Path, TracePath],
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Places to list for each rule that is violated.")] = 20,
) -> None:
    """Check whether a trace is valid.

    Lists the first places where it is not, and exits with 1 then.
    """
    from nsys2prv.paraver.check import check_trace

    result = check_trace(trace, limit)
    if as_json:
        # The names that scripts know.
        findings = [
            {"promise": violation.rule.name.lower(), "line": violation.line, "text": violation.text}
            for violation in result.violations
        ]
        found = {rule.name.lower(): count for rule, count in result.violations_per_rule.items()}
        print_json({"ok": result.valid, "findings": findings, "found": found, "counts": dict(result.counts)})
    else:
        lines = [violation.text for violation in result.violations]
        for rule, count in result.violations_per_rule.items():
            shown = sum(violation.rule is rule for violation in result.violations)
            if count > shown:
                lines.append(f"... and {count - shown} more places that violate: {rule.value}")
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.counts.items() if count)
        print_lines([*lines, f"{trace}: {'valid' if result.valid else 'not valid'} ({counts or 'nothing was read'})"])
    if not result.valid:
        raise typer.Exit(1)


def views(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT.prv", help="A trace, .prv or .prv.gz, with its .pcf and .row beside it.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Output folder (default: OUT.cfgs).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Views or groups to render, separated by commas (default: all that fit the trace)."),
    ] = None,
    list_views: Annotated[
        bool, typer.Option("--list", help="List all views, or those that fit the trace; write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder that is not one of views.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write Paraver views for a trace.

    The trace may be from another tool. Existing views are replaced.
    """
    from nsys2prv.paraver.views.of_trace import list_views as listed_views
    from nsys2prv.paraver.views.of_trace import render_views, view_list_text

    names = name_list(only or ())
    if list_views:
        found = listed_views(trace, names)
        if as_json:
            print_json(found)
        else:
            print_result(view_list_text(found))
        return
    if trace is None:
        raise UsageError("views: no trace given; give the .prv of a trace, or --list to list all views")
    folder, rendered = render_views(trace, out, names, force=force)
    written = [{"path": view.path, "title": view.title} for view in rendered]
    if as_json:
        print_json({"folder": str(folder), "views": written})
    else:
        print_lines([f"{folder}: {counted(len(written), 'view')}, listed in {folder / 'index.html'}"])
