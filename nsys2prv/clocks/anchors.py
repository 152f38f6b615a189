"""Anchors: collectives and messages that clocks of several reports saw, and their times after corrections.

A clock that jumps shows there as a lasting change of how far it is ahead of another, from one anchor to the next: a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.execution.scratch import make_folder
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.time_axis import ClockCorrection, ClockStep, Placement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMALLEST_STEP = 50e3
"""ns; smaller steps cannot be distinguished from noise."""
_TIMES_NOISE = 8.0
"""A step is larger than the noise, and than changes elsewhere in the run, by this."""
_TIMES_ERROR = 3.0
"""The size of a step is known to within the noise, times this."""
_FEWEST = 16
"""Shared events that two clocks need."""
_MOST_STEPS = 8


@dataclass(frozen=True)
class SharedEvents:
    """Ends of events by the clocks of their ranks, which are roughly right, ns; one entry per event and rank.

    Events and clocks have numbers.
    """

    event: Ints
    clock: Ints
    time: Ints

    def at(self, entries: NDArray[np.bool_]) -> SharedEvents:
        """These entries only."""
        return SharedEvents(self.event[entries], self.clock[entries], self.time[entries])


@dataclass(frozen=True)
class Anchors:
    """What ties the clocks of a run together.

    Attributes
    ----------
    clocks
        Number of clocks.
    clock_of_report
        (reports,): number of the clock of each.
    collectives
        As of `collective_matching.match_run`: times of the rough placement, ns.
    messages
        Files of messages between reports, with the columns `report`, `to_report`, `time` (when it was sent), `to_time` (when
        the call ended that received it): ns of the rough placement.
    """

    clocks: int
    clock_of_report: Ints
    collectives: pl.DataFrame
    messages: Sequence[Path]

    def placed_collectives(self, corrections: Sequence[ClockCorrection]) -> pl.DataFrame:
        """The collectives, after a correction of each clock, with `doubt_of_start` and `doubt_of_end`: by how much these may be
        wrong because a clock jumped, ns."""
        clock = self.collectives["clock"].to_numpy()
        (start, doubt_of_start), (end, doubt_of_end) = (
            map(pl.Series, corrected_times(self.collectives[name].to_numpy(), clock, corrections)) for name in ("start", "end")
        )
        return self.collectives.with_columns(start=start, end=end, doubt_of_start=doubt_of_start, doubt_of_end=doubt_of_end)

    def placed_messages(self, corrections: Sequence[ClockCorrection] | None) -> Iterator[pl.DataFrame]:
        """The messages, after a correction of each clock (None: as they are), with the columns `clock`, `to_clock`, and
        `doubt`: by how much the latency may be wrong because a clock jumped, ns."""
        for path in self.messages:
            messages = pl.read_ipc(path)
            clocks = [self.clock_of_report[messages[name].to_numpy()] for name in ("report", "to_report")]
            times = [messages[name].to_numpy() for name in ("time", "to_time")]
            doubts = [np.zeros(messages.height, dtype=np.int64)] * 2
            if corrections is not None:
                ends = [corrected_times(time, clock, corrections) for time, clock in zip(times, clocks, strict=True)]
                times, doubts = [time for time, _ in ends], [doubt for _, doubt in ends]
            yield messages.with_columns(
                clock=pl.Series(clocks[0]),
                to_clock=pl.Series(clocks[1]),
                time=pl.Series(times[0]),
                to_time=pl.Series(times[1]),
                doubt=pl.Series(doubts[0] + doubts[1]),
            )


def match_messages(sync_points: Sequence[SyncPoints], rough: Sequence[Placement], folder: Path) -> list[Path]:
    """Files of messages between reports, as of `Anchors`.

    Parameters
    ----------
    sync_points, rough
        Of each report: the ends of its messages, and its placement.
    folder
        For the files; it need not exist.
    """
    if all(points.ends is None for points in sync_points):
        return []
    make_folder(folder)
    messages = Messages(folder / "ends")
    for report, (points, placement) in enumerate(zip(sync_points, rough, strict=True)):
        for ends in points.message_ends():
            times = (placement.of(pl.col(name)) for name in ("start", "end"))
            messages.add(ends.with_columns(*times, row=pl.lit(report, pl.Int64)))
    files: list[Path] = []
    for matched in messages.matched_ends():
        between = matched.filter(pl.col("row") != pl.col("to_row")).drop_nulls(["time", "to_time"])
        if between.height:
            files.append(folder / f"{len(files)}.arrow")
            between.select("time", "to_time", report="row", to_report="to_row").write_ipc(files[-1])
    return files


def extent_of(times: Iterable[pl.Series]) -> tuple[float, float]:
    """The first and the last time; 0 without any."""
    ends = [float(end) for part in times if len(part) for end in (part.to_numpy().min(), part.to_numpy().max())]
    return min(ends, default=0.0), max(ends, default=0.0)


def corrected_times(time: Ints, clock: Ints, corrections: Sequence[ClockCorrection]) -> tuple[Ints, Ints]:
    """Times after the corrections of their clocks, the same as `Placement.of` makes of each, and how far they may be wrong
    because they are where their clock jumped, between two anchors; ns.

    Parameters
    ----------
    time
        By clocks that are roughly right, ns.
    clock
        Number of the clock of each.
    corrections
        Of each clock.
    """
    offset, drift, pivot = (
        np.array([getattr(correction, name) for correction in corrections], dtype=dtype)
        for name, dtype in (("offset", np.float64), ("drift", np.float64), ("pivot", np.int64))
    )
    subtracted = offset[clock] + (time - pivot[clock]).astype(np.float64) * drift[clock]
    doubt = np.zeros(len(time))
    for number, correction in enumerate(corrections):
        if correction.steps:
            of_clock = clock == number
            subtracted[of_clock] += _steps_until(time[of_clock], correction.steps)
        for step in correction.steps:
            doubt[(clock == number) & (time > step.after) & (time < step.before)] = abs(step.size)
    return time - np.rint(subtracted).astype(np.int64), np.rint(doubt).astype(np.int64)


def _steps_until(time: Ints, steps: Iterable[ClockStep]) -> Floats:
    """What the steps of a clock subtract at times, ns."""
    subtracted = np.zeros(len(time))
    for step in steps:
        passed = (time - step.after).astype(np.float64) / max(step.before - step.after, 1)
        subtracted += np.clip(passed, 0, 1) * step.size
    return subtracted


def find_steps(events: SharedEvents, clocks: int, smallest: float = SMALLEST_STEP) -> dict[int, tuple[ClockStep, ...]]:
    """Steps of clocks, in the order of time; clocks without are left out.

    Clocks are compared with one of them. If that one jumps, all others seem to, so another is tried then.

    Parameters
    ----------
    events
        Their times are by the clocks themselves, ns.
    clocks
        Number of clocks.
    smallest
        Steps are larger than this, ns.
    """
    first_ends = _first_ends(events, clocks)
    steps: dict[int, tuple[ClockStep, ...]] = {}
    remaining = sorted(range(clocks), key=lambda clock: -len(first_ends[clock][0]))
    while remaining:
        compared = _steps_against(remaining[0], remaining, first_ends, smallest)
        if 2 * sum(map(bool, compared.values())) > len(compared) > 1:
            again = _steps_against(next(iter(compared)), remaining, first_ends, smallest)
            if sum(map(bool, again.values())) < sum(map(bool, compared.values())):
                compared = again | {remaining[0]: again.get(remaining[0], ())}
        steps |= {clock: of_clock for clock, of_clock in compared.items() if of_clock}
        remaining = [clock for clock in remaining[1:] if clock not in compared]
    return steps


def _first_ends(events: SharedEvents, clocks: int) -> list[tuple[Ints, Ints]]:
    """Of each clock, its events and when the first of its ranks ended them, in the order of the events."""
    order = np.lexsort((events.time, events.event, events.clock))
    event, clock, time = events.event[order], events.clock[order], events.time[order]
    is_first = np.append(True, (np.diff(event) != 0) | (np.diff(clock) != 0))[: len(event)]
    event, clock, time = event[is_first], clock[is_first], time[is_first]
    return [(event[start:stop], time[start:stop]) for start, stop in pairwise(np.searchsorted(clock, np.arange(clocks + 1)))]


def _steps_against(
    reference: int, clocks: Sequence[int], first_ends: Sequence[tuple[Ints, Ints]], smallest: float
) -> dict[int, tuple[ClockStep, ...]]:
    """Steps against a clock of those that share enough events with it, or with one that does."""
    placed = {reference: first_ends[reference]}
    steps: dict[int, tuple[ClockStep, ...]] = {}
    waiting = [reference]
    while waiting:
        events, times = placed[waiting.pop(0)]
        for clock in [clock for clock in clocks if clock not in placed]:
            of_clock, time = first_ends[clock]
            _, here, there = np.intersect1d(of_clock, events, return_indices=True)
            if len(here) >= _FEWEST:
                steps[clock] = _steps(time[here], times[there], smallest)
                placed[clock] = of_clock, time - np.rint(_steps_until(time, steps[clock])).astype(np.int64)
                waiting.append(clock)
    return steps


def _steps(time: Ints, reference: Ints, smallest: float) -> tuple[ClockStep, ...]:
    """Steps of a clock against another, from the ends of the same events by both."""
    order = np.argsort(time)
    time, ahead = time[order], (time - reference)[order].astype(np.float64)
    ahead -= ahead[0]
    width = int(np.clip(len(time) // 8, 5, 32))
    steps: list[ClockStep] = []
    while len(steps) < _MOST_STEPS:
        slope = float(np.median((ahead[width:] - ahead[:-width]) / np.maximum(time[width:] - time[:-width], 1)))
        level = ahead - slope * (time - time[0])
        medians = np.median(np.lib.stride_tricks.sliding_window_view(level, width), axis=1)
        change = medians[width:] - medians[:-width]
        noise = float(np.median(np.abs(level[width // 2 :][: len(medians)] - medians)))
        middle = int(np.argmax(np.abs(change)))
        size = float(change[middle])
        if abs(size) < max(smallest, _TIMES_NOISE * float(np.median(np.abs(change))), _TIMES_NOISE * noise):
            break
        # The place between two events that explains the levels around it best.
        near = level[middle : middle + 2 * width]
        cost = np.cumsum(np.abs(near - medians[middle]) - np.abs(near - medians[middle + width]))
        place = middle + int(np.argmin(np.append(0.0, cost)))
        if not 0 < place < len(time):
            break
        steps.append(ClockStep(int(time[place - 1]), int(time[place]), size, max(_TIMES_ERROR * noise, smallest / 4)))
        ahead[place:] -= size
    return tuple(sorted(steps, key=lambda step: step.after))
