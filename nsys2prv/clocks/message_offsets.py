"""Clocks from messages alone: where they went both ways between two hosts, the fastest of each way tell their distance.

A message from host a to host b takes, by their clocks, its latency and as much as clock b is ahead of clock a; one from b to a
its latency less that. In a stretch of time the fastest of both ways have nearly the same latency, so half of the difference
is how far b is ahead, wrong by half of the sum at most. (The Network Time Protocol compares clocks in this way.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks.estimate import Meetings, fit
from nsys2prv.timeline.time_axis import Clock

Floats = NDArray[np.float64]

_STRETCHES = (500_000_000, 2_000_000_000)
"""ns; from each such stretch the fastest messages count. In the first a clock drifts by as little as messages take; the second
ones are looked at when that drift is known."""
_FASTEST = {"way": pl.Int64, "at": pl.Int64, "to": pl.Int64}


@dataclass(frozen=True)
class Exchanges:
    """What messages tell of clocks: one entry per two hosts and stretch of time, with messages both ways.

    Attributes
    ----------
    meetings
        Two entries per exchange: the moment at which both would have met, by each of their clocks.
    wrong
        By how much they can be wrong, one per entry, ns.
    """

    meetings: Meetings
    wrong: Floats


def exchanges(messages: Iterable[pl.DataFrame], length: int) -> Exchanges:
    """What messages tell of clocks.

    Parameters
    ----------
    messages
        As `precedence.messages_between` gives them.
    length
        Of a stretch of time, of which the fastest messages count, ns.
    """
    key = ["clock", "other", "stretch", "back"]
    fastest = pl.DataFrame(schema={**dict.fromkeys(key[:3], pl.Int64), "back": pl.Boolean, **_FASTEST})
    back = pl.col("row") > pl.col("to_row")
    for met in messages:
        found = met.select(
            clock=pl.min_horizontal("row", "to_row"),
            other=pl.max_horizontal("row", "to_row"),
            # By one clock, whichever way the message went.
            stretch=pl.when(back).then("to_time").otherwise("time") // length,
            back=back,
            way=pl.col("to_time") - pl.col("time"),
            at=pl.when(back).then("to_time").otherwise("time"),
            to=pl.when(back).then("time").otherwise("to_time"),
        )
        both = pl.concat([fastest, found]).sort(*key, "way", "at")
        fastest = both.unique(key, keep="first", maintain_order=True)
    there, again = (fastest.filter(pl.col("back") == back).drop("back") for back in (False, True))
    pairs = there.join(again, on=key[:3], how="inner", suffix="_back", maintain_order="left")
    moment = pairs.select((pl.col("at") + pl.col("at_back")) // 2).to_series().to_numpy()
    ahead = pairs.select((pl.col("way") - pl.col("way_back")) // 2).to_series().to_numpy()
    # Clocks that jump can give a sum below 0: then nothing is known.
    wrong = pairs.select((pl.col("way") + pl.col("way_back")) / 2).to_series().to_numpy()
    meeting = np.tile(np.arange(pairs.height), 2)
    host = np.concatenate([pairs["clock"].to_numpy(), pairs["other"].to_numpy()])
    time = np.concatenate([moment, moment + ahead])
    return Exchanges(Meetings(meeting, host, time), np.tile(np.abs(wrong), 2))


def fit_messages(
    known: Meetings,
    clocks: Sequence[Clock],
    look: Callable[[Sequence[Clock], int], Exchanges],
) -> list[Clock]:
    """Clocks from meetings and, where these leave hosts apart, from messages.

    Parameters
    ----------
    known
        Meetings at collectives.
    clocks
        What these gave.
    look
        Gives what messages tell when times are corrected by clocks, for stretches of so many ns.

    Returns
    -------
    One clock per host. The error of hosts that messages placed holds what the messages leave open.
    """
    found = list(clocks)
    group = np.array([clock.group for clock in clocks])
    for length in _STRETCHES:
        seen = look(found, length)
        pair = seen.meetings.host.reshape(2, -1)
        between = np.tile(group[pair[0]] != group[pair[1]], 2)
        if not between.any():
            return list(clocks)
        wrong, host = seen.wrong[between], seen.meetings.host[between]
        meeting = seen.meetings.meeting[between] + (known.meeting.max() + 1 if len(known.meeting) else 0)
        time = np.array(
            [_shown(found[clock], moment) for clock, moment in zip(host, seen.meetings.time[between], strict=True)],
            dtype=np.int64,
        )
        joined = (
            np.concatenate(parts) for parts in zip((known.meeting, known.host, known.time), (meeting, host, time), strict=True)
        )
        found = fit(Meetings(*joined), len(clocks))
    left_open = {int(one): float(np.median(wrong[host == one])) for one in np.unique(host)}
    # Clocks are told against the mean of all, which is wrong by what the others are.
    of_mean = float(np.mean(list(left_open.values())))
    return [
        _with_error(clock, left_open[index] + of_mean) if index in left_open and not clocks[index].anchors else clock
        for index, clock in enumerate(found)
    ]


def _shown(clock: Clock, corrected: int) -> int:
    """The time that a clock showed, from the corrected one."""
    return round((float(corrected - clock.pivot) + clock.offset) / (1 - clock.drift)) + clock.pivot


def _with_error(clock: Clock, more: float) -> Clock:
    return replace(clock, median=clock.median + more, percentile_95=clock.percentile_95 + more, largest=clock.largest + more)
