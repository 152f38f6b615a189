"""Rules about hosts: devices that wait for them, processes of runs without GPUs that wait for each other; and where in the
program host threads are: functions that were sampled most, the NVTX range, and MPI that was not recorded."""

import statistics
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold
from nsys2prv.efficiency.findings.gap_causes import GapCause, activities_of, few_gaps
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Values, longest_call
from nsys2prv.efficiency.graph.changes import loading_times, without_waits
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.host_states import FIRST_CALL
from nsys2prv.efficiency.intervals import Intervals, moments_inside, segments, time_where
from nsys2prv.efficiency.measured_run import CUDA_ACTIVITIES, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, HOST_CALLS, RANGES
from nsys2prv.efficiency.window import mpi_phases
from nsys2prv.errors import counted
from nsys2prv.sources.host import call_chains
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.call_names import SHUT_DOWN_CALLS, START_UP_CALLS
from nsys2prv.vocabulary.wording import percent, short, time

_IN_MPI = pl.col("mpi_ns")
_IN_CALLS = tuple(CAUSE_COLUMNS[FIRST_CALL + activity] for activity in CUDA_ACTIVITIES)
"""Columns of gaps: time of the launching thread in calls of CUDA."""
_LEAST_OPEN = 0.1
"""Part of the run that a call of MPI takes at least whose missing end is reported."""


def _longest_mpi_call(evidence: Evidence) -> str:
    """The MPI call in which threads are longest, but for those that start and end MPI."""
    calls = evidence.tables["mpi_calls"].filter(~pl.col("call").str.contains(f"{START_UP_CALLS}|{SHUT_DOWN_CALLS}"))
    return short(calls["call"][0]) if calls.height else "MPI"


class HostBound(GapRule, kind="host-bound", of_host=True):
    host_part = Threshold("least part of the gap outside CUDA and MPI calls", 0.5, "else the calls dominate")
    fewest = Threshold("fewest such gaps on a device", 10, "few are phases of the program, such as an initialization", "")
    least = Threshold("least share lost, without the longest gap", 0.05, "the longest is often a separate phase")
    recurring = True
    compared = pl.col("cost") - pl.col("longest")
    worst = "occurrence"
    gap_cause = GapCause(
        pl.col("is_late") & (pl.col("host") - pl.col("waiting") >= host_part.value * pl.col("length")),
        sums={"computing": pl.col("host") - pl.col("in_os"), "in_os": pl.col("in_os"), "unscheduled": pl.col("host_ns")},
    )

    advice_of_code: str

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """Where threads load code in most of this time, it was made meanwhile: by the compiler of Triton, or torch.compile."""
        finding, run, gaps = super().describe(losses, evidence), evidence.run, evidence.gaps.of(losses.indices, self.kind)
        loads = run.calls.filter(run.is_named(run.calls, event_types.CUDA_CALL, "^cu(Module|Library)Load")).sort("row", "start")
        row, start = (loads[name].cast(pl.Int64).to_numpy() for name in ("row", "start"))
        places, _ = moments_inside(row, start, Intervals.of(*gaps.select("row", "begin", "end")))
        of_code = gaps[np.unique(places)]
        if 2 * (spent := int((of_code["end"] - of_code["begin"]).sum())) <= losses.cost:
            return finding
        text = f"{finding.text}; code is loaded in {of_code.height:,} of them, {time(spent)}"
        return replace(finding, text=text, advice=self.advice_of_code)

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        run, in_os, gaps = evidence.run, "", evidence.gaps.of(losses.indices, self.kind)
        if part := losses.total("in_os") / losses.cost:
            is_os = run.calls["number"].is_in(HOST_CALLS).not_().to_numpy()
            call = longest_call(run, gaps, is_os)
            in_os = f" or in calls of the OS ({percent(part)}; longest in {call})"
        unknown = "; whether it computes or is off its CPU was not recorded" if losses.total("unscheduled") else ""
        return {"known": f"{in_os}{unknown}{few_gaps(gaps, losses, run.events.offset)}"}


class DataLoading(GapRule, kind="data-loading", needs=(rule.CUDA_CALLS, rule.COPY_SIZES), of_host=True):
    shortest = Threshold("shortest gap that counts", 1_000_000, "a batch that is ready is copied within some 100 µs", "ns")
    smallest = Threshold("smallest copy after it", 16_384, "smaller ones are flags and parameters, and no batch", "bytes")
    fewest = Threshold("fewest such gaps on a device", 3, "the first batch always comes late, and one more may", "")
    writing_part = Threshold("largest part in OS calls of a gap after a copy back", 0.5, "else the host writes results")
    reach = Threshold("least part of a device's active time from the first to the last of them", 0.3, "else it is a phase")
    least = Threshold.least_share(0.02, "less is not worth more loading processes")
    condition = pl.col("end") - pl.col("begin") >= reach.value * pl.col("active")
    worst = "occurrence"
    # Batches are there when they are asked for, whoever makes them.
    keeps_pace = False
    after_results = pl.col("after_download") & (pl.col("former_size") >= smallest.value)
    gap_cause = GapCause(
        pl.col("is_late")
        & pl.col("before_upload")
        & ~pl.col("after_upload")
        & ~(after_results & (pl.col("in_os") > writing_part.value * pl.col("length")))
        & (pl.col("next_size") >= smallest.value)
        & (pl.col("length") >= shortest.value)
        & (pl.col("host") - pl.col("asleep_ns") >= HostBound.host_part.value * pl.col("length")),
        cost=pl.col("length") - pl.col("allocation_ns") - _IN_MPI,
        sums={
            "in_os": pl.col("in_os"),
            "waiting": pl.col("waiting"),
            "computing": pl.col("computing_ns"),
            "mpi": _IN_MPI,
            "after_results": after_results.cast(pl.Int64),
        },
    )
    title_of_results: str
    advice_of_results: str

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """After results the host may as well write these as load what comes next."""
        finding = super().describe(losses, evidence)
        if 2 * losses.total("after_results") <= losses.total("count"):
            return finding
        return replace(finding, title=self.title_of_results, advice=self.advice_of_results)

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        parts = {"sleeps or waits": losses.total("waiting") / losses.cost, "computes": losses.total("computing") / losses.cost}
        does = "".join(f", and {does} for {percent(part)} of the time" for does, part in parts.items() if part >= 0.01)
        count = losses.total("after_results")
        results = f"; {count:,} of them begin after a copy of results" if count else ""
        without = f" without {time(mpi)} in MPI calls" if (mpi := losses.total("mpi")) else ""
        return {"does": does, "results": results, "without": without}

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """Batches are there at once, also where another thread loads them."""
        return loading_times(built, 0, evidence.tasks_of(finding.losses.indices), ~pl.col("is_at_start"))


class SynchronizationStalls(GapRule, kind="synchronization-stalls"):
    longest = Threshold("longest gap that counts", 200_000, "a stall: the end of a wait, a look at the result, a launch", "ns")
    os_part = Threshold("largest part of the gap in OS calls", 0.5, "else the host waits for something else")
    largest = Threshold("largest copy of a result", 65_536, "flags, norms and the like; it takes mostly latency", "bytes")
    fewest = Threshold("fewest stalls on a device", 50, "few are the ends of phases", "")
    least = Threshold.least_share(0.05, "one stall per iteration is normal: only the loss counts")
    removed = staticmethod(without_waits)
    after_result = pl.col("after_download") & pl.col("former_size").is_between(0, largest.value)
    gap_cause = GapCause(
        pl.col("is_late")
        & (pl.col("begins_in_wait") | (after_result & (pl.col("memory_ns") > 0)))
        & ~pl.col("before_page")
        & (pl.col("length") <= longest.value)
        & (pl.col("in_os") <= os_part.value * pl.col("length")),
        sums={"results": after_result.cast(pl.Int64), "idle": pl.col("length"), **{name: pl.col(name) for name in _IN_CALLS}},
    )

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        idle = losses.total("idle")
        _, doing = activities_of({name: losses.total(name) for name in _IN_CALLS}, idle)
        return {"mean": idle / losses.total("count"), "doing": f"; in these gaps it is {doing}" if doing else ""}


class MpiWaits(GapRule, kind="mpi-waits", needs=(rule.CUDA_CALLS, rule.MPI_CALLS)):
    mpi_part = Threshold("least part of the gap in MPI calls", 0.5, "else something else dominates")
    late_part = Threshold("least part of the longest wait that gaps of the late device explain", 0.5, "else it is not known")
    least = Threshold.least_share(0.05, "less is the normal price of communication")
    worst = "occurrence"
    is_most = mpi_part.value * pl.col("length") <= _IN_MPI
    gap_cause = GapCause(
        pl.col("is_late") & (is_most | ((_IN_MPI > 0) & DataLoading.gap_cause.matches)),
        cost=pl.when(is_most).then(pl.col("length") - pl.col("allocation_ns")).otherwise(_IN_MPI),
        sums={"in_mpi": _IN_MPI},
        is_exclusive=False,
        dominates=is_most,
    )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        finding, indices = super().describe(losses, evidence), losses.indices
        # Others wait for the device with the largest excess of gaps of another cause over the median of those that wait.
        excess: list[tuple[int, int, str | None]] = []
        for kind, lost in evidence.gaps.lost_by_cause():
            if kind != self.kind:
                usual = round(statistics.median(lost.get(device, 0) for device in indices))
                excess += [(longer - usual, device, kind) for device, longer in lost.items() if device not in indices]
        longer, device, kind = max(excess, key=lambda late: late[:2], default=(0, 0, None))
        if longer < self.late_part.value * losses.worst["cost"]:
            return finding
        cause = f"of the kind {kind}" if kind is not None else "of unknown cause"
        late = f". {evidence.name(device)} does not wait: its gaps {cause} take {time(longer)} longer than those of the others"
        return replace(finding, text=finding.text + late, follows=kind)

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        return {"most": _longest_mpi_call(evidence)}


# -- runs without a GPU ---------------------------------------------------------------------------


def _process_times(evidence: Evidence) -> pl.DataFrame:
    """Times of processes, ns: `task`, `start_up` and `shut_down` (in calls that start and end MPI), `begin` and `end` of the
    work between them, of that `mpi`, the time of the thread that is in MPI longest, and `outside`, the rest."""
    task = pl.Series(evidence.rows.task[evidence.run.callers])
    in_mpi = evidence.tables["threads"].with_columns(task=task).group_by("task").agg(mpi=pl.col("mpi_ns").max().cast(pl.Int64))
    length, is_start = pl.col("end") - pl.col("start"), pl.col("is_start_up")
    phases = mpi_phases(evidence.run.events, evidence.run.calls).group_by("task").agg(
        start_up=length.filter(is_start).sum(),
        shut_down=length.filter(~is_start).sum(),
        begin=pl.col("end").filter(is_start).max(),
        end=pl.col("start").filter(~is_start).min(),
    )  # fmt: skip
    times = in_mpi.join(phases, on="task", how="left").sort("task")
    times = times.with_columns(pl.col("end").fill_null(evidence.length)).fill_null(0)
    work = (pl.col("end") - pl.col("begin")).clip(lower_bound=0)
    in_work = (pl.col("mpi") - pl.col("start_up") - pl.col("shut_down")).clip(lower_bound=0)
    return times.with_columns(mpi=pl.min_horizontal(in_work, work)).with_columns(outside=work - pl.col("mpi"))


def _losses(evidence: Evidence, processes: pl.DataFrame) -> Losses:
    """What processes lose, with the rows of their calling threads."""
    callers = evidence.run.callers
    threads = pl.DataFrame({"device": evidence.rows.task[callers], "rows": callers}).cast(pl.Int64)
    rows = threads.group_by("device").agg("rows")
    return Losses.placed(processes.join(rows, on="device", how="left", maintain_order="left"))


_ENDED = rule.Need("calls of MPI that ended", lambda evidence: evidence.run.measured(MissingMpi).unfinished)
_OF_MPI_WORK = rule.MPI_CALLS, rule.SEVERAL_PROCESSES, _ENDED
_OF_PAIRS = rule.MPI_CALLS, rule.SEVERAL_PROCESSES, rule.ALL_PROCESSES, rule.PARTNERS


class MpiStartUp(FindingRule, kind="mpi-start-up", needs=(rule.MPI_CALLS,), of_processes=True):
    shortest = Threshold("shortest time in MPI_Init and MPI_Finalize", 100_000_000, "MPI starts in some 10 ms", "ns")
    least = Threshold("least part of E in MPI_Init and MPI_Finalize", 0.1, "every run has a start")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Processes start MPI at the same time: the one that takes longest counts."""
        times = _process_times(evidence).with_columns(both=pl.col("start_up") + pl.col("shut_down"))
        longest = int(times["both"].to_numpy().max(initial=0))
        if longest < max(self.shortest.value, self.least.value * evidence.length):
            return None
        phases = mpi_phases(evidence.run.events, evidence.run.calls)
        begin, end = phases.select(pl.col("start").min(), pl.col("end").max()).row(0)
        calls = phases.sort(pl.col("start") - pl.col("end"), "start").unique("task", keep="first", maintain_order=True)
        processes = times.join(calls.select("task", "start", stop="end"), on="task", how="left", maintain_order="left").select(
            device="task", count=1, cost="both", begin=begin, end=end,
            worst_begin=pl.col("start").fill_null(begin), worst_end=pl.col("stop").fill_null(end),
        )  # fmt: skip
        start, stop = times.select(pl.col("start_up", "shut_down").mean()).row(0)
        share = percent(longest / evidence.length)
        return self.finding(_losses(evidence, processes), start=start, stop=stop, longest=longest, share=share)


class MpiImbalance(FindingRule, kind="mpi-imbalance", needs=_OF_MPI_WORK, of_processes=True):
    is_bound = False
    least = Threshold("least part of E by which a process is longer outside of MPI than the mean", 0.05, "work differs")

    def judge(self, evidence: Evidence) -> Finding | None:
        """With equal work the busiest process would be outside of MPI for as long as the mean; no wait is negative."""
        times = _process_times(evidence)
        outside, in_mpi = times["outside"].to_numpy(), times["mpi"].to_numpy()
        most, mean = int(outside.max()), float(outside.mean())
        saved = int(min(most - mean, in_mpi.mean()))
        if saved < self.least.value * evidence.length:
            return None
        busiest = times[[int(outside.argmax())]]
        loss = busiest.select("begin", "end", device="task", count=1, cost=most * len(outside) - int(outside.sum()))
        return self.finding(
            _losses(evidence, loss),
            wall=saved,
            name=evidence.name(busiest["task"][0]),
            most=most,
            mean=mean,
            processes=str(len(outside)),
            least=time(int(outside.min())),
            in_mpi=time(float(in_mpi.mean())),
            balance=mean / most if most else 1.0,
        )


class MpiTransfers(FindingRule, kind="mpi-transfers", needs=_OF_MPI_WORK, of_processes=True):
    least = Threshold("least part of E in which each process is in MPI", 0.1, "communication has its price")

    def judge(self, evidence: Evidence) -> Finding | None:
        """No run is shorter than the process with least time in MPI is outside of it."""
        times = _process_times(evidence)
        saved = int(times["mpi"].to_numpy().min(initial=evidence.length))
        if saved < self.least.value * evidence.length:
            return None
        loss = times.select("begin", "end", device="task", count=1, cost="mpi")
        return self.finding(_losses(evidence, loss), wall=saved, least=saved, most=_longest_mpi_call(evidence))


class LateProcess(FindingRule, kind="late-process", needs=_OF_PAIRS, of_processes=True):
    is_bound = False
    least = Threshold("least part of E that a process waits for one other", 0.05, "some waits are in every collective")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of the process for which another one waits longest, all waits added up: that does nothing else meanwhile."""
        late = evidence.run.measured(LateProcesses)
        if late.waits.is_empty():
            return None
        length = pl.col("end") - pl.col("begin")
        of_pairs = late.waits.group_by("late", "task").agg(waited=length.sum())
        task, most, saved = of_pairs.sort("waited", "late", "task", descending=[True, False, False]).row(0)
        if saved < self.least.value * evidence.length:
            return None
        waits = late.waits.filter(late=task).sort(length, "begin", "task", descending=[True, False, False])
        waiting, begin, end = waits.select("task", "begin", "end").row(0)
        busiest = _process_times(evidence).sort("outside", "task", descending=[True, False])["task"]
        loss = waits.select(
            device=pl.lit(task, pl.Int64), count=pl.len(), cost=length.sum(), begin=pl.col("begin").min(),
            end=pl.col("end").max(), worst_begin=begin, worst_end=end,
        )  # fmt: skip
        finding = self.finding(
            _losses(evidence, loss),
            wall=saved,
            name=evidence.name(task),
            most=evidence.name(most),
            saved=saved,
            longest=end - begin,
            waiting=evidence.name(waiting),
            undecided=late.undecided,
            open=f"; for {time(late.undecided)} of waits the clocks leave open who was late" if late.undecided else "",
        )
        return replace(finding, follows="mpi-imbalance" if task in busiest.head(1) else None)


# -- where in the program ----------------------------------------------------------------------
_MOST_FUNCTIONS = 3
_FEWEST_SAMPLES = 10
"""Samples from which on the functions that have most of them are named."""
_LEAST_IN_RANGE = 0.5
"""Least part of the time in an NVTX range that is named."""
_LEAST_IN_MPI = 0.01
_OF_MPI = r"(?i)(?:^|/)lib(?:mpi|pmpi|mpich|open-pal|open-rte|ucp|uct|ucs|ucm|psm2)[^/]*$|^P?MPI_|^(?:ucp|uct|ucs)_"
"""Modules and functions of MPI and of the libraries below it."""


def in_program(finding: Finding, run: MeasuredRun, times: pl.DataFrame | None) -> Finding:
    """A finding with the functions that were sampled most in some times of host threads (`row` of the thread, -1: not known;
    `begin` and `end`, ns; None: they are not known), also in other threads of their processes where these have more samples,
    and with the shortest NVTX ranges that hold most of them."""
    if times is None or (times := times.filter(pl.col("row") >= 0).sort("row", "begin")).is_empty():
        return finding
    text, numbers = finding.text, [*finding.numbers]
    for threads, functions in _most_sampled(run, times).items():
        text += f"; of CPU samples of {threads} meanwhile, most are in {', '.join(f'{of.what} {of}' for of in functions)}"
        numbers += (of._replace(what=f"CPU samples of {threads} in {of.what}") for of in functions)
    for part in _range_of(run, times):
        text += f"; {part} of the time is in the NVTX range {part.what}"
        numbers.append(part._replace(what=f"time in the NVTX range {part.what}"))
    return replace(finding, text=text, numbers=numbers)


def _functions(run: MeasuredRun, samples: pl.DataFrame) -> pl.DataFrame:
    """Names of the innermost `function` and its `module` in CPU samples, and their number (`len`), the most frequent first."""
    counts = samples.group_by("function", "module").len()
    names = run.events.names_of(counts, function=call_chains.SAMPLED_FUNCTION, module=call_chains.SAMPLED_MODULE)
    named = counts.with_columns(name.fill_null("not known") for name in names)
    return named.sort("len", "function", "module", descending=[True, False, False])


def _most_sampled(run: MeasuredRun, times: pl.DataFrame) -> dict[str, list[Number]]:
    """Functions with most samples in some times, with their part of these samples, of the threads, and of others of their
    processes where these have more: the threads wait for them."""
    task = pl.lit(pl.Series(run.events.rows.task)).gather("row")
    samples = run.frame(FUNCTION_SAMPLES).drop_nulls("function").with_columns(task=task).with_row_index("place")
    times = times.with_columns(task=task)

    def inside(key: str) -> pl.DataFrame:
        ordered = samples.sort(key, "start")
        group, time = (ordered[name].to_numpy().astype(np.int64) for name in (key, "start"))
        _, places = moments_inside(group, time, Intervals.of(*times.select(key, "begin", "end")))
        return ordered[np.unique(places)]

    sampled = {"these threads": (of_threads := inside("row"))}
    of_others = inside("task").join(of_threads, on="place", how="anti")
    if of_others.height > of_threads.height:
        sampled["other threads of their processes"] = of_others
    return {threads: _top_functions(run, chosen) for threads, chosen in sampled.items() if chosen.height >= _FEWEST_SAMPLES}


def _top_functions(run: MeasuredRun, samples: pl.DataFrame) -> list[Number]:
    """The functions with most samples, or where these are not half of all, as in compilers, the modules."""
    functions = _functions(run, samples)
    top = functions.head(_MOST_FUNCTIONS)
    named = [
        (f"{short(function.replace(f'unresolved in {module}', 'unresolved code'))} of {short(module)}", count)
        for function, module, count in top.iter_rows()
    ]
    if 2 * top["len"].sum() < samples.height:
        modules = functions.group_by("module").agg(pl.col("len").sum()).sort("len", "module", descending=[True, False])
        named = [(short(module), count) for module, count in modules.head(_MOST_FUNCTIONS).iter_rows()]
    return [Number(name, count / samples.height, "0 to 1") for name, count in named]


def _range_of(run: MeasuredRun, times: pl.DataFrame) -> list[Number]:
    """The NVTX range that holds most of some times, of several the shortest, with its part of them; none, or one."""
    together = segments(Intervals.of(*times.select("row", "begin", "end")))
    is_inside, ranges = together.counts[0] > 0, run.frame(RANGES)
    total = int(together.lengths()[is_inside].sum())
    if ranges.is_empty() or not total:
        return []
    inside = time_where(together, is_inside, ranges.select("row", "start", "end"))
    by_name = ranges.with_columns(inside=pl.Series(inside)).group_by("number", "value")
    holding = by_name.agg(pl.col("inside").sum(), length=(pl.col("end") - pl.col("start")).mean())
    holding = holding.filter(pl.col("inside") >= _LEAST_IN_RANGE * total).sort("length", "number", "value").head(1)
    names = run.events.named(holding["number"], holding["value"])
    # A range inside another one of its name holds the same time.
    return [Number(short(names[0]), min(holding["inside"][0] / total, 1.0), "0 to 1")] if len(names) else []


@dataclass(frozen=True)
class MissingMpi(Measurement):
    """What is missing of MPI; `unfinished`: long calls that had not ended when the recording stopped, as a text, or None."""

    unfinished: str | None = None


def missing_mpi(run: MeasuredRun) -> MissingMpi:
    """Look for calls that did not end; and for MPI, and libraries below it, in CPU samples of a run whose MPI was not recorded:
    waits for other ranks look like work of hosts."""
    of_mpi = set(event_types.MPI_TYPES.values())
    if of_mpi & run.events.types.keys():
        is_open = pl.col("number").is_in(of_mpi) & pl.col("end").is_in([stop - run.events.offset for stop in run.events.stops])
        calls = run.calls.filter(is_open, pl.col("end") - pl.col("start") >= _LEAST_OPEN * run.events.length)
        names = ", ".join(run.events.named(calls["number"], calls["value"]).unique().sort())
        unfinished = f"{counted(calls.height, 'call')} of MPI ({names}) had not ended when the recording stopped"
        why = "a rank has failed or hangs, or the recording was stopped first; time in them is no transfer"
        return MissingMpi(unfinished, warnings=[f"{unfinished}: {why}"]) if names else MissingMpi()
    samples = run.frame(FUNCTION_SAMPLES).drop_nulls("function")
    is_mpi = pl.any_horizontal(pl.col("function", "module").str.contains(_OF_MPI))
    by_module = _functions(run, samples).filter(is_mpi).group_by("module").agg(pl.col("len").sum())
    in_mpi = int(by_module["len"].sum())
    if in_mpi < max(_FEWEST_SAMPLES, _LEAST_IN_MPI * samples.height):
        return MissingMpi()
    top = by_module.sort("len", "module", descending=[True, False])["module"].head(_MOST_FUNCTIONS)
    unrecorded = f"samples are in {', '.join(map(short, top))}, and MPI was not recorded (--trace=mpi)"
    waits = "waits for other ranks may count as work of hosts"
    return MissingMpi(warnings=[f"{percent(in_mpi / samples.height)} of the CPU {unrecorded}: {waits}"])
