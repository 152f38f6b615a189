"""`nsys2prv check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.console import print_json, print_lines
from nsys2prv.cli.options import AsJson, TracePath


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
        findings = [{"promise": one.rule.name.lower(), "line": one.line, "text": one.text} for one in result.violations]
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
