"""Clocks of hosts, from moments at which several ranks did the same: how far each is ahead, and how much too fast.

All ranks leave a barrier, and a collective of NCCL ends on all devices, at nearly the same time. Of such a meeting each rank
has its own time, `t = m + offset + drift (t - pivot) + noise` with m the unknown time of the meeting and one offset and one
drift per host. What is known of m is only that it is the same for all, so it is eliminated, and the rest is a linear least
squares problem, solved again and again with weights that take outliers out (Tukey's biweight).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsys2prv.timeline.time_axis import Clock

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 30
_BIWEIGHT = 6.0
"""Residuals above this many scales count for nothing."""
_SMALLEST_SCALE = 500.0
"""ns; clocks and meetings are not better than this."""
_SPAN_FOR_DRIFT = 1e9
"""Meetings must lie this far apart, ns, before a drift can be told from noise."""
_LARGEST_TABLE = 4_000_000
_BINS = 12
"""Stretches of time for which the remaining error is kept."""


@dataclass(frozen=True)
class Meetings:
    """Times of meetings as ranks saw them; one entry per meeting and rank.

    Attributes
    ----------
    meeting
        Number of the meeting.
    host
        Number of the rank's host.
    time
        When it ended there, by a clock that is roughly right (ns).
    """

    meeting: Ints
    host: Ints
    time: Ints


def fit(meetings: Meetings, hosts: int) -> list[Clock]:
    """Clocks of hosts relative to each other.

    Inside a group of hosts that met, offsets and drifts have the mean 0: who is right can't be told.

    Parameters
    ----------
    meetings
        Meetings of all hosts.
    hosts
        Number of hosts.

    Returns
    -------
    One clock per host.
    """
    meetings = _of_several_hosts(meetings)
    group = _groups(meetings, hosts)
    pivot = int(np.median(meetings.time)) if len(meetings.time) else 0
    time = (meetings.time - pivot).astype(np.float64)
    offset, drift = np.zeros(hosts), np.zeros(hosts)
    weight = np.ones(len(time))
    with_drift = _with_drift(meetings, time, hosts)
    for _ in range(_ROUNDS if len(time) else 0):
        offset, drift = _solve(meetings, time, weight, group, with_drift, hosts)
        residual = _residuals(meetings, time - offset[meetings.host] - drift[meetings.host] * time, weight)
        scale = max(1.4826 * float(np.median(np.abs(residual))), _SMALLEST_SCALE)
        next_weight: Floats = np.square(1 - np.square(np.minimum(np.abs(residual) / (_BIWEIGHT * scale), 1)))
        settled = np.max(np.abs(next_weight - weight)) < 1e-3
        weight = next_weight
        if settled:
            break
    return _clocks(meetings, time, weight, offset, drift, group, pivot, hosts)


def _of_several_hosts(meetings: Meetings) -> Meetings:
    """Meetings at which at least two hosts were, numbered from 0."""
    _, number = np.unique(meetings.meeting, return_inverse=True)
    pairs = np.unique(np.stack([number, meetings.host]), axis=1)[0] if len(number) else number
    kept = np.bincount(pairs, minlength=1)[number] > 1 if len(number) else np.zeros(0, dtype=bool)
    _, number = np.unique(meetings.meeting[kept], return_inverse=True)
    return Meetings(number.astype(np.int64), meetings.host[kept], meetings.time[kept])


def _groups(meetings: Meetings, hosts: int) -> Ints:
    """Number of the group of each host: the lowest host in it."""
    group = np.arange(hosts)
    while len(meetings.meeting):
        lowest = np.full(int(meetings.meeting.max()) + 1, hosts)
        np.minimum.at(lowest, meetings.meeting, group[meetings.host])
        joined = group.copy()
        np.minimum.at(joined, meetings.host, lowest[meetings.meeting])
        joined = joined[joined]
        if np.array_equal(joined, group):
            break
        group = joined
    return group


def _with_drift(meetings: Meetings, time: Floats, hosts: int) -> NDArray[np.bool_]:
    first, last = np.full(hosts, np.inf), np.full(hosts, -np.inf)
    np.minimum.at(first, meetings.host, time)
    np.maximum.at(last, meetings.host, time)
    long_enough: NDArray[np.bool_] = last - first >= _SPAN_FOR_DRIFT
    return long_enough


def _solve(
    meetings: Meetings, time: Floats, weight: Floats, group: Ints, with_drift: NDArray[np.bool_], hosts: int
) -> tuple[Floats, Floats]:
    """Offsets and drifts by weighted least squares, the times of the meetings eliminated."""
    scale = max(float(np.abs(time).max()), 1.0)
    columns = np.stack([np.ones(len(time)), time / scale])
    # Of each meeting and unknown, the weighted sum: what the mean over the meeting takes away.
    unknowns = 2 * hosts
    normal, right = np.zeros((unknowns, unknowns)), np.zeros(unknowns)
    order = np.argsort(meetings.meeting, kind="stable")
    number, host = meetings.meeting[order], meetings.host[order]
    count = int(number[-1]) + 1
    # A stretch of meetings after the other, so that tables stay small.
    step = max(_LARGEST_TABLE // unknowns, 1)
    for start in range(0, count, step):
        rows = min(step, count - start)
        inside = slice(*np.searchsorted(number, [start, start + rows]))
        here, own = number[inside] - start, weight[order[inside]]
        sums = np.zeros((rows, unknowns))
        for index, column in enumerate(columns):
            np.add.at(sums, (here, 2 * host[inside] + index), own * column[order[inside]])
        total = np.bincount(here, own, minlength=rows)
        share = np.divide(1.0, total, where=total > 0, out=np.zeros(rows))
        target = np.bincount(here, own * time[order[inside]], minlength=rows)
        normal -= sums.T @ (sums * share[:, None])
        right -= sums.T @ (target * share)
    for first in range(2):
        right[first::2] += np.bincount(meetings.host, weight * columns[first] * time, minlength=hosts)
        for second in range(2):
            product = np.bincount(meetings.host, weight * columns[first] * columns[second], minlength=hosts)
            normal[np.arange(hosts) * 2 + first, np.arange(hosts) * 2 + second] += product
    size = max(float(np.abs(np.diag(normal)).max()), 1.0)
    # Who of a group is right can't be told: the sums of its offsets and drifts are 0. Where a drift can't be told it is 0.
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        for first in range(2):
            places = 2 * members + first
            normal[np.ix_(places, places)] += size / len(members)
    still = 2 * np.flatnonzero(~with_drift) + 1
    normal[still, still] += size * 1e6
    found = np.linalg.lstsq(normal, right, rcond=1e-13)[0]
    return found[0::2].astype(np.float64), (found[1::2] / scale).astype(np.float64)


def _residuals(meetings: Meetings, corrected: Floats, weight: Floats) -> Floats:
    total = np.bincount(meetings.meeting, weight)
    mean = np.bincount(meetings.meeting, weight * corrected) / np.where(total > 0, total, 1)
    # Where all weights are 0 there is no mean to compare with.
    return np.where(total[meetings.meeting] > 0, corrected - mean[meetings.meeting], np.inf)


def _clocks(
    meetings: Meetings,
    time: Floats,
    weight: Floats,
    offset: Floats,
    drift: Floats,
    group: Ints,
    pivot: int,
    hosts: int,
) -> list[Clock]:
    corrected = time - offset[meetings.host] - drift[meetings.host] * time
    residual = _residuals(meetings, corrected, weight) if len(time) else corrected
    edges = np.linspace(time.min(), time.max(), _BINS + 1) if len(time) else np.zeros(_BINS + 1)
    clocks = []
    for host in range(hosts):
        own = (meetings.host == host) & (weight > 0)
        errors = np.abs(residual[own])
        place = np.clip(np.searchsorted(edges, time[own], side="right") - 1, 0, _BINS - 1)
        bins = tuple(
            float(np.median(residual[own][place == index])) if (place == index).any() else float("nan")
            for index in range(_BINS)
        )
        known = len(errors) > 0
        clocks.append(
            Clock(
                offset=float(offset[host]) if known else 0.0,
                drift=float(drift[host]) if known else 0.0,
                pivot=pivot,
                anchors=int(own.sum()),
                group=int(group[host]),
                median=float(np.median(errors)) if known else float("nan"),
                percentile_95=float(np.percentile(errors, 95)) if known else float("nan"),
                largest=float(errors.max()) if known else float("nan"),
                bins=bins,
            )
        )
    return clocks
