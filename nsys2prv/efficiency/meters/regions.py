"""NVTX ranges as regions (all ranges of one name) and as iterations (the n-th range of a name of each task)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import RegionTimes, Trees
from nsys2prv.efficiency.run_events import RANGES, RunEvents
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types

MOST_REGIONS = 500
"""Regions that are told, those that take most time."""

_DOMAIN = re.compile(r"NVTX pushpop ranges (.*) domain")
_PATTERN_MARKS = re.compile(r"[*?]")


class ByName:
    """Ranges chosen by name.

    Parameters
    ----------
    recording
        Whose ranges.
    wanted
        NAME or NAME@DOMAIN each; `*` and `?` stand for anything. A name with an @ in it counts when it is there as it stands.

    Attributes
    ----------
    names
        Text and domain of the ranges chosen; their places are the slots.
    slots
        Columns `number` (event type), `value`, `slot`.
    warnings
        Names that are not there.
    """

    def __init__(self, recording: RunEvents, wanted: Sequence[str]) -> None:
        known: list[tuple[int, int, str, str | None]] = []
        for number, names in recording.types.items():
            kind = event_types.type_of(number)
            if kind is None or kind.number not in RANGES.types:
                continue
            found = _DOMAIN.fullmatch(names.label)
            domain = found[1] if found else None
            known += [(number, value, text, domain) for value, text in (names.values or {}).items() if value]
        chosen = [one for one in known if any(_is_called(one[2], one[3], name) for name in wanted)]
        absent = [name for name in wanted if not any(_is_called(one[2], one[3], name) for one in known)]
        self.warnings = [f"no NVTX range is called {name}" for name in absent]
        names_of = list(dict.fromkeys((text, domain) for _, _, text, domain in chosen))
        slots = {name: slot for slot, name in enumerate(names_of)}
        self.names = names_of
        schema = {"number": pl.Int32, "value": pl.Int64, "slot": pl.Int64}
        self.slots = pl.DataFrame(
            [(number, value, slots[text, domain]) for number, value, text, domain in chosen], schema=schema, orient="row"
        )


def _is_called(text: str, domain: str | None, wanted: str) -> bool:
    if _matches(text, wanted):
        return True
    name, at, of_domain = wanted.rpartition("@")
    return bool(at) and _matches(text, name) and _matches(domain or "default", of_domain)


def _matches(text: str, wanted: str) -> bool:
    return text == wanted or (_PATTERN_MARKS.search(wanted) is not None and fnmatch.fnmatchcase(text, wanted))


class Regions:
    """Times and lengths of all ranges of each name chosen."""

    def __init__(self, ground: SweepContext, wanted: Sequence[str]) -> None:
        self._ground = ground
        self._chosen = ByName(ground.recording, wanted)
        self._times = RegionTimes(ground)
        self._lengths: list[pl.DataFrame] = []
        self.warnings = self._chosen.warnings

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        if self._chosen.slots.is_empty():
            return
        inside = part.inside[RANGES.name].join(self._chosen.slots, on=["number", "value"], how="inner")
        if inside.is_empty():
            return
        task = self._ground.recording.rows.task[inside["row"].to_numpy()]
        self._times.take(part, inside["slot"].to_numpy(), task, inside["start"].to_numpy(), inside["end"].to_numpy())
        begun = inside.with_columns(task=pl.Series(task), length=pl.col("until") - pl.col("begin")).filter(
            pl.col("begin") >= part.begin
        )
        self._lengths.append(
            begun.group_by("slot", "task").agg(count=pl.len(), total=pl.col("length").sum(), longest=pl.col("length").max())
        )

    def table(self, trees: Trees) -> list[dict[str, Any]]:
        """Rows of the table `regions`, those that take most time first."""
        if not self._lengths:
            return []
        by_slot = (
            pl.concat(self._lengths)
            .group_by("slot")
            .agg(pl.col("count", "total").sum(), pl.col("longest").max(), tasks=pl.col("task").n_unique())
            .sort("total", "slot", descending=[True, False])
            .head(MOST_REGIONS)
        )
        slots = by_slot["slot"].to_list()
        devices, threads = (
            found.sums().filter(pl.col("slot").is_in(slots)) for found in (self._times.devices, self._times.threads)
        )
        found = trees.of_slots(devices, threads)
        return [
            {
                "region": self._chosen.names[slot][0],
                "domain": self._chosen.names[slot][1],
                "count": count,
                "tasks": tasks,
                "total_ns": total,
                "mean_ns": total / count,
                "max_ns": longest,
                **found.get(slot, {}),
            }
            for slot, count, total, longest, tasks in by_slot.iter_rows()
        ]


class Iterations:
    """Times in the n-th range of a name of each task."""

    def __init__(self, ground: SweepContext, name: str) -> None:
        self._ground = ground
        self._name = name
        self._chosen = ByName(ground.recording, [name])
        self._times = RegionTimes(ground)
        self._so_far = np.zeros(len(ground.recording.rows.tasks), dtype=np.int64)
        self._open: pl.DataFrame | None = None
        self._lengths: list[pl.DataFrame] = []
        self.warnings = self._chosen.warnings

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        rows = self._ground.recording.rows
        begun = part.begun[RANGES.name].join(self._chosen.slots, on=["number", "value"], how="semi").sort("start", "end")
        task = rows.task[begun["row"].to_numpy()]
        numbered = begun.select(
            "start", "end", task=pl.Series(task, dtype=pl.Int64), before=pl.Series(self._so_far[task], dtype=pl.Int64)
        ).with_columns(iteration=pl.col("before") + pl.int_range(pl.len()).over("task"))
        np.add.at(self._so_far, task, 1)
        self._lengths.append(numbered.select("iteration", "task", "start", "end"))
        there = numbered.select("iteration", "task", "start", "end")
        if self._open is not None:
            there = pl.concat([self._open, there])
        self._open = there.filter(pl.col("end") > part.end)
        begin, end = there["start"].clip(lower_bound=part.begin), there["end"].clip(upper_bound=part.end)
        self._times.take(part, there["iteration"].to_numpy(), there["task"].to_numpy(), begin.to_numpy(), end.to_numpy())

    def table(self, trees: Trees) -> list[dict[str, Any]]:
        """Rows of the table `iterations`."""
        found = trees.of_slots(self._times.devices.sums(), self._times.threads.sums())
        length = pl.col("end") - pl.col("start")
        by_slot = (
            (pl.concat(self._lengths) if self._lengths else pl.DataFrame())
            .group_by("iteration")
            .agg(
                begin=pl.col("start").min(),
                until=pl.col("end").max(),
                tasks=pl.col("task").n_unique(),
                shortest=length.min(),
                longest=length.max(),
            )
            .sort("iteration")
            if self._lengths
            else pl.DataFrame()
        )
        return [
            {
                "region": self._name,
                "iteration": slot,
                "begin_ns": begin,
                "end_ns": end,
                "tasks": tasks,
                "shortest_ns": shortest,
                "longest_ns": longest,
                **found.get(slot, {}),
            }
            for slot, begin, end, tasks, shortest, longest in by_slot.iter_rows()
        ]
