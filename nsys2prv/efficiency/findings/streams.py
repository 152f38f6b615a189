"""Streams that wait for the default stream: work that is launched in time, and begins when the default stream ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.aggregate import NONE, Sums, part_of
from nsys2prv.efficiency.findings.device_stats import Seen, by_device, cost, count, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Measured, Number
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES, STREAM
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types, row_names
from nsys2prv.vocabulary.wording import percent, time

DEFAULT_STREAM = 7
"""nsys' number of the default stream of a context."""
_EVENT_WAITS = ("cudaStreamWaitEvent", "cuStreamWaitEvent")
_SUMS = ("count", "cost")
_TIME_BITS = 46
"""Bits that hold a time, as in `intervals`."""


class Streams:
    """Work on other streams than the default one, by what it waits for."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        rows = ground.recording.rows
        self._is_default = np.array([_is_default(name) for name in rows.names], dtype=bool)
        # Of each stream, and of the default stream of each device: when the last of it ends.
        self._row_ends: Numbers = np.zeros(len(rows.names), dtype=np.int64)
        self._default_ends: Numbers = np.zeros(len(rows.devices), dtype=np.int64)
        self._devices = self._can_tell()
        self._waits = Sums(("device", "part"), _SUMS)
        self._work = Sums(("device",), ("work", "beside"))

    def _can_tell(self) -> Numbers:
        """Devices of one process with work on the default stream and on others, and nothing else that makes these wait."""
        recording = self._ground.recording
        rows = recording.rows
        names = recording.types.get(event_types.CUDA_CALL)
        calls = (names.values or {}).values() if names is not None else ()
        if recording.launches is None or recording.length >> _TIME_BITS or any(call.startswith(_EVENT_WAITS) for call in calls):
            return np.zeros(0, dtype=np.int64)
        streams = rows.of_kind(STREAM)
        default = set(rows.device[streams & self._is_default].tolist())
        others = set(rows.device[streams & ~self._is_default].tolist())
        alone = {device for device, tasks in rows.tasks_of_device.items() if len(tasks) == 1}
        return np.array(sorted((default & others & alone) - {-1}), dtype=np.int64)

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        begun = part.begun[ON_DEVICES.name]
        if not len(self._devices) or begun.is_empty():
            return
        device = self._ground.recording.rows.device[begun["row"].to_numpy()]
        chosen = np.isin(device, self._devices)
        if not chosen.any():
            return
        device = device[chosen]
        start, end, row = (begun[name].to_numpy()[chosen].astype(np.int64) for name in ("start", "end", "row"))
        order = np.lexsort((row, end, start, device))
        device, start, end, row = device[order], start[order], end[order], row[order]
        is_default = self._is_default[row]
        default_end = np.maximum(_latest_before(device, np.where(is_default, end, 0)), self._default_ends[device])
        by_row = np.argsort(row, kind="stable")
        own_end = np.empty(len(row), dtype=np.int64)
        own_end[by_row] = _latest_before(row[by_row], end[by_row])
        own_end = np.maximum(own_end, self._row_ends[row])
        np.maximum.at(self._row_ends, row, end)
        np.maximum.at(self._default_ends, device[is_default], end[is_default])
        other = ~is_default
        frame = pl.DataFrame(
            {name: column[other] for name, column in (("device", device), ("row", row), ("start", start), ("end", end))}
        ).with_columns(default_end=pl.Series(default_end[other]), own_end=pl.Series(own_end[other]))
        self._work.add(
            frame.select(
                "device",
                "row",
                "end",
                begin="start",
                cost=pl.lit(0),
                work=pl.lit(1),
                beside=(pl.col("start") < pl.col("default_end")).cast(pl.Int64),
                thread=pl.lit(NONE),
            )
        )
        least = pl.col("default_end") - limits.STREAM_WAITING.value
        near = frame.filter(
            (pl.col("start") - pl.col("default_end")).is_between(0, limits.STREAM_NEAR.value) & (pl.col("own_end") <= least)
        )
        if near.is_empty():
            return
        launches = part.launches.select(pl.col("to_row").cast(pl.Int64).alias("row"), start="to_time", launched="time")
        launches = launches.join(near.select("row", "start"), on=["row", "start"], how="semi").unique(
            ["row", "start"], keep="first"
        )
        waits = near.join(launches, on=["row", "start"], how="inner").filter(pl.col("launched") <= least)
        ready = pl.max_horizontal("launched", "own_end")
        self._waits.add(
            waits.select(
                "device",
                "row",
                "end",
                part=part_of(pl.col("start"), self._ground.recording.length),
                count=pl.lit(1),
                cost=pl.min_horizontal(pl.col("start") - ready, pl.col("end") - pl.col("start")),
                begin=ready,
                thread=pl.lit(NONE),
            )
        )

    def findings(self, measured: Measured) -> list[Finding]:
        """What is wrong, by these waits."""
        of_devices = {row["device"]: row for row in self._work.frame().iter_rows(named=True)}
        seen = by_device(self._ground, self._waits.frame(), _SUMS, place="part")
        beyond = [one for one in seen if _is_serial(one, of_devices[one.on.device], measured)]
        if not beyond:
            return []
        waits, lost = count(beyond), cost(beyond)
        work, beside = (sum(of_devices[one.on.device][name] for one in beyond) for name in ("work", "beside"))
        text = (
            f"{waits:,} of {work:,} pieces of work {on_devices(beyond)} on other streams are launched in time and begin only "
            f"when the default stream ends; {beside:,} begin beside it ({percent(beside / work)}). They wait "
            f"{time(lost / waits)} on average that they could have run"
        )
        numbers = (
            Number("waits", waits),
            Number("work on other streams", work),
            Number("part of it that waits", waits / work, SHARE),
            Number("part of it that begins beside the default stream", beside / work, SHARE),
            Number("mean time that it could have run meanwhile", lost / waits, NANOSECONDS),
        )
        return [Finding(limits.DEFAULT_STREAM, text, lost, [one.on for one in beyond], numbers)]


def _is_serial(one: Seen, of_device: Mapping[str, int], measured: Measured) -> bool:
    work = of_device["work"]
    return (
        one.on.count >= limits.STREAM_COUNT.value
        and one.on.cost >= limits.STREAM_SHARE.value * measured.active(one.on.device)
        and one.on.count >= limits.STREAM_PART.value * work
        and of_device["beside"] <= limits.STREAM_BESIDE.value * work
    )


def _is_default(name: str) -> bool:
    stream = row_names.parse_stream_name(name)
    return stream is not None and stream.stream == DEFAULT_STREAM


def _latest_before(group: Numbers, end: Numbers) -> Numbers:
    """For each row the latest end of those before it in its group; 0: there is none. Groups stand together."""
    packed = np.maximum.accumulate(group << _TIME_BITS | end)
    before = np.roll(packed, 1)
    is_first = np.concatenate([[True], group[1:] != group[:-1]])
    return np.where(is_first, 0, before & ((1 << _TIME_BITS) - 1))
