"""Rules about memory: copies that are small, waited for or exposed, allocations, and pages of unified memory that migrate."""

import re
from dataclasses import dataclass, replace

import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, costs_of, together
from nsys2prv.efficiency.findings.gap_causes import GapCause, is_pageable, value_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Values, longest_call
from nsys2prv.efficiency.graph.changes import faster_copies, without_allocations, without_waits
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.host_states import FIRST_CALL
from nsys2prv.efficiency.intervals import time_where
from nsys2prv.efficiency.measured_run import ALLOCATION, MEMORY, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import PAGE_FAULTS
from nsys2prv.sources.cuda.memory_operations import MIGRATION_CAUSE, MIGRATION_CAUSES
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, time

TO_DEVICE, TO_HOST = 1, 2
"""Kinds of copies, by their numbers in nsys (event_types.COPY_KINDS)."""
OF_UNIFIED_MEMORY = (11, 12)
_IS_MIGRATION = pl.col("kind").is_in(OF_UNIFIED_MEMORY)
_NEARLY_ALL = 0.9
"""Part of what allocations cost that one gap has, from which on they are no loop."""
_DONE = 0.9
"""Part of the time in which a run does something, from which on nobody needs to advise it."""


@dataclass(frozen=True)
class DeviceCopies(Measurement):
    """Copies from, to and inside of devices: `row` of the stream, `device`, `begin`, `end`, `size` in bytes, `kind` (a number
    of nsys), `is_pageable` (one side is pageable memory), `is_evicted` (a page for which the device has no room), and `alone`:
    the time in which no kernel runs, ns."""

    copies: pl.DataFrame

    def losses(self, evidence: Evidence, which: pl.Expr) -> Losses:
        """What some copies cost on each device: their time in which no kernel runs."""
        length = pl.col("end") - pl.col("begin")
        occurrences = self.copies.filter(which).with_columns(cost="alone", length=length, bytes="size")
        # Copies that run at the same time are alone at the same time.
        return Losses.of(evidence.run, occurrences, ("length", "bytes")).at_most(evidence.column("memory_alone_ns"))


def device_copies(run: MeasuredRun) -> DeviceCopies:
    """Copies of a run whose kind is known, but for prefetches that the program asked for: nothing needs to wait for these."""
    kinds = {value_of(run, event_types.MEMORY_OPERATION, label): kind for kind, label in event_types.COPY_KINDS.items()}
    eviction = value_of(run, MIGRATION_CAUSE, MIGRATION_CAUSES[4])
    copies = run.operations.filter(pl.col("number") == event_types.MEMORY_OPERATION, ~run.is_prefetch).select(
        pl.col("row", "size", "end").cast(pl.Int64),
        begin=pl.col("start").cast(pl.Int64),
        device=pl.lit(pl.Series(run.events.rows.device)).gather("row"),
        kind=pl.col("value").replace_strict(kinds, default=None, return_dtype=pl.Int8),
        is_pageable=is_pageable(run),
        is_evicted=pl.col("migration").eq_missing(eviction),
    )
    copies = copies.filter(pl.col("kind").is_not_null() & (pl.col("device") >= 0))
    is_alone = run.on_devices.mask == 1 << MEMORY
    alone = time_where(run.on_devices, is_alone, copies.select("device", "begin", "end"))
    return DeviceCopies(copies.with_columns(alone=pl.Series(alone)))


_HOST_COPY = pl.col("kind").is_in([TO_DEVICE, TO_HOST])


class SmallCopies(FindingRule, kind="small-copies", needs=(rule.COPY_SIZES,)):
    largest = Threshold("largest copy", 65_536, "below, a copy takes latency, not bandwidth", "bytes")
    longest = Threshold("longest gap between two of them that counts", 100_000, "as for launches", "ns")
    fewest = Threshold("fewest copies on a device", 500, "a few per iteration are normal", "")
    least = Threshold.least_share(0.02, "less is not worth a change of the program")
    recurring = True
    gap_cause = GapCause(
        pl.col("before_copy")
        & pl.col("after_copy")
        & pl.col("next_size").is_between(0, largest.value, closed="left")
        & pl.col("former_size").is_between(0, largest.value, closed="left")
        & (pl.col("length") <= longest.value)
    )

    def losses(self, evidence: Evidence) -> Losses:
        copies = evidence.run.measured(DeviceCopies).losses(evidence, _HOST_COPY & (pl.col("size") < self.largest.value))
        return copies.beside(evidence.gaps.losses(self.kind), "between")

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        return {"mean": losses.total("bytes") / losses.total("count")}


class PagesPulledBack(GapRule, kind="pages-pulled-back", needs=(rule.UNIFIED_MEMORY,), of_host=True):
    longest = Threshold("longest gap that counts", 10_000_000, "a fault takes less than a ms; beyond, the host works", "ns")
    fewest = Threshold("fewest such gaps on a device", 100, "pages are needed once, and fewer are an end", "")
    least = Threshold.least_share(0.02, "less is not worth a prefetch")
    or_large = True
    gap_cause = GapCause(pl.col("before_page") & (pl.col("length") <= longest.value), cost=pl.col("length"), needs_launch=False)


class SynchronousCopies(GapRule, kind="synchronous-copies"):
    copy_part = Threshold("least part of the gap in calls that copy or set memory", 0.5, "else something else dominates")
    shortest_before_copy = Threshold("shortest gap before another copy", 100_000, "a shorter one is the launch of it", "ns")
    fewest = Threshold("fewest such gaps on a device", 20, "fewer are the start of phases", "")
    least = Threshold.least_share(0.02, "less is not worth a change of the program")
    recurring = or_large = True
    removed = staticmethod(without_waits)
    gap_cause = GapCause(
        # The call that launches a copy is in the gap before it, too.
        pl.col("is_late")
        & (pl.col("before_kernel") | (pl.col("length") >= shortest_before_copy.value))
        & (pl.col("memory_ns") >= copy_part.value * pl.col("length")),
        sums={"copying": pl.col("memory_ns")},
    )

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        is_synchronous = (pl.col("category") == "memory") & ~pl.col("call").str.contains("Async")
        calls = evidence.tables["cuda_calls"].filter(is_synchronous)
        return {"synchronous": int(calls["count"].sum()), "spent": int(calls["total_ns"].sum())}


_LINKS = {**dict.fromkeys((3, 5, 6, 7), 16), 8: 32}
"""Bytes each ns over 16 lanes of PCIe, by the major compute capability of GPUs."""
_FASTEST_LINK, _ON_ONE_BOARD = 64, 450
"""The same of later ones, or where it is not known; and of GPUs that NVLink-C2C ties to the memory of a Grace CPU."""


class _LargeCopies(FindingRule, texts="large-copies"):
    """A rule about large copies, `copies`, that cost enough again and again, or for long."""

    smallest = Threshold("smallest copy", 65_536, "smaller ones from pageable memory return before they are done", "bytes")
    fewest = Threshold("fewest copies on a device", 10, "fewer are those of a start", "")
    is_large = pl.col("size") >= smallest.value
    copies: pl.Expr
    can_be_faster = True
    """Whether the memory makes them slow."""
    recurring = or_large = at_most = True

    def losses(self, evidence: Evidence) -> Losses:
        copies = evidence.run.measured(DeviceCopies).losses(evidence, self.copies)
        has_gaps = self.gap_cause is not None and rule.CUDA_CALLS.missing(evidence) is None
        return copies.beside(evidence.gaps.losses(self.kind) if has_gaps else Losses(), "staging")

    def copies_of(self, losses: Losses, evidence: Evidence) -> pl.DataFrame:
        """Its copies on the devices of losses: columns of `DeviceCopies.copies`."""
        return losses.of_devices(evidence.run.measured(DeviceCopies).copies.filter(self.copies))

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        length, moved = losses.total("length"), losses.total("bytes")
        factor, source = self.factor(evidence) if self.can_be_faster else (None, "")
        # Copies that are as fast as they can be are hidden by kernels at most, and others are faster, too.
        speedup = 0.0 if factor is None else 1 - factor
        kernels, faster = evidence.column("kernels_ns"), (speedup * (pl.col("cost") - pl.col("staging"))).cast(pl.Int64)
        saved = Finding("", losses.at_most(kernels + faster + pl.col("staging"))).saved
        hiding = losses.devices.select(kernels.max()).item() if saved < Finding("", losses).saved else None
        staging = losses.total("staging")
        staged = f"; the device is idle for {time(staging)} more in calls that copy" if staging else ""
        hidden = f"; kernels run for {time(hiding)}, and can hide no more of them" if hiding is not None else ""
        pinned = f"; at {source} they take {factor:.2f} times as long" if factor is not None else ""
        return self.finding(
            losses,
            wall=saved,
            mean=moved / losses.total("count"),
            speed=f"{moved / length:.1f}",
            exposed=(losses.cost - staging) / length,
            staging=staging or None,
            hiding=hiding,
            factor=factor,
            further=staged + hidden + pinned,
        )

    def factor(self, evidence: Evidence) -> tuple[float, str]:
        """How many times as long copies of pageable memory take at least if it is pinned, and at which speed, as a text: at the
        highest one of a pinned copy of the run in that direction, or in the other; without any at that of the link."""
        length, kind = pl.col("end") - pl.col("begin"), pl.col("kind")
        copies = evidence.run.measured(DeviceCopies).copies.filter(_HOST_COPY & self.is_large, length > 0)
        copies = copies.with_columns(length=length, rate=pl.col("size") / length)
        pinned = dict(copies.filter(~pl.col("is_pageable")).group_by("kind").agg(pl.col("rate").max()).iter_rows())
        link = max((_LINKS.get(gpu.generation, _FASTEST_LINK) for gpu in evidence.run.events.gpu_sizes), default=_FASTEST_LINK)
        link = _ON_ONE_BOARD if re.search(r"\bG[HB][0-9]00\b", " ".join(evidence.run.events.gpus)) else link
        rate = kind.replace_strict(pinned, default=max(pinned.values(), default=link), return_dtype=pl.Float64)
        # Pageable copies that are faster stay as they are.
        least = pl.min_horizontal("length", pl.col("size") / rate)
        factor = copies.filter("is_pageable").select(least.sum() / pl.col("length").sum()).item()
        source = "the highest speed of a pinned copy of this run" if pinned else f"{link} GB/s (assumed: no copy is pinned)"
        return factor, source

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """No call waits for the copies; they are as fast as pinned ones, or take no time where their memory does not matter."""
        copies = self.copies_of(finding.losses, evidence).select("row", "begin", "end")
        factor, devices = (self.factor(evidence)[0], finding.losses.indices) if self.can_be_faster else (0.0, [])
        gaps = evidence.gaps.of(devices).filter(pl.col("row") >= 0).select("row", "begin", "end")
        return faster_copies(built, copies, factor, gaps)


class PageableCopies(_LargeCopies, kind="pageable-copies", needs=(rule.MEMORY_KINDS,)):
    least = Threshold.least_share(0.01, "they are easily avoided")
    copies = _HOST_COPY & pl.col("is_pageable") & _LargeCopies.is_large
    staging_part = Threshold("least part of a gap in calls that copy, to be its cause", 0.5, "else something else dominates")
    # The driver copies from and to pageable memory through a buffer of pinned memory, and the device is idle meanwhile.
    beside = (pl.col(f"{at}_pageable") & (pl.col(f"{at}_size") >= _LargeCopies.smallest.value) for at in ("next", "former"))
    gap_cause = GapCause(
        pl.any_horizontal(beside),
        cost=pl.col("memory_ns"),
        is_exclusive=False,
        dominates=pl.col("memory_ns") >= staging_part.value * pl.col("length"),
        is_last=True,
    )


class ExposedCopies(_LargeCopies, kind="exposed-copies", needs=(rule.MEMORY_KINDS,)):
    exposed_part = Threshold("least part of the time of these copies beside no kernel", 0.3, "the rest overlaps")
    least = Threshold.least_share(0.05, "one copy of a batch per iteration is normal")
    can_be_faster = False
    copies = ~pl.col("is_pageable") & _LargeCopies.is_large & pl.col("kind").is_in([1, 2, 3, 4, 5, 6, 7, 8, 10])
    condition = pl.col("cost") >= exposed_part.value * pl.col("length")
    earlier: str
    """The advice where the copies are on separate streams already."""

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        finding, operations = super().describe(losses, evidence), evidence.run.operations
        computing = operations.filter(pl.col("number").is_in(event_types.KERNEL_TYPES))["row"].unique().implode()
        alone, is_separate = pl.col("alone"), ~pl.col("row").is_in(computing)
        (separate,) = self.copies_of(losses, evidence).select(alone.filter(is_separate).sum() / alone.sum()).row(0)
        if separate < _DONE:
            return finding
        text = f"{finding.text}; {percent(separate)} of that time is of copies on streams without kernels"
        return replace(finding, text=text, advice=self.earlier)


class BoundByCopies(_LargeCopies, kind="bound-by-copies", needs=(rule.MEMORY_KINDS,)):
    least = Threshold("least part of E", 0.1, "less is a start, or an end")
    can_be_faster = False
    copies = ExposedCopies.copies
    in_turns: str
    """Further advice where copies of both directions are not at the same time."""

    def losses(self, evidence: Evidence) -> Losses:
        kernels, losses = evidence.column("kernels_ns"), super().losses(evidence)
        losses = replace(losses, devices=losses.devices.with_columns(alone="cost", hiding=kernels))
        losses = losses.at_most((pl.col("cost") - kernels).clip(lower_bound=0))
        return losses.where(pl.col("cost") >= self.least.value * evidence.length)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        copies = self.copies_of(losses, evidence).filter(_HOST_COPY)
        of_kinds = [int(together(of_kind)["cost"].sum()) for _, of_kind in copies.group_by("kind")]
        further, advice = "", None
        if len(of_kinds) == 2 and min(of_kinds) > 0:
            beside = (sum(of_kinds) - int(together(copies)["cost"].sum())) / min(of_kinds)
            further = f". Copies of the direction with less time run beside those of the other for {percent(beside)} of it"
            advice = f"{self.advice} {self.in_turns}" if beside < _DONE else None
        speed = losses.total("bytes") / losses.total("length")
        return replace(self.finding(losses, speed=f"{speed:.1f}", further=further), advice=advice)


class Allocations(GapRule, kind="allocations"):
    fewest = Threshold("fewest gaps with such calls", 10, "fewer belong to the start of phases", "")
    least = Threshold.least_share(0.01, "they are easily avoided")
    large = Threshold.least_share(0.03, "an allocation can be avoided", ", of E, in fewer gaps")
    whole_gap = Threshold(
        "least part of a gap in such calls for the whole gap to count", 0.5, "the thread is ahead without them"
    )
    long_launch = Threshold("shortest time in launches not lost with these calls", 1_000_000, "code is loaded then", "ns")
    recurring = or_large = True
    # Between uploads memory is allocated as a program starts.
    after_copy = pl.col("after_copy") & (~pl.col("after_upload") | pl.col("before_kernel"))
    dominates = pl.col("allocation_ns") >= whole_gap.value * pl.col("length")
    launching = pl.when(pl.col("launch_ns") >= long_launch.value).then("launch_ns").otherwise(0)
    gap_cause = GapCause(
        pl.col("is_late")
        & (pl.col("allocation_ns") > 0)
        & (pl.col("after_kernel") | (after_copy & (pl.col("former_size") >= 0))),
        cost=pl.when(dominates).then(pl.col("length") - launching).otherwise("allocation_ns"),
        is_exclusive=False,
        dominates=dominates,
    )

    advice_of_pools: str
    advice_of_one: str

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """With its longest calls; the advice is no pool where these are of a pool."""
        times, run = evidence.gaps.of(losses.indices, self.kind).filter(pl.col("row") >= 0), evidence.run
        call = longest_call(run, times, run.states_of_calls == FIRST_CALL + ALLOCATION)
        calls = f" ({'mostly ' * (2 * call.spent > losses.cost)}{call})" if call.calls else ""
        finding = self.finding(losses, calls=calls)
        is_one = losses.longest["longest"] >= _NEARLY_ALL * losses.cost
        advice = self.advice_of_one if is_one else self.advice_of_pools if "Async" in call.name else None
        return replace(finding, advice=advice)

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """From the first of these gaps on nothing is allocated or freed, and no call that does so waits for the device."""
        begin, end = finding.losses.devices.select(pl.col("begin").min(), pl.col("end").max()).row(0)
        return without_allocations(built, evidence.tasks_of(finding.losses.indices), begin, end)


class UnifiedMemory(FindingRule, kind="unified-memory", needs=(rule.UNIFIED_MEMORY,)):
    is_bound = False
    fewest = Threshold("fewest migrations of a device", 100, "pages are needed once, and fewer are a start", "")
    both_ways = Threshold("least part of the bytes in one direction, for `back and forth`", 0.1, "else pages migrate once")
    least = Threshold.least_share(0.02, "less is not worth a prefetch")

    def losses(self, evidence: Evidence) -> Losses:
        """Migrations: kernels wait for pages that are not there, also while their faults are handled."""
        migrations = evidence.run.measured(DeviceCopies).copies.filter(_IS_MIGRATION)
        migrated = Losses.of(evidence.run, migrations.with_columns(cost=pl.col("end") - pl.col("begin")))
        # Where a kernel waits for pages that others fetch, nothing of it is in these times.
        waiting = Losses.of(evidence.run, costs_of(evidence.run.page_moves))
        cost = waiting.devices.select("device", "cost")
        return Losses(migrated.devices.drop("cost").join(cost, on="device", maintain_order="left"), waiting.parts)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        copies = losses.of_devices(evidence.run.measured(DeviceCopies).copies.filter(_IS_MIGRATION))
        of_kinds = [copies.filter(pl.col("kind") == kind) for kind in OF_UNIFIED_MEMORY]
        moved, returned = (int(of_kind["size"].sum()) for of_kind in of_kinds)
        to_device, to_host = (int(together(of_kind)["cost"].sum()) for of_kind in of_kinds)
        fewer = min(moved, returned) / max(moved + returned, 1)
        evicted = int(copies.filter("is_evicted")["size"].sum()) / max(moved + returned, 1)
        turns = ": pages migrate back and forth" if fewer >= self.both_ways.value else ""
        room = f"; {percent(evicted)} of all were evicted, as the device has no room for them"
        faults = losses.of_devices(evidence.rows.located(evidence.run.frame(PAGE_FAULTS)))
        handled = int(together(faults.select("device", "end", begin="start"))["cost"].sum())
        waiting = f"page faults of kernels are handled for {time(handled)}"
        most = time(int(losses.of_devices(costs_of(evidence.run.page_waits))["cost"].sum()))
        unknown = f"page faults were not recorded (--cuda-um-gpu-page-faults=true): kernels and hosts may wait for up to {most}"
        return self.finding(
            losses,
            moved=moved,
            returned=returned,
            fewer=fewer,
            to_device=to_device,
            to_host=to_host,
            size=str(Number("", (moved + returned) / losses.total("count"), "bytes")),
            turns=f"{turns}{room if evicted >= self.both_ways.value else ''}; {waiting if faults.height else unknown}",
            faults=faults.height,
            handled=handled,
        )
