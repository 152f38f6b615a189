"""What is measured for findings alone: gaps by what explains them, copies that nothing covers, kernels in company, streams in turn.

Sums over slices are sums over the run; of each sum the longest occurrence is kept, as the place to look at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys2prv import events
from nsys2prv.analysis.findings import limits
from nsys2prv.analysis.intervals import Numbers
from nsys2prv.analysis.kernels import bar_of
from nsys2prv.analysis.recording import ON_DEVICES, STREAM, STREAM_NAME
from nsys2prv.analysis.sweep import KERNEL, MEMORY, NCCL, Ground, Slice

LAUNCH_GAPS, TURN_GAPS, HOST_GAPS, DATA_GAPS, ALLOCATION_GAPS = range(5)
"""Why a device is idle. A gap belongs to one of the first four, or to none; the time in allocation calls is counted apart."""
PAGEABLE_COPIES, SMALL_COPIES = range(2)

_WORST = ("worst_begin", "worst_end", "worst_row", "worst_thread")
_KERNELS = (events.KERNEL, events.GRAPH_EXECUTION)
_ALL_KERNELS = (*_KERNELS, events.NCCL_KERNEL)
_TO_DEVICE, _TO_HOST = events.COPY_KINDS[1], events.COPY_KINDS[2]
_PAGEABLE = events.MEMORY_KINDS[0]
_DEFAULT_STREAM = 7
"""nsys' number of the default stream."""
_EVENT_WAITS = ("cudaStreamWaitEvent", "cuStreamWaitEvent")
_NONE = -1
_PENDING = 20
_MOST_CONTEXTS = 400
"""Kernels after a kernel that are looked at: those that take most time."""


class Evidence:
    """Sums for the rules."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        recording = ground.recording
        self._gaps = _Sums(("device", "shape"), ("count", "cost", "launching", "next_length", "allocating"))
        self._copies = _Sums(("device", "shape"), ("count", "cost", "length", "bytes"))
        self._modes = _Sums(("number", "value", "after", "company", "bar"), ("count", "length"))
        self._streams = _Sums(("device",), ("count", "waits", "beside", "cost", "waited", "default_length"))
        self._to_device = _value(recording.types, events.MEMORY_OPERATION, _TO_DEVICE)
        self._to_host = _value(recording.types, events.MEMORY_OPERATION, _TO_HOST)
        self._pageable = [_value(recording.types, number, _PAGEABLE) for number in (events.SOURCE_MEMORY, events.DESTINATION_MEMORY)]
        rows = recording.rows
        self._former: Numbers = np.full(len(rows.names), _NONE, dtype=np.int64)
        # Of each stream, and of the default stream of each device: when the last of it ends.
        self._row_ends: Numbers = np.zeros(len(rows.names), dtype=np.int64)
        self._default_ends: Numbers = np.zeros(len(rows.devices), dtype=np.int64)
        self._is_default = np.array([_is_default(name) for name in rows.names], dtype=bool)
        self._with_streams = self._can_tell_of_streams()

    @property
    def gaps(self) -> pl.DataFrame:
        """By `device` and `shape`: `count`, `cost` (idle time, and of turns the copies), `launching`, `next_length`, `allocating`."""
        return self._gaps.frame()

    @property
    def copies(self) -> pl.DataFrame:
        """By `device` and `shape`: `count`, `cost` (time in which no kernel runs), `length`, `bytes`."""
        return self._copies.frame()

    @property
    def modes(self) -> pl.DataFrame:
        """Of each kernel after each kernel: `count` and `length` of executions by duration (`bar`), alone and in company."""
        return self._modes.frame()

    @property
    def streams(self) -> pl.DataFrame:
        """By device, of work on other streams than the default one: `count`, `waits` for the default stream, `beside` it."""
        return self._streams.frame()

    def take(self, part: Slice) -> None:
        """Take in a stretch."""
        self._take_copies(part)
        self._take_modes(part)
        if self._with_streams:
            self._take_streams(part)

    def take_gaps(self, gaps: pl.DataFrame) -> None:
        """Take in gaps, as `gaps.Gaps` tells them."""
        inner = gaps.filter((pl.col("former_number") > 0) & pl.col("number").is_not_null())
        if inner.is_empty():
            return
        length, computing = pl.col("length"), pl.col("host_ns") + pl.col("os_ns")
        after_copy = (pl.col("former_number") == events.MEMORY_OPERATION) & (pl.col("former_value") == self._to_host)
        small = pl.col("former_size").is_between(0, limits.TURN_BYTES.value)
        waited = (pl.col("synchronization_ns") > 0) | (pl.col("memory_ns") > 0)
        is_turn = after_copy & small & waited & (length <= limits.TURN_GAP.value)
        is_host = computing >= limits.HOST_PART.value * length
        before_copy = (pl.col("number") == events.MEMORY_OPERATION) & (pl.col("value") == self._to_device)
        is_data = is_host & before_copy & (length >= limits.DATA_GAP.value)
        is_launch = (
            pl.col("number").is_in(_ALL_KERNELS)
            & (length <= limits.LAUNCH_GAP.value)
            & (pl.col("launch_ns") >= limits.LAUNCH_PART.value * length)
        )
        told = inner.select(
            "device",
            shape=pl.when(is_turn).then(TURN_GAPS).when(is_data).then(DATA_GAPS).when(is_launch).then(LAUNCH_GAPS)
            .when(is_host).then(HOST_GAPS).otherwise(_NONE),
            count=pl.lit(1),
            cost=length - pl.col("allocation_ns") + pl.when(is_turn).then("former_length").otherwise(0),
            launching="launch_ns",
            next_length="next_length",
            allocating="allocation_ns",
            begin="begin",
            end="start",
            worst_length="length",
            worst_begin="begin",
            worst_end="start",
            worst_row="next_row",
            worst_thread="thread",
        )  # fmt: skip
        self._gaps.add(told.filter(pl.col("shape") != _NONE))
        allocating = told.filter(pl.col("allocating") > 0)
        self._gaps.add(
            allocating.with_columns(
                shape=pl.lit(ALLOCATION_GAPS, pl.Int32), cost=pl.col("allocating"), worst_length=pl.col("allocating")
            )
        )

    def _take_copies(self, part: Slice) -> None:
        inside = part.inside[ON_DEVICES.name]
        copies = inside.filter(
            (pl.col("number") == events.MEMORY_OPERATION) & pl.col("value").is_in([self._to_device, self._to_host])
        )
        if copies.is_empty():
            return
        from_pageable = (pl.col("source") == self._pageable[0]) | (pl.col("destination") == self._pageable[1])
        large = from_pageable & (pl.col("size") >= limits.PAGEABLE_BYTES.value)
        small = pl.col("size") < limits.SMALL_BYTES.value
        shape = pl.when(large).then(PAGEABLE_COPIES).when(small).then(SMALL_COPIES).otherwise(_NONE)
        device = pl.Series(self._ground.recording.rows.device[copies["row"].to_numpy()], dtype=pl.Int64)
        copies = copies.with_columns(shape.alias("shape"), device=device).filter(
            (pl.col("shape") != _NONE) & (pl.col("device") >= 0)
        )
        if copies.is_empty():
            return
        on, times = copies["device"].to_numpy(), part.device_times
        alone = times.until(on, copies["end"].to_numpy()) - times.until(on, copies["start"].to_numpy())
        begins = (pl.col("start") == pl.col("begin")) & (pl.col("begin") >= part.begin)
        length = pl.col("until") - pl.col("begin")
        self._copies.add(
            copies.select(
                "device",
                "shape",
                count=begins.cast(pl.Int64),
                cost=pl.Series(alone[:, 1 << MEMORY], dtype=pl.Int64),
                length=pl.col("end") - pl.col("start"),
                bytes=pl.when(begins).then("size").otherwise(0),
                begin="begin",
                end="end",
                worst_length=pl.when(begins).then(length).otherwise(_NONE),
                worst_begin="begin",
                worst_end="until",
                worst_row="row",
                worst_thread=pl.lit(_NONE),
            )
        )

    def _take_modes(self, part: Slice) -> None:
        """Kernels by duration, by what ran before on their stream, and by whether another kernel ran when they began."""
        begun = part.begun[ON_DEVICES.name].filter(pl.col("number").is_in(_ALL_KERNELS)).sort("row", "start", "end", "value")
        if begun.is_empty():
            return
        row = begun["row"].to_numpy()
        value = begun["value"].to_numpy()
        is_first = np.concatenate([[True], row[1:] != row[:-1]])
        after = np.where(is_first, self._former[row], np.roll(value, 1))
        is_last = np.concatenate([is_first[1:], [True]])
        self._former[row[is_last]] = value[is_last]
        kernels = begun.with_columns(after=pl.Series(after)).filter(pl.col("number") == events.KERNEL)
        device = self._ground.recording.rows.device[kernels["row"].to_numpy()]
        found = part.on_devices
        open_kernels = found.counts[KERNEL] + found.counts[NCCL]
        place = found.place(device, kernels["start"].to_numpy())
        company = open_kernels[place] > 1 if len(open_kernels) else np.zeros(len(device), dtype=bool)
        length = pl.col("end") - pl.col("start")
        self._modes.add(
            kernels.select(
                "number",
                "value",
                "after",
                company=pl.Series(company).cast(pl.Int64),
                bar=bar_of(length),
                count=pl.lit(1),
                length=length,
                begin="start",
                end="end",
                worst_length=length,
                worst_begin="start",
                worst_end="end",
                worst_row="row",
                worst_thread=pl.lit(_NONE),
            ).filter(pl.Series(device >= 0))
        )

    def _can_tell_of_streams(self) -> bool:
        """Whether a device has work on the default stream and on others, and nothing else makes streams wait for each other."""
        recording = self._ground.recording
        names = recording.types.get(events.CUDA_CALL)
        calls = (names.values or {}).values() if names is not None else ()
        if recording.launches is None or any(call.startswith(_EVENT_WAITS) for call in calls):
            return False
        rows = recording.rows
        streams = rows.of_kind(STREAM)
        default = set(rows.device[streams & self._is_default].tolist())
        return bool(default & set(rows.device[streams & ~self._is_default].tolist()))

    def _take_streams(self, part: Slice) -> None:
        begun = part.begun[ON_DEVICES.name]
        if begun.is_empty():
            return
        rows = self._ground.recording.rows
        row = begun["row"].to_numpy()
        launches = part.launches.select(row="to_row", start="to_time", launched="time").unique(["row", "start"], keep="first")
        frame = (
            begun.select("row", "start", "end", device=pl.Series(rows.device[row]), is_default=pl.Series(self._is_default[row]))
            .join(launches, on=["row", "start"], how="left")
            .filter(pl.col("device") >= 0)
            .sort("device", "start", "end", "row")
        )
        device, on_row = frame["device"].to_numpy(), frame["row"].to_numpy()
        before = pl.when("is_default").then("end").otherwise(0).cum_max()
        frame = frame.with_columns(
            default_end=pl.max_horizontal(
                before.shift(1, fill_value=0).over("device", order_by="start"), pl.Series(self._default_ends[device])
            ),
            own_end=pl.max_horizontal(
                pl.col("end").cum_max().shift(1, fill_value=0).over("row", order_by="start"), pl.Series(self._row_ends[on_row])
            ),
        )
        np.maximum.at(self._row_ends, on_row, frame["end"].to_numpy())
        default = frame["is_default"].to_numpy()
        np.maximum.at(self._default_ends, device[default], frame["end"].to_numpy()[default])
        other = ~pl.col("is_default")
        near, waiting = limits.STREAM_NEAR.value, limits.STREAM_WAITING.value
        waits = (
            other
            & (pl.col("start") - pl.col("default_end")).is_between(0, near)
            & (pl.col("launched") <= pl.col("default_end") - waiting)
            & (pl.col("own_end") <= pl.col("default_end") - waiting)
        ).fill_null(value=False)
        length = pl.col("end") - pl.col("start")
        since = pl.max_horizontal("launched", "own_end")
        self._streams.add(
            frame.select(
                "device",
                count=other.cast(pl.Int64),
                waits=waits.cast(pl.Int64),
                beside=(other & (pl.col("start") < pl.col("default_end"))).cast(pl.Int64),
                cost=pl.when(waits).then(pl.min_horizontal(pl.col("start") - since, length)).otherwise(0),
                waited=pl.when(waits).then(pl.col("start") - since).otherwise(0),
                default_length=pl.when("is_default").then(length).otherwise(0),
                begin=pl.when(waits).then(since),
                end=pl.when(waits).then("end"),
                worst_length=pl.when(waits).then(pl.col("start") - since).otherwise(_NONE),
                worst_begin=since,
                worst_end="end",
                worst_row="row",
                worst_thread=pl.lit(_NONE),
            )
        )


class _Sums:
    """Rows by key: sums, the first begin and last end, and the longest occurrence."""

    def __init__(self, key: Sequence[str], sums: Sequence[str]) -> None:
        self._key = list(key)
        self._sums = list(sums)
        self._columns = [*key, *sums, "begin", "end", "worst_length", *_WORST]
        self._found: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> None:
        if frame.height:
            self._found.append(self._merged(frame.select(pl.col(self._columns).cast(pl.Int64))))
        if len(self._found) > _PENDING:
            self._found = [self.frame()]

    def frame(self) -> pl.DataFrame:
        """Columns: the key, the sums, `begin`, `end`, `worst_length` and _WORST, in the order of the key."""
        if not self._found:
            return pl.DataFrame(schema=dict.fromkeys(self._columns, pl.Int64))
        return self._merged(pl.concat(self._found)).sort(self._key)

    def _merged(self, frame: pl.DataFrame) -> pl.DataFrame:
        # Of several that are equally long the first counts, whatever the slices.
        worst = pl.struct(-pl.col("worst_length"), *_WORST).min().alias("worst")
        merged = frame.group_by(self._key).agg(
            pl.col(self._sums).sum(), pl.col("begin").min(), pl.col("end").max(), pl.col("worst_length").max(), worst
        )
        return merged.with_columns(pl.col("worst").struct.field(name) for name in _WORST).select(self._columns)


def _value(types: object, number: int, label: str) -> int:
    """Value of an event type with a label; -1: the trace has none."""
    names = types.get(number)  # type: ignore[attr-defined]
    return next((value for value, text in (names.values or {}).items() if text == label), _NONE) if names else _NONE


def _is_default(name: str) -> bool:
    found = STREAM_NAME.fullmatch(name)
    return found is not None and int(found[2]) == _DEFAULT_STREAM
