"""Default stream: other streams wait for it. Their work is launched in time, and starts when the default stream ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import NONE, OccurrenceSums, part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats, by_device, cost, count, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES, STREAM
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.execution.row_order import one_of_each
from nsys2prv.vocabulary import event_types, row_names
from nsys2prv.vocabulary.wording import percent, time

DEFAULT_STREAM = 7
"""nsys' number of the default stream of a context."""

NEAR = Threshold(
    "longest time from the end on the default stream to the start on the other",
    10_000,
    "ns",
    "then the one waited for the other",
)
WAITING = Threshold(
    "shortest time that the work was launched, and its stream free, before that end", 10_000, "ns",
    "then it was the stream that waited, not the host",
)  # fmt: skip
FEWEST_WAITS = Threshold("fewest waits on a device", 20, "", "fewer are chance")
WAITING_PART = Threshold("least part of the work on other streams that waits", 0.5, "0 to 1", "else it is not the rule")
BESIDE = Threshold(
    "largest part of that work that starts beside the default stream", 0.02, "0 to 1", "streams that wait for it never do"
)
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is not worth a change of the program")

_EVENT_WAITS = ("cudaStreamWaitEvent", "cuStreamWaitEvent")
_TIME_BITS = 46
"""Bits that hold a time, as in `intervals`."""


class DefaultStreamWaits:
    """Work on other streams than the default one: how much there is, and what waits for the default stream."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        rows = context.events.rows
        self._is_default = np.array([_is_default(name) for name in rows.names], dtype=bool)
        # The last end so far: of each stream, and of the default stream of each device.
        self._row_ends: Numbers = np.zeros(len(rows.names), dtype=np.int64)
        self._default_ends: Numbers = np.zeros(len(rows.devices), dtype=np.int64)
        self._devices = self._suitable_devices()
        self._waits = OccurrenceSums(("device", "part"), ("count", "cost"))
        self._work = OccurrenceSums(("device",), ("work", "beside"))

    def _suitable_devices(self) -> Numbers:
        """Devices of one process with work on the default stream and on others, which wait for nothing else."""
        events = self._context.events
        rows = events.rows
        names = events.types.get(event_types.CUDA_CALL)
        calls = (names.values or {}).values() if names is not None else ()
        if events.launches is None or events.length >> _TIME_BITS or any(call.startswith(_EVENT_WAITS) for call in calls):
            return np.zeros(0, dtype=np.int64)
        streams = rows.of_kind(STREAM)
        default = set(rows.device[streams & self._is_default].tolist())
        others = set(rows.device[streams & ~self._is_default].tolist())
        alone = {device for device, tasks in rows.tasks_of_device.items() if len(tasks) == 1}
        return np.array(sorted((default & others & alone) - {-1}), dtype=np.int64)

    def update(self, chunk: TimeChunk) -> None:
        """Add the work that begins in a chunk."""
        started = chunk.started[ON_DEVICES.name]
        if not len(self._devices) or started.is_empty():
            return
        device = self._context.events.rows.device[started["row"].to_numpy()]
        chosen = np.isin(device, self._devices)
        if not chosen.any():
            return
        device = device[chosen]
        start, end, row = (started[name].to_numpy()[chosen].astype(np.int64) for name in ("start", "end", "row"))
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
        columns = {"device": device, "row": row, "start": start, "end": end, "default_end": default_end, "own_end": own_end}
        self._add(pl.DataFrame({name: column[~is_default] for name, column in columns.items()}), chunk.launches)

    def _add(self, work: pl.DataFrame, all_launches: pl.DataFrame) -> None:
        """Add work on other streams: `device`, `row`, `start`, `end`, and the last end before on the default stream
        (`default_end`) and on its own (`own_end`)."""
        self._work.add(
            work.select(
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
        latest = pl.col("default_end") - WAITING.value
        near = work.filter((pl.col("start") - pl.col("default_end")).is_between(0, NEAR.value) & (pl.col("own_end") <= latest))
        if near.is_empty():
            return
        launches = all_launches.select(pl.col("to_row").cast(pl.Int64).alias("row"), start="to_time", launched="time")
        of_near = launches.join(near.select("row", "start"), on=["row", "start"], how="semi")
        launches = one_of_each(of_near, ["row", "start"])
        waits = near.join(launches, on=["row", "start"], how="inner").filter(pl.col("launched") <= latest)
        ready = pl.max_horizontal("launched", "own_end")
        self._waits.add(
            waits.select(
                "device",
                "row",
                "end",
                part=part_of(pl.col("start"), self._context.events.length),
                count=pl.lit(1),
                cost=pl.min_horizontal(pl.col("start") - ready, pl.col("end") - pl.col("start")),
                begin=ready,
                thread=pl.lit(NONE),
            )
        )

    def waits(self) -> list[DeviceStats]:
        """Waits for the default stream on each device."""
        return by_device(self._context, self._waits.frame())

    def work(self) -> dict[int, Mapping[str, int]]:
        """By device: pieces of `work` on other streams, and those that start `beside` the default stream."""
        return {row["device"]: row for row in self._work.frame().iter_rows(named=True)}


def _judge(evidence: Evidence) -> Finding | None:
    """Devices where most of the work on other streams waits for the default stream."""
    meter = evidence.meter(DefaultStreamWaits)
    all_work = meter.work()

    def is_serial(stats: DeviceStats) -> bool:
        work = all_work[stats.device]
        return stats.count >= WAITING_PART.value * work["work"] and work["beside"] <= BESIDE.value * work["work"]

    devices = [stats for stats in evidence.costly(meter.waits(), FEWEST_WAITS, LEAST_LOST) if is_serial(stats)]
    if not devices:
        return None
    waits, lost = count(devices), cost(devices)
    work, beside = (sum(all_work[stats.device][name] for stats in devices) for name in ("work", "beside"))
    text = (
        f"{waits:,} of {work:,} pieces of work {on_devices(devices)} on other streams are launched in time and start only when "
        f"the default stream ends; {beside:,} start beside it ({percent(beside / work)}). They wait {time(lost / waits)} on "
        f"average in which they could have run"
    )
    numbers = (
        Number("waits", waits),
        Number("work on other streams", work),
        Number("part of it that waits", waits / work, SHARE),
        Number("part of it that begins beside the default stream", beside / work, SHARE),
        Number("mean time that it could have run meanwhile", lost / waits, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


def _is_default(name: str) -> bool:
    stream = row_names.parse_stream_name(name)
    return stream is not None and stream.stream == DEFAULT_STREAM


def _latest_before(group: Numbers, end: Numbers) -> Numbers:
    """For each row the latest end of those before it in its group, 0 if there is none; rows are sorted by group."""
    packed = np.maximum.accumulate(group << _TIME_BITS | end)
    before = np.roll(packed, 1)
    is_first = np.concatenate([[True], group[1:] != group[:-1]])
    return np.where(is_first, 0, before & ((1 << _TIME_BITS) - 1))


RULE = FindingRule(
    kind="default-stream",
    title="Default stream: other streams wait for it",
    sees="work on other streams that is launched in time, and starts only when the default stream ends, hardly ever beside it",
    needs=(needs.CUDA_CALLS, needs.NO_EVENT_WAITS),
    cost="of each wait the smaller one of its length and of the work that waits: it could have run beside",
    view="1-gpu-kernels/kernels",
    advice="Non-blocking streams (cudaStreamNonBlocking), per-thread default streams (--default-stream per-thread), nothing on "
    "the default stream.",
    thresholds=(NEAR, WAITING, FEWEST_WAITS, WAITING_PART, BESIDE, LEAST_LOST),
    judge=_judge,
    meters=(DefaultStreamWaits,),
)
