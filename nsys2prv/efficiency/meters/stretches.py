"""Stretches of time in which a device does not do something, and what of it follows: who launched that, and when."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Intervals, Numbers
from nsys2prv.efficiency.sweep import TimeChunk
from nsys2prv.execution.row_order import differ_from_before, one_of_each

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


def with_next(chunk: TimeChunk, stretches: pl.DataFrame, started: pl.DataFrame) -> pl.DataFrame:
    """Stretches with the activity that ends each of them.

    Parameters
    ----------
    chunk
        In which they end.
    stretches
        Columns `device`, `begin`, `start`, in this order.
    started
        Activities of devices that start in the chunk and can end a stretch: rows of the collection ON_DEVICES.

    Returns
    -------
    The stretches with `number`, `value`, `next_row`, `next_length`, `next_size` (UNKNOWN: not known) of what follows, `thread`
    (place of the caller that launched it; UNKNOWN) and `launched` (start of the call, ns; null: not known).
    """
    following = chunk.context.events.rows.located(started).select(
        "device",
        "start",
        "number",
        "value",
        next_row="row",
        next_length=pl.col("end") - pl.col("start"),
        next_size=pl.col("size").fill_null(UNKNOWN),
    )
    place = chunk.context.place_of_caller[chunk.launches["row"].to_numpy()]
    launches = chunk.launches.select(
        next_row="to_row", start="to_time", launched="time", thread=pl.Series(place, dtype=pl.Int64)
    )
    all_following = stretches.join(following, on=["device", "start"], how="left", maintain_order="left")
    on = ["next_row", "start"]
    found = all_following.join(launches, on=on, how="left", maintain_order="left")
    if found.height > all_following.height:
        # Of several launches of one activity the first counts.
        launches = one_of_each(launches.select("launched", pl.exclude("launched")), on)
        found = all_following.join(launches, on=on, how="left", maintain_order="left")
    found = found.with_columns(pl.col("thread").fill_null(UNKNOWN))
    # An activity that was launched by a known thread comes first.
    return first_at_each_time(found, "start", ["thread", "next_row", "number", "value"], [True, False, False, False])


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
