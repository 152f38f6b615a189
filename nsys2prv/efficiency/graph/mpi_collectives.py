"""Collective calls of MPI: which calls of different ranks are the same one.

All ranks of a communicator call its collectives in one order (MPI standard, 6.14), so the calls of a task on a communicator are
numbered. A recording, or the selected time, can begin on one rank before a call and on another one after it: the first calls of
the tasks decide, by their names and by when they run, where their numbers begin.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.run_events import MPI_COLLECTIVES
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

_FIRST_CALLS = 64
"""Calls of each task on a communicator that decide where its numbers begin."""
_MOST_MISSING = 8
"""Calls that may be missing at the beginning of a task."""

_TO_ALL, _FROM_ROOT, _TO_ROOT = range(1, 4)
_WAITING = (
    (r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?)$", _TO_ALL),
    (r"^MPI_(Bcast|Scatterv?)$", _FROM_ROOT),
    (r"^MPI_(Reduce|Gatherv?)$", _TO_ROOT),
)
"""Collectives of which all wait for all, all for the root, and the root for all."""

_COLLECTIVE = ["communicator", "place"]
COLLECTIVE_SCHEMA = {
    "collective": pl.Int64,
    "row": pl.Int32,
    "start": pl.Int64,
    "end": pl.Int64,
    "kind": pl.Int64,
    "blocking": pl.Boolean,
    "members": pl.Int64,
    "awaited_row": pl.Int32,
    "awaited_start": pl.Int64,
}
"""A member of a collective: number of the collective, row and times of the call, ns; its name (a value of MPI_COLLECTIVE), and
whether it is blocking (MPI_Iallreduce is not); number of members; row and start of the member without which it could not end,
the last one that called, or the root: null for itself, where it need not wait for another, and where the root is not known."""


def mpi_collectives(run: MeasuredRun) -> pl.DataFrame:
    """Calls of collectives that several tasks made, and that end in the window: COLLECTIVE_SCHEMA, in the order of `end`.

    They are matched in the whole recording. Times count from the start of the window; a call that began before begins there.
    """
    calls = run.recorded.frame(MPI_COLLECTIVES)
    if calls.is_empty():
        return pl.DataFrame(schema=COLLECTIVE_SCHEMA)
    low, high = run.events.offset, run.events.offset + run.events.length
    members = _with_awaited(run, _matched(run, _placed(run, calls))).filter(pl.col("end").is_between(low, high))
    return members.sort("end", "row").with_columns(
        (pl.col("start", "awaited_start") - low).clip(lower_bound=0), end=pl.col("end") - low
    )


def _labels(run: MeasuredRun, number: int) -> Mapping[int, str]:
    names = run.events.types.get(number)
    return dict((names.values if names else None) or {})


def _placed(run: MeasuredRun, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls on communicators of several tasks, with the `task`, and the `place` of their collective on the communicator."""
    labels = _labels(run, event_types.MPI_COMMUNICATOR)
    communicators = [value for value, label in labels.items() if label != event_types.UNKNOWN_COMMUNICATOR]
    numbered = (
        calls.select(
            pl.Series("task", run.events.rows.task[calls["row"].to_numpy()]),
            *("start", "end", "row", "communicator", "root"),
            kind="value",
        )
        .filter(pl.col("communicator").is_in(communicators))
        .with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64).over("communicator", "task"))
    )
    first = numbered.filter(pl.col("number") < _FIRST_CALLS)
    offsets = [
        (communicator, task, offset)
        for (communicator,), of_communicator in first.partition_by("communicator", as_dict=True).items()
        if of_communicator["task"].n_unique() > 1
        for task, offset in _offsets(of_communicator).items()
    ]
    schema = {"communicator": pl.Int64, "task": pl.Int64, "offset": pl.Int64}
    joined = numbered.join(pl.DataFrame(offsets, schema=schema, orient="row"), on=["communicator", "task"], how="inner")
    return joined.with_columns(place=pl.col("number") + pl.col("offset")).sort(*_COLLECTIVE, "start", "end", "row")


def _matched(run: MeasuredRun, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls in the place of others with the same name, with `collective`, `members`, `waiting` and `blocking`."""
    names = list(_labels(run, event_types.MPI_COLLECTIVE).items())
    kinds = pl.DataFrame(names, schema={"kind": pl.Int64, "name": pl.String}, orient="row").select(
        "kind",
        waiting=first_match(pl.col("name"), _WAITING, 0),
        blocking=~pl.col("name").str.contains("^MPI_I|_init$"),
    )
    together = calls.with_columns(
        members=pl.len().over(_COLLECTIVE).cast(pl.Int64),
        kinds=pl.col("kind").n_unique().over(_COLLECTIVE),
        collective=pl.struct(_COLLECTIVE).rle_id().cast(pl.Int64),
    ).filter(pl.col("members") > 1, pl.col("kinds") == 1)
    return together.join(kinds, on="kind", how="left", maintain_order="left")


def _with_awaited(run: MeasuredRun, members: pl.DataFrame) -> pl.DataFrame:
    """Members of collectives with whom each waited for: COLLECTIVE_SCHEMA. Ranks are those of the communicator of all."""
    world = [
        value for value, label in _labels(run, event_types.MPI_COMMUNICATOR).items() if label == event_types.MPI_COMM_WORLD
    ]
    ranks = pl.Series([task.rank for task in run.events.rows.tasks], dtype=pl.Int64)
    is_root = pl.col("communicator").is_in(world) & (pl.Series(ranks.gather(members["task"])) == pl.col("root") - 1)
    ends = members.with_columns(is_root=is_root.fill_null(False)).with_columns(
        *(pl.col(name).get(pl.col("start").arg_max()).over("collective").alias(f"last_{name}") for name in ("row", "start")),
        *(pl.col(name).filter("is_root").first().over("collective").alias(f"root_{name}") for name in ("row", "start")),
    )
    for_last = (pl.col("waiting") == _TO_ALL) | ((pl.col("waiting") == _TO_ROOT) & pl.col("is_root"))

    def awaited(name: str) -> pl.Expr:
        return pl.when(for_last).then(f"last_{name}").when(pl.col("waiting") == _FROM_ROOT).then(f"root_{name}")

    is_other = awaited("row") != pl.col("row")
    columns = {f"awaited_{name}": pl.when(is_other).then(awaited(name)) for name in ("row", "start")}
    return ends.with_columns(**columns).select(pl.col(name).cast(dtype) for name, dtype in COLLECTIVE_SCHEMA.items())


def _offsets(first: pl.DataFrame) -> Mapping[int, int]:
    """What is added to the numbers of each task on one communicator, so that equal numbers are one collective.

    `first` are the first calls of each task: task, number, start, end, kind. A task is shifted against the one with the most
    calls so that as many calls as possible have the same name and run at the same time; only if these are twice as many as
    without a shift.
    """
    of_tasks = {
        int(task): calls.sort("number").select("start", "end", "kind").to_numpy()
        for (task,), calls in first.partition_by("task", as_dict=True).items()
    }
    reference = max(of_tasks, key=lambda task: (len(of_tasks[task]), -task))
    shifts = sorted(range(-_MOST_MISSING, _MOST_MISSING + 1), key=abs)
    offsets = {}
    for task, calls in of_tasks.items():
        agreement = {shift: _agreement(calls, of_tasks[reference], shift) for shift in shifts}
        best = max(shifts, key=lambda shift: agreement[shift])
        offsets[task] = best if agreement[best] >= 2 * max(agreement[0], 1) else 0
    least = min(offsets.values())
    return {task: offset - least for task, offset in offsets.items()}


def _agreement(calls: Numbers, reference: Numbers, shift: int) -> int:
    """How many calls have the name of that of another task which is `shift` places later, and run at the same time."""
    ours, theirs = calls[max(0, -shift) :], reference[max(0, shift) :]
    length = min(len(ours), len(theirs))
    ours, theirs = ours[:length], theirs[:length]
    is_same = ours[:, 2] == theirs[:, 2]
    return int(np.count_nonzero(is_same & (ours[:, 0] <= theirs[:, 1]) & (theirs[:, 0] <= ours[:, 1])))
