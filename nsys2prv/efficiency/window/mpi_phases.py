"""Where MPI starts and ends in each process: MPI_Init and MPI_Finalize are no communication of the program."""

from __future__ import annotations

import re

import polars as pl

from nsys2prv.efficiency.run_events import ON_HOSTS, RunEvents
from nsys2prv.efficiency.window.iterations import Span
from nsys2prv.execution.external_sort import plan_windows
from nsys2prv.vocabulary import event_types

START_UP_CALLS, SHUT_DOWN_CALLS = r"^MPI_Init(_thread)?$", r"^MPI_Finalize$"
"""Names of the calls that start MPI, and of that which ends it."""
PHASE_SCHEMA = {"task": pl.Int64, "start": pl.Int64, "end": pl.Int64, "is_start_up": pl.Boolean}
"""A call that starts or ends MPI: its task, times in ns from the start of the trace, and which of both it is."""


def mpi_phases(events: RunEvents) -> pl.DataFrame:
    """Calls that start or end MPI (PHASE_SCHEMA), in the order of time; collections are looked at and not used up."""
    chosen = [
        (number, value, re.match(START_UP_CALLS, name) is not None)
        for number in event_types.MPI_TYPES.values()
        if (kind := events.types.get(number)) is not None
        for value, name in (kind.values or {}).items()
        if re.match(f"{START_UP_CALLS}|{SHUT_DOWN_CALLS}", name)
    ]
    calls = events.collections.get(ON_HOSTS.name)
    if not chosen or calls is None:
        return pl.DataFrame(schema=PHASE_SCHEMA)
    schema = {"number": pl.Int64, "value": pl.Int64, "is_start_up": pl.Boolean}
    kinds = pl.DataFrame(chosen, schema, orient="row")
    found = [pl.DataFrame(schema=PHASE_SCHEMA)]
    for window in plan_windows([(calls, 1)]):
        for piece in calls.load(window):
            keys = piece.select("row", "start", "end", pl.col("number", "value").cast(pl.Int64))
            of_phases = keys.filter(pl.col("number").is_in(kinds["number"].unique().implode())).join(
                kinds, on=["number", "value"], how="inner"
            )
            located = events.rows.located(of_phases)
            found.append(located.select(pl.col(name).cast(dtype) for name, dtype in PHASE_SCHEMA.items()))
    return pl.concat(found).sort("start", "task", "end")


def phases_in_window(events: RunEvents) -> pl.DataFrame:
    """The same as far as they are in the window, whose times they have."""
    moved = mpi_phases(events).with_columns(pl.col("start", "end") - events.offset)
    inside = moved.filter((pl.col("end") > 0) & (pl.col("start") < events.length))
    return inside.with_columns(pl.col("start", "end").clip(0, events.length))


def work_of_processes(phases: pl.DataFrame, program: Span) -> Span | None:
    """From the end of the last call that starts MPI to the start of the first one that ends it; None: they are not known, or
    nothing is in between."""
    starts, ends = (phases.filter(pl.col("is_start_up") == is_start_up) for is_start_up in (True, False))
    begin = program[0] if starts.is_empty() else int(starts["end"].to_numpy().max())
    end = program[1] if ends.is_empty() else int(ends["start"].to_numpy().min())
    return (begin, end) if phases.height and begin < end else None
