"""Communicators of MPI and NCCL in a trace: which tasks are in each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.communication.communicators import TABLE, communicator_names
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.rows import Rows
from nsys2prv.vocabulary import event_types, nccl_names

_FIRST_OF_TASKS, _FIRST_OF_NCCL = 100_000, 200_000
"""Numbers of communicators: those of MPI have the value of their events, and these are above all of them."""


@dataclass(frozen=True)
class Communicator:
    """A communicator: its number in the trace, and its tasks (1, 2, ... as in the file) in the order of its ranks."""

    number: int
    tasks: tuple[int, ...]


def communicators_of(reports: Iterable[Report], labels: Labels, rows: Rows) -> tuple[Communicator, ...]:
    """Communicators of a trace in the order of their numbers.

    A communicator of MPI has the number that is its value in events (`event_types.MPI_COMMUNICATOR`); `MPI_COMM_WORLD` is 1.
    The one of each task alone has 100,000 + task, and one of NCCL 200,000 + its value (`event_types.NCCL_COMMUNICATOR`).
    Ranks that have no task in the trace are missing.

    Parameters
    ----------
    reports
        All reports.
    labels, rows
        Numbers of values, and rows of the trace.
    """
    tasks = {task.rank: number for number, task in reversed(list(enumerate(rows.tasks, start=1))) if task.rank is not None}
    members: dict[int, list[int]] = {}
    if labels.uses(event_types.MPI_TYPES.values()):
        members = _of_mpi(reports, labels, tasks)
    for key in sorted(labels.texts_of(event_types.NCCL_COMMUNICATOR)):
        value, rank = labels.value_of(event_types.NCCL_COMMUNICATOR, key), nccl_names.rank_of_key(key)
        if value is not None and rank is not None and rank in tasks:
            members.setdefault(_FIRST_OF_NCCL + value, []).append(tasks[rank])
    # An order of ranks that differs from that of tasks is known of MPI only.
    ordered = {number: found if number < _FIRST_OF_TASKS else sorted(set(found)) for number, found in members.items()}
    return tuple(Communicator(number, tuple(of_number)) for number, of_number in sorted(ordered.items()))


def _of_mpi(reports: Iterable[Report], labels: Labels, tasks: dict[int, int]) -> dict[int, list[int]]:
    found = [communicator_names(report) for report in reports if report.has(TABLE)]
    known = pl.concat(found).drop_nulls("rank") if found else pl.DataFrame(schema={"rank": pl.Int64, "communicator": pl.String})
    members: dict[int, list[int]] = {}
    names: dict[str, list[int]] = {event_types.MPI_COMM_WORLD: sorted(tasks.values())}
    if known.height:
        ordered = known.unique(["communicator", "rank"], keep="first", maintain_order=True).sort(
            "communicator", "localRank", "rank", maintain_order=True
        )
        for name, ranks in ordered.group_by("communicator", maintain_order=True).agg("rank").iter_rows():
            # With several reports of one rank, or none of some, only ranks that have a task count.
            names[name] = [tasks[rank] for rank in ranks if rank in tasks]
    own = {event_types.MPI_COMM_SELF.format(rank): [task] for rank, task in tasks.items()}
    values = {name: labels.value_of(event_types.MPI_COMMUNICATOR, name) for name in names}
    free = max([1, *(value for value in values.values() if value is not None)]) + 1
    for name in sorted(names):
        if name in own:
            continue
        number = 1 if name == event_types.MPI_COMM_WORLD else values[name]
        if number is None:
            number, free = free, free + 1
        members[number] = names[name]
    for name, (task,) in own.items():
        value = labels.value_of(event_types.MPI_COMMUNICATOR, name)
        members[_FIRST_OF_TASKS + task if value is None else value] = [task]
    return {number: of_number for number, of_number in members.items() if of_number}
