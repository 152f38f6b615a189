"""Rules about memory: allocations while devices wait, and pages of unified memory that migrate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.copies import OF_UNIFIED_MEMORY, DeviceCopies
from nsys2prv.efficiency.findings.finding import PARTS, Finding, Losses, Number, Threshold, least_share, part_of
from nsys2prv.efficiency.findings.gap_causes import GapCause, value_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without
from nsys2prv.efficiency.graph.changes import without_calls
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Intervals, Numbers, segments
from nsys2prv.efficiency.measured_run import ALLOCATION, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import PAGE_FAULTS
from nsys2prv.vocabulary import event_types

# -- allocations ----------------------------------------------------------------------------------

FEWEST_GAPS = Threshold("fewest gaps with such calls", 10, "", "fewer belong to the start of phases")
LEAST_OF_CALLS = least_share(0.01, "they are easily avoided")
WHOLE_GAP = Threshold(
    "least part of a gap in such calls for the whole gap to count", 0.5, "0 to 1",
    "without the calls the thread is ahead of the device, and the launch after them leaves no gap",
)  # fmt: skip
_DOMINATES = pl.col("allocation_ns") >= WHOLE_GAP.value * pl.col("length")


def _allocations(evidence: Evidence) -> Finding | None:
    """Devices with such gaps again and again."""
    losses = evidence.costly(evidence.gaps.losses("allocations"), LEAST_OF_CALLS, FEWEST_GAPS, recurring=True, or_large=True)
    if not losses:
        return None
    gaps, mean, longest = losses.gaps
    text = (
        f"in {gaps} gaps {losses} the launching thread allocates or frees memory, which costs "
        f"{mean} on average and {longest} at most"
    )
    return Finding(text, losses, (gaps, replace(mean, what="mean time lost in a gap"), replace(longest, what="longest time")))


def _without_allocations(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """From the first of these gaps on nothing is allocated or freed, and no call that does so waits for the device."""
    begin, end = min(loss.begin for loss in finding.losses), max(loss.end for loss in finding.losses)
    return Without(without_calls(built, ALLOCATION, evidence.tasks_of(finding.losses), begin, end))


ALLOCATIONS = FindingRule(
    kind="allocations",
    title="Allocations: devices wait while memory is allocated or freed",
    sees="gaps after work in which the launching thread allocates or frees memory, again and again",
    needs=(rule.CUDA_CALLS,),
    cost="time of these calls in the gaps; of the whole gap where they are most of it",
    view="5-host-and-cuda-api/cuda_calls",
    advice="Allocate before the loop, use a memory pool (cudaMallocAsync) or the caching allocator of the framework.",
    thresholds=(FEWEST_GAPS, LEAST_OF_CALLS, WHOLE_GAP),
    judge=_allocations,
    without=_without_allocations,
    gap_cause=GapCause(
        pl.col("is_late")
        & (pl.col("allocation_ns") > 0)
        & (pl.col("after_kernel") | (pl.col("after_copy") & ~pl.col("after_upload") & (pl.col("former_size") >= 0))),
        cost=pl.when(_DOMINATES).then("length").otherwise("allocation_ns"),
        is_exclusive=False,
        dominates=_DOMINATES,
    ),
)

# -- unified memory -------------------------------------------------------------------------------

FEWEST_MIGRATIONS = Threshold("fewest migrations of a device", 100, "", "pages are needed once, and fewer are a start")
BOTH_WAYS = Threshold(
    "least part of the bytes in the direction with fewer, for `back and forth`", 0.1, "0 to 1", "else pages migrate once"
)
LEAST_OF_MIGRATIONS = least_share(0.02, "less is not worth a prefetch")


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
    open_times = segments(Intervals.of(events["device"].to_numpy(), events["start"].to_numpy(), events["end"].to_numpy()))
    is_open = open_times.counts[0] > 0
    begin = pl.Series("begin", open_times.begin[is_open])
    part = begin.to_frame().select(part_of(pl.col("begin"), run.events.length)).to_series().to_numpy()
    covered: Numbers = np.zeros((PARTS, len(run.events.rows.devices)), dtype=np.int64)
    np.add.at(covered, (part, open_times.group[is_open]), open_times.length[is_open])
    return covered


def _unified_memory(evidence: Evidence) -> Finding | None:
    """Devices with many migrations: kernels wait for pages that are not there."""
    copies = evidence.measured(DeviceCopies)

    def migrations(*kinds: int) -> Losses:
        return copies.losses(evidence, pl.col("kind").is_in(kinds), beside_kernels=True)

    losses = evidence.costly(migrations(*OF_UNIFIED_MEMORY), LEAST_OF_MIGRATIONS, FEWEST_MIGRATIONS)
    if not losses:
        return None
    devices = losses.indices
    there, back = (migrations(kind).where(lambda loss: loss.index in devices) for kind in OF_UNIFIED_MEMORY)
    moved, returned = (
        Number.size(f"bytes to the {end}", way.total("bytes")) for end, way in (("device", there), ("host", back))
    )
    less = Number.share(
        "part of the bytes in the direction with fewer", min(moved.value, returned.value) / max(moved.value + returned.value, 1)
    )
    to_device, to_host = (
        Number.time(f"time of migrations to the {end}", way.cost) for end, way in (("device", there), ("host", back))
    )
    number = Number("migrations", losses.occurrences)
    mean = Number.size("mean size", (moved.value + returned.value) / number.value)
    text = (
        f"{number} migrations {losses} bring {moved} of unified memory to the device in "
        f"{to_device}, and {returned} to the host in {to_host}, {mean} each"
        + (": pages migrate back and forth" if less.value >= BOTH_WAYS.value else "")
    )
    text_of_faults, of_faults, losses, together = _waits_for_faults(evidence, losses)
    numbers = (number, moved, returned, less, to_device, to_host, *of_faults)
    return Finding(f"{text}; {text_of_faults}", losses, numbers, wall=together, is_bound=together is not None)


def _waits_for_faults(evidence: Evidence, losses: Losses) -> tuple[str, Sequence[Number], Losses, int | None]:
    """What is known of the waits of kernels for pages: a text, numbers, the losses with them, and the time that devices wait
    together, ns; None: faults were not recorded."""
    waits, devices = evidence.measured(FaultTimes), sorted(losses.indices)
    faults = Number("groups of page faults of kernels", int(waits.faults[devices].sum()))
    handled = Number.time("time in which these are handled", int(waits.handled[devices].sum()))
    if not faults.value:
        text = "how long kernels wait for page faults was not recorded (--cuda-um-gpu-page-faults=true)"
        return text, (faults, handled), losses, None
    waiting = Losses(replace(loss, cost=int(waits.waited[:, loss.index].sum())) for loss in losses)
    # Devices that wait in the same part of the run wait together.
    together = int(waits.waited[:, devices].max(axis=1).sum())
    return f"page faults of kernels are handled for {handled}", (faults, handled), waiting, together


UNIFIED_MEMORY = FindingRule(
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
    thresholds=(FEWEST_MIGRATIONS, BOTH_WAYS, LEAST_OF_MIGRATIONS),
    judge=_unified_memory,
)
