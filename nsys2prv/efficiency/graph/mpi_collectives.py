"""Collective calls of MPI: which calls of different ranks are the same one.

All ranks of a communicator call its collectives in one order (MPI standard, 6.14), so the calls of a task on a communicator are
numbered. A recording, or the selected time, can begin on one rank before a call and on another one after it: the first calls of
the tasks decide, by their names and by when they run, where their numbers begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import MPI_COLLECTIVES, RunEvents
from nsys2prv.efficiency.sweep import TimeChunk
from nsys2prv.execution.external_sort import ExternalSort, Window
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

_FIRST_CALLS = 64
"""Calls of each task on a communicator that decide where its numbers begin."""
_MOST_MISSING = 8
"""Calls that may be missing at the beginning of a task."""
_NUMBER_BITS = 40

_TO_ALL, _FROM_ROOT, _TO_ROOT = range(1, 4)
_WAITING = (
    (r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?)$", _TO_ALL),
    (r"^MPI_(Bcast|Scatterv?)$", _FROM_ROOT),
    (r"^MPI_(Reduce|Gatherv?)$", _TO_ROOT),
)
"""Collectives of which all wait for all, all for the root, and the root for all."""

_KEY = ["communicator", "task"]
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


@dataclass
class CollectiveCounts:
    """How many calls were matched.

    Attributes
    ----------
    calls
        Calls on communicators of several tasks, and those whose communicator is not known.
    matched
        Those with a partner.
    without_communicator
        Those whose communicator is not known.
    alone
        Those that no other task has in this place.
    different
        Those in the place of another call.
    incomplete
        Collectives that not all tasks with the communicator take part in.
    """

    calls: int = 0
    matched: int = 0
    without_communicator: int = 0
    alone: int = 0
    different: int = 0
    incomplete: int = 0


@dataclass
class MpiCollectives:
    """The matched collectives of a run, before its chunks are read: `members_in` gives those of a chunk."""

    events: RunEvents
    folder: Path
    counts: CollectiveCounts = field(default_factory=CollectiveCounts)

    def __post_init__(self) -> None:
        names = self.events.types.get(event_types.MPI_COLLECTIVE)
        self._names = dict((names.values if names else None) or {})
        communicators = self.events.types.get(event_types.MPI_COMMUNICATOR)
        labels = dict((communicators.values if communicators else None) or {})
        self._known = [value for value, label in labels.items() if label != event_types.UNKNOWN_COMMUNICATOR]
        self._world = [value for value, label in labels.items() if label == event_types.MPI_COMM_WORLD]
        ranks = [task.rank for task in self.events.rows.tasks]
        self._rank_of_task = pl.Series("rank", ranks, dtype=pl.Int64)
        self._waiting = pl.DataFrame(
            list(self._names.items()), schema={"kind": pl.Int64, "name": pl.String}, orient="row"
        ).select(
            "kind",
            waiting=first_match(pl.col("name"), _WAITING, 0),
            blocking=~pl.col("name").str.contains("^MPI_I|_init$"),
        )
        self._members = ExternalSort(["end"], self.folder / "members")
        if self.events.collections.get(MPI_COLLECTIVES.name) is not None:
            self._match()
        self._members.finish()

    def members_in(self, chunk: TimeChunk) -> pl.DataFrame:
        """Members whose calls end in a chunk: COLLECTIVE_SCHEMA, in the order of `end`. Chunks come in the order of time.

        Times count from the start of the window, as those of the chunk; a call that began before it begins there.
        """
        events = self.events
        low, high = events.offset, events.offset + events.length
        recorded = events.length if events.recorded is None else events.recorded
        begin, end = chunk.begin + low, chunk.end + low
        # What ends with the window is in it; so is all that is left where nothing was recorded after it.
        window = Window(begin if begin > 0 else None, end if end < high else high + 1 if high < recorded else None)
        found = self._members.load(window)
        self._members.drop_before(window.end)
        if not found:
            return pl.DataFrame(schema=COLLECTIVE_SCHEMA)
        of_window = pl.concat(found).sort("end", maintain_order=True)
        return of_window.with_columns((pl.col("start", "awaited_start") - low).clip(lower_bound=0), end=pl.col("end") - low)

    def _calls(self) -> Iterator[pl.DataFrame]:
        """Calls in the order of time, with `task` and `number`: their place in the calls of the task on the communicator."""
        counts = pl.DataFrame(schema={**dict.fromkeys(_KEY, pl.Int64), "before": pl.Int64})
        is_known = pl.col("communicator").is_in(self._known)
        for window in self.events.collections[MPI_COLLECTIVES.name].windows(keep=True):
            tasks = pl.Series("task", self.events.rows.task[window["row"].to_numpy()])
            calls = window.select("start", "end", "row", "communicator", "root", kind="value").with_columns(tasks)
            known = calls.filter(is_known).join(counts, on=_KEY, how="left", maintain_order="left")
            place = pl.int_range(pl.len(), dtype=pl.Int64).over(_KEY)
            numbered = known.with_columns(number=place + pl.col("before").fill_null(0)).drop("before")
            last = numbered.group_by(_KEY).agg(before=pl.col("number").max() + 1)
            counts = counts.join(last, on=_KEY, how="anti").vstack(last.select(counts.columns))
            yield pl.concat([numbered, calls.filter(~is_known.fill_null(False)).with_columns(number=pl.lit(None, pl.Int64))])

    def _match(self) -> None:
        first: list[pl.DataFrame] = []
        tasks: Counter[int] = Counter()
        lost = 0
        for calls in self._calls():
            lost += calls["number"].null_count()
            first.append(calls.filter(pl.col("number") < _FIRST_CALLS))
        heads = pl.concat(first)
        tasks.update(dict(heads.select(_KEY).unique()["communicator"].value_counts().iter_rows()))
        shared = [communicator for communicator, number in tasks.items() if number > 1]
        offsets = pl.DataFrame(
            [
                (communicator, task, offset)
                for communicator in shared
                for task, offset in _offsets(heads.filter(pl.col("communicator") == communicator)).items()
            ],
            schema={"communicator": pl.Int64, "task": pl.Int64, "offset": pl.Int64},
            orient="row",
        )
        by_number = ExternalSort(["key"], self.folder / "numbered")
        for calls in self._calls():
            placed = calls.join(offsets, on=_KEY, how="inner", maintain_order="left")
            key = pl.col("communicator") * 2**_NUMBER_BITS + pl.col("number") + pl.col("offset")
            by_number.add(placed.select("start", "end", "row", "communicator", "root", "task", "kind", key=key))
        self.counts.calls = by_number.rows + lost
        self.counts.without_communicator = lost
        sizes = pl.DataFrame(list(tasks.items()), schema={"communicator": pl.Int64, "tasks": pl.Int64}, orient="row")
        given = 0
        for window in by_number.windows():
            given += self._add_members(window.join(sizes, on="communicator", how="left", maintain_order="left"), given)

    def _add_members(self, calls: pl.DataFrame, given: int) -> int:
        """Add the collectives of some keys, with numbers from `given` on; the result is how many there are."""
        located = calls.with_columns(
            members=pl.len().over("key").cast(pl.Int64),
            is_same=(pl.col("kind").n_unique() == 1).over("key"),
            place=pl.col("key").rle_id().cast(pl.Int64),
        )
        together = located.filter(pl.col("members") > 1)
        matched = together.filter("is_same")
        self.counts.alone += located.height - together.height
        self.counts.different += together.height - matched.height
        self.counts.matched += matched.height
        self.counts.incomplete += matched.filter(pl.col("members") < pl.col("tasks"))["key"].n_unique()
        described = matched.join(self._waiting, on="kind", how="left", maintain_order="left").with_columns(
            rank=self._rank_of_task.gather(matched["task"]), collective=pl.col("place") + given
        )
        self._members.add(_with_awaited(described, pl.col("communicator").is_in(self._world)))
        return located["place"].n_unique()


def _with_awaited(members: pl.DataFrame, is_world: pl.Expr) -> pl.DataFrame:
    """Members of collectives with whom each waited for: COLLECTIVE_SCHEMA. Ranks are those of the communicator of all."""
    last, is_root = pl.col("start").arg_max(), is_world & (pl.col("rank") == pl.col("root") - 1)
    known = members.with_columns(is_root=is_root.fill_null(False)).with_columns(
        *(pl.col(name).get(last).over("key").alias(f"last_{name}") for name in ("row", "start")),
        *(pl.col(name).filter("is_root").first().over("key").alias(f"root_{name}") for name in ("row", "start")),
    )
    for_last = (pl.col("waiting") == _TO_ALL) | ((pl.col("waiting") == _TO_ROOT) & pl.col("is_root"))
    awaited = known.with_columns(
        pl.when(for_last)
        .then(f"last_{name}")
        .when(pl.col("waiting") == _FROM_ROOT)
        .then(f"root_{name}")
        .alias(f"awaited_{name}")
        for name in ("row", "start")
    )
    is_other = pl.col("awaited_row") != pl.col("row")
    of_others = awaited.with_columns(
        pl.when(is_other).then(f"awaited_{name}").alias(f"awaited_{name}") for name in ("start", "row")
    )
    return of_others.select(pl.col(name).cast(dtype) for name, dtype in COLLECTIVE_SCHEMA.items())


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
    found = {}
    for task, calls in of_tasks.items():
        agreement = {shift: _agreement(calls, of_tasks[reference], shift) for shift in shifts}
        best = max(shifts, key=lambda shift: agreement[shift])
        found[task] = best if agreement[best] >= 2 * max(agreement[0], 1) else 0
    least = min(found.values())
    return {task: offset - least for task, offset in found.items()}


def _agreement(calls: Numbers, others: Numbers, shift: int) -> int:
    """How many calls have the name of that of another task which is `shift` places later, and run at the same time."""
    ours, theirs = calls[max(0, -shift) :], others[max(0, shift) :]
    length = min(len(ours), len(theirs))
    ours, theirs = ours[:length], theirs[:length]
    is_same = ours[:, 2] == theirs[:, 2]
    return int(np.count_nonzero(is_same & (ours[:, 0] <= theirs[:, 1]) & (theirs[:, 0] <= ours[:, 1])))
