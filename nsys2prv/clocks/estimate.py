"""Estimate of clocks: how far each is ahead, how much too fast it is, and where it jumped.

All ranks leave a barrier, and a collective of NCCL ends on all devices, at nearly the same time. For such an event each rank
has a time by its clock, `t = m + offset + drift (t - pivot) + noise`, with m the unknown time of the event and one offset and
one drift per clock. m is the same for all ranks, so it is eliminated. What remains is a linear least squares problem, solved
several times with weights that remove outliers: Huber's, which bring any start near to the solution, then Tukey's biweight.
Kinds of events whose ends are further apart count less.

Where clocks have no common collectives, messages both ways give their offset. In a stretch of time the fastest of both ways
have nearly the same latency, so half of the difference of what they take by both clocks is how far one is ahead, with an error
of half of the sum at most. (The Network Time Protocol compares clocks in this way.)
UTC is kept where ends, which differ by up to 12 ms between hosts, do not disagree with it by more than they vary."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks.agreement import ENDS_APART_NS, FEW
from nsys2prv.clocks.anchors import (
    FASTEST_CLOCK,
    PRECISION,
    UNKNOWN_DRIFT,
    Anchors,
    Floats,
    Ints,
    SharedEvents,
    columns_of,
    corrected_times,
    entries_of_each,
    extent_of,
    find_steps,
    stepping,
)
from nsys2prv.clocks.bounds import bounds_of_run
from nsys2prv.sources.communication.collectives import ALL
from nsys2prv.timeline.time_axis import ClockCorrection

_ROUNDS, _HUBER_ROUNDS = 36, 10
_BIWEIGHT = 6.0  # Residuals above this many scales get no weight
_DRIFT_KNOWN = 2e-5  # A drift is estimated when its standard error is less: clocks without one differ by some 50 ppm
_FEWEST_FOR_DRIFT = 6
_NO_WEIGHT = 1e-9
_MOST_ENTRIES = 2_000_000  # Events times clocks; of more, some events are left out
_BINS = 12  # Stretches of time for which the remaining error is kept
_STRETCHES = (500_000_000, 2_000_000_000)
"""ns; from each such stretch the fastest messages count. In the first, a clock drifts by no more than messages take, and steps
show; the second ones are used when that drift is known."""
_PRECISE_MESSAGE = 2e5  # ns; messages show steps of clocks where the fastest of both ways tell them apart by less
_TIMES_ERROR = 4.0  # Steps that messages show are larger than their error by this
_UTC_VIOLATES = 2e5  # ns; a clock for which bounds are violated by more than this does not keep UTC

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """One correction per clock, and the clocks whose events say what cannot be: they have no correction.

    `placed_by`, of each clock: "collectives", "messages", or "utc", which is preferred where it is as good."""

    corrections: list[ClockCorrection]
    refused: tuple[int, ...] = ()
    placed_by: tuple[str, ...] = ()


def estimate_clocks(anchors: Anchors) -> Estimate:
    """Corrections of all clocks by what ties them together."""
    # One rank of a host can end late: the median of its ranks counts.
    tying = (
        anchors.collectives.filter(pl.col("rule") == ALL)
        .group_by("event", "clock")
        .agg(pl.col("end").median().round().cast(pl.Int64), pl.col("kind", "name").first())
        .sort("event", "clock")
    )
    kind = tying.select(pl.struct("kind", "name").rank("dense")).to_series().to_numpy().astype(np.int64)
    events = SharedEvents(*(tying[name].to_numpy() for name in ("event", "clock", "end")))
    steps = _steps(events, anchors)
    events = replace(events, time=corrected_times(events.time, events.clock, steps)[0])
    fitted = fit(events, anchors.clocks, kind)
    by_collectives = _with_steps(fitted.corrections, steps)
    corrections = _fit_messages(events, by_collectives, anchors)
    placed_by = np.array(["collectives" if correction.anchors else "messages" for correction in by_collectives])
    # How far a clock may be from UTC before its collectives or messages count more.
    count, median = columns_of(corrections, "anchors", "median")
    few = ENDS_APART_NS * np.minimum(1.0, np.square(FEW / np.maximum(count, 1)))
    doubt = np.where(placed_by == "collectives", np.maximum(few, 1.4826 * median), median)
    doubt[count == 0] = 0
    messages = anchors.placed_messages(stepping(anchors.clocks, {}))
    extent = extent_of(chain([tying["end"]], (part[name] for part in messages for name in ("time", "to_time"))))
    preferred, by_utc = _prefer_utc(corrections, doubt, extent)
    if by_utc.any():
        over_all = bounds_of_run(anchors, preferred).over_all
        violated = np.where(np.isfinite(over_all), -over_all, 0)
        is_wrong = by_utc & (np.maximum(violated.max(axis=0), violated.max(axis=1)) > _UTC_VIOLATES)
        preferred, by_utc = _prefer_utc(corrections, np.where(is_wrong, 0.0, doubt), extent)
    return Estimate(preferred, fitted.refused, tuple(np.where(by_utc, "utc", placed_by).tolist()))


def _steps(events: SharedEvents, anchors: Anchors) -> list[ClockCorrection]:
    """Corrections that have steps only: by the ends of collectives, and by the fastest messages where a clock has none."""
    steps = find_steps(events, anchors.clocks)
    moments, error = _two_way_offsets(anchors.placed_messages(stepping(anchors.clocks, steps)), _STRETCHES[0])
    precise = error[error <= _PRECISE_MESSAGE]
    if len(precise):
        # The noise of the others would bend the line of a clock where it is straight.
        is_precise = error <= np.median(precise)
        smallest = _TIMES_ERROR * float(np.percentile(error[is_precise], 90))
        by_messages = find_steps(moments.at(is_precise), anchors.clocks, smallest)
        steps = {clock: by_messages[clock] for clock in by_messages if clock not in events.clock} | steps
    return stepping(anchors.clocks, steps)


def _with_steps(corrections: Sequence[ClockCorrection], stepped: Sequence[ClockCorrection]) -> list[ClockCorrection]:
    return [replace(correction, steps=with_steps.steps) for correction, with_steps in zip(corrections, stepped, strict=True)]


def fit(events: SharedEvents, clocks: int, kind: Ints | None = None) -> Estimate:
    """Corrections of clocks against each other, by events that they share.

    Inside a group of clocks with shared events, offsets and drifts have the mean 0: which clock is right is not known. A clock
    whose events all disagree with those of the others is in no group with them. `clocks` is the number of clocks, `kind` that
    of the kind of each entry: events of one kind tie clocks equally well. None: all do."""
    kind = np.zeros(len(events.event), dtype=np.int64) if kind is None else kind
    refused: set[int] = set()
    while True:
        is_used = ~np.isin(events.clock, list(refused))
        corrections = _fit(events.at(is_used), clocks, kind[is_used])
        drift, group, anchors = columns_of(corrections, "drift", "group", "anchors")
        before = len(refused)
        for number in np.unique(group[anchors > 0]):
            members = np.flatnonzero((anchors > 0) & (group == number))
            # The median of two is between them.
            most = FASTEST_CLOCK / 2 if len(members) == 2 else FASTEST_CLOCK
            refused |= set(members[~(np.abs(drift[members] - np.median(drift[members])) <= most)].tolist())
        if len(refused) == before:
            return Estimate(corrections, tuple(sorted(refused)))


def _fit(events: SharedEvents, clocks: int, kind: Ints) -> list[ClockCorrection]:
    events, kind = _of_several_clocks(events, kind, clocks)
    pivot = int(np.median(events.time)) if len(events.time) else 0
    time = (events.time - pivot).astype(np.float64)
    if not len(time):
        return _corrections(events, time, np.ones(0), np.zeros(clocks), np.zeros(clocks), np.arange(clocks), pivot)
    with_drift = np.bincount(events.clock, minlength=clocks) >= _FEWEST_FOR_DRIFT
    while True:
        offset, drift, weight, group, scale = _solve_robustly(events, time, kind, with_drift, clocks)
        unknown = with_drift & ~_knows_drift(events, time, weight, scale[kind], clocks)
        if not unknown.any():
            return _corrections(events, time, np.where(weight > _NO_WEIGHT, weight, 0.0), offset, drift, group, pivot)
        with_drift = with_drift & ~unknown


def _of_several_clocks(events: SharedEvents, kind: Ints, clocks: int) -> tuple[SharedEvents, Ints]:
    """Events of at least two clocks, numbered from 0, as are their kinds; of very many some, evenly spread."""
    _, number, counts = np.unique(events.event, return_inverse=True, return_counts=True)
    places = np.flatnonzero(counts > 1)
    most = max(_MOST_ENTRIES // clocks, 1000)
    places = places[np.linspace(0, len(places) - 1, min(len(places), most)).astype(np.int64)]
    is_used = np.isin(number, places)
    used = events.at(is_used)
    return replace(used, event=np.unique(used.event, return_inverse=True)[1]), np.unique(kind[is_used], return_inverse=True)[1]


def _solve_robustly(
    events: SharedEvents, time: Floats, kind: Ints, with_drift: Flags, clocks: int
) -> tuple[Floats, Floats, Floats, Ints, Floats]:
    """Offset and drift of each clock, weight of each entry, group of each clock, scale of each kind."""
    weight = np.ones(len(time))
    for number in range(_ROUNDS):
        group = _groups(events, weight > _NO_WEIGHT, clocks)
        offset, drift = _solve(events, time, weight, group, with_drift, clocks)
        residual = np.abs(_residuals(events, time - offset[events.clock] - drift[events.clock] * time, weight))
        medians = np.array([1.4826 * np.median(residual[kind == of_kind]) for of_kind in range(kind.max() + 1)])
        scale = np.where(np.isfinite(medians), np.maximum(medians, PRECISION), PRECISION)
        by_scale = residual / scale[kind]
        precision = np.square(scale.min() / scale[kind])
        before = weight
        if number < _HUBER_ROUNDS:
            weight = precision / np.maximum(by_scale, 1)
        else:
            weight = precision * np.square(1 - np.square(np.minimum(by_scale / _BIWEIGHT, 1)))
        if number > _HUBER_ROUNDS and np.max(np.abs(weight - before)) < 1e-3:
            break
    # An event that only one clock still has ties nothing.
    counts = np.bincount(events.event, weight > _NO_WEIGHT)
    weight = np.where(counts[events.event] < 2, 0.0, weight)
    return offset, drift, weight, _groups(events, weight > _NO_WEIGHT, clocks), scale


def _residuals(events: SharedEvents, corrected: Floats, weight: Floats) -> Floats:
    """How far the corrected times, ns, of each event are from their weighted mean; infinite where all weights are 0."""
    total = np.bincount(events.event, weight)
    mean = np.bincount(events.event, weight * corrected) / np.where(total > 0, total, 1)
    return np.where(total[events.event] > 0, corrected - mean[events.event], np.inf)


def _groups(events: SharedEvents, is_used: Flags, clocks: int) -> Ints:
    """Number of the group of each clock, by the entries that are used: the lowest clock in it."""
    group = np.arange(clocks)
    event, clock = events.event[is_used], events.clock[is_used]
    while True:
        lowest = np.full(int(event.max(initial=-1)) + 1, clocks)
        np.minimum.at(lowest, event, group[clock])
        joined = group.copy()
        np.minimum.at(joined, clock, lowest[event])
        joined = joined[joined]
        if np.array_equal(joined, group):
            return group
        group = joined


def _knows_drift(events: SharedEvents, time: Floats, weight: Floats, scale: Floats, clocks: int) -> Flags:
    """Whether the events of a clock are so many, so precise and so far apart in time that its drift is known."""
    is_used = weight > _NO_WEIGHT
    clock, time = events.clock[is_used], time[is_used]
    count = np.bincount(clock, minlength=clocks)
    mean = np.bincount(clock, time, minlength=clocks) / np.maximum(count, 1)
    spread = np.sqrt(np.bincount(clock, np.square(time - mean[clock]), minlength=clocks))
    error = np.bincount(clock, scale[is_used], minlength=clocks) / np.maximum(count, 1)
    return np.logical_and(count >= _FEWEST_FOR_DRIFT, error < _DRIFT_KNOWN * spread)


def _solve(
    events: SharedEvents, time: Floats, weight: Floats, group: Ints, with_drift: Flags, clocks: int
) -> tuple[Floats, Floats]:
    """Offsets and drifts by weighted least squares, with the times of the events eliminated."""
    scale = max(float(np.abs(time).max()), 1.0)
    columns = np.stack([np.ones(len(time)), time / scale])
    places = np.stack([2 * events.clock, 2 * events.clock + 1])
    # By event and unknown, the weighted sum: what the mean over the event subtracts.
    total, target = np.bincount(events.event, weight), np.bincount(events.event, weight * time)
    sums = np.zeros((len(total), 2 * clocks))
    np.add.at(sums, (events.event, places), weight * columns)
    share = np.divide(1.0, total, where=total > 0, out=np.zeros(len(total)))
    normal, right = -(sums.T @ (sums * share[:, None])), -(sums.T @ (target * share))
    np.add.at(right, places, weight * columns * time)
    np.add.at(normal, (places[:, None], places), weight * columns[:, None] * columns)
    offsets, drifts = 2 * np.arange(clocks), 2 * np.arange(clocks) + 1
    size = max(float(np.abs(np.diag(normal)).max()), 1.0)
    # Which clock of a group is right is not known: the sums of its offsets and drifts are 0. An unknown drift is 0.
    for number, place in product(np.unique(group), (offsets, drifts)):
        members = place[group == number]
        normal[np.ix_(members, members)] += size / len(members)
    normal[drifts[~with_drift], drifts[~with_drift]] += size * 1e6
    # Clocks do not drift much: where events hardly show a drift, it stays small.
    normal[drifts, drifts] += np.square(PRECISION / (UNKNOWN_DRIFT * scale))
    solution = np.linalg.solve(normal, right)
    return solution[offsets], solution[drifts] / scale


def _corrections(
    events: SharedEvents, time: Floats, weight: Floats, offset: Floats, drift: Floats, group: Ints, pivot: int
) -> list[ClockCorrection]:
    """Corrections with their remaining errors. Times of events are from the pivot, ns; outliers have the weight 0."""
    corrected = time - offset[events.clock] - drift[events.clock] * time
    residual = _residuals(events, corrected, weight)
    edges = np.linspace(time.min(), time.max(), _BINS + 1) if len(time) else np.zeros(_BINS + 1)
    place = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, _BINS - 1)
    corrections = []
    for clock, of_clock in enumerate(entries_of_each(events.clock, len(group))):
        entries = of_clock[weight[of_clock] > 0]
        error, bins = residual[entries], place[entries]
        size = np.abs(error) if len(error) else np.array([np.nan])
        corrections.append(
            ClockCorrection(
                offset=float(offset[clock]) if len(error) else 0.0,
                drift=float(drift[clock]) if len(error) else 0.0,
                pivot=pivot,
                anchors=len(error),
                group=int(group[clock]),
                median=float(np.median(size)),
                percentile_95=float(np.percentile(size, 95)),
                largest=float(size.max()),
                bins=tuple(float(np.median(error[bins == index])) if index in bins else np.nan for index in range(_BINS)),
            )
        )
    return corrections


def _two_way_offsets(messages: Iterable[pl.DataFrame], stretch: int) -> tuple[SharedEvents, Floats]:
    """The same moments by each two clocks, by the fastest messages both ways in each stretch, ns; and the largest errors."""
    # By the same clock in both directions.
    is_back = pl.col("clock") > pl.col("to_clock")
    at = pl.when(is_back).then("to_time").otherwise("time")
    pair = ["low", "high", "stretch"]
    fastest = pl.DataFrame(schema=dict.fromkeys([*pair, "is_back", "latency", "at"], pl.Int64))
    for of_file in messages:
        between = of_file.filter(pl.col("clock") != pl.col("to_clock")).select(
            low=pl.min_horizontal("clock", "to_clock"),
            high=pl.max_horizontal("clock", "to_clock"),
            stretch=at // stretch,
            is_back=is_back.cast(pl.Int64),
            latency=pl.col("to_time") - pl.col("time"),
            at=at,
        )
        ordered = pl.concat([fastest, between]).sort(*pair, "is_back", "latency", "at")
        fastest = ordered.unique([*pair, "is_back"], keep="first", maintain_order=True)
    forth, back = (fastest.filter(pl.col("is_back") == direction) for direction in (0, 1))
    offsets = forth.join(back, on=pair, suffix="_back", maintain_order="left").select(
        "low",
        "high",
        moment=(pl.col("at") + pl.col("at_back")) // 2,
        ahead=(pl.col("latency") - pl.col("latency_back")) // 2,
        # With clocks that jump the sum can be negative: then nothing is known.
        error=((pl.col("latency") + pl.col("latency_back")) / 2).abs(),
    )
    low, high, moment, ahead, error = (column.to_numpy() for column in offsets.get_columns())
    event = np.tile(np.arange(offsets.height), 2)
    return SharedEvents(event, np.concatenate([low, high]), np.concatenate([moment, moment + ahead])), np.tile(error, 2)


def _fit_messages(events: SharedEvents, corrections: Sequence[ClockCorrection], anchors: Anchors) -> list[ClockCorrection]:
    """Corrections by these events and, between clocks without common ones, by messages; errors include those of messages."""
    fitted = list(corrections)
    group, anchor_count = columns_of(corrections, "group", "anchors")
    for stretch in _STRETCHES:
        moments, error = _two_way_offsets(anchors.placed_messages(fitted), stretch)
        low, high = moments.clock.reshape(2, -1)
        between_groups = np.tile(group[low] != group[high], 2)
        if not between_groups.any():
            return list(corrections)
        moments, error = moments.at(between_groups), error[between_groups]
        # The times that the clocks showed.
        offset, drift, pivot = (values[moments.clock] for values in columns_of(fitted, "offset", "drift", "pivot"))
        shown = np.rint(((moments.time - pivot).astype(np.float64) + offset) / (1 - drift)).astype(np.int64) + pivot
        joined = SharedEvents(
            np.concatenate([events.event, moments.event + events.event.max(initial=-1) + 1]),
            np.concatenate([events.clock, moments.clock]),
            np.concatenate([events.time, shown]),
        )
        fitted = _with_steps(fit(joined, len(corrections)).corrections, corrections)
    error_of_clock = {int(clock): float(np.median(error[moments.clock == clock])) for clock in np.unique(moments.clock)}
    # Clocks are corrected against the mean of all, which has the mean of their errors.
    of_mean = float(np.mean(list(error_of_clock.values())))
    for clock, of_clock in error_of_clock.items():
        if not anchor_count[clock]:
            names = ("median", "percentile_95", "largest")
            more = {name: getattr(fitted[clock], name) + (of_clock + of_mean) for name in names}
            fitted[clock] = replace(fitted[clock], **more)
    return fitted


def _prefer_utc(
    corrections: Sequence[ClockCorrection], doubt: Floats, extent: tuple[float, float]
) -> tuple[list[ClockCorrection], Flags]:
    """Corrections, none for clocks that differ from UTC by at most `doubt`, ns, at both ends; and which clocks these are."""
    offset, drift, pivot, group, anchors = columns_of(corrections, "offset", "drift", "pivot", "group", "anchors")
    by_utc = np.zeros(len(corrections), dtype=bool)
    for number in np.unique(group[anchors > 0]):
        members = np.flatnonzero((group == number) & (anchors > 0))
        subtracted = np.stack([offset[members] + drift[members] * (at - pivot[members]) for at in extent], axis=1)
        # That of the clock that most others agree with.
        tolerance = np.maximum(doubt[members, None], doubt[None, members])
        agree = np.all(np.abs(subtracted[:, None, :] - subtracted[None, :, :]) <= tolerance[:, :, None], axis=2)
        common = np.median(subtracted[agree[int(np.argmax(agree.sum(axis=1)))]], axis=0)
        stays = members[np.all(np.abs(subtracted - common) <= doubt[members, None], axis=1)]
        if len(stays) < 2:
            continue
        # The others are corrected relative to the clocks that stay.
        drift_of_utc = float(common[1] - common[0]) / max(extent[1] - extent[0], 1.0)
        offset[members] -= common[0] + drift_of_utc * (pivot[members] - extent[0])
        drift[members] -= drift_of_utc
        offset[stays], drift[stays], by_utc[stays] = 0.0, 0.0, True
    return [
        replace(correction, offset=float(offset[clock]), drift=float(drift[clock]))
        for clock, correction in enumerate(corrections)
    ], by_utc
