"""Rules about copies: small ones, those that hosts wait for, and those beside which nothing computes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, least_share, losses_of
from nsys2prv.efficiency.findings.gap_causes import GapCause, value_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without, gaps_removed
from nsys2prv.efficiency.graph.changes import faster_copies, without_waits
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MEMORY, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.vocabulary import event_types

TO_DEVICE, TO_HOST = 1, 2
"""Kinds of copies, by their numbers in nsys (event_types.COPY_KINDS)."""
OF_UNIFIED_MEMORY = (11, 12)
_COPY: dict[str, type[pl.DataType]] = {
    "row": pl.Int32,
    "begin": pl.Int64,
    "end": pl.Int64,
    "size": pl.Int64,
    "kind": pl.Int8,
    "is_pageable": pl.Boolean,
}
_BLOCK = 500_000


@dataclass(frozen=True)
class DeviceCopies(Measurement):
    """Copies from, to and inside of devices.

    Attributes
    ----------
    copies
        `row` of the stream, `device`, `begin`, `end`, `size` in bytes, `kind` (a number of nsys), `is_pageable` (one side is
        pageable memory), and `alone`: the time in which no kernel runs, ns.
    """

    run: MeasuredRun
    copies: pl.DataFrame

    def losses(self, evidence: Evidence, which: pl.Expr, *, beside_kernels: bool = False) -> Losses:
        """What some copies cost on each device: their time in which no kernel runs, or `beside_kernels`, too."""
        length = pl.col("end") - pl.col("begin")
        cost = length if beside_kernels else pl.col("alone")
        occurrences = self.copies.filter(which).with_columns(cost=cost, length=length, bytes="size")
        losses = losses_of(self.run, occurrences, ("length", "bytes"))
        devices = evidence.tables["devices"]
        column = devices["memory_ns" if beside_kernels else "memory_alone_ns"]
        # Copies that run at the same time are alone at the same time.
        most = dict(zip(devices["device"], column, strict=True))
        return Losses(replace(loss, cost=min(loss.cost, most[evidence.name(loss.index)])) for loss in losses)

    def on_streams(self, which: pl.Expr, devices: Sequence[int]) -> pl.DataFrame:
        """Some copies on some devices: `group` (row of the stream), `begin`, `end`."""
        copies = self.copies.filter(which & pl.col("device").is_in(devices))
        return copies.select("begin", "end", group=pl.col("row").cast(pl.Int64)).select("group", "begin", "end")

    def slowness(self, which: pl.Expr) -> float | None:
        """Time of some copies for each byte, ns; None: there are none."""
        length, moved = self.copies.filter(which).select((pl.col("end") - pl.col("begin")).sum(), pl.col("size").sum()).row(0)
        return length / moved if moved else None


def device_copies(run: MeasuredRun) -> DeviceCopies:
    """Copies of a run whose kind is known."""
    kinds = {value_of(run, event_types.MEMORY_OPERATION, label): kind for kind, label in event_types.COPY_KINDS.items()}
    source, destination = (
        value_of(run, number, event_types.MEMORY_KINDS[0])
        for number in (event_types.SOURCE_MEMORY, event_types.DESTINATION_MEMORY)
    )
    copies = run.operations.filter(pl.col("number") == event_types.MEMORY_OPERATION).select(
        "row", "size",
        begin="start",
        end="end",
        kind=pl.col("value").replace_strict(kinds, default=None, return_dtype=pl.Int8),
        is_pageable=(pl.col("source") == source) | (pl.col("destination") == destination),
    )  # fmt: skip
    device = pl.lit(pl.Series(run.events.rows.device, dtype=pl.Int32)).gather("row")
    placed = (
        copies.drop_nulls("kind")
        .select(pl.col(name).cast(dtype) for name, dtype in _COPY.items())
        .with_columns(device=device)
        .filter(pl.col("device") >= 0)
    )
    return DeviceCopies(run, placed.with_columns(alone=pl.Series(_times_alone(run, placed), dtype=pl.Int64)))


def _times_alone(run: MeasuredRun, copies: pl.DataFrame) -> Numbers:
    """Time of each copy in which nothing but copies runs on its device, ns."""
    times: list[Numbers] = [np.zeros(0, dtype=np.int64)]
    for block in copies.iter_slices(_BLOCK):
        device, begin, end = (block[name].to_numpy().astype(np.int64) for name in ("device", "begin", "end"))
        times.append(next(itertools.islice(run.device_times.in_windows(device, begin, end), 1 << MEMORY, None)))
    return np.concatenate(times)


# -- small copies ---------------------------------------------------------------------------------

LARGEST_COPY = Threshold("largest copy", 65_536, "bytes", "below, a copy takes latency, not bandwidth")
LONGEST_BETWEEN = Threshold("longest gap between two of them that counts", 100_000, "ns", "as for launches")
FEWEST_SMALL = Threshold("fewest copies on a device", 500, "", "a few per iteration are normal")
LEAST_OF_SMALL = least_share(0.02, "less is not worth a change of the program")
_HOST_COPY = pl.col("kind").is_in([TO_DEVICE, TO_HOST])


def _small_copies(evidence: Evidence) -> Finding | None:
    """Devices with many such copies; the gaps between them are a part of their cost."""
    in_gaps = {loss.index: loss.cost for loss in evidence.gaps.losses("small-copies")}
    copies = evidence.measured(DeviceCopies).losses(evidence, _HOST_COPY & (pl.col("size") < LARGEST_COPY.value))
    with_gaps = [replace(loss, cost=loss.cost + in_gaps.get(loss.index, 0)) for loss in copies]
    losses = evidence.costly(with_gaps, LEAST_OF_SMALL, FEWEST_SMALL, recurring=True)
    if not losses:
        return None
    lost = Number.time("time", losses.cost)
    number = Number("copies", losses.occurrences)
    mean = Number.size("mean size", losses.total("bytes") / losses.occurrences)
    between = Number.time("time in gaps between them", sum(in_gaps.get(loss.index, 0) for loss in losses))
    text = (
        f"{number} copies {losses} of {mean} on average take {lost} in which no kernel "
        f"runs, {between} of it in gaps between two of them"
    )
    return Finding(text, losses, (number, mean, between))


SMALL_COPIES = FindingRule(
    kind="small-copies",
    title="Small copies: latency instead of bandwidth",
    sees="many copies that are too small for the bandwidth, in which no kernel runs",
    needs=(rule.COPY_SIZES,),
    cost="time of the copies in which no kernel runs, and of short gaps between two of them",
    view="7-memory/copy_size",
    advice="Put small pieces into one buffer and copy that, or make them on the device.",
    thresholds=(LARGEST_COPY, LONGEST_BETWEEN, FEWEST_SMALL, LEAST_OF_SMALL),
    judge=_small_copies,
    gap_cause=GapCause(
        pl.col("before_copy")
        & pl.col("after_copy")
        & pl.col("next_size").is_between(0, LARGEST_COPY.value, closed="left")
        & pl.col("former_size").is_between(0, LARGEST_COPY.value, closed="left")
        & (pl.col("length") <= LONGEST_BETWEEN.value)
    ),
)

# -- synchronous copies ---------------------------------------------------------------------------

COPY_PART = Threshold("least part of the gap in calls that copy or set memory", 0.5, "0 to 1", "else something else dominates")
SHORTEST_BEFORE_COPY = Threshold(
    "shortest gap that counts before another copy", 100_000, "ns", "a shorter one is the call that launches it"
)
FEWEST_WAITS = Threshold("fewest such gaps on a device", 20, "", "fewer are the start of phases")
LEAST_OF_WAITS = least_share(0.02, "less is not worth a change of the program")


def _synchronous_copies(evidence: Evidence) -> Finding | None:
    """Devices with many such gaps, or long ones."""
    gap_losses = evidence.gaps.losses("synchronous-copies")
    losses = evidence.costly(gap_losses, LEAST_OF_WAITS, FEWEST_WAITS, recurring=True, or_large=True)
    if not losses:
        return None
    gaps, mean, _ = losses.gaps
    copying = losses.share("copying", "part of the gaps in these calls")
    calls = evidence.tables["cuda_calls"]
    waiting = calls.filter((pl.col("category") == "memory") & ~pl.col("call").str.contains("Async"))
    synchronous = Number("calls of synchronous functions", int(waiting["count"].sum()))
    text = (
        f"{gaps} gaps {losses}, {mean} on average, while the launching thread is in calls that "
        f"copy or set memory ({copying} of the gaps); {synchronous} calls are of synchronous functions"
    )
    in_them = Number.time("time in them", int(waiting["total_ns"].sum()))
    return Finding(text, losses, (gaps, mean, copying, synchronous, in_them))


SYNCHRONOUS_COPIES = FindingRule(
    kind="synchronous-copies",
    title="Synchronous copies: devices wait while their host waits for copies",
    sees="gaps in which the launching thread is mostly in calls that copy or set memory, and that no rule before explains",
    needs=(rule.CUDA_CALLS,),
    view="5-host-and-cuda-api/cuda_calls",
    advice="cudaMemcpyAsync and cudaMemsetAsync with pinned memory; launch work before the copy whose result is not needed "
    "yet.",
    thresholds=(COPY_PART, SHORTEST_BEFORE_COPY, FEWEST_WAITS, LEAST_OF_WAITS),
    judge=_synchronous_copies,
    without=gaps_removed("synchronous-copies", without_waits),
    gap_cause=GapCause(
        # The call that launches a copy is in the gap before it, too.
        pl.col("is_late")
        & (pl.col("before_kernel") | (pl.col("length") >= SHORTEST_BEFORE_COPY.value))
        & (pl.col("memory_ns") >= COPY_PART.value * pl.col("length")),
        sums={"copying": pl.col("memory_ns")},
    ),
)

# -- copies during which nothing computes ---------------------------------------------------------

SMALLEST_COPY = Threshold(
    "smallest copy", 65_536, "bytes", "smaller ones to the device return before they are done also from pageable memory"
)
FEWEST_COPIES = Threshold("fewest copies on a device", 10, "", "fewer are those of a start")
LEAST_OF_PAGEABLE = least_share(0.01, "they are easily avoided")
EXPOSED_PART = Threshold("least part of the time of these copies beside no kernel", 0.3, "0 to 1", "the rest overlaps")
LEAST_EXPOSED = least_share(0.05, "one copy of a batch per iteration is normal")

_IS_LARGE = pl.col("size") >= SMALLEST_COPY.value
_PAGEABLE = _HOST_COPY & pl.col("is_pageable") & _IS_LARGE
_PINNED = _HOST_COPY & ~pl.col("is_pageable") & _IS_LARGE
_THAT_COULD_OVERLAP = ~pl.col("is_pageable") & _IS_LARGE & pl.col("kind").is_in([1, 2, 3, 4, 5, 6, 7, 8, 10])


def _exposed(evidence: Evidence, losses: Losses, least: Threshold, which: str = "") -> Finding | None:
    """Devices where such copies cost enough again and again, or for long; `which` copies they are is for the text."""
    losses = evidence.costly(losses, least, FEWEST_COPIES, recurring=True, or_large=True)
    if not losses:
        return None
    length, moved = losses.total("length"), losses.total("bytes")
    copies = Number("copies", losses.occurrences)
    mean = Number.size("mean size", moved / max(losses.occurrences, 1))
    spent = Number.time("their time", length)
    exposed = Number.share("part of it beside no kernel", losses.cost / length)
    text = (
        f"{copies} copies {losses}{which}, {mean} on average at "
        f"{moved / length:.1f} GB/s, take {spent}, and during {exposed} of that no kernel runs"
    )
    return Finding(text, losses, (copies, mean, spent, exposed))


def _pageable_copies(evidence: Evidence) -> Finding | None:
    losses = evidence.measured(DeviceCopies).losses(evidence, _PAGEABLE)
    finding = _exposed(evidence, losses, LEAST_OF_PAGEABLE, " between device and pageable memory")
    factor = _pinned_factor(evidence)
    if finding is None or factor is None:
        return finding
    text = f"{finding.text}; pinned copies of this run take {factor:.2f} times as long for each byte"
    numbers = (*finding.numbers, Number("time of pinned copies of this run for each byte, against these", factor))
    return replace(finding, text=text, numbers=numbers)


def _pinned_factor(evidence: Evidence) -> float | None:
    """Time per byte of pinned copies against that of pageable ones; None: there are no pinned ones."""
    copies = evidence.measured(DeviceCopies)
    pageable, pinned = copies.slowness(_PAGEABLE), copies.slowness(_PINNED)
    return pinned / pageable if pageable and pinned is not None else None


def _as_pinned(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """The copies are as fast as pinned ones of the run, and no call waits for them; without pinned ones they take no time."""
    factor = _pinned_factor(evidence)
    copies = evidence.measured(DeviceCopies).on_streams(_PAGEABLE, finding.losses.indices)
    return Without(faster_copies(built, copies, min(factor or 0.0, 1.0)), at_most=factor is None)


PAGEABLE_COPIES = FindingRule(
    kind="pageable-copies",
    title="Pageable copies that should be pinned",
    sees="large copies between device and pageable memory, again and again",
    needs=(rule.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="7-memory/copy_source",
    advice="Pinned memory (cudaMallocHost, pin_memory=True with non_blocking=True): copies are faster, and overlap with "
    "kernels.",
    thresholds=(SMALLEST_COPY, FEWEST_COPIES, LEAST_OF_PAGEABLE),
    judge=_pageable_copies,
    without=_as_pinned,
)


def _exposed_copies(evidence: Evidence) -> Finding | None:
    losses = evidence.measured(DeviceCopies).losses(evidence, _THAT_COULD_OVERLAP)
    exposed = losses.where(lambda loss: loss.cost >= EXPOSED_PART.value * loss.sums["length"])
    return _exposed(evidence, exposed, LEAST_EXPOSED)


def _overlapped(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """The copies take no time, as if all of it overlapped."""
    copies = evidence.measured(DeviceCopies).on_streams(_THAT_COULD_OVERLAP, finding.losses.indices)
    return Without(faster_copies(built, copies, 0), at_most=True)


EXPOSED_COPIES = FindingRule(
    kind="exposed-copies",
    title="Exposed copies: nothing computes while copies run that could overlap",
    sees="large copies, but those of pageable and of unified memory, beside which no kernel runs",
    needs=(rule.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="7-memory/overlap_of_copies",
    advice="Copy the next batch on a separate stream while the device computes; fuse copies inside the device into kernels; "
    "keep data on the device.",
    thresholds=(SMALLEST_COPY, EXPOSED_PART, FEWEST_COPIES, LEAST_EXPOSED),
    judge=_exposed_copies,
    without=_overlapped,
)
