"""Idle devices: gaps by what explains them. A gap has one shape, or none; the time in allocation calls is counted apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.aggregate import Sums, part_of
from nsys2prv.efficiency.findings.device_stats import Seen, by_device, cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Measured, Number, recurs
from nsys2prv.efficiency.run_events import TypeNames
from nsys2prv.efficiency.sweep import SweepContext
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, time

TURN, DATA, SMALL, LAUNCH, HOST, ALLOCATION = range(6)
"""Shapes, in the order in which they are tried; ALLOCATION is beside the others."""
_NO_SHAPE = -1

ALL_KERNELS = (event_types.KERNEL, event_types.GRAPH_EXECUTION, event_types.NCCL_KERNEL)
_SUMS = ("count", "cost", "launching", "computing", "in_os", "next_length", "results")


def value_of(types: dict[int, TypeNames], number: int, label: str) -> int:
    """Value of an event type that has a label; -1: the run has none."""
    names = types.get(number)
    return next((value for value, text in (names.values or {}).items() if text == label), -1) if names else -1


class Idle:
    """Sums of gaps by shape."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        types = dict(ground.recording.types)
        self._to_device, self._to_host = (
            value_of(types, event_types.MEMORY_OPERATION, event_types.COPY_KINDS[kind]) for kind in (1, 2)
        )
        self._gaps = Sums(("device", "shape", "part"), _SUMS)

    def take(self, gaps: pl.DataFrame) -> None:
        """Take in gaps, as `gaps.Gaps` tells them to its listener."""
        # Of a gap at the begin or the end of the run, or whose launching thread is not known, nobody can tell the cause.
        inner = gaps.filter((pl.col("former_number") > 0) & pl.col("number").is_not_null() & (pl.col("unknown_ns") == 0))
        if inner.is_empty():
            return
        length = pl.col("length")
        host = pl.col("host_ns") + pl.col("os_ns")
        is_copy, was_copy = (
            pl.col("number") == event_types.MEMORY_OPERATION,
            pl.col("former_number") == event_types.MEMORY_OPERATION,
        )
        before_kernel, after_kernel = (pl.col(name).is_in(ALL_KERNELS) for name in ("number", "former_number"))
        to_device = is_copy & (pl.col("value") == self._to_device)
        was_to_device = was_copy & (pl.col("former_value") == self._to_device)
        was_to_host = was_copy & (pl.col("former_value") == self._to_host)
        result = was_to_host & pl.col("former_size").is_between(0, limits.TURN_BYTES.value)
        # What was launched before the gap began would have begun sooner, were it for the host.
        is_late = pl.col("launched") >= pl.col("begin")
        waited = (pl.col("synchronization_ns") > 0) | (result & (pl.col("memory_ns") > 0))
        is_turn = is_late & waited & (before_kernel | to_device) & (length <= limits.TURN_GAP.value)
        is_data = (
            is_late
            & to_device
            & ~was_to_device
            & (pl.col("next_size") >= limits.DATA_BYTES.value)
            & (length >= limits.DATA_GAP.value)
            & (host >= limits.HOST_PART.value * length)
        )
        is_small = (
            is_copy
            & was_copy
            & pl.col("next_size").is_between(0, limits.SMALL_BYTES.value, closed="left")
            & pl.col("former_size").is_between(0, limits.SMALL_BYTES.value, closed="left")
            & (length <= limits.SMALL_GAP.value)
        )
        is_launch = (
            (pl.col("launched") >= pl.col("begin") - limits.LAUNCH_AHEAD.value)
            & before_kernel
            & (pl.col("launch_ns") > 0)
            & (length <= limits.LAUNCH_GAP.value)
            & (pl.col("launch_ns") + pl.col("other_cuda_ns") + host >= limits.LAUNCH_PART.value * length)
        )
        is_host = is_late & (host >= limits.HOST_PART.value * length)
        shapes = {TURN: is_turn, DATA: is_data, SMALL: is_small, LAUNCH: is_launch, HOST: is_host}
        shape: pl.Expr = pl.lit(_NO_SHAPE)
        for one, is_one in reversed(shapes.items()):
            shape = pl.when(is_one).then(one).otherwise(shape)
        in_loop = (
            is_late
            & (pl.col("allocation_ns") > 0)
            & (after_kernel | (was_copy & ~was_to_device & (pl.col("former_size") >= 0)))
        )
        shaped = inner.select(
            "device",
            "begin",
            shape=shape,
            part=part_of(pl.col("begin"), self._ground.recording.length),
            count=1,
            cost=length - pl.col("allocation_ns"),
            launching="launch_ns",
            computing="host_ns",
            in_os="os_ns",
            next_length="next_length",
            results=result.cast(pl.Int64),
            end="start",
            row="next_row",
            thread="thread",
            allocating=pl.when(in_loop).then("allocation_ns").otherwise(0),
        )
        self._gaps.add(shaped.filter(pl.col("shape") != _NO_SHAPE))
        allocating = shaped.filter(pl.col("allocating") > 0)
        self._gaps.add(allocating.with_columns(shape=pl.lit(ALLOCATION), cost=pl.col("allocating")))

    def frame(self, shape: int) -> pl.DataFrame:
        """Sums of one shape by device and part of the run."""
        return self._gaps.frame().filter(pl.col("shape") == shape)

    def findings(self, measured: Measured) -> list[Finding]:
        """What is wrong, by these gaps."""
        rules: Sequence[tuple[int, str, Callable[[Seen, Measured], bool], Callable[[str, list[Seen]], Finding]]] = (
            (LAUNCH, "part", _is_launch_bound, _launch_bound),
            (TURN, "part", _is_ping_pong, _ping_pong),
            (DATA, "top", _is_data_loading, _data_loading),
            (HOST, "top", _is_host_bound, _host_bound),
            (ALLOCATION, "part", _is_allocating, _allocating),
        )
        found = []
        for shape, place, is_one, finding in rules:
            seen = by_device(self._ground, self.frame(shape), _SUMS, place=place)
            beyond = [one for one in seen if is_one(one, measured)]
            if beyond:
                found.append(finding(on_devices(beyond), beyond))
        return found


def _is_launch_bound(one: Seen, measured: Measured) -> bool:
    return (
        one.on.count >= limits.LAUNCH_COUNT.value
        and one.on.cost >= limits.LAUNCH_SHARE.value * measured.active(one.on.device)
        and one.sums["next_length"] <= limits.LAUNCH_KERNEL.value * one.on.cost
    )


def _launch_bound(where: str, found: list[Seen]) -> Finding:
    gaps, lost = count(found), cost(found)
    kernel, launching = total(found, "next_length") / gaps, total(found, "launching") / lost
    seen = (
        f"{gaps:,} gaps {where}, {time(lost / gaps)} on average, before kernels of {time(kernel)}: meanwhile the launching "
        f"thread is in launch calls ({percent(launching)} of the gaps) or on the way to the next one"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("mean duration of the kernels behind them", kernel, NANOSECONDS),
        Number("part of the gaps in launch calls", launching, SHARE),
    )
    return Finding(limits.LAUNCH, seen, lost, [one.on for one in found], numbers)


def _is_ping_pong(one: Seen, measured: Measured) -> bool:
    return one.on.count >= limits.TURN_COUNT.value and one.on.cost >= limits.TURN_SHARE.value * measured.active(one.on.device)


def _ping_pong(where: str, found: list[Seen]) -> Finding:
    turns, lost, results = count(found), cost(found), total(found, "results")
    seen = (
        f"{turns:,} times {where} the launching thread waits until the device has nothing left to do, {results:,} times for a "
        f"small copy to the host, and only then starts what comes next, {time(lost / turns)} later on average"
    )
    numbers = (
        Number("turns", turns),
        Number("turns after a small copy to the host", results),
        Number("mean gap", lost / turns, NANOSECONDS),
    )
    return Finding(limits.TURNS, seen, lost, [one.on for one in found], numbers)


def _is_data_loading(one: Seen, measured: Measured) -> bool:
    active = measured.active(one.on.device)
    return (
        one.on.count >= limits.DATA_COUNT.value
        and one.on.cost >= limits.DATA_SHARE.value * active
        and one.on.end - one.on.begin >= limits.DATA_REACH.value * active
    )


def _data_loading(where: str, found: list[Seen]) -> Finding:
    gaps, lost, longest = count(found), cost(found), max(one.longest for one in found)
    in_os = total(found, "in_os") / lost
    seen = (
        f"{gaps:,} gaps {where}, {time(lost / gaps)} on average and {time(longest)} at most, end with the copy of new data to "
        f"the device; meanwhile the launching thread is in no CUDA call"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("longest gap", longest, NANOSECONDS),
        Number("part of the gaps in OS calls", in_os, SHARE),
    )
    return Finding(limits.DATA, seen, lost, [one.on for one in found], numbers)


def _is_host_bound(one: Seen, measured: Measured) -> bool:
    without_longest = one.on.cost - one.longest
    return (
        one.on.count >= limits.HOST_COUNT.value
        and without_longest >= limits.HOST_SHARE.value * measured.active(one.on.device)
        and recurs(measured, one.on.device, one.parts, limits.RECURRING.value, limits.ACTIVE_PARTS.value)
    )


def _host_bound(where: str, found: list[Seen]) -> Finding:
    gaps, lost, longest = count(found), cost(found), max(one.longest for one in found)
    computing, in_os = total(found, "computing") / lost, total(found, "in_os") / lost
    seen = (
        f"{gaps:,} gaps {where}, {time(lost / gaps)} on average and {time(longest)} at most, while the launching thread is in "
        f"neither CUDA nor MPI calls ({percent(computing)} of the time) or in calls of the OS ({percent(in_os)})"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("longest gap", longest, NANOSECONDS),
        Number("part of the gaps in no call", computing, SHARE),
        Number("part of the gaps in OS calls", in_os, SHARE),
    )
    return Finding(limits.HOST, seen, lost, [one.on for one in found], numbers)


def _is_allocating(one: Seen, measured: Measured) -> bool:
    return (
        one.on.count >= limits.ALLOCATION_COUNT.value
        and one.on.cost >= limits.ALLOCATION_SHARE.value * measured.active(one.on.device)
        and recurs(measured, one.on.device, one.parts, limits.RECURRING.value, limits.ACTIVE_PARTS.value)
    )


def _allocating(where: str, found: list[Seen]) -> Finding:
    gaps, lost, longest = count(found), cost(found), max(one.longest for one in found)
    seen = (
        f"in {gaps:,} gaps {where} the launching thread allocates or frees memory, {time(lost / gaps)} on average and "
        f"{time(longest)} at most"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean time in these calls in a gap", lost / gaps, NANOSECONDS),
        Number("longest time", longest, NANOSECONDS),
    )
    return Finding(limits.ALLOCATIONS, seen, lost, [one.on for one in found], numbers)
