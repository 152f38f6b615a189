"""What a rule of findings consists of, what it judges, and what must be recorded for it."""

import configparser
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars import selectors

from nsys2prv.efficiency.findings.finding import PARTS, SHARE, Finding, Losses, Number, Threshold, Worst, part_of
from nsys2prv.efficiency.findings.gap_causes import GapCause, GapCauses
from nsys2prv.efficiency.graph.changes import without_gaps
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph, outermost_calls
from nsys2prv.efficiency.host_states import LONG_CREATION
from nsys2prv.efficiency.intervals import NONE, Mask, Spans
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.recording_checks import DeviceClocks, LostWork
from nsys2prv.efficiency.run_events import NCCL_REGIONS, OS_TYPES
from nsys2prv.errors import counted
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

Values = Mapping[str, Any]
"""What is filled into texts: numbers, and texts."""
NO_DEVICES = "no work of a GPU was recorded"

_LEAST_MISSING = 0.05
"""Part of the window that was not recorded of a rank, from which on ranks are not compared."""
LEAST_COST = Threshold("least time that is saved", 1_000_000, "the first few ms are not a run to judge", "ns")
LEAST_SHARE = Threshold("least time that is saved, of E", 0.01, "less of the run is not worth a look")
RECURRING = Threshold(
    "of the tenths of a device's active time, least part with occurrences (for rules about what recurs)", 0.5,
    "else it belongs to a phase, such as the start",
)  # fmt: skip
ACTIVE_PARTS = Threshold("least part of the window from first to last activity (likewise)", 0.1, "less is too short for a loop")
LARGE_SHARE = Threshold(
    "part of a device's active time that counts also where it does not recur (of copies, pages, allocations, collectives, "
    "last waves)", 0.1, "few long ones cost as much as many short ones",
)  # fmt: skip
GENERAL_THRESHOLDS = (LEAST_COST, LEAST_SHARE, RECURRING, ACTIVE_PARTS, LARGE_SHARE)
"""Thresholds of all rules."""


class Need(NamedTuple):
    """What a rule needs: its name, and a function that gives the reason why it is missing, None where it is there."""

    text: str
    missing: Callable[["Evidence"], str | None] = lambda _: None


class Evidence:
    """What rules judge: a run, the tables of its results, and what was measured of it.

    Of the run there are its `rows`, `length` (E, ns), `devices` (n, the number of GPUs; 0 in a run without), and `processes`,
    the number of tasks with threads that call MPI. `first` and `last` are, of each device, first begin and last end of
    activity, ns; -1: none. Of rows with a `device`, `active` is the time from the first to the last activity, ns, and `index`
    the index of the device that the column names; `active_time` is that time of all devices together."""

    def __init__(self, run: MeasuredRun, tables: Mapping[str, pl.DataFrame], rules: Iterable["FindingRule"]) -> None:
        self.run, self.tables, self.rows, self.length = run, tables, run.events.rows, run.events.length
        self.devices = len(self.rows.devices)
        indices = {device.name: index for index, device in enumerate(self.rows.devices)}
        self.index = pl.col("device").replace_strict(indices, return_dtype=pl.Int64)
        self.processes = len(np.unique(self.rows.task[run.callers]))
        self.first, self.last = (tables["devices"][f"{name}_ns"].fill_null(-1) for name in ("first", "last"))
        self.active = pl.lit(self.last - self.first).gather("device")
        begins = [first for first in self.first if first >= 0]
        self.active_time = max(self.last) - min(begins) if begins else 0
        self._rules = {rule.kind: rule for rule in rules}
        self._findings: dict[str, Finding | None] = {}

    @property
    def gaps(self) -> GapCauses:
        """Gaps by cause; of a run with GPUs."""
        return self.run.measured(GapCauses)

    def missing(self, rule: "FindingRule") -> str | None:
        """Why a rule can't decide; None: it can."""
        if not rule.of_processes and not self.devices:
            return NO_DEVICES
        of_needs = next((reason for need in rule.needs if (reason := need.missing(self)) is not None), None)
        return of_needs if rule.of_processes else of_needs or self.run.measured(LostWork).reason

    def finding(self, kind: str) -> Finding | None:
        """The finding of a rule, also one that costs too little to be shown; rules are judged once."""
        if kind not in self._findings:
            rule = self._rules[kind]
            self._findings[kind] = rule.judge(self) if self.missing(rule) is None else None
        return self._findings[kind]

    def name(self, index: int) -> str:
        """Name of a device, in a run without GPUs of a process."""
        return self.rows.devices[index].name if self.devices else self.rows.tasks[index].name

    def tasks_of(self, indices: Sequence[int]) -> list[int]:
        """Tasks that use some devices; of a run without GPUs these processes."""
        of_device = self.rows.tasks_of_device if self.devices else {index: (index,) for index in indices}
        return sorted({task for index in indices for task in of_device.get(index, ())})

    def ranks_of(self, indices: Sequence[int]) -> list[int]:
        """Ranks of these tasks, as far as they are known."""
        return [rank for task in self.tasks_of(indices) if (rank := self.rows.tasks[task].rank) is not None]

    def kernel_name(self, number: int, value: int) -> str:
        """Name of a kernel."""
        return str(self.run.events.named(number, pl.Series([value]))[0])

    def column(self, name: str) -> pl.Expr:
        """A column of the table `devices`, of rows with a `device`."""
        return pl.lit(self.tables["devices"][name]).gather("device")

    @cached_property
    def has_launches(self) -> bool:
        """Whether any launch of work in the window is known."""
        places = self.run.launch_of
        # A call before the window is on no row of it.
        return bool((self.run.launches["time"].to_numpy()[places[places != NONE]] >= 0).any())

    def throughout(self, devices: pl.DataFrame) -> Losses:
        """Devices (`device`, `count`, `cost`) that show something all the time; the place to look at is the bin where each
        computes most against the others."""
        bins = self.tables["bins"].select("bin", worst_begin="begin_ns", worst_end="end_ns")
        kernels, others = pl.col("kernels_ns"), pl.len().over("bin") - 1
        mean = pl.when(others > 0).then((kernels.sum().over("bin") - kernels) / others).otherwise(0)
        excess = self.tables["device_bins"].join(bins, on="bin").with_columns(excess=kernels - mean)
        worst = excess.sort("excess", "bin", descending=[True, False]).unique("device", keep="first", maintain_order=True)
        worst = worst.select("worst_begin", "worst_end", self.index)
        times = (pl.lit(times).gather("device").alias(name) for name, times in (("begin", self.first), ("end", self.last)))
        placed = devices.cast(pl.Int64).with_columns(times)
        return Losses.placed(placed.join(worst, on="device", how="left", maintain_order="left"))

    def recurring(self, losses: Losses) -> list[int]:
        """Devices with occurrences in many of the tenths of their active time: RECURRING, ACTIVE_PARTS."""
        first, last = (part_of(pl.lit(times).gather("device"), self.length) for times in (self.first, self.last))
        parts = losses.parts.with_columns(first=first, several=last - first + 1)
        place = pl.col("part") - pl.col("first")
        inside = parts.filter(pl.col("count") > 0, place >= 0, place < pl.col("several"))
        tenths = inside.group_by("device", "several").agg(tenths=(place * 10 // pl.col("several")).n_unique())
        is_often = pl.col("tenths") >= RECURRING.value * 10
        return tenths.filter(is_often, pl.col("several") >= ACTIVE_PARTS.value * PARTS)["device"].to_list()


# -- what must be recorded ------------------------------------------------------------------------
# Where it is not, a rule can't say that there is nothing: it is not decidable.


def _metric(pattern: str, name: str, evidence: Evidence) -> str | None:
    return None if evidence.tables["sampled_bins"]["metric"].str.contains(pattern).any() else f"not recorded: {name}"


def _work(lost: str, what: str, evidence: Evidence, *, by_host: bool = True) -> str | None:
    """Work of launches that is not lost (of `LostWork`); `by_host`: and whose times can be compared with those of hosts."""
    calls = getattr(evidence.run.measured(LostWork), lost)
    if calls:
        return f"{calls:,} calls launch {what}"
    names = ", ".join(evidence.name(device) for device in evidence.run.measured(DeviceClocks).contradictions)
    return f"times of {names} contradict those of the host" if names and by_host else None


_all_work = partial(_work, "between", "work that is not recorded")


def _launches(evidence: Evidence) -> str | None:
    return _all_work(evidence) if evidence.has_launches else "not recorded: CUDA API calls that launch"


def _several_devices(evidence: Evidence) -> str | None:
    only_device = evidence.devices == 1
    return "there is one GPU, and nothing to compare it with" if only_device else _all_work(evidence, by_host=False)


def _sizes(evidence: Evidence, *, of_kinds: bool = False) -> str | None:
    operations = evidence.tables["memory_operations"]
    if of_kinds and operations.height and operations["source"].is_null().all():
        return "not recorded: kinds of memory of copies"
    return "not recorded: sizes of copies" if operations.height and not operations["bytes"].sum() else None


def _unified(evidence: Evidence) -> str | None:
    operations = evidence.tables["memory_operations"]
    is_used = operations.select(pl.any_horizontal(pl.col("source", "destination") == event_types.MEMORY_KINDS[4]).any()).item()
    is_used |= evidence.tables["cuda_calls"]["call"].str.contains("(?i)M(?:em)?allocManaged").any()
    if not is_used or operations["operation"].str.contains("Unified").any():
        return None
    return "not recorded: migrations of unified memory (--cuda-um-gpu-page-faults, --cuda-um-cpu-page-faults)"


def _matched_collectives(evidence: Evidence) -> str | None:
    nccl = evidence.run.measured(Nccl)
    if nccl.waits.height and not nccl.waits["complete"].any():
        return "ranks of the communicators are not in the run: they may be those that the others wait for"
    if nccl.members.height or evidence.tables["nccl"].is_empty():
        return None
    return "collectives could not be matched over ranks: reports of other ranks are missing, or ranks have different counts"


def _same_times(evidence: Evidence) -> str | None:
    """Of ranks that run collectives together, and whose numbers of collectives differ."""
    rows, nccl, tables = evidence.rows, evidence.run.measured(Nccl), evidence.tables
    if nccl.members.height or tables["nccl"].is_empty() or evidence.devices == 1:
        return None
    both = pl.concat(frame.select("row", "start", "end") for frame in (evidence.run.operations, evidence.run.calls))
    times = rows.located(both).filter(pl.col("task").is_in(list(rows.devices_of_task))).group_by("task").agg(
        first=pl.col("start").min(), last=pl.col("end").max()
    )  # fmt: skip
    missing = pl.col("first") - pl.col("first").min() + pl.col("last").max() - pl.col("last")
    short = times.filter(missing >= _LEAST_MISSING * evidence.length).sort("task")["task"].to_list()
    names = ", ".join(rows.tasks[task].name for task in short[:3])
    return f"less was recorded of {counted(len(short), 'rank')} than of others: {names}" if short else None


def _has_calls(evidence: Evidence, function: str) -> bool:
    return bool(evidence.tables["cuda_calls"]["call"].str.contains(f"^cu(da)?{function}").any())


def _nccl_ranges(evidence: Evidence) -> str | None:
    has_kernels = (evidence.run.operations["number"] == event_types.NCCL_KERNEL).any()
    return "not recorded: NVTX ranges of NCCL" if has_kernels and evidence.run.frame(NCCL_REGIONS).is_empty() else None


def _host_states(evidence: Evidence) -> str | None:
    is_recorded = evidence.run.is_scheduled.any() or any(number in evidence.run.events.types for number in OS_TYPES)
    return None if is_recorded else "not recorded: scheduling of threads, calls of the OS runtime"


def _context_calls(evidence: Evidence) -> str | None:
    first = max(evidence.first, default=-1)
    is_short = first < max(LONG_CREATION, LEAST_SHARE.value * evidence.length)
    if is_short or not evidence.run.is_from_start or evidence.run.context_creations.height:
        return None
    return f"no call that was recorded creates it: it is part of the {time(first)} before the first work, or was there before"


def _graphs(evidence: Evidence) -> str | None:
    has_graphs = (evidence.run.operations["number"] == event_types.GRAPH_EXECUTION).any()
    in_nodes = _has_calls(evidence, "GraphLaunch") and not has_graphs
    return "graphs were recorded node by node: where one ends is not known" if in_nodes else None


def _event_waits(evidence: Evidence) -> str | None:
    waits = _has_calls(evidence, "StreamWaitEvent")
    return "streams wait for events: which work waits for the default stream is not known" if waits else None


def _gpu_size(evidence: Evidence, *, of_one_kind: bool = False) -> str | None:
    sizes = evidence.run.events.gpu_sizes
    if not sizes or not all(size.multiprocessors for size in sizes):
        return "not recorded: multiprocessors of GPUs"
    if of_one_kind and len(sizes) > 1:
        return "hosts have GPUs of several kinds: of which one a kernel ran on is not known"
    return "not recorded: what a multiprocessor holds" if of_one_kind and any(0 in size[:-1] for size in sizes) else None


NCCL_RANGES = Need("NVTX ranges of NCCL", _nccl_ranges)
CONTEXT_CALLS = Need("the call that creates the context, where the first work comes late", _context_calls)
HOST_STATES = Need("scheduling of threads or calls of the OS runtime", _host_states)
CUDA_CALLS = Need("CUDA API calls", _launches)
FIRST_WORK = Need("the work of the first launches", partial(_work, "at_start", "before the first work that is recorded"))
LAST_WORK = Need("the work of the last launches", partial(_work, "at_end", "after the last work that is recorded"))
ALL_WORK = Need("the work of all launches", _all_work)
COPY_SIZES = Need("copies with sizes", _sizes)
MEMORY_KINDS = Need("copies with kinds of memory and sizes", partial(_sizes, of_kinds=True))
UNIFIED_MEMORY = Need("copies of unified memory", _unified)
SAME_TIMES = Need("ranks of collectives that were recorded for the same time", _same_times)
SEVERAL_DEVICES = Need("kernels on two devices or more", _several_devices)
ALL_RANKS = Need("all ranks of NCCL collectives", _matched_collectives)
CLOCKS = Need(
    "sampled clocks (GPC Clock Frequency)", partial(_metric, r"(?i)\bGPC Clock", "sampled clocks of GPUs (GPC Clock Frequency)")
)
TENSOR_ACTIVE = Need("sampled activity of tensor cores", partial(_metric, "(?i)tensor", "sampled activity of tensor cores"))
NO_EVENT_WAITS = Need("separate streams without waits for events", _event_waits)
WHOLE_GRAPHS = Need("CUDA graphs recorded as a whole", _graphs)
MPI_CALLS = Need("MPI calls", lambda evidence: "not recorded: MPI calls" if evidence.tables["mpi_calls"].is_empty() else None)
ALL_PROCESSES = Need("all ranks of the run", lambda of: "missing ranks may be later" if of.run.events.missing_ranks else None)
SEVERAL_PROCESSES = Need(
    "several processes",
    lambda evidence: None if evidence.processes > 1 else "there is one process with MPI, and nothing to compare it with",
)
PARTNERS = Need(
    "collectives or messages whose processes are in the run",
    lambda evidence: (
        None if evidence.run.measured(LateProcesses).calls else "no collective or message is known with both of its processes"
    ),
)
GPU_SIZE = Need("multiprocessors of the GPUs", _gpu_size)
EQUAL_GPUS = Need("GPUs of one kind, and what their multiprocessors hold", partial(_gpu_size, of_one_kind=True))
ANY_WORK = Need("kernels or copies")
NCCL_KERNELS = Need("NCCL kernels")
"""Rules that need these find nothing without them, which is true: they are recorded with all other kernels."""

# -- rules ----------------------------------------------------------------------------------------


def _read_texts() -> Mapping[str, Mapping[str, Any]]:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.read_string((resources.files(__package__) / "rules.ini").read_text(encoding="utf-8"))
    shared = _numbers_of(parser["gap-rule"]["numbers"], {})
    return {
        kind: {
            name: _numbers_of(text, shared) if name == "numbers" else " ".join(text.split())
            for name, text in parser[kind].items()
        }
        for kind in parser.sections()
    }


def _numbers_of(text: str, shared: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """From names of shared numbers, and lines `name: what it is [unit]`."""
    names = filter(None, text.partition("\n")[0].split(", "))
    lines = re.findall(r"(\w+): (.*?)(?: \[(.*)\])?$", text, re.MULTILINE)
    return {**{name: shared[name] for name in names}, **{name: (what, unit) for name, what, unit in lines}}


TEXTS = _read_texts()
"""Texts of rules, by their kinds, in the order of the rules."""


class CallTime(NamedTuple):
    """Calls of one name of host threads: event type and name, their number, and how long they take, ns."""

    number: int
    name: str
    calls: int
    spent: int

    def __str__(self) -> str:
        return f"{counted(self.calls, 'call')} of {self.name}, {time(self.spent)}"


def longest_call(run: MeasuredRun, times: pl.DataFrame, which: Mask | None = None) -> CallTime:
    """The calls that threads are in longest in some times (`row`, `begin`, `end`, ns); only of `which` of all calls, and none
    of the OS inside of others."""
    row, start, end = (run.calls[name].to_numpy() for name in ("row", "start", "end"))
    spent = Spans(times.select("row", "begin", "end")).inside(row, start, end, which)
    calls = outermost_calls(run.calls.with_columns(spent=spent).filter(pl.col("spent") > 0))
    by_name = calls.group_by("number", "value").agg(pl.col("spent").sum(), count=pl.len())
    for number, value, spent, count in by_name.sort("spent", "number", "value").tail(1).iter_rows():
        return CallTime(number, run.events.named(number, pl.Series([value]))[0], count, spent)
    return CallTime(NONE, "", 0, 0)


class FindingRule:
    """One rule, as a subclass: its texts are in rules.ini under its kind, and keywords of the class set its needs. Each
    attribute that is a Threshold is one of its thresholds.

    `kind`, `title`, `sees`: its name for programs and for people, and what it looks for.
    `needs`: what must be recorded; without it the rule can't decide.
    `text`, `numbers`: the text of a finding, with names of values in braces; what the values are, and their units.
    `what`: in this text: what is seen. Rules with it share the rest.
    `cost`: how its cost is counted: time of devices, ns; of a run without GPUs, time of processes. Most count gaps.
    `view`, `advice`: the view that shows it, by its name in cfgs/views.ini; and what people do about it.
    `least`, `shortest`, `fewest`, `occurrences`: share of the active time of a device that it loses at least, and the shortest
        time; and the fewest occurrences on it, which a column counts.
    `recurring`, `or_large`, `large`: occurrences must occur again and again; or cost a large part of it, however rare they are
        (LARGE_SHARE), or this part of E.
    `sums`: further columns of its events whose sums over a device matter.
    `compared`, `condition`: what of the cost is compared with `least`, and what else must be true of a device: expressions over
        `Losses.devices`, and `active`, its active time, ns.
    `gap_cause`, `unseen`: the gaps that it counts; and what it can't see by its nature, for people who find nothing.
    `parts`: columns of `absent_time` that are about the same: what they have may be too little for a finding.
    `of_processes`: it is for runs without GPUs.
    `is_bound`, `at_most`: no more time can be saved than times of devices say: what others wait for it was recorded; a replay
        without it saves more than can be won in truth, because nothing of it is left in the changed run.
    `keeps_pace`: without it threads still wait for what keeps its pace, as a camera: a replay that gains from them is a bound.
    `is_idle`: no kernel but NCCL's runs in what it counts: a run takes at least as long as the other kernels of a device.
    `is_of_kernels`: kernels would be shorter, and nothing else.
    `is_summary`: it says that time is lost, and not to what: other findings come first."""

    kind: str
    title: str
    sees: str
    text: str
    what: str = ""
    numbers: Mapping[str, tuple[str, str]]
    needs: Sequence[Need] = ()
    cost: str = "sum of the gaps, without the time in allocation calls"
    view: str
    advice: str
    least: Threshold
    fewest: Threshold | None = None
    shortest: Threshold | None = None
    occurrences: str = "count"
    recurring: bool = False
    or_large: bool = False
    large: Threshold | None = None
    sums: Sequence[str] = ()
    compared: pl.Expr = pl.col("cost")
    condition: pl.Expr = pl.lit(value=True)
    gap_cause: GapCause | None = None
    unseen: str | None = None
    parts: Sequence[str] = ()
    is_bound: bool = True
    is_idle: bool = False
    is_of_kernels: bool = False
    at_most: bool = False
    keeps_pace: bool = True
    of_processes: bool = False
    is_summary: bool = False

    def __init_subclass__(cls, texts: str = "", **attributes: Any) -> None:
        # Under `texts` are those of several rules.
        section = attributes.get("kind", texts)
        for name, value in {**(TEXTS[section] if section else {}), **attributes}.items():
            setattr(cls, name, value)

    @property
    def thresholds(self) -> Sequence[Threshold]:
        """What it compares with, first what several rules do. A device of a finding is itself beyond all of them."""
        of_classes = (vars(of).items() for of in reversed(type(self).__mro__))
        return list({name: value for of in of_classes for name, value in of if isinstance(value, Threshold)}.values())

    def judge(self, evidence: Evidence) -> Finding | None:
        """The finding of a run, if there is one."""
        losses = self.costly(self.losses(evidence), evidence)
        return self.describe(losses, evidence) if losses else None

    def events(self, evidence: Evidence) -> pl.DataFrame:
        """Events of devices that each cost something: columns as of `Losses.of_events`."""
        raise NotImplementedError

    def losses(self, evidence: Evidence) -> Losses:
        """What devices lose, whether or not it counts: by its events, or in another way."""
        return Losses.of_events(evidence.run, self.events(evidence), self.sums)

    def costly(self, losses: Losses, evidence: Evidence) -> Losses:
        """Devices that lose enough of their active time, with enough occurrences; with the column `active`."""
        if not losses:
            return losses
        losses = replace(losses, devices=losses.devices.with_columns(active=evidence.active))
        counts = self.compared >= self.least.value * pl.col("active")
        if self.fewest is not None:
            counts &= pl.col(self.occurrences) >= self.fewest.value
        if self.recurring:
            counts &= pl.col("device").is_in(evidence.recurring(losses))
        if self.or_large:
            least = (self.large or LARGE_SHARE).value * evidence.length
            counts |= pl.col("cost") >= pl.min_horizontal(LARGE_SHARE.value * pl.col("active"), least)
        return losses.where(counts & self.condition)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """The finding of devices whose losses count."""
        return self.finding(losses, **self.values(losses, evidence))

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        """Numbers and texts that are filled into the text of the finding."""
        return {}

    def finding(
        self, losses: Losses, also: Iterable[Number] = (), wall: int | None = None, **values: float | str | None
    ) -> Finding:
        """A finding with the text of the rule, and with `numbers`, as far as there are values for them, and `also` behind them.

        Beside `values` these are sums of the columns of losses (a number that is a share: against the cost), their
        `mean` and `longest` (both as a text: `lengths`), and the cost as a text, `lost`."""
        sums = losses.devices.select(selectors.numeric().sum()).row(0, named=True)
        cost, is_share = losses.cost, {name for name, (_, unit) in self.numbers.items() if unit == SHARE}
        filled = {name: total / max(cost, 1) if name in is_share else total for name, total in sums.items()}
        longest = losses.devices["longest"].max() if "longest" in sums else None
        filled |= {"mean": cost / max(sums["count"], 1), "longest": longest, "lost": time(cost), **values}
        numbers = {
            name: Number(what, value, unit)
            for name, (what, unit) in self.numbers.items()
            if (value := filled.get(name)) is not None and not isinstance(value, str)
        }
        lengths = "{mean} on average and {longest} at most" if sums["count"] > 1 else "{longest}"
        filled["lengths"] = lengths.format(**numbers) if numbers.keys() >= {"mean", "longest"} else ""
        text = self.text.format(**{**filled, "devices": losses, "what": self.what, **numbers})
        return Finding(text, losses, [*numbers.values(), *also], wall)

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame | None:
        """Times of host threads that explain the finding: `row` (-1: not known), `begin`, `end`; None: there are none."""

    def not_costly(self, evidence: Evidence) -> str | None:
        """Why much that is lost is no finding; None: little is, or it is not known."""

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """The change of the graph of the run that takes the finding away, for the time by which the run would be shorter; None:
        that is not known, and the critical path bounds it."""


class GapRule(FindingRule, texts="gap-rule"):
    """A rule about gaps of devices: those of its `gap_cause`; with `of_host` the launching thread works for the program in
    them, and the finding says where in it.

    `removed` is the graph without the gaps: launching threads take no time in them. With `without_waits`: without the waits for
    devices that end in them; what the thread does after them stays."""

    needs = (CUDA_CALLS,)
    gap_cause: GapCause
    is_idle = True
    worst: Worst = "part"
    of_host: bool = False
    removed: Callable[[BuiltGraph, pl.DataFrame], Step] = staticmethod(without_gaps)

    def not_costly(self, evidence: Evidence) -> str | None:
        """How many gaps cost much, and do not count: they are few, or in one part of the run."""
        losses = self.losses(evidence)
        if not losses or losses.worst["cost"] < self.least.value * evidence.active_time:
            return None
        few = f"{counted(losses.worst['count'], 'gap')} of {evidence.name(losses.worst['device'])}"
        return f"{time(losses.worst['cost'])} in {few}, too few or in too small a part of the run"

    def losses(self, evidence: Evidence) -> Losses:
        """What its gaps cost on each device."""
        return evidence.gaps.losses(self.kind, worst=self.worst)

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame | None:
        """Its gaps, where the launching thread works for the program."""
        return evidence.gaps.of(finding.losses.indices, self.kind) if self.of_host else None

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """Without the gaps of the devices of the finding. The graph knows none that no launch ends, and no parts."""
        gaps = evidence.gaps.of(finding.losses.indices, self.kind)
        is_known = self.gap_cause.needs_launch and gaps.height == finding.losses.total("count")
        return self.removed(built, gaps) if is_known else None
