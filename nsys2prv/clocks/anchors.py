"""Anchors: collectives and messages that clocks of several reports saw, and their times after corrections.

A clock that jumps shows there as a lasting change of how far it is ahead of another, from one anchor to the next: a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.execution.output_files import make_folder
from nsys2prv.timeline.messages import Messages
from nsys2prv.timeline.time_axis import ClockCorrection, ClockStep, Placement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SMALLEST_STEP = 50e3  # ns; smaller steps cannot be distinguished from noise
_TIMES_NOISE, _NOISE = 8.0, 90  # Steps are larger by this than almost all of the noise: this percentile of it
UNKNOWN_DRIFT = 1e-4
"""Quartz clocks of two hosts drift apart by less, if nothing else is known."""
FASTEST_CLOCK = 2e-4
"""A clock is not faster or slower than the others by more: what says so is wrong."""
PRECISION = 500.0
"""ns; time stamps are not more precise, and no clock is known better, however small its error seems."""
_FEWEST = 16  # Shared events that two clocks need
_MOST_KNOTS = 18
_FAR = 10**15  # ns; before and after any run


@dataclass(frozen=True)
class SharedEvents:
    """Ends of events by the clocks of their ranks, which are roughly right, ns: one entry per event and rank, with the numbers
    of both."""

    event: Ints
    clock: Ints
    time: Ints

    def at(self, entries: Ints | NDArray[np.bool_]) -> SharedEvents:
        """These entries only."""
        return SharedEvents(self.event[entries], self.clock[entries], self.time[entries])


@dataclass(frozen=True)
class Anchors:
    """What ties the clocks of a run together. Times are those of the rough placement, ns.

    `collectives` and `ambiguous` are as of `collective_matching.match_run`. Files of messages between reports have the columns
    `report`, `to_report`, `time` (when it was sent), `to_time` (when the call ended that received it)."""

    names: Sequence[str]
    clock_of_report: Ints
    collectives: pl.DataFrame
    ambiguous: Mapping[tuple[int, int], int]
    messages: Sequence[Path]

    @property
    def clocks(self) -> int:
        """Number of clocks."""
        return len(self.names)

    def placed_collectives(self, corrections: Sequence[ClockCorrection], widths: Floats | None = None) -> pl.DataFrame:
        """The collectives, after a correction of each clock, with `doubt_of_start` and `doubt_of_end`: by how much these may be
        wrong because a clock jumped, and as much as `widths` say of each report, ns."""
        report = self.collectives["report"].to_numpy()
        placed = self.collectives
        for name in ("start", "end"):
            time, doubt = self._placed(report, placed[name], corrections, widths)
            placed = placed.with_columns(time.alias(name), doubt.alias(f"doubt_of_{name}"))
        return placed

    def placed_messages(self, corrections: Sequence[ClockCorrection], widths: Floats | None = None) -> Iterator[pl.DataFrame]:
        """The messages, with the columns `clock`, `to_clock`, and `doubt`: that of their latency."""
        for path in self.messages:
            messages = pl.read_ipc(path)
            report, to_report = (messages[name].to_numpy() for name in ("report", "to_report"))
            time, doubt = self._placed(report, messages["time"], corrections, widths)
            to_time, to_doubt = self._placed(to_report, messages["to_time"], corrections, widths)
            clock, to_clock = (pl.Series(self.clock_of_report[reports]) for reports in (report, to_report))
            yield messages.with_columns(clock=clock, to_clock=to_clock, time=time, to_time=to_time, doubt=doubt + to_doubt)

    def _placed(
        self, report: Ints, time: pl.Series, corrections: Sequence[ClockCorrection], widths: Floats | None
    ) -> tuple[pl.Series, pl.Series]:
        placed, doubt = corrected_times(time.to_numpy(), self.clock_of_report[report], corrections)
        return pl.Series(placed), pl.Series(doubt if widths is None else doubt + np.rint(widths).astype(np.int64)[report])


def match_messages(sync_points: Sequence[SyncPoints], rough: Sequence[Placement], folder: Path) -> list[Path]:
    """Files of messages between reports, as of `Anchors`, from the ends and the placement of each report; in a new folder."""
    if not any(points.ends for points in sync_points):
        return []
    make_folder(folder)
    messages = Messages(folder / "ends")
    for report, (points, placement) in enumerate(zip(sync_points, rough, strict=True)):
        for ends in map(pl.read_ipc, points.ends):
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


def entries_of_each(number: Ints, count: int) -> list[Ints]:
    """Places of each number from 0 on in an array, in their order."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))


def columns_of(corrections: Sequence[ClockCorrection], *names: str) -> list[np.ndarray]:
    """Attributes of corrections, each as an array."""
    return [np.array([getattr(correction, name) for correction in corrections]) for name in names]


def corrected_times(time: Ints, clock: Ints, corrections: Sequence[ClockCorrection]) -> tuple[Ints, Ints]:
    """Times after the corrections of their clocks, the same as `Placement.of` makes of each, and how far they may be wrong
    because they are where their clock jumped, between two anchors; ns.

    Times are by clocks that are roughly right, ns; `clock` is the number of the clock of each."""
    offset, drift, pivot = columns_of(corrections, "offset", "drift", "pivot")
    subtracted = offset[clock] + (time - pivot[clock]).astype(np.float64) * drift[clock]
    doubt = np.zeros(len(time))
    for number, correction in enumerate(corrections):
        if correction.steps:
            of_clock = clock == number
            subtracted[of_clock] += _steps_until(time[of_clock], correction.steps)
        for step in correction.steps:
            doubt[(clock == number) & (time > step.after) & (time < step.before)] += step.error
    return time - np.rint(subtracted).astype(np.int64), np.rint(doubt).astype(np.int64)


def stepping(clocks: int, steps: Mapping[int, tuple[ClockStep, ...]]) -> list[ClockCorrection]:
    """Corrections of clocks that have nothing but steps."""
    return [ClockCorrection(0.0, 0.0, 0, 0, 0, np.nan, np.nan, np.nan, (), steps.get(clock, ())) for clock in range(clocks)]


def _steps_until(time: Ints, steps: Sequence[ClockStep]) -> Floats:
    """What the steps of a clock subtract at times, ns."""
    passed = ((time - step.after).astype(np.float64) / max(step.before - step.after, 1) for step in steps)
    return sum((np.clip(part, 0, 1) * step.size for part, step in zip(passed, steps, strict=True)), np.zeros(len(time)))


def find_steps(events: SharedEvents, clocks: int, smallest: float = 0) -> dict[int, tuple[ClockStep, ...]]:
    """Steps of clocks, in the order of time; clocks without are left out.

    Clocks are compared with one of them. If that one jumps, all others seem to, so another is tried then. `clocks` is their
    number, `smallest` the size that steps have at least besides, ns."""
    ends_by_clock = [events.at(entries) for entries in entries_of_each(events.clock, clocks)]
    steps: dict[int, tuple[ClockStep, ...]] = {}
    remaining = sorted(range(clocks), key=lambda clock: -len(ends_by_clock[clock].time))
    while remaining:
        compared = _steps_against(remaining[0], remaining, ends_by_clock, smallest)
        if 2 * sum(map(bool, compared.values())) > len(compared) > 1:
            again = _steps_against(next(iter(compared)), remaining, ends_by_clock, smallest)
            if sum(map(bool, again.values())) < sum(map(bool, compared.values())):
                compared = again | {remaining[0]: again.get(remaining[0], ())}
        steps |= {clock: of_clock for clock, of_clock in compared.items() if of_clock}
        remaining = [clock for clock in remaining[1:] if clock not in compared]
    return steps


def _steps_against(
    reference: int, clocks: Sequence[int], ends_by_clock: Sequence[SharedEvents], smallest: float
) -> dict[int, tuple[ClockStep, ...]]:
    """Steps against a clock of those that share enough events with it, or with one that does."""
    steps: dict[int, tuple[ClockStep, ...]] = {}
    placed = {reference: ends_by_clock[reference].time}
    waiting = [reference]
    for against in waiting:
        for clock in [clock for clock in clocks if clock not in placed]:
            ends = ends_by_clock[clock]
            _, here, there = np.intersect1d(ends.event, ends_by_clock[against].event, return_indices=True)
            if len(here) >= _FEWEST:
                steps[clock] = _steps(ends.time[here], placed[against][there], smallest)
                placed[clock] = ends.time - np.rint(_steps_until(ends.time, steps[clock])).astype(np.int64)
                waiting.append(clock)
    return steps


def running_median(values: Floats) -> Floats:
    """Median of each value and its two neighbors on both sides; of fewer near the ends, which stay as they are."""
    medians = values.astype(np.float64)
    for width in (3, 5):
        if len(values) >= width:
            windows = np.lib.stride_tricks.sliding_window_view(values, width)
            medians[width // 2 : len(values) - width // 2] = np.median(windows, axis=1)
    return medians


def _steps(time: Ints, reference: Ints, smallest: float) -> tuple[ClockStep, ...]:
    """Steps of a clock against another, from ends of the same events by both: where the line of what it is ahead is bent."""
    order = np.argsort(time)
    time, ahead = time[order], (time - reference)[order].astype(np.float64)
    width = int(np.clip(len(time) // 8, 5, 32))
    slope = float(np.median((ahead[width:] - ahead[:-width]) / np.maximum(time[width:] - time[:-width], 1)))
    # A clock that is slewed for most of the time has no such drift.
    ahead -= ahead[0] + np.clip(slope, -UNKNOWN_DRIFT, UNKNOWN_DRIFT) * (time - time[0])
    level = running_median(ahead)
    level[[0, -1]] = level[[1, -2]]
    smallest = max(_SMALLEST_STEP, smallest, _TIMES_NOISE * float(np.percentile(np.abs(ahead - level), _NOISE)))
    knots = [0, len(time) - 1]
    while len(knots) <= _MOST_KNOTS:
        off = np.abs(level - np.interp(time, time[knots], level[knots]))
        if off.max() <= smallest / 2:
            break
        knots = sorted([*knots, int(np.argmax(off))])
    steps: list[ClockStep] = []
    for first, last in pairwise(knots) if len(knots) > 2 else ():
        # Between two events it is as large as the time between them, of all.
        part = float(np.diff(time[first : last + 1]).max()) / max(int(time[last] - time[first]), 1)
        size = float(level[last] - level[first])
        steps.append(ClockStep(int(time[first]), int(time[last]), size, abs(size) * part))
    # Whether a clock jumped before the last event, or a rank ended that late, cannot be seen.
    off = np.abs(ahead - level)
    edges = ((time[0] - _FAR, time[1], off[0]), (time[-2], time[-1] + _FAR, off[-1]))
    return (*steps, *(ClockStep(int(after), int(before), 0.0, size) for after, before, size in edges if size > smallest))
