"""Rules of findings for runs without a GPU: the start of MPI, unequal work, and processes that others wait for."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Number
from nsys2prv.efficiency.findings.host_rule import (
    MPI_CALLS,
    PARTNERS,
    SEVERAL_PROCESSES,
    HostEvidence,
    HostFinding,
    HostRule,
)
from nsys2prv.efficiency.findings.rule import Threshold
from nsys2prv.efficiency.findings.saved_time import HOST_BOUND, HOST_ESTIMATE
from nsys2prv.vocabulary.wording import percent, time

START_UP, IMBALANCE, LATE = "mpi-start-up", "mpi-imbalance", "late-process"

LONGEST_START = Threshold(
    "shortest time in MPI_Init and MPI_Finalize of a process", 100_000_000, "ns", "MPI starts in some 10 ms"
)
START_SHARE = Threshold("least part of E in MPI_Init and MPI_Finalize", 0.1, "0 to 1", "every run has a start")
IMBALANCE_SHARE = Threshold(
    "least part of E by which a process is longer outside of MPI than the mean", 0.05, "0 to 1", "no work is exactly equal"
)
LATE_SHARE = Threshold(
    "least part of E that a process waits for one other", 0.05, "0 to 1", "some waits are in every collective"
)


def _start_up(evidence: HostEvidence) -> HostFinding | None:
    """Processes start MPI at the same time: the one that takes longest counts."""
    start, stop = evidence.column("start_up"), evidence.column("shut_down")
    both = start + stop
    longest = int(both.max(initial=0))
    if longest < max(LONGEST_START.value, START_SHARE.value * evidence.length):
        return None
    order = sorted(range(len(both)), key=lambda place: (-both[place], place))
    of_worst = evidence.phases.filter(pl.col("task") == evidence.processes[order[0]])
    worst = of_worst.sort(pl.col("end") - pl.col("start"), "start", descending=[True, False]).row(0, named=True)
    text = (
        f"processes are in MPI_Init for {time(start.mean())} and in MPI_Finalize for {time(stop.mean())} on average, together "
        f"for {time(longest)} at most ({percent(longest / evidence.length)} of the window)"
    )
    return HostFinding(
        text,
        longest,
        HOST_BOUND,
        int(both.sum()),
        [evidence.processes[place] for place in order],
        (int(evidence.phases["start"].to_numpy().min()), int(evidence.phases["end"].to_numpy().max())),
        (worst["start"], worst["end"]),
        (
            Number("mean time in MPI_Init", float(start.mean()), NANOSECONDS),
            Number("mean time in MPI_Finalize", float(stop.mean()), NANOSECONDS),
            Number("longest time in both", longest, NANOSECONDS),
        ),
    )


def _imbalance(evidence: HostEvidence) -> HostFinding | None:
    """With equal work the busiest process would be outside of MPI for as long as the mean; no process can wait less than not at
    all."""
    outside, in_mpi = evidence.column("outside"), evidence.column("mpi")
    mean, most, place = float(outside.mean()), int(outside.max()), int(outside.argmax())
    saved = int(min(most - mean, in_mpi.mean()))
    if saved < IMBALANCE_SHARE.value * evidence.length:
        return None
    busiest = evidence.processes[place]
    times = evidence.times.row(place, named=True)
    text = (
        f"between MPI_Init and MPI_Finalize {evidence.name(busiest)} is outside of MPI calls for {time(most)}, the mean of "
        f"{len(outside)} processes is {time(mean)} and the least {time(int(outside.min()))}; on average they are in MPI calls "
        f"for {time(float(in_mpi.mean()))}"
    )
    return HostFinding(
        text,
        saved,
        HOST_ESTIMATE,
        int((most - outside).sum()),
        [busiest],
        (int(times["begin"]), int(times["end"])),
        (int(times["begin"]), int(times["end"])),
        (
            Number("longest time outside of MPI", most, NANOSECONDS),
            Number("mean time outside of MPI", mean, NANOSECONDS),
            Number("mean over longest", mean / most if most else 1.0, SHARE),
        ),
    )


def _late(evidence: HostEvidence) -> HostFinding | None:
    """The process for which another one waits longest, all waits added up."""
    waits = evidence.late.waits
    if waits.is_empty():
        return None
    # Of a process the waits for another one add up: it does nothing else meanwhile.
    worst = waits.sort("waited", "late", "task", descending=[True, False, False]).row(0, named=True)
    late, saved = worst["late"], worst["waited"]
    if saved < LATE_SHARE.value * evidence.length:
        return None
    of_late = waits.filter(pl.col("late") == late)
    total, count = int(of_late["waited"].sum()), int(of_late["count"].sum())
    waiting, begin, end = evidence.late.longest(late)
    undecided = evidence.late.undecided
    text = (
        f"others wait {count:,} times in collectives and receives until {evidence.name(late)} calls, {time(total)} together; "
        f"{evidence.name(worst['task'])} most, {time(saved)}, and the longest wait is {time(end - begin)}, of "
        f"{evidence.name(waiting)}"
    )
    if undecided:
        text += f"; of waits of {time(undecided)} clocks leave open who was late"
    outside = evidence.column("outside")
    is_busiest = len(outside) > 0 and evidence.processes[int(outside.argmax())] == late
    return HostFinding(
        text,
        saved,
        HOST_ESTIMATE,
        total,
        [late],
        (int(of_late["first"].to_numpy().min()), int(of_late["last"].to_numpy().max())),
        (begin, end),
        (
            Number("waits", count),
            Number("sum of the waits of all processes", total, NANOSECONDS),
            Number("waits of the process that waits most", saved, NANOSECONDS),
            Number("longest wait", end - begin, NANOSECONDS),
            Number("waits that are not decidable", undecided, NANOSECONDS),
        ),
        follows=IMBALANCE if is_busiest else None,
    )


HOST_RULES: tuple[HostRule, ...] = (
    HostRule(
        kind=START_UP,
        title="Long start of MPI: processes are in MPI_Init and MPI_Finalize for much of the run",
        sees="in a run without a GPU, a long time in MPI_Init and MPI_Finalize",
        needs=(MPI_CALLS,),
        cost="time in these calls, of each process",
        view="4-mpi/mpi_other",
        advice="In a long run it costs nothing: measure one, or the part after it (--window). Where many short jobs run, start "
        "fewer of them, and look at the launcher and at the file system that libraries are loaded from.",
        thresholds=(LONGEST_START, START_SHARE),
        judge=_start_up,
    ),
    HostRule(
        kind=IMBALANCE,
        title="Unequal work: one process is outside of MPI for longer than the others, which wait in MPI",
        sees="in a run without a GPU, processes that are outside of MPI for different times between MPI_Init and MPI_Finalize",
        needs=(MPI_CALLS, SEVERAL_PROCESSES),
        cost="what each process is less outside of MPI than the busiest one",
        view="4-mpi/mpi_time_percent",
        advice="Divide the work again; where processes have equal work, look for one that is slowed down: shared CPUs, memory "
        "of another socket, I/O.",
        thresholds=(IMBALANCE_SHARE,),
        judge=_imbalance,
    ),
    HostRule(
        kind=LATE,
        title="A late process: others wait in MPI until it calls",
        sees="in a run without a GPU, collectives that wait for one process, and receives before their messages are sent",
        needs=(MPI_CALLS, SEVERAL_PROCESSES, PARTNERS),
        cost="waits for this process, summed over all others, as far as clocks decide",
        view="4-mpi/mpi_calls",
        advice="Look at what this process does before the longest wait: more work than others, I/O, or a wait for a third one.",
        thresholds=(LATE_SHARE,),
        judge=_late,
    ),
)
"""All rules for runs without a GPU; findings of the same cost are in this order."""
