"""Stretches of time in which a device does not do something, and what of it follows: who launched that, and when."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.intervals import Intervals, Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import NO_LAUNCH, TimeChunk
from nsys2prv.execution.row_order import differ_from_before

UNKNOWN = -1
"""Place of a thread, or size, that is not known."""


def stretches_before(busy: Intervals, since: Numbers) -> pl.DataFrame:
    """Stretches that end where a device becomes busy in a chunk.

    Parameters
    ----------
    busy
        When each device is busy, merged, in the order of device and time.
    since
        For each device, since when it is not busy at the start of the chunk.

    Returns
    -------
    Columns `device`, `begin`, `start` (where it becomes busy).
    """
    is_first = differ_from_before(busy.group)
    begin = np.where(is_first, since[busy.group], np.roll(busy.end, 1))
    found = busy.begin > begin
    return pl.DataFrame({"device": busy.group[found], "begin": begin[found], "start": busy.begin[found]})


def last_of_each(busy: Intervals) -> Intervals:
    """The last interval of each device; parameters as of `stretches_before`."""
    # The first of each in the other direction.
    return busy.only(differ_from_before(busy.group[::-1])[::-1])


def with_next(chunk: TimeChunk, stretches: pl.DataFrame, chosen: npt.NDArray[np.bool_] | None = None) -> pl.DataFrame:
    """Stretches with the activity that ends each of them.

    Parameters
    ----------
    chunk
        In which they end.
    stretches
        Columns `device`, `begin`, `start`, in this order.
    chosen
        Which activities of devices that start in the chunk can end a stretch (rows of the collection ON_DEVICES); None: all.

    Returns
    -------
    The stretches with `number`, `value`, `next_row`, `next_length`, `next_size` (UNKNOWN: not known) of what follows, `thread`
    (place of the caller that launched it; UNKNOWN) and `launched` (start of the call, ns; null: not known).
    """
    started = chunk.started[ON_DEVICES.name]
    stretch, place = _following(chunk, stretches, np.arange(started.height) if chosen is None else np.flatnonzero(chosen))
    length, size = pl.col("end") - pl.col("start"), pl.col("size").fill_null(UNKNOWN)
    launch = np.where(place == UNKNOWN, NO_LAUNCH, np.append(chunk.launch_of, NO_LAUNCH)[place])
    thread = np.append(chunk.context.place_of_caller[chunk.launches["row"].to_numpy()], UNKNOWN)[launch]
    found = pl.concat(
        [
            stretches[stretch],
            started.lazy()
            .select("number", "value", next_row="row", next_length=length, next_size=size)
            .select(pl.all().gather(_known(place)))
            .collect(engine="in-memory"),
            chunk.launches.select(launched=pl.col("time").gather(_known(launch))),
        ],
        how="horizontal",
    ).with_columns(thread=pl.Series(thread, dtype=pl.Int64))
    # An activity that was launched by a known thread comes first.
    return first_at_each_time(found, "start", ["thread", "next_row", "number", "value"], [True, False, False, False])


def _following(chunk: TimeChunk, stretches: pl.DataFrame, chosen: Numbers) -> tuple[Numbers, Numbers]:
    """Stretches, by their places and in order, each with all of the chosen activities that start where it ends; UNKNOWN: none.

    It is much faster than a join: both are in the order of time on each device.
    """
    started, rows = chunk.started[ON_DEVICES.name], chunk.context.events.rows
    span = chunk.end - chunk.begin + 2
    keys = rows.device[started["row"].to_numpy()[chosen]] * span + (started["start"].to_numpy()[chosen] - chunk.begin)
    ends = stretches["device"].to_numpy() * span + (stretches["start"].to_numpy() - chunk.begin)
    if not len(ends):
        return ends, ends
    stretch = np.searchsorted(ends, keys)
    follows = ends[np.minimum(stretch, len(ends) - 1)] == keys
    stretch, place = stretch[follows], chosen[follows]
    alone = np.flatnonzero(np.bincount(stretch, minlength=len(ends)) == 0)
    stretch = np.concatenate([stretch, alone])
    place = np.concatenate([place, np.full(len(alone), UNKNOWN)])
    order = np.argsort(stretch, kind="stable")
    return stretch[order], place[order]


def _known(places: Numbers) -> pl.Series:
    """Places, of which those that are not known are null."""
    found = pl.Series(places, dtype=pl.Int64)
    return found.set(found == UNKNOWN, None)


def first_at_each_time(frame: pl.DataFrame, time: str, order: list[str], descending: list[bool]) -> pl.DataFrame:
    """The first row, in some order, of each `device` and time; rows of one device and time are neighbours."""
    device, at = frame["device"].to_numpy(), frame[time].to_numpy()
    same = (device[1:] == device[:-1]) & (at[1:] == at[:-1])
    if not same.any():
        return frame
    # Few rows of a device have the same time: only these are sorted.
    together = np.zeros(frame.height, dtype=bool)
    together[1:] |= same
    together[:-1] |= same
    placed = frame.with_row_index("place")
    several = pl.Series(together)
    first = placed.filter(several).sort("device", time, *order, descending=[False, False, *descending])
    first = first.unique(["device", time], keep="first", maintain_order=True)
    return pl.concat([placed.filter(~several), first]).sort("place").drop("place")
