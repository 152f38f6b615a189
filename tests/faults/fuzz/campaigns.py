"""All campaigns of random damage: each makes one input in an empty folder, and a driver runs and judges its command."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path

from support.acting import outputs_fault

from .circumstances import resources, signals
from .commands import run_command
from .damaged_reports import column_values, damaged_bytes, folder_tables, hostile_texts, sqlite_objects
from .damaged_results import results_json, trace_mutations
from .hostile_options import hostile_options
from .oracle import Attempt, Surroundings, fault_of, trace_fault


def try_input(name: str, seed: int, number: int, folder: Path) -> str | None:
    """What is wrong with an input of a campaign, or None. The same seed and number make the same input in the folder."""
    _, make = CAMPAIGNS[name]
    attempt = make(random.Random(f"{seed}:{name}:{number}"), folder)
    before = Surroundings(folder)
    run = run_command(*attempt.arguments, folder=folder, **attempt.circumstances)
    if attempt.judge is not None:
        return attempt.judge(run, before)
    prv = folder / "OUT.prv"
    return (
        fault_of(run, names=attempt.names)
        or before.fault(attempt.outputs if run.code == 0 else ())
        or (trace_fault(prv) if run.code == 0 and attempt.arguments[0] == "translate" and prv.exists() else None)
        or (outputs_fault(folder) if name == "texts" and run.code == 0 else None)
    )


CAMPAIGNS: Mapping[str, tuple[str, Callable[[random.Random, Path], Attempt]]] = {
    "damaged-bytes": (
        "exports of all forms, JSON and rules of kernel families with turned bits, zeros, cuts, repeated and foreign parts",
        damaged_bytes,
    ),
    "column-values": ("values of other types, extremes and texts that are none in columns of all tables", column_values),
    "sqlite-objects": (
        "views, virtual tables, triggers, generated columns, other schemas, thousands of tables in SQLite exports",
        sqlite_objects,
    ),
    "parquet-arrow": ("other types and columns, pipes and links in folders of tables", folder_tables),
    "texts": ("control characters, scripts, formulas, templates, line ends, paths in all texts", hostile_texts),
    "trace-mutations": ("`.prv`, `.pcf`, `.row`, `OUT.json` with a change by their grammar", trace_mutations),
    "results-json": ("JSON of `efficiency` with other values anywhere, as `compare` reads it", results_json),
    "options": ("all options, with numbers, times, ranks, patterns, texts and paths that try something", hostile_options),
    "resources": ("limits of file size, descriptors, memory and time; closed and full streams; homes, locales", resources),
    "signals": ("a signal, or kill -9, to the process, to a worker or to all, at any moment, over a former output", signals),
}
"""What is tried, and the function that makes an input of it, by name."""
