"""Rules about memory: allocations while devices wait, and pages of unified memory that migrate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.copies import OF_UNIFIED_MEMORY, DeviceCopies
from nsys2prv.efficiency.findings.finding import PARTS, Finding, Losses, Number, Threshold, least_share, part_of
from nsys2prv.efficiency.findings.gap_causes import GapCause, value_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Without
from nsys2prv.efficiency.graph.changes import without_calls
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Intervals, Numbers, segments
from nsys2prv.efficiency.measured_run import ALLOCATION, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import PAGE_FAULTS
from nsys2prv.vocabulary import event_types


class Allocations(
    GapRule,
    kind="allocations",
    title="Allocations: devices wait while memory is allocated or freed",
    sees="gaps after work in which the launching thread allocates or frees memory, again and again",
    needs=(rule.CUDA_CALLS,),
    cost="time of these calls in the gaps; of the whole gap where they are most of it",
    view="5-host-and-cuda-api/cuda_calls",
    advice="Allocate before the loop, use a memory pool (cudaMallocAsync) or the caching allocator of the framework.",
):
    fewest = Threshold("fewest gaps with such calls", 10, "fewer belong to the start of phases", "")
    least = least_share(0.01, "they are easily avoided")
    whole_gap = Threshold(
        "least part of a gap in such calls for the whole gap to count", 0.5,
        "without the calls the thread is ahead of the device, and the launch after them leaves no gap",
    )  # fmt: skip
    recurring = or_large = True
    dominates = pl.col("allocation_ns") >= whole_gap.value * pl.col("length")
    gap_cause = GapCause(
        pl.col("is_late")
        & (pl.col("allocation_ns") > 0)
        & (pl.col("after_kernel") | (pl.col("after_copy") & ~pl.col("after_upload") & (pl.col("former_size") >= 0))),
        cost=pl.when(dominates).then("length").otherwise("allocation_ns"),
        is_exclusive=False,
        dominates=dominates,
    )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, longest = losses.gaps
        text = (
            f"in {gaps} gaps {losses} the launching thread allocates or frees memory, which costs "
            f"{mean} on average and {longest} at most"
        )
        mean, longest = replace(mean, what="mean time lost in a gap"), replace(longest, what="longest time")
        return Finding(text, losses, (gaps, mean, longest))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Without:
        """From the first of these gaps on nothing is allocated or freed, and no call that does so waits for the device."""
        begin, end = min(loss.begin for loss in finding.losses), max(loss.end for loss in finding.losses)
        return Without(without_calls(built, ALLOCATION, evidence.tasks_of(finding.losses.indices), begin, end))


# -- unified memory -------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultTimes(Measurement):
    """Times in which page faults of devices are handled, or pages migrate.

    Attributes
    ----------
    faults
        Of each device, faults that were recorded, in groups of neighbours.
    handled
        Of each device, ns: faults are handled.
    waited
        Of each part of the run (PARTS) and device, ns: that, or pages migrate.
    """

    faults: Numbers
    handled: Numbers
    waited: Numbers


def fault_times(run: MeasuredRun) -> FaultTimes:
    """Page faults and migrations of a run."""
    rows, edges = run.events.rows, ("row", "start", "end")
    labels = [event_types.COPY_KINDS[kind] for kind in OF_UNIFIED_MEMORY]
    migrations = [value_of(run, event_types.MEMORY_OPERATION, label) for label in labels]
    is_migration = (pl.col("number") == event_types.MEMORY_OPERATION) & pl.col("value").is_in(migrations)
    faults = run.frame(PAGE_FAULTS).select(pl.col(edges).cast(pl.Int64))
    moved = run.operations.filter(is_migration).select(pl.col(edges).cast(pl.Int64))
    of_faults, of_both = (rows.located(events).filter(pl.col("device") >= 0) for events in (faults, pl.concat([faults, moved])))
    counts = np.bincount(of_faults["device"].to_numpy(), minlength=len(rows.devices))
    return FaultTimes(counts, _covered(run, of_faults).sum(axis=0), _covered(run, of_both))


def _covered(run: MeasuredRun, events: pl.DataFrame) -> Numbers:
    """Time that events cover, by the part of the run that they begin in, and device, ns."""
    open_times = segments(Intervals.of(*(events[name].to_numpy() for name in ("device", "start", "end"))))
    is_open = open_times.counts[0] > 0
    part = pl.select(part_of(pl.lit(pl.Series(open_times.begin[is_open])), run.events.length)).to_series().to_numpy()
    covered: Numbers = np.zeros((PARTS, len(run.events.rows.devices)), dtype=np.int64)
    np.add.at(covered, (part, open_times.group[is_open]), open_times.length[is_open])
    return covered


class UnifiedMemory(
    FindingRule,
    kind="unified-memory",
    title="Unified memory: kernels and hosts wait for pages that migrate",
    sees="many migrations of pages, to the device when kernels touch them and to the host when it does, and whether both "
    "happen",
    needs=(rule.UNIFIED_MEMORY,),
    cost="time of the migrations, and in which page faults are handled where that was recorded, also beside kernels: these, or "
    "the host, wait for the pages",
    view="7-memory/copies",
    advice="cudaMemPrefetchAsync before the kernel, cudaMemAdvise (preferred location, read-mostly), larger pieces; keep data "
    "that the host reads in separate memory.",
):
    fewest = Threshold("fewest migrations of a device", 100, "pages are needed once, and fewer are a start", "")
    both_ways = Threshold(
        "least part of the bytes in the direction with fewer, for `back and forth`", 0.1, "else pages migrate once"
    )
    least = least_share(0.02, "less is not worth a prefetch")

    def losses(self, evidence: Evidence) -> Losses:
        return self.migrations(OF_UNIFIED_MEMORY, evidence)

    def migrations(self, kinds: tuple[int, ...], evidence: Evidence) -> Losses:
        """Migrations of some kinds: kernels wait for pages that are not there."""
        copies = evidence.run.measured(DeviceCopies)
        return copies.losses(evidence, pl.col("kind").is_in(kinds), beside_kernels=True)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        devices = sorted(losses.indices)
        there, back = (
            self.migrations((kind,), evidence).where(lambda loss: loss.index in devices) for kind in OF_UNIFIED_MEMORY
        )
        moved = Number("bytes to the device", there.total("bytes"), "bytes")
        returned = Number("bytes to the host", back.total("bytes"), "bytes")
        to_device = Number("time of migrations to the device", there.cost, "ns")
        to_host = Number("time of migrations to the host", back.cost, "ns")
        total = moved.value + returned.value
        less = Number(
            "part of the bytes in the direction with fewer", min(moved.value, returned.value) / max(total, 1), "0 to 1"
        )
        number = Number("migrations", losses.occurrences)
        text = (
            f"{number} migrations {losses} bring {moved} of unified memory to the device in {to_device}, and {returned} to the "
            f"host in {to_host}, {Number('', total / number.value, 'bytes')} each"
            + (": pages migrate back and forth" if less.value >= self.both_ways.value else "")
        )
        waits = evidence.run.measured(FaultTimes)
        faults = Number("groups of page faults of kernels", int(waits.faults[devices].sum()))
        handled = Number("time in which these are handled", int(waits.handled[devices].sum()), "ns")
        numbers = (number, moved, returned, less, to_device, to_host, faults, handled)
        if not faults.value:
            text += "; how long kernels wait for page faults was not recorded (--cuda-um-gpu-page-faults=true)"
            return Finding(text, losses, numbers, is_bound=False)
        waiting = losses.with_costs(lambda loss: int(waits.waited[:, loss.index].sum()))
        # Devices that wait in the same part of the run wait together.
        together = int(waits.waited[:, devices].max(axis=1).sum())
        return Finding(f"{text}; page faults of kernels are handled for {handled}", waiting, numbers, wall=together)
