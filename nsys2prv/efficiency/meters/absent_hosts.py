"""What host threads did, for the times in which a device waits for a launch: calls by name, and NVTX ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Intervals, Numbers, segments
from nsys2prv.efficiency.run_events import ON_HOSTS, RANGES
from nsys2prv.efficiency.steps import NONE, Nested, Steps
from nsys2prv.efficiency.sweep import NO_CALL, TimeChunk, first_open
from nsys2prv.vocabulary import event_types

_VALUE_BITS, _NUMBER_BITS = 32, 27
_NAME_BITS = _VALUE_BITS + _NUMBER_BITS
NO_NAME = 0
_OUTSIDE = NO_CALL << _NAME_BITS


def packed_names(numbers: Numbers, values: Numbers) -> Numbers:
    """One number for the event type and the value of each event; 0 where these are out of the range of names."""
    known = (values >= 0) & (values < 1 << _VALUE_BITS) & (numbers > 0) & (numbers < 1 << _NUMBER_BITS)
    return np.where(known, numbers << _VALUE_BITS | values, NO_NAME)


def unpacked(names: pl.Expr, prefix: str) -> list[pl.Expr]:
    """Columns `PREFIX_number` and `PREFIX_value` of packed names; null where there is none."""
    is_known = names != NO_NAME
    return [
        pl.when(is_known).then(names // 2**_VALUE_BITS).alias(f"{prefix}_number"),
        pl.when(is_known).then(names % 2**_VALUE_BITS).alias(f"{prefix}_value"),
    ]


@dataclass(frozen=True)
class HostSteps:
    """What calling threads do in a chunk; groups are places of callers.

    Attributes
    ----------
    calls
        Activity (as of `sweep`) and name of the innermost call of that activity, packed: see `activity_of`, `packed_name_of`.
    ranges
        Packed name of the innermost NVTX range (push/pop).
    """

    calls: Steps
    ranges: Steps

    @classmethod
    def of(cls, chunk: TimeChunk) -> HostSteps:
        """Those of a chunk."""
        activity = first_open(chunk.on_threads)
        names = _names_of_calls(chunk, activity)
        return cls(Steps.of(chunk.on_threads, activity << _NAME_BITS | names, _OUTSIDE), _ranges(chunk))

    @property
    def size(self) -> int:
        """Number of changes."""
        return len(self.calls) + len(self.ranges)


def activity_of(calls: Numbers) -> Numbers:
    """Activity in keys of `HostSteps.calls`."""
    return calls >> _NAME_BITS


def packed_name_of(calls: Numbers) -> Numbers:
    """Packed name of the call in keys of `HostSteps.calls`."""
    return calls & ((1 << _NAME_BITS) - 1)


def _names_of_calls(chunk: TimeChunk, activity: Numbers) -> Numbers:
    """Packed name of the innermost call of the activity in each segment of the threads; 0 where there is none."""
    context, found = chunk.context, chunk.on_threads
    inside = chunk.inside[ON_HOSTS.name]
    group = context.place_of_caller[inside["row"].to_numpy()]
    chosen = pl.Series(group >= 0) & (inside["until"] > inside["begin"])
    calls = inside.filter(chosen)
    group = group[chosen.to_numpy()]
    number, value = (calls[name].to_numpy().astype(np.int64) for name in ("number", "value"))
    # Calls of one activity are nested in each other.
    key = group * NO_CALL + context.category(number, value)
    nested = Nested(key, calls["begin"].to_numpy(), calls["until"].to_numpy())
    in_call = activity < NO_CALL
    depth = np.zeros(len(activity), dtype=np.int64)
    for category, counts in enumerate(found.counts):
        depth = np.where(activity == category, counts, depth)
    names = np.zeros(len(activity), dtype=np.int64)
    place = nested.innermost(found.group[in_call] * NO_CALL + activity[in_call], found.begin[in_call], depth[in_call])
    names[in_call] = np.where(place != NONE, packed_names(number, value)[place] if len(number) else 0, NO_NAME)
    return names


def _ranges(chunk: TimeChunk) -> Steps:
    inside = chunk.inside[RANGES.name]
    group = chunk.context.place_of_caller[inside["row"].to_numpy()]
    chosen = (
        pl.Series(group >= 0)
        & (inside["number"] != event_types.NVTX_RANGE)
        & (inside["until"] > inside["begin"])
        & (inside["end"] > inside["start"])
    )
    ranges = inside.filter(chosen)
    group = group[chosen.to_numpy()]
    begin, end = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    found = segments(Intervals(group, begin, end))
    nested = Nested(group, ranges["begin"].to_numpy(), ranges["until"].to_numpy())
    place = nested.innermost(found.group, found.begin, found.counts[0])
    names = packed_names(*(ranges[name].to_numpy().astype(np.int64) for name in ("number", "value")))
    named = np.where(place != NONE, names[place] if len(names) else 0, NO_NAME)
    return Steps.of(found, named, NO_NAME)
