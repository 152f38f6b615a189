"""Rules about copies: small ones, those that hosts wait for, and those beside which nothing computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Loss, Losses, Number, Threshold, least_share, losses_of
from nsys2prv.efficiency.findings.gap_causes import GapCause, value_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Without
from nsys2prv.efficiency.graph.changes import faster_copies, without_waits
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.measured_run import MEMORY, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

TO_DEVICE, TO_HOST = 1, 2
"""Kinds of copies, by their numbers in nsys (event_types.COPY_KINDS)."""
OF_UNIFIED_MEMORY = (11, 12)
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
        # Copies that run at the same time are alone at the same time.
        most = evidence.tables["devices"]["memory_ns" if beside_kernels else "memory_alone_ns"]
        losses = losses_of(self.run, occurrences, ("length", "bytes"))
        return Losses(replace(loss, cost=min(loss.cost, most[loss.index])) for loss in losses)

    def on_streams(self, which: pl.Expr, devices: Sequence[int]) -> pl.DataFrame:
        """Some copies on some devices: `group` (row of the stream), `begin`, `end`."""
        return self.copies.filter(which & pl.col("device").is_in(devices)).select("begin", "end", group="row")

    def slowness(self, which: pl.Expr) -> float | None:
        """Time of some copies for each byte, ns; None: there are none."""
        length, moved = self.copies.filter(which).select((pl.col("end") - pl.col("begin")).sum(), pl.col("size").sum()).row(0)
        return length / moved if moved else None


def device_copies(run: MeasuredRun) -> DeviceCopies:
    """Copies of a run whose kind is known."""
    kinds = {value_of(run, event_types.MEMORY_OPERATION, label): kind for kind, label in event_types.COPY_KINDS.items()}
    pageable = [
        pl.col(column) == value_of(run, number, event_types.MEMORY_KINDS[0])
        for column, number in (("source", event_types.SOURCE_MEMORY), ("destination", event_types.DESTINATION_MEMORY))
    ]
    copies = (
        run.operations.filter(pl.col("number") == event_types.MEMORY_OPERATION)
        .select(
            pl.col("row", "size", "end").cast(pl.Int64),
            begin=pl.col("start").cast(pl.Int64),
            device=pl.lit(pl.Series(run.events.rows.device)).gather("row"),
            kind=pl.col("value").replace_strict(kinds, default=None, return_dtype=pl.Int8),
            is_pageable=pl.any_horizontal(pageable),
        )
        .filter(pl.col("kind").is_not_null() & (pl.col("device") >= 0))
    )
    # Time in which nothing but copies runs on the device.
    times = [np.zeros(0, dtype=np.int64)]
    for block in copies.iter_slices(_BLOCK):
        of_masks = run.device_times.in_windows(*(block[name].to_numpy() for name in ("device", "begin", "end")))
        times.append(next(islice(of_masks, 1 << MEMORY, None)))
    return DeviceCopies(run, copies.with_columns(alone=pl.Series(np.concatenate(times))))


_HOST_COPY = pl.col("kind").is_in([TO_DEVICE, TO_HOST])


class SmallCopies(
    FindingRule,
    kind="small-copies",
    title="Small copies: latency instead of bandwidth",
    sees="many copies that are too small for the bandwidth, in which no kernel runs",
    needs=(rule.COPY_SIZES,),
    cost="time of the copies in which no kernel runs, and of short gaps between two of them",
    view="7-memory/copy_size",
    advice="Put small pieces into one buffer and copy that, or make them on the device.",
):
    largest = Threshold("largest copy", 65_536, "below, a copy takes latency, not bandwidth", "bytes")
    longest = Threshold("longest gap between two of them that counts", 100_000, "as for launches", "ns")
    fewest = Threshold("fewest copies on a device", 500, "a few per iteration are normal", "")
    least = least_share(0.02, "less is not worth a change of the program")
    recurring = True
    gap_cause = GapCause(
        pl.col("before_copy")
        & pl.col("after_copy")
        & pl.col("next_size").is_between(0, largest.value, closed="left")
        & pl.col("former_size").is_between(0, largest.value, closed="left")
        & (pl.col("length") <= longest.value)
    )

    def losses(self, evidence: Evidence) -> Losses:
        in_gaps = Counter({loss.index: loss.cost for loss in evidence.gaps.losses(self.kind)})
        copies = evidence.run.measured(DeviceCopies).losses(evidence, _HOST_COPY & (pl.col("size") < self.largest.value))
        return Losses(
            replace(loss, cost=loss.cost + in_gaps[loss.index], sums={**loss.sums, "between": in_gaps[loss.index]})
            for loss in copies
        )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        number = Number("copies", losses.occurrences)
        mean = Number("mean size", losses.total("bytes") / losses.occurrences, "bytes")
        between = Number("time in gaps between them", losses.total("between"), "ns")
        text = (
            f"{number} copies {losses} of {mean} on average take {time(losses.cost)} in which no kernel "
            f"runs, {between} of it in gaps between two of them"
        )
        return Finding(text, losses, (number, mean, between))


class SynchronousCopies(
    GapRule,
    kind="synchronous-copies",
    title="Synchronous copies: devices wait while their host waits for copies",
    sees="gaps in which the launching thread is mostly in calls that copy or set memory, and that no rule before explains",
    needs=(rule.CUDA_CALLS,),
    view="5-host-and-cuda-api/cuda_calls",
    advice="cudaMemcpyAsync and cudaMemsetAsync with pinned memory; launch work before the copy whose result is not needed "
    "yet.",
):
    copy_part = Threshold("least part of the gap in calls that copy or set memory", 0.5, "else something else dominates")
    shortest_before_copy = Threshold(
        "shortest gap that counts before another copy", 100_000, "a shorter one is the call that launches it", "ns"
    )
    fewest = Threshold("fewest such gaps on a device", 20, "fewer are the start of phases", "")
    least = least_share(0.02, "less is not worth a change of the program")
    recurring = or_large = True
    removed = staticmethod(without_waits)
    gap_cause = GapCause(
        # The call that launches a copy is in the gap before it, too.
        pl.col("is_late")
        & (pl.col("before_kernel") | (pl.col("length") >= shortest_before_copy.value))
        & (pl.col("memory_ns") >= copy_part.value * pl.col("length")),
        sums={"copying": pl.col("memory_ns")},
    )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, _ = losses.gaps
        copying = losses.share("copying", "part of the gaps in these calls")
        calls = evidence.tables["cuda_calls"]
        waiting = calls.filter((pl.col("category") == "memory") & ~pl.col("call").str.contains("Async"))
        synchronous = Number("calls of synchronous functions", int(waiting["count"].sum()))
        text = (
            f"{gaps} gaps {losses}, {mean} on average, while the launching thread is in calls that "
            f"copy or set memory ({copying} of the gaps); {synchronous} calls are of synchronous functions"
        )
        in_them = Number("time in them", int(waiting["total_ns"].sum()), "ns")
        return Finding(text, losses, (gaps, mean, copying, synchronous, in_them))


# -- copies during which nothing computes ---------------------------------------------------------

_SMALLEST = Threshold(
    "smallest copy", 65_536, "smaller ones to the device return before they are done also from pageable memory", "bytes"
)
_FEWEST = Threshold("fewest copies on a device", 10, "fewer are those of a start", "")
_IS_LARGE = pl.col("size") >= _SMALLEST.value


class _LargeCopies(FindingRule):
    """A rule about large copies that cost enough again and again, or for long.

    Attributes
    ----------
    copies
        Which they are.
    of_memory
        The same for the text.
    """

    copies: pl.Expr
    of_memory = ""
    recurring = or_large = True

    def losses(self, evidence: Evidence) -> Losses:
        return evidence.run.measured(DeviceCopies).losses(evidence, self.copies)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        length, moved = losses.total("length"), losses.total("bytes")
        copies = Number("copies", losses.occurrences)
        mean = Number("mean size", moved / losses.occurrences, "bytes")
        spent = Number("their time", length, "ns")
        exposed = Number("part of it beside no kernel", losses.cost / length, "0 to 1")
        text = (
            f"{copies} copies {losses}{self.of_memory}, {mean} on average at {moved / length:.1f} GB/s, take {spent}, and "
            f"during {exposed} of that no kernel runs"
        )
        return Finding(text, losses, (copies, mean, spent, exposed))

    def factor(self, evidence: Evidence) -> float | None:
        """How many times as long copies take without the finding; None: it is not known."""
        return None

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Without:
        """The copies are faster, and no call waits for them; where it is not known how fast, they take no time."""
        factor = self.factor(evidence)
        copies = evidence.run.measured(DeviceCopies).on_streams(self.copies, finding.losses.indices)
        return Without(faster_copies(built, copies, min(factor or 0.0, 1.0)), at_most=factor is None)


class PageableCopies(
    _LargeCopies,
    kind="pageable-copies",
    title="Pageable copies that should be pinned",
    sees="large copies between device and pageable memory, again and again",
    needs=(rule.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="7-memory/copy_source",
    advice="Pinned memory (cudaMallocHost, pin_memory=True with non_blocking=True): copies are faster, and overlap with "
    "kernels.",
):
    smallest, fewest = _SMALLEST, _FEWEST
    least = least_share(0.01, "they are easily avoided")
    copies = _HOST_COPY & pl.col("is_pageable") & _IS_LARGE
    of_memory = " between device and pageable memory"

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        finding, factor = super().describe(losses, evidence), self.factor(evidence)
        if factor is None:
            return finding
        text = f"{finding.text}; pinned copies of this run take {factor:.2f} times as long for each byte"
        numbers = (*finding.numbers, Number("time of pinned copies of this run for each byte, against these", factor))
        return replace(finding, text=text, numbers=numbers)

    def factor(self, evidence: Evidence) -> float | None:
        """Time per byte of pinned copies against that of pageable ones; None: there are no pinned ones."""
        copies = evidence.run.measured(DeviceCopies)
        pageable, pinned = copies.slowness(self.copies), copies.slowness(_HOST_COPY & ~pl.col("is_pageable") & _IS_LARGE)
        return pinned / pageable if pageable and pinned is not None else None


class ExposedCopies(
    _LargeCopies,
    kind="exposed-copies",
    title="Exposed copies: nothing computes while copies run that could overlap",
    sees="large copies, but those of pageable and of unified memory, beside which no kernel runs",
    needs=(rule.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="7-memory/overlap_of_copies",
    advice="Copy the next batch on a separate stream while the device computes; fuse copies inside the device into kernels; "
    "keep data on the device.",
):
    smallest = _SMALLEST
    exposed_part = Threshold("least part of the time of these copies beside no kernel", 0.3, "the rest overlaps")
    fewest = _FEWEST
    least = least_share(0.05, "one copy of a batch per iteration is normal")
    copies = ~pl.col("is_pageable") & _IS_LARGE & pl.col("kind").is_in([1, 2, 3, 4, 5, 6, 7, 8, 10])

    def counts(self, loss: Loss, evidence: Evidence) -> bool:
        return super().counts(loss, evidence) and loss.cost >= self.exposed_part.value * loss.sums["length"]
