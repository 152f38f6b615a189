"""What a rule of findings consists of, and what it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import polars as pl

from nsys2prv.efficiency.findings.aggregate import PARTS
from nsys2prv.efficiency.findings.device_stats import DeviceStats
from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.gap_causes import GapCause, GapCauses
from nsys2prv.efficiency.graph.changes import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares with: what is compared, the value in ns, bytes, "0 to 1" or no unit, and why it is this.

    A share is one of the active time of a device, from its first to its last activity, unless `what` says otherwise.
    """

    what: str
    value: float
    unit: str
    reason: str


LEAST_COST = Threshold("least time that is saved", 1_000_000, "ns", "the first few ms are not a run to judge")
LEAST_SHARE = Threshold("least time that is saved, of E", 0.01, "0 to 1", "less of the run is not worth a look")
RECURRING = Threshold(
    "of the tenths of a device's active time, least part with occurrences (for rules about what recurs)", 0.5, "0 to 1",
    "else it belongs to a phase, such as the start",
)  # fmt: skip
ACTIVE_PARTS = Threshold(
    "least part of the window from first to last activity of a device (likewise)", 0.1, "0 to 1", "less is too short for a loop"
)

LARGE_SHARE = Threshold(
    "part of a device's active time that counts also where it does not recur (for copies and allocations)", 0.1, "0 to 1",
    "few long ones cost as much as many short ones",
)  # fmt: skip

GENERAL_THRESHOLDS = (LEAST_COST, LEAST_SHARE, RECURRING, ACTIVE_PARTS, LARGE_SHARE)
"""Thresholds of all rules."""


@dataclass(frozen=True)
class Need:
    """What a rule needs: its name, and a function that gives the reason why it is missing, None where it is there."""

    text: str
    missing: Callable[[Evidence], str | None]


class RuleMeter(Protocol):
    """Measures for a rule what the tables of a run do not hold, chunk by chunk."""

    def __init__(self, context: SweepContext) -> None: ...

    def update(self, chunk: TimeChunk) -> None:
        """Add what is in a chunk."""


AnyMeter = TypeVar("AnyMeter", bound=RuleMeter)


@dataclass(frozen=True)
class Without:
    """The change of the graph of a run that takes a finding away.

    `at_most`: in truth less can be won, because nothing of it is left in the changed run.
    """

    step: Step
    at_most: bool = False


@dataclass(frozen=True)
class FindingRule:
    """One rule.

    Attributes
    ----------
    kind, title
        Its name for programs and for people.
    sees
        What it looks for.
    needs
        What must be recorded; without it the rule can't decide.
    cost
        How its cost is counted: device time, ns.
    view
        The view that shows it, by its name in cfgs/views.ini.
    advice
        What people do about it.
    thresholds
        What it compares with. A device is part of a finding when it is itself beyond all of them.
    judge
        The finding of a run, if there is one.
    meters
        What it measures.
    gap_cause
        The gaps that it counts.
    without
        What the graph of the run is without the finding (None: that is not known), for the time by which the run would be
        shorter; a rule without it has a bound from the critical path.
    unseen
        What it can't see by its nature, for people who find nothing.
    """

    kind: str
    title: str
    sees: str
    needs: Sequence[Need]
    cost: str
    view: str
    advice: str
    thresholds: Sequence[Threshold]
    judge: Callable[[Evidence], Finding | None]
    meters: Sequence[type[RuleMeter]] = ()
    gap_cause: GapCause | None = None
    without: Callable[[Evidence, Finding, BuiltGraph], Without | None] | None = None
    unseen: str | None = None


@dataclass
class Evidence:
    """What rules judge: a run, its tables, and what was measured for rules.

    Attributes
    ----------
    context
        What all chunks share.
    tables
        Tables of the results, with the types of their columns.
    first, last
        First begin and last end of activity of each device, ns; -1: none.
    gaps
        Gaps by cause.
    kernels_by_device
        `number`, `value`, `device`, `count`, `total` (ns) of all kernels but NCCL's.
    transfers
        `row`, `start` (of an NCCL kernel) and `transfer`: the shortest duration of the kernels of its collective, ns, where
        they are known; and `collective`, which is the same number for all kernels of a collective.
    collectives
        Kernels of collectives of several ranks: columns of `Nccl.collectives`.
    contradictions
        Devices whose times contradict those of their hosts, and how (`DeviceClocks.contradictions`).
    lost_work
        Launches of which no work is recorded.
    exposure
        NCCL kernels: exposed, hidden, and waited for.
    has_launches, has_graphs
        Whether any launch of work in the window is known, and whether executions of graphs were recorded as a whole.
    """

    context: SweepContext
    tables: Mapping[str, pl.DataFrame]
    first: Sequence[int]
    last: Sequence[int]
    gaps: GapCauses
    kernels_by_device: pl.DataFrame
    transfers: pl.DataFrame
    collectives: pl.DataFrame
    contradictions: Mapping[int, str]
    lost_work: LostWork
    exposure: NcclExposure
    has_launches: bool
    has_graphs: bool
    _findings: dict[str, Finding | None] = field(default_factory=dict)

    def meter(self, kind: type[AnyMeter]) -> AnyMeter:
        """A meter that a rule declares."""
        return self.context.measured(kind)

    def missing(self, rule: FindingRule) -> str | None:
        """Why a rule can't decide; None: it can."""
        of_needs = next((reason for need in rule.needs if (reason := need.missing(self)) is not None), None)
        return of_needs or self.lost_work.reason

    def finding(self, rule: FindingRule) -> Finding | None:
        """The finding of a rule, also one that costs too little to be shown; rules are judged once."""
        if rule.kind not in self._findings:
            self._findings[rule.kind] = rule.judge(self) if self.missing(rule) is None else None
        return self._findings[rule.kind]

    @property
    def length(self) -> int:
        """E, ns."""
        return self.context.events.length

    @property
    def devices(self) -> int:
        """n."""
        return len(self.context.events.rows.devices)

    def device_name(self, device: int) -> str:
        """Name of a device."""
        return self.context.events.rows.devices[device].name

    def device_index(self, name: str) -> int:
        """Index of a device."""
        return next(index for index, one in enumerate(self.context.events.rows.devices) if one.name == name)

    def streams(self, device: int) -> tuple[int, ...]:
        """Rows of the streams of a device."""
        rows = self.context.events.rows
        return tuple(
            row for row, (kind, of) in enumerate(zip(rows.kind, rows.device, strict=True)) if kind == STREAM and of == device
        )

    def kernel_name(self, number: int, value: int) -> str:
        """Name of a kernel."""
        return str(self.context.events.named(pl.Series([number]), pl.Series([value]))[0])

    def active(self, device: int) -> int:
        """Time from the first to the last activity of a device, ns."""
        return self.last[device] - self.first[device]

    @property
    def active_time(self) -> int:
        """Time from the first to the last activity of any device, ns."""
        firsts = [first for first in self.first if first >= 0]
        return max(self.last) - min(firsts) if firsts else 0

    def tasks_of(self, devices: Iterable[DeviceStats]) -> list[int]:
        """Tasks that use some devices."""
        of_device = self.context.events.rows.tasks_of_device
        return sorted({task for one in devices for task in of_device.get(one.device, ())})

    def whole_device(self, device: int, count: int, cost: int) -> DeviceStats:
        """A device that shows something all the time; the place to look at is the bin where it computes most against others."""
        bins = self.tables["device_bins"].join(self.tables["bins"].select("bin", "begin_ns", "end_ns"), on="bin")
        is_own = pl.col("device") == self.device_name(device)
        others = bins.filter(~is_own).group_by("bin").agg(others=pl.col("kernels_ns").mean())
        place = bins.filter(is_own).join(others, on="bin", how="left").with_columns(pl.col("others").fill_null(0))
        worst = place.sort(pl.col("kernels_ns") - pl.col("others"), -pl.col("bin"), descending=True).row(0, named=True)
        place_to_look = worst["begin_ns"], worst["end_ns"]
        return DeviceStats(device, count, cost, self.first[device], self.last[device], place_to_look, self.streams(device))

    def costs_share(self, stats: DeviceStats, least: Threshold) -> bool:
        """Whether the cost on a device is at least a share of its active time."""
        return stats.cost >= least.value * self.active(stats.device)

    def costly(
        self,
        stats: Iterable[DeviceStats],
        fewest: Threshold,
        least: Threshold,
        *,
        recurring: bool = False,
        or_large: bool = False,
    ) -> list[DeviceStats]:
        """Devices with enough occurrences that cost enough of their active time; `recurring`: and occur again and again;
        `or_large`: or cost a large part of it, however rare they are (LARGE_SHARE)."""

        def counts(one: DeviceStats) -> bool:
            is_often = one.count >= fewest.value and self.costs_share(one, least) and (not recurring or self.recurs(one))
            return is_often or (or_large and self.costs_share(one, LARGE_SHARE))

        return [one for one in stats if counts(one)]

    def recurs(self, stats: DeviceStats) -> bool:
        """Whether there are occurrences in many of the tenths of the active time of a device: RECURRING, ACTIVE_PARTS."""
        length = max(self.length, 1)
        first = min(self.first[stats.device] * PARTS // length, PARTS - 1)
        last = min(self.last[stats.device] * PARTS // length, PARTS - 1)
        parts = last - first + 1
        if parts < ACTIVE_PARTS.value * PARTS:
            return False
        tenths = {(part - first) * 10 // parts for part in stats.parts if first <= part <= last}
        return len(tenths) >= RECURRING.value * 10
