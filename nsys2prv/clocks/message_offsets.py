"""Clocks from messages alone: where they go both ways between two hosts, the fastest of each way give the offset.

A message from host a to host b takes, by their clocks, its latency and as much as clock b is ahead of clock a; one from b to a
its latency less that. In a stretch of time the fastest of both ways have nearly the same latency, so half of the difference is
how far b is ahead, with an error of half of the sum at most. (The Network Time Protocol compares clocks in this way.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.clocks.estimate import fit
from nsys2prv.clocks.shared_events import Floats, SharedEvents
from nsys2prv.timeline.time_axis import ClockCorrection

_STRETCHES = (500_000_000, 2_000_000_000)
"""ns; from each such stretch the fastest messages count. In the first, a clock drifts by no more than messages take; the second
ones are used when that drift is known."""
_FASTEST = {"latency": pl.Int64, "at": pl.Int64, "to": pl.Int64}


TwoWayOffsets = tuple[SharedEvents, Floats]


def two_way_offsets(messages: Iterable[pl.DataFrame], stretch: int) -> TwoWayOffsets:
    """Offsets of clocks by messages, for each two clocks and stretch of time with messages both ways.

    Parameters
    ----------
    messages
        Columns `clock`, `to_clock`, `time`, `to_time` (ns), among others; those inside a clock do not count.
    stretch
        Length of a stretch of time, of which the fastest messages count, ns.

    Returns
    -------
    Two entries per offset, the same moment by each of the two clocks; and the largest error of each entry, ns.
    """
    key = ["clock", "other", "stretch", "back"]
    fastest = pl.DataFrame(schema={**dict.fromkeys(key[:3], pl.Int64), "back": pl.Boolean, **_FASTEST})
    back = pl.col("clock") > pl.col("to_clock")
    for piece in messages:
        of_piece = piece.filter(pl.col("clock") != pl.col("to_clock")).select(
            clock=pl.min_horizontal("clock", "to_clock"),
            other=pl.max_horizontal("clock", "to_clock"),
            # By the same clock in both directions.
            stretch=pl.when(back).then("to_time").otherwise("time") // stretch,
            back=back,
            latency=pl.col("to_time") - pl.col("time"),
            at=pl.when(back).then("to_time").otherwise("time"),
            to=pl.when(back).then("time").otherwise("to_time"),
        )
        both = pl.concat([fastest, of_piece]).sort(*key, "latency", "at")
        fastest = both.unique(key, keep="first", maintain_order=True)
    forth, back_again = (fastest.filter(pl.col("back") == is_back).drop("back") for is_back in (False, True))
    pairs = forth.join(back_again, on=key[:3], how="inner", suffix="_back", maintain_order="left")
    moment = pairs.select((pl.col("at") + pl.col("at_back")) // 2).to_series().to_numpy()
    ahead = pairs.select((pl.col("latency") - pl.col("latency_back")) // 2).to_series().to_numpy()
    # With clocks that jump the sum can be negative: then nothing is known.
    error = pairs.select((pl.col("latency") + pl.col("latency_back")) / 2).to_series().to_numpy()
    event = np.tile(np.arange(pairs.height), 2)
    clock = np.concatenate([pairs["clock"].to_numpy(), pairs["other"].to_numpy()])
    time = np.concatenate([moment, moment + ahead])
    return SharedEvents(event, clock, time), np.tile(np.abs(error), 2)


def fit_messages(
    events: SharedEvents,
    corrections: Sequence[ClockCorrection],
    offsets: Callable[[Sequence[ClockCorrection], int], TwoWayOffsets],
) -> list[ClockCorrection]:
    """Corrections from collectives and, for clocks without common collectives, from messages.

    Parameters
    ----------
    events
        Collectives.
    corrections
        The corrections that they give.
    offsets
        Gives the offsets by messages after some corrections, for stretches of a length in ns.

    Returns
    -------
    One correction per clock. The error of clocks that messages placed includes the error of the messages.
    """
    fitted = list(corrections)
    group = np.array([correction.group for correction in corrections])
    for stretch in _STRETCHES:
        moments, largest_error = offsets(fitted, stretch)
        pair = moments.clock.reshape(2, -1)
        between_groups = np.tile(group[pair[0]] != group[pair[1]], 2)
        if not between_groups.any():
            return list(corrections)
        error, clock = largest_error[between_groups], moments.clock[between_groups]
        event = moments.event[between_groups] + (events.event.max() + 1 if len(events.event) else 0)
        corrected = moments.time[between_groups]
        time = [_uncorrected(fitted[number], moment) for number, moment in zip(clock, corrected, strict=True)]
        joined = SharedEvents.joined(events, SharedEvents(event, clock, np.array(time, dtype=np.int64)))
        fitted = fit(joined, len(corrections)).corrections
    error_of_clock = {int(one): float(np.median(error[clock == one])) for one in np.unique(clock)}
    # Clocks are corrected against the mean of all, which has the mean of their errors.
    of_mean = float(np.mean(list(error_of_clock.values())))
    return [
        _with_error(correction, error_of_clock[number] + of_mean)
        if number in error_of_clock and not corrections[number].anchors
        else correction
        for number, correction in enumerate(fitted)
    ]


def _uncorrected(correction: ClockCorrection, corrected: int) -> int:
    """The time that a clock showed, from the corrected one, ns."""
    return round((float(corrected - correction.pivot) + correction.offset) / (1 - correction.drift)) + correction.pivot


def _with_error(correction: ClockCorrection, more: float) -> ClockCorrection:
    return replace(
        correction,
        median=correction.median + more,
        percentile_95=correction.percentile_95 + more,
        largest=correction.largest + more,
    )
