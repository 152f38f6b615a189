"""`nsys2prv check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nsys2prv.cli.options import AsJson, TracePath


def check(
    trace: Annotated[Path, TracePath],
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, help="Places to list for each rule that is violated.")] = 20,
) -> None:
    """Check whether a trace is valid; exit with 1 and list the first places where it is not."""
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
                print(f"... and {count - shown} more places that violate: {promise.value}")
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.counts.items() if count)
        print(f"{trace}: {'valid' if result.ok else 'not valid'} ({counts or 'nothing was read'})")
    if not result.ok:
        raise typer.Exit(1)
