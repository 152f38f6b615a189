"""Gaps: stretches in which nothing runs on a device, by length, and what the thread that launched what comes next did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.result_tables import CAUSES
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import ACTIVITIES, SweepContext, TimeChunk

CLASSES_NS = (0, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
"""Where classes of lengths begin."""
MOST_GAPS = 200
"""Gaps that are told one by one: the longest."""

_UNKNOWN = -1
_CAUSE_COLUMNS = [f"{cause}_ns" for cause in CAUSES]
_ALL_CAUSES = [*_CAUSE_COLUMNS, "host_ns", "unknown_ns"]
_FORMER = ("number", "value", "size", "length")
_NEXT = ("next_row", "next_length", "next_size")


class Gaps:
    """Idle stretches of all devices, from the begin of the trace to its end.

    Parameters
    ----------
    ground
        What slices share.
    listener
        Is given each gap once, when it has ended: `device`, `begin`, `start` of what follows; of what follows `number`,
        `value`, `next_row`, `next_length`, `next_size` (-1: not told), and `thread`, the place of the caller that launched it
        (-1: not known), `launched`, when that was; of what ended before `former_number` (0: nothing), `former_value`,
        `former_size` (-1: not told), `former_length`; the time by cause.
    """

    def __init__(self, ground: SweepContext, listener: Callable[[pl.DataFrame], None] | None = None) -> None:
        self._ground = ground
        self._listener = listener
        rows = ground.recording.rows
        devices = len(rows.devices)
        self._idle_since: Numbers = np.zeros(devices, dtype=np.int64)
        # What ended last on each device: its _FORMER; 0: nothing yet.
        self._last: Numbers = np.zeros((devices, len(_FORMER)), dtype=np.int64)
        # Host threads that may launch on a device: callers of the tasks that use it.
        pairs = [
            (device, place)
            for place, row in enumerate(ground.callers.tolist())
            for device in rows.devices_of_task.get(int(rows.task[row]), ())
        ]
        self._pairs: Numbers = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        # Time of each activity of these threads until the device became idle, and until the begin of the stretch.
        self._when_idle: Numbers = np.zeros((len(pairs), ACTIVITIES), dtype=np.int64)
        self._so_far: Numbers = np.zeros((len(ground.callers), ACTIVITIES), dtype=np.int64)
        self._by_class: list[pl.DataFrame] = []
        self._longest: list[pl.DataFrame] = []

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        found = part.on_devices
        busy = found.where(found.mask > 0)
        if len(busy):
            # A device becomes idle when the last of it ends, and a gap ends where the next begins.
            is_first = np.concatenate([[True], busy.group[1:] != busy.group[:-1]])
            is_last = np.concatenate([is_first[1:], [True]])
            since = np.where(is_first, self._idle_since[busy.group], np.roll(busy.end, 1))
            is_gap = busy.begin > since
            gaps = pl.DataFrame({"device": busy.group[is_gap], "begin": since[is_gap], "start": busy.begin[is_gap]})
            ends = self._ends(part)
            self._add(part, self._with_next(part, gaps), ends)
            self._remember(part, busy.group[is_last], busy.end[is_last], ends)
        self._so_far += part.thread_times.until(
            np.arange(len(self._so_far)), np.full(len(self._so_far), part.end, dtype=np.int64)
        )

    def _with_next(self, part: TimeChunk, gaps: pl.DataFrame) -> pl.DataFrame:
        """Gaps (`device`, `begin`, `start` of what follows; in this order) with what follows: `number`, `value`, _NEXT,
        `thread` (place of the caller; -1: not known), `launched`."""
        begun = part.begun[ON_DEVICES.name]
        device = self._ground.recording.rows.device[begun["row"].to_numpy()]
        following = begun.select(
            "start",
            "number",
            "value",
            next_row="row",
            next_length=pl.col("end") - pl.col("start"),
            next_size=pl.col("size").fill_null(_UNKNOWN),
            device=pl.Series(device, dtype=pl.Int64),
        )
        place = self._ground.place_of_caller[part.launches["row"].to_numpy()]
        launches = part.launches.select(
            next_row="to_row", start="to_time", launched="time", thread=pl.Series(place, dtype=pl.Int64)
        )
        all_following = gaps.join(following, on=["device", "start"], how="left", maintain_order="left")
        on = ["next_row", "start"]
        found = all_following.join(launches, on=on, how="left", maintain_order="left")
        if found.height > all_following.height:
            # Of several launches of the same the first one counts.
            launches = launches.unique(on, keep="first", maintain_order=True)
            found = all_following.join(launches, on=on, how="left", maintain_order="left")
        found = found.with_columns(pl.col("thread").fill_null(_UNKNOWN))
        # What was launched by a known thread comes first.
        return _one_each(found, "start", ["thread", "next_row", "number", "value"], [True, False, False, False])

    def _add(self, part: TimeChunk, gaps: pl.DataFrame, ends: pl.DataFrame) -> None:
        device, begin, end = (gaps[name].to_numpy() for name in ("device", "begin", "start"))
        thread = gaps["thread"].fill_null(_UNKNOWN).to_numpy()
        pair = self._pair(device, thread)
        known = pair >= 0
        times = np.zeros((len(device), ACTIVITIES), dtype=np.int64)
        if known.any():
            elapsed = part.thread_times
            until_end = elapsed.until(thread[known], end[known]) + self._so_far[thread[known]]
            early = begin[known] < part.begin
            until_begin = np.where(
                (early | (begin[known] == self._idle_since[device[known]]))[:, None],
                self._when_idle[pair[known]],
                elapsed.until(thread[known], np.maximum(begin[known], part.begin)) + self._so_far[thread[known]],
            )
            times[known] = until_end - until_begin
        length = end - begin
        in_calls = times[:, : len(CAUSES)]
        host = np.where(known, length - in_calls.sum(axis=1), 0)
        causes = {name: in_calls[:, place] for place, name in enumerate(_CAUSE_COLUMNS)}
        causes |= {"host_ns": host, "unknown_ns": np.where(known, 0, length)}
        self._keep(gaps.with_columns(pl.Series(name, values, dtype=pl.Int64) for name, values in causes.items()), ends)

    def _pair(self, device: Numbers, thread: Numbers) -> Numbers:
        """Place in the table of pairs of each device and thread; -1 where the thread is not known."""
        if not len(self._pairs):
            return np.full(len(device), _UNKNOWN, dtype=np.int64)
        threads = len(self._ground.callers)
        keys = self._pairs[:, 0] * threads + self._pairs[:, 1]
        asked = device * threads + thread
        place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return np.where((thread >= 0) & (keys[place] == asked), place, _UNKNOWN)

    def _keep(self, gaps: pl.DataFrame, ends: pl.DataFrame | None = None) -> None:
        """Add gaps (columns `device`, `begin`, `start` of what follows, `number`, `value`, `thread`, causes); `ends` as of
        `_ends`, None at the end of the trace."""
        if gaps.is_empty():
            return
        length = (gaps["start"] - gaps["begin"]).to_numpy()
        of_class = np.searchsorted(CLASSES_NS, length, side="right") - 1
        counted = gaps.with_columns(length=pl.Series(length), of_class=pl.Series(of_class))
        self._by_class.append(
            counted.group_by("device", "of_class").agg(pl.len().alias("count"), pl.col("length", *_ALL_CAUSES).sum())
        )
        if self._listener is not None and ends is not None:
            counted = self._with_former(counted, ends)
            self._listener(counted)
        longest = counted.sort("length", "begin", "device", descending=[True, False, False]).head(MOST_GAPS)
        if "former_number" not in longest.columns:
            longest = self._with_former(longest, ends)
        self._longest.append(longest.select("device", "begin", "start", "number", "value", "thread", "length", *_ALL_CAUSES,
                                            "former_number", "former_value"))  # fmt: skip
        if len(self._longest) > 20:
            self._longest = [_longest(self._longest)]

    def _with_former(self, gaps: pl.DataFrame, ends: pl.DataFrame | None) -> pl.DataFrame:
        """With what ended last before each gap: `former_` and each of _FORMER; 0 at the begin of the trace."""
        device, begin = gaps["device"].to_numpy(), gaps["begin"].to_numpy()
        carried = begin == self._idle_since[device]
        former = np.where(carried[:, None], self._last[device], 0)
        if ends is not None and not carried.all():
            joined = _ended(ends, gaps.select("device", until="begin"))
            former = np.where(carried[:, None], former, joined.select(pl.col(_FORMER).fill_null(0)).to_numpy())
        return gaps.with_columns(
            pl.Series(f"former_{name}", former[:, place], dtype=pl.Int64) for place, name in enumerate(_FORMER)
        )

    def _ends(self, part: TimeChunk) -> pl.DataFrame:
        """What ends on devices in a stretch: columns `device`, `until`, _FORMER."""
        inside = part.inside[ON_DEVICES.name]
        device = self._ground.recording.rows.device[inside["row"].to_numpy()]
        return inside.select(
            "until",
            "number",
            "value",
            pl.col("size").fill_null(_UNKNOWN),
            length=pl.col("until") - pl.col("begin"),
            device=pl.Series(device, dtype=pl.Int64),
        ).filter(pl.col("until") <= part.end)

    def _remember(self, part: TimeChunk, device: Numbers, until: Numbers, ends: pl.DataFrame) -> None:
        """Note when devices became idle, what ended there, and what their threads had done until then."""
        of_devices = _ended(ends.filter(pl.col("until").is_in(until)), pl.DataFrame({"device": device, "until": until}))
        told = of_devices["number"].is_not_null().to_numpy()
        self._last[device[told]] = of_devices.filter(pl.col("number").is_not_null()).select(_FORMER).to_numpy()
        self._idle_since[device] = until
        changed = np.isin(self._pairs[:, 0], device)
        if changed.any():
            of_device, thread = self._pairs[changed, 0], self._pairs[changed, 1]
            elapsed = part.thread_times.until(thread, self._idle_since[of_device])
            self._when_idle[changed] = elapsed + self._so_far[thread]

    def tables(self) -> dict[str, Any]:
        """The tables `gaps` and `longest_gaps`."""
        self._finish()
        rows = self._ground.recording.rows
        names = pl.Series([device.name for device in rows.devices], dtype=pl.String)
        if not self._by_class:
            return {}
        by_class = pl.concat(self._by_class).group_by("device", "of_class").sum().sort("device", "of_class")
        edges = pl.Series([*CLASSES_NS, None], dtype=pl.Int64)
        gaps = by_class.select(
            pl.lit(names).gather("device").alias("device"),
            pl.col("count").cast(pl.Int64),
            *_ALL_CAUSES,
            from_ns=pl.lit(edges).gather("of_class"),
            to_ns=pl.lit(edges).gather(pl.col("of_class") + 1),
            total_ns="length",
        )
        longest = _longest(self._longest)
        thread_rows = pl.Series([*self._ground.callers.tolist(), None], dtype=pl.Int64)
        places = longest["thread"].fill_null(_UNKNOWN).to_numpy()
        of_thread = thread_rows.gather(np.where(places < 0, len(self._ground.callers), places))
        recording = self._ground.recording
        after, before = (
            recording.named(longest[number].fill_null(0), longest[value].fill_null(0))
            for number, value in (("number", "value"), ("former_number", "former_value"))
        )
        told = longest.select(
            pl.lit(names).gather("device").alias("device"),
            *_ALL_CAUSES,
            begin_ns="begin",
            end_ns="start",
            length_ns="length",
            before=pl.when(pl.col("former_number") > 0).then(pl.lit(before)),
            after=pl.when(pl.col("number").is_not_null()).then(pl.lit(after)),
        ).with_columns(
            task=pl.Series(
                [None if row is None else rows.tasks[int(rows.task[row])].name for row in of_thread], dtype=pl.String
            ),
            thread=pl.Series([None if row is None else rows.names[row] for row in of_thread], dtype=pl.String),
        )
        return {"gaps": gaps, "longest_gaps": told}

    def _finish(self) -> None:
        """What is idle at the end of the trace."""
        length = self._ground.recording.length
        device = np.flatnonzero(self._idle_since < length)
        begin = self._idle_since[device]
        nothing = np.zeros(len(device), dtype=np.int64)
        gaps = pl.DataFrame(
            {
                "device": device,
                "begin": begin,
                "start": np.full(len(device), length),
                "number": nothing,
                "value": nothing,
                "thread": nothing - 1,
                **dict.fromkeys([*_CAUSE_COLUMNS, "host_ns"], nothing),
                "unknown_ns": length - begin,
            },
            schema=dict.fromkeys(["device", "begin", "start", "number", "value", "thread", *_ALL_CAUSES], pl.Int64),
        ).with_columns(pl.lit(None, pl.Int32).alias("number"))
        self._keep(gaps)


def _longest(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames).sort("length", "begin", "device", descending=[True, False, False]).head(MOST_GAPS)


def _ended(ends: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """What ended (columns of `Gaps._ends`) at each `device` and `until` that is asked for, in their order; null: nothing."""
    found = asked.join(ends, on=["device", "until"], how="left", maintain_order="left")
    return _one_each(found, "until", list(_FORMER), [False] * len(_FORMER))


def _one_each(frame: pl.DataFrame, time: str, order: list[str], descending: list[bool]) -> pl.DataFrame:
    """The first row, in some order, of each `device` and time; rows of one device and time stand together."""
    device, at = frame["device"].to_numpy(), frame[time].to_numpy()
    same = (device[1:] == device[:-1]) & (at[1:] == at[:-1])
    if not same.any():
        return frame
    # Few happen at the same time on a device: only these have to be put in order.
    together = np.zeros(frame.height, dtype=bool)
    together[1:] |= same
    together[:-1] |= same
    placed = frame.with_row_index("place")
    several = pl.Series(together)
    first = placed.filter(several).sort("device", time, *order, descending=[False, False, *descending])
    first = first.unique(["device", time], keep="first", maintain_order=True)
    return pl.concat([placed.filter(~several), first]).sort("place").drop("place")
