"""What a rule of findings consists of, what it judges, and what must be recorded for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import polars as pl

from nsys2prv.efficiency.findings.finding import PARTS, Finding, Loss, Losses, Threshold
from nsys2prv.efficiency.findings.gap_causes import GapCause, GapCauses
from nsys2prv.efficiency.graph.changes import Step, without_gaps, without_launches
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.measured_run import NO_LAUNCH, MeasuredRun
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.recording_checks import DeviceClocks, LostWork
from nsys2prv.efficiency.meters.run_totals import Totals
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.vocabulary import event_types

NO_DEVICES = "no process uses a GPU"

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

AnyEvidence = TypeVar("AnyEvidence")


@dataclass(frozen=True)
class Need:
    """What a rule needs: its name, and a function that gives the reason why it is missing, None where it is there."""

    text: str
    missing: Callable[[Evidence], str | None]


@dataclass(frozen=True)
class Without:
    """The change of the graph of a run that takes a finding away.

    `at_most`: in truth less can be won, because nothing of it is left in the changed run.
    """

    step: Step
    at_most: bool = False


WithoutFinding = Callable[["Evidence", Finding, BuiltGraph], Without | None]


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
    view
        The view that shows it, by its name in cfgs/views.ini.
    advice
        What people do about it.
    thresholds
        What it compares with. A device is part of a finding when it is itself beyond all of them.
    judge
        The finding of a run, if there is one.
    cost
        How its cost is counted: time of devices, ns; of a run without GPUs, time of processes. Most count gaps.
    gap_cause
        The gaps that it counts.
    without
        What the graph of the run is without the finding (None: that is not known), for the time by which the run would be
        shorter; a rule without it has a bound from the critical path.
    unseen
        What it can't see by its nature, for people who find nothing.
    of_processes
        It is for runs without GPUs.
    """

    kind: str
    title: str
    sees: str
    needs: Sequence[Need]
    view: str
    advice: str
    thresholds: Sequence[Threshold]
    judge: Callable[[Evidence], Finding | None]
    cost: str = "sum of the gaps, without the time in allocation calls"
    gap_cause: GapCause | None = None
    without: WithoutFinding | None = None
    unseen: str | None = None
    of_processes: bool = False


class Evidence:
    """What rules judge: a run, its tables, and what was measured of it.

    Parameters
    ----------
    run
        That is measured.
    tables
        Tables of the results, with the types of their columns.
    rules
        All rules that judge it, by their kinds.
    """

    def __init__(self, run: MeasuredRun, tables: Mapping[str, pl.DataFrame], rules: Iterable[FindingRule]) -> None:
        self.run = run
        self.tables = tables
        self.rules = {rule.kind: rule for rule in rules}
        self._findings: dict[str, Finding | None] = {}

    def measured(self, kind: type[AnyEvidence]) -> AnyEvidence:
        """What a meter measured, by its type."""
        return self.run.measured(kind)

    @property
    def gaps(self) -> GapCauses:
        """Gaps by cause."""
        return self.measured(GapCauses)

    def missing(self, rule: FindingRule) -> str | None:
        """Why a rule can't decide; None: it can."""
        if not rule.of_processes and not self.devices:
            return NO_DEVICES
        of_needs = next((reason for need in rule.needs if (reason := need.missing(self)) is not None), None)
        return of_needs if rule.of_processes else of_needs or self.measured(LostWork).reason

    def finding(self, kind: str) -> Finding | None:
        """The finding of a rule, also one that costs too little to be shown; rules are judged once."""
        if kind not in self._findings:
            rule = self.rules[kind]
            self._findings[kind] = rule.judge(self) if self.missing(rule) is None else None
        return self._findings[kind]

    # -- the run ------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """E, ns."""
        return self.run.events.length

    @property
    def devices(self) -> int:
        """n, the number of GPUs; 0 in a run without."""
        return len(self.run.events.rows.devices)

    @cached_property
    def processes(self) -> list[int]:
        """Tasks with threads that call MPI."""
        rows = self.run.events.rows
        return sorted({int(rows.task[row]) for row in self.run.callers})

    def name(self, index: int) -> str:
        """Name of a device, in a run without GPUs of a process."""
        rows = self.run.events.rows
        return rows.devices[index].name if rows.devices else rows.tasks[index].name

    def device_index(self, name: str) -> int:
        """Index of a device."""
        return next(index for index, device in enumerate(self.run.events.rows.devices) if device.name == name)

    def tasks_of(self, losses: Iterable[Loss]) -> list[int]:
        """Tasks that use the devices of some losses, or that are the processes."""
        if not self.devices:
            return [loss.index for loss in losses]
        of_device = self.run.events.rows.tasks_of_device
        return sorted({task for loss in losses for task in of_device.get(loss.index, ())})

    def ranks_of(self, losses: Iterable[Loss]) -> list[int]:
        """Their ranks, as far as they are known."""
        tasks = self.run.events.rows.tasks
        return [rank for task in self.tasks_of(losses) if (rank := tasks[task].rank) is not None]

    def streams(self, device: int) -> tuple[int, ...]:
        """Rows of the streams of a device."""
        rows = self.run.events.rows
        pairs = enumerate(zip(rows.kind, rows.device, strict=True))
        return tuple(row for row, (kind, of) in pairs if kind == STREAM and of == device)

    def kernel_name(self, number: int, value: int) -> str:
        """Name of a kernel."""
        return str(self.run.events.named(pl.Series([number]), pl.Series([value]))[0])

    @cached_property
    def first(self) -> list[int]:
        """First begin of activity of each device, ns; -1: none."""
        return list(self.measured(Totals).first.tolist())

    @cached_property
    def last(self) -> list[int]:
        """Last end of activity of each device, ns; -1: none."""
        return list(self.measured(Totals).last.tolist())

    def active(self, device: int) -> int:
        """Time from the first to the last activity of a device, ns."""
        return self.last[device] - self.first[device]

    @property
    def active_time(self) -> int:
        """Time from the first to the last activity of any device, ns."""
        firsts = [first for first in self.first if first >= 0]
        return max(self.last) - min(firsts) if firsts else 0

    @cached_property
    def has_launches(self) -> bool:
        """Whether any launch of work in the window is known."""
        places = self.run.launch_of
        # A call before the window is on no row of it.
        return bool((self.run.launches["time"].to_numpy()[places[places != NO_LAUNCH]] >= 0).any())

    def has_work(self, number: int) -> bool:
        """Whether devices have work of an event type."""
        return bool((self.run.operations["number"] == number).any())

    # -- losses -------------------------------------------------------------------------------------

    def of_device(self, device: int, count: int, cost: int) -> Loss:
        """A device that shows something all the time; the place to look at is the bin where it computes most against others."""
        bins = self.tables["device_bins"].join(self.tables["bins"].select("bin", "begin_ns", "end_ns"), on="bin")
        is_device = pl.col("device") == self.name(device)
        mean = bins.filter(~is_device).group_by("bin").agg(mean=pl.col("kernels_ns").mean())
        place = bins.filter(is_device).join(mean, on="bin", how="left").with_columns(pl.col("mean").fill_null(0))
        worst = place.sort(pl.col("kernels_ns") - pl.col("mean"), -pl.col("bin"), descending=True).row(0, named=True)
        place_to_look = worst["begin_ns"], worst["end_ns"]
        return Loss(device, count, cost, self.first[device], self.last[device], place_to_look, self.streams(device))

    def costly(
        self,
        losses: Iterable[Loss],
        least: Threshold,
        fewest: Threshold | None = None,
        *,
        recurring: bool = False,
        or_large: bool = False,
    ) -> Losses:
        """Devices that lose enough of their active time, with enough occurrences; `recurring`: and that occur again and again;
        `or_large`: or cost a large part of it, however rare they are (LARGE_SHARE)."""

        def counts(loss: Loss) -> bool:
            active = self.active(loss.index)
            is_often = (fewest is None or loss.count >= fewest.value) and (not recurring or self.recurs(loss))
            return (is_often and loss.cost >= least.value * active) or (or_large and loss.cost >= LARGE_SHARE.value * active)

        return Losses(losses).where(counts)

    def recurs(self, loss: Loss) -> bool:
        """Whether there are occurrences in many of the tenths of the active time of a device: RECURRING, ACTIVE_PARTS."""
        length = max(self.length, 1)
        first, last = (min(times[loss.index] * PARTS // length, PARTS - 1) for times in (self.first, self.last))
        parts = last - first + 1
        if parts < ACTIVE_PARTS.value * PARTS:
            return False
        tenths = {(part - first) * 10 // parts for part in loss.parts if first <= part <= last}
        return len(tenths) >= RECURRING.value * 10


# -- the run without the gaps of a rule -----------------------------------------------------------


def gaps_removed(kind: str, removed: Callable[[BuiltGraph, pl.DataFrame], Step] = without_gaps) -> WithoutFinding:
    """Without the gaps of a rule: launching threads take no time in them. With `without_waits`: without the waits for devices
    that end in them; what the thread does after them stays."""

    def without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
        gaps = evidence.gaps.of_kind(kind, finding.losses.indices)
        return None if gaps is None else Without(removed(built, gaps))

    return without


def launches_removed(kind: str) -> WithoutFinding:
    """Without the gaps of a rule, and without launch calls in all other gaps of the same devices."""

    def without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
        gaps = evidence.gaps.of_kind(kind, finding.losses.indices)
        of_devices = evidence.gaps.of_all_kinds(finding.losses.indices)
        if gaps is None or of_devices is None:
            return None
        in_gaps, in_launches = without_gaps(built, gaps), without_launches(built, of_devices)
        return Without(lambda window, weight: in_launches(window, in_gaps(window, weight)))

    return without


# -- what must be recorded ------------------------------------------------------------------------
# Where it is not, a rule can't say that there is nothing: it is not decidable.


def _metric(pattern: str, name: str) -> Callable[[Evidence], str | None]:
    def missing(evidence: Evidence) -> str | None:
        sampled = evidence.tables["sampled_bins"]["metric"].unique()
        return None if any(re.search(pattern, metric) for metric in sampled) else f"not recorded: {name}"

    return missing


def _work(lost: Callable[[LostWork], int], what: str, *, by_host: bool = True) -> Callable[[Evidence], str | None]:
    """Work of launches that is not lost; `by_host`: and whose times can be compared with those of hosts."""

    def missing(evidence: Evidence) -> str | None:
        calls = lost(evidence.measured(LostWork))
        if calls:
            return f"{calls:,} calls launch {what}"
        names = ", ".join(evidence.name(device) for device in evidence.measured(DeviceClocks).contradictions)
        return f"times of {names} contradict those of the host" if names and by_host else None

    return missing


_first_work = _work(lambda lost: lost.at_start, "before the first work that is recorded")
_last_work = _work(lambda lost: lost.at_end, "after the last work that is recorded")
_all_work = _work(lambda lost: lost.between, "work that is not recorded")
_work_of_devices = _work(lambda lost: lost.between, "work that is not recorded", by_host=False)


def _launches(evidence: Evidence) -> str | None:
    return _all_work(evidence) if evidence.has_launches else "not recorded: CUDA API calls that launch"


def _several_devices(evidence: Evidence) -> str | None:
    return _work_of_devices(evidence) if evidence.devices > 1 else "there is one GPU, and nothing to compare it with"


def _sizes(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    return "not recorded: sizes of copies" if operations.height and not operations["bytes"].sum() else None


def _memory_kinds(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    is_unknown = operations.height and operations["source"].null_count() == operations.height
    return "not recorded: kinds of memory of copies" if is_unknown else _sizes(evidence)


def _unified(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    is_used = operations.select(pl.any_horizontal(pl.col("source", "destination") == event_types.MEMORY_KINDS[4]).any()).item()
    if not is_used or operations["operation"].str.contains("Unified").any():
        return None
    return "not recorded: migrations of unified memory (--cuda-um-gpu-page-faults, --cuda-um-cpu-page-faults)"


def _matched_collectives(evidence: Evidence) -> str | None:
    nccl = evidence.measured(Nccl)
    if nccl.waits.height and not nccl.waits["complete"].any():
        return "ranks of the communicators are not in the run: they may be those that the others wait for"
    if nccl.members.height or evidence.tables["nccl"].is_empty():
        return None
    return "collectives could not be matched over ranks: reports of other ranks are missing, or ranks have different counts"


def _has_calls(evidence: Evidence, function: str) -> bool:
    return bool(evidence.tables["cuda_calls"]["call"].str.contains(f"^cu(da)?{function}").any())


def _event_waits(evidence: Evidence) -> str | None:
    has_waits = _has_calls(evidence, "StreamWaitEvent")
    return "streams wait for events: which work waits for the default stream is not known" if has_waits else None


def _graphs(evidence: Evidence) -> str | None:
    in_nodes = _has_calls(evidence, "GraphLaunch") and not evidence.has_work(event_types.GRAPH_EXECUTION)
    return "graphs were recorded node by node: where one ends is not known" if in_nodes else None


def _mpi(evidence: Evidence) -> str | None:
    return None if evidence.tables["mpi_calls"].height else "not recorded: MPI calls"


def _several_processes(evidence: Evidence) -> str | None:
    return None if len(evidence.processes) > 1 else "there is one process with MPI, and nothing to compare it with"


def _partners(evidence: Evidence) -> str | None:
    has_partners = evidence.measured(LateProcesses).calls
    return None if has_partners else "no collective or message is known with both of its processes"


CUDA_CALLS = Need("CUDA API calls", _launches)
FIRST_WORK = Need("the work of the first launches", _first_work)
LAST_WORK = Need("the work of the last launches", _last_work)
ALL_WORK = Need("the work of all launches", _all_work)
COPY_SIZES = Need("copies with sizes", _sizes)
MEMORY_KINDS = Need("copies with kinds of memory and sizes", _memory_kinds)
UNIFIED_MEMORY = Need("copies of unified memory", _unified)
SEVERAL_DEVICES = Need("kernels on two devices or more", _several_devices)
ALL_RANKS = Need("all ranks of NCCL collectives", _matched_collectives)
CLOCKS = Need(
    "sampled clocks (GPC Clock Frequency)", _metric(r"(?i)\bGPC Clock", "sampled clocks of GPUs (GPC Clock Frequency)")
)
TENSOR_ACTIVE = Need("sampled activity of tensor cores", _metric(r"(?i)tensor", "sampled activity of tensor cores"))
NO_EVENT_WAITS = Need("separate streams without waits for events", _event_waits)
WHOLE_GRAPHS = Need("CUDA graphs recorded as a whole", _graphs)
MPI_CALLS = Need("MPI calls", _mpi)
SEVERAL_PROCESSES = Need("several processes", _several_processes)
PARTNERS = Need("collectives or messages whose processes are in the run", _partners)
ANY_WORK = Need("kernels or copies", lambda _: None)
NCCL_KERNELS = Need("NCCL kernels", lambda _: None)
"""Rules that need these find nothing without them, which is true: they are recorded with all other kernels."""
