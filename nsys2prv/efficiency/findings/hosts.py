"""Rules about hosts: devices that wait for them, and in runs without GPUs processes that wait for each other."""

from __future__ import annotations

import statistics
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Loss, Losses, Number, Threshold, least_share
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.in_program import in_program
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Without
from nsys2prv.efficiency.graph.changes import loading_times, without_waits
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.measured_window import mpi_phases
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.vocabulary.wording import percent, short, time


class HostBound(GapRule, kind="host-bound"):
    host_part = Threshold("least part of the gap outside CUDA and MPI calls", 0.5, "else the calls dominate")
    fewest = Threshold("fewest such gaps on a device", 10, "few are phases of the program, such as an initialization", "")
    least = Threshold("least share lost, without the longest gap", 0.05, "the longest is often a separate phase")
    recurring = True
    worst = "occurrence"
    gap_cause = GapCause(
        pl.col("is_late") & (pl.col("host") - pl.col("waiting") >= host_part.value * pl.col("length")),
        sums={"computing": pl.col("host") - pl.col("in_os"), "in_os": pl.col("in_os"), "unscheduled": pl.col("host_ns")},
    )

    def counts(self, loss: Loss, evidence: Evidence) -> bool:
        return super().counts(replace(loss, cost=loss.cost - loss.longest), evidence)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, longest = losses.gaps
        computing = losses.share("computing", "part of the gaps in no call")
        in_os = losses.share("in_os", "part of the gaps in OS calls")
        text = (
            f"{gaps} gaps {losses}, {mean} on average and {longest} at most, while the launching "
            f"thread is in neither CUDA nor MPI calls ({computing} of the time) or in calls of the OS ({in_os})"
            + ("; whether it computes or is off its CPU was not recorded" if losses.total("unscheduled") else "")
        )
        finding = Finding(text, losses, (gaps, mean, longest, computing, in_os))
        return in_program(finding, evidence.run, evidence.gaps.of_kind(self.kind, losses.indices))


class DataLoading(GapRule, kind="data-loading", needs=(rule.CUDA_CALLS, rule.COPY_SIZES)):
    shortest = Threshold("shortest gap that counts", 1_000_000, "a batch that is ready is copied within some 100 µs", "ns")
    smallest = Threshold("smallest copy after it", 16_384, "smaller ones are flags and parameters, and no batch", "bytes")
    fewest = Threshold("fewest such gaps on a device", 3, "the first batch always comes late, and one more may", "")
    reach = Threshold("least part of a device's active time from the first to the last of them", 0.3, "else it is a phase")
    least = least_share(0.02, "less is not worth more loading processes")
    worst = "occurrence"
    gap_cause = GapCause(
        pl.col("is_late")
        & pl.col("before_upload")
        & ~pl.col("after_upload")
        & (pl.col("next_size") >= smallest.value)
        & (pl.col("length") >= shortest.value)
        & (pl.col("host") >= HostBound.host_part.value * pl.col("length")),
        sums={"in_os": pl.col("in_os"), "waiting": pl.col("waiting")},
    )

    def counts(self, loss: Loss, evidence: Evidence) -> bool:
        return super().counts(loss, evidence) and loss.end - loss.begin >= self.reach.value * evidence.active(loss.index)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, longest = losses.gaps
        waiting = losses.share("waiting", "part of the gaps in which the thread sleeps or waits")
        text = (
            f"{gaps} gaps {losses}, {mean} on average and {longest} at most, end with the copy "
            f"of new data to the device; meanwhile the launching thread is in no CUDA call"
            + (f", and sleeps or waits for {waiting} of the time" if waiting.value else "")
        )
        in_os = losses.share("in_os", "part of the gaps in OS calls")
        finding = Finding(text, losses, (gaps, mean, longest, in_os, waiting))
        return in_program(finding, evidence.run, evidence.gaps.of_kind(self.kind, losses.indices))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Without:
        """Batches are there at once, also where another thread loads them."""
        return Without(loading_times(built, 0, evidence.tasks_of(finding.losses.indices)))


class SynchronizationStalls(GapRule, kind="synchronization-stalls"):
    longest = Threshold(
        "longest gap that counts", 200_000, "a stall is the end of a wait, a look at the result, and a launch", "ns"
    )
    os_part = Threshold("largest part of the gap in OS calls", 0.5, "else the host waits for something else")
    largest = Threshold("largest copy of a result", 65_536, "flags, norms and the like; it takes mostly latency", "bytes")
    fewest = Threshold("fewest stalls on a device", 50, "few are the ends of phases", "")
    least = least_share(0.05, "one stall per iteration is normal: only the loss counts")
    removed = staticmethod(without_waits)
    after_result = pl.col("after_download") & pl.col("former_size").is_between(0, largest.value)
    gap_cause = GapCause(
        pl.col("is_late")
        & ((pl.col("synchronization_ns") > 0) | (after_result & (pl.col("memory_ns") > 0)))
        & (pl.col("before_kernel") | pl.col("before_upload"))
        & (pl.col("length") <= longest.value)
        & (pl.col("in_os") <= os_part.value * pl.col("length")),
        sums={"results": after_result.cast(pl.Int64)},
    )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        _, mean, _ = losses.gaps
        stalls = Number("stalls", losses.occurrences)
        results = Number("stalls after a small copy to the host", losses.total("results"))
        text = (
            f"{stalls} times {losses} the launching thread waits until the device has nothing left to do, "
            f"{results} times for a small copy to the host, and only then launches the next work, {mean} later on average"
        )
        return Finding(text, losses, (stalls, results, mean))


class MpiWaits(GapRule, kind="mpi-waits", needs=(rule.CUDA_CALLS, rule.MPI_CALLS)):
    mpi_part = Threshold("least part of the gap in MPI calls", 0.5, "else something else dominates")
    late_part = Threshold(
        "least part of the longest wait that gaps of a device that does not wait explain", 0.5, "else it is not known"
    )
    least = least_share(0.05, "less is the normal price of communication")
    worst = "occurrence"
    gap_cause = GapCause(
        pl.col("is_late") & (pl.col("mpi_ns") >= mpi_part.value * pl.col("length")), sums={"in_mpi": pl.col("mpi_ns")}
    )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, longest = losses.gaps
        in_mpi = losses.share("in_mpi", "part of the gaps in MPI calls")
        calls = evidence.tables["mpi_calls"]
        most = short(calls["call"][0]) if calls.height else "MPI"
        text = (
            f"{gaps} gaps {losses}, {mean} on average and {longest} at most, while the launching "
            f"thread is in MPI calls ({in_mpi} of the gaps); most time of all MPI calls is in {most}"
        )
        longer, device, kind = self.late_device(losses, evidence)
        if is_explained := longer >= self.late_part.value * max(loss.cost for loss in losses):
            text += (
                f". {evidence.name(device)} does not wait: its gaps"
                + (f" of the kind {kind}" if kind is not None else " of unknown cause")
                + f" take {time(longer)} longer than those of the others"
            )
        return Finding(text, losses, (gaps, mean, longest, in_mpi), follows=kind if is_explained else None)

    def late_device(self, waiting: Losses, evidence: Evidence) -> tuple[int, int, str | None]:
        """The device for which the others wait: it has the largest excess of gaps of another cause over the median of those
        that wait. The excess, ns, its index, and the rule of these gaps."""
        indices = waiting.indices
        late: list[tuple[int, int, str | None]] = []
        for kind, lost in evidence.gaps.lost_by_cause():
            if kind != self.kind:
                usual = round(statistics.median(lost.get(device, 0) for device in indices))
                late += [(longer - usual, device, kind) for device, longer in lost.items() if device not in indices]
        return max(late, key=lambda excess: excess[:2], default=(0, 0, None))


# -- runs without a GPU ---------------------------------------------------------------------------


def _process_times(evidence: Evidence) -> pl.DataFrame:
    """Times of processes, ns.

    Columns `task`, `start_up` and `shut_down` (in calls that start and end MPI), `begin` and `end` of the work between them, of
    that `mpi`, the time of the thread that is in MPI longest, and `outside`, the rest.
    """
    task = pl.Series(evidence.rows.task[evidence.run.callers])
    in_mpi = evidence.tables["threads"].with_columns(task=task).group_by("task").agg(mpi=pl.col("mpi_ns").max().cast(pl.Int64))
    length, is_start = pl.col("end") - pl.col("start"), pl.col("is_start_up")
    phases = mpi_phases(evidence.run).group_by("task").agg(
        start_up=length.filter(is_start).sum(),
        shut_down=length.filter(~is_start).sum(),
        begin=pl.col("end").filter(is_start).max(),
        end=pl.col("start").filter(~is_start).min(),
    )  # fmt: skip
    processes = pl.DataFrame({"task": evidence.processes}, schema={"task": pl.Int64})
    times = processes.join(in_mpi, on="task", how="left").join(phases, on="task", how="left").sort("task")
    times = times.with_columns(pl.col("end").fill_null(evidence.length)).fill_null(0)
    work = (pl.col("end") - pl.col("begin")).clip(lower_bound=0)
    in_work = (pl.col("mpi") - pl.col("start_up") - pl.col("shut_down")).clip(lower_bound=0)
    times = times.with_columns(mpi=pl.min_horizontal(in_work, work))
    return times.with_columns(outside=work - pl.col("mpi"))


def _threads(evidence: Evidence, task: int) -> tuple[int, ...]:
    """Rows of the calling threads of a process."""
    callers = evidence.run.callers
    return tuple(callers[evidence.rows.task[callers] == task].tolist())


class MpiStartUp(FindingRule, kind="mpi-start-up", needs=(rule.MPI_CALLS,), of_processes=True):
    shortest = Threshold(
        "shortest time in MPI_Init and MPI_Finalize of a process", 100_000_000, "MPI starts in some 10 ms", "ns"
    )
    least = Threshold("least part of E in MPI_Init and MPI_Finalize", 0.1, "every run has a start")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Processes start MPI at the same time: the one that takes longest counts."""
        times = _process_times(evidence).with_columns(both=pl.col("start_up") + pl.col("shut_down"))
        longest = Number("longest time in both", int(times["both"].to_numpy().max(initial=0)), "ns")
        if longest.value < max(self.shortest.value, self.least.value * evidence.length):
            return None
        start = Number("mean time in MPI_Init", float(times["start_up"].to_numpy().mean()), "ns")
        stop = Number("mean time in MPI_Finalize", float(times["shut_down"].to_numpy().mean()), "ns")
        text = (
            f"processes are in MPI_Init for {start} and in MPI_Finalize for {stop} on average, together "
            f"for {longest} at most ({percent(longest.value / evidence.length)} of the window)"
        )
        phases = mpi_phases(evidence.run)
        begin, end = int(phases["start"].to_numpy().min()), int(phases["end"].to_numpy().max())
        calls = phases.sort(pl.col("start") - pl.col("end"), "start").unique("task", keep="first", maintain_order=True)
        worst = {task: (start, end) for task, start, end in calls.select("task", "start", "end").iter_rows()}
        losses = Losses(
            Loss(task, 1, lost, begin, end, worst.get(task, (begin, end)), _threads(evidence, task))
            for task, lost in times.select("task", "both").iter_rows()
        )
        return Finding(text, losses, (start, stop, longest))


_UNEQUAL = (rule.MPI_CALLS, rule.SEVERAL_PROCESSES)


class MpiImbalance(FindingRule, kind="mpi-imbalance", needs=_UNEQUAL, of_processes=True):
    least = Threshold(
        "least part of E by which a process is longer outside of MPI than the mean", 0.05, "no work is exactly equal"
    )

    def judge(self, evidence: Evidence) -> Finding | None:
        """With equal work the busiest process would be outside of MPI for as long as the mean; no wait is negative."""
        times = _process_times(evidence)
        outside, in_mpi = times["outside"].to_numpy(), times["mpi"].to_numpy()
        most = Number("longest time outside of MPI", int(outside.max()), "ns")
        mean = Number("mean time outside of MPI", float(outside.mean()), "ns")
        saved = int(min(most.value - mean.value, in_mpi.mean()))
        if saved < self.least.value * evidence.length:
            return None
        busiest = times.row(int(outside.argmax()), named=True)
        task, span = busiest["task"], (busiest["begin"], busiest["end"])
        text = (
            f"between MPI_Init and MPI_Finalize {evidence.name(task)} is outside of MPI calls for {most}, the mean of "
            f"{len(outside)} processes is {mean} and the least {time(int(outside.min()))}; on average they are in MPI calls "
            f"for {time(float(in_mpi.mean()))}"
        )
        balance = Number("mean over longest", mean.value / most.value if most.value else 1.0, "0 to 1")
        loss = Loss(task, 1, int((outside.max() - outside).sum()), *span, span, _threads(evidence, task))
        return Finding(text, Losses([loss]), (most, mean, balance), wall=saved, is_bound=False)


class LateProcess(
    FindingRule, kind="late-process", needs=(rule.MPI_CALLS, rule.SEVERAL_PROCESSES, rule.PARTNERS), of_processes=True
):
    least = Threshold("least part of E that a process waits for one other", 0.05, "some waits are in every collective")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of the process for which another one waits longest, all waits added up: that does nothing else meanwhile."""
        late = evidence.run.measured(LateProcesses)
        if late.waits.is_empty():
            return None
        worst = late.waits.sort("waited", "late", "task", descending=[True, False, False]).row(0, named=True)
        task, saved = worst["late"], Number("waits of the process that waits most", worst["waited"], "ns")
        if saved.value < self.least.value * evidence.length:
            return None
        waits = late.waits.filter(pl.col("late") == task)
        number = Number("waits", int(waits["count"].sum()))
        spent = Number("sum of the waits of all processes", int(waits["waited"].sum()), "ns")
        waiting, begin, end = late.longest(task)
        longest = Number("longest wait", end - begin, "ns")
        undecided = Number("waits that are not decidable", late.undecided, "ns")
        text = (
            f"others wait {number} times in collectives and receives until {evidence.name(task)} calls, {spent} together; "
            f"{evidence.name(worst['task'])} most, {saved}, and the longest wait is {longest}, of {evidence.name(waiting)}"
            + (f"; of waits of {undecided} clocks leave open who was late" if undecided.value else "")
        )
        busiest = _process_times(evidence).sort("outside", "task", descending=[True, False])["task"]
        first, last = int(waits["first"].to_numpy().min()), int(waits["last"].to_numpy().max())
        loss = Loss(task, int(number.value), int(spent.value), first, last, (begin, end), _threads(evidence, task))
        return Finding(
            text,
            Losses([loss]),
            (number, spent, saved, longest, undecided),
            wall=int(saved.value),
            follows="mpi-imbalance" if task in busiest.head(1) else None,
            is_bound=False,
        )
