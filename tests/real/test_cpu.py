"""Scheduling, samples and calls of the OS on real reports: counted again with SQL that shares nothing with nsys2prv."""

from collections import Counter
from collections.abc import Callable

import polars as pl
import pytest
from support import few_of
from support.paramedir import STATES_VIEW, Paramedir

from .conftest import Translated

EXECUTING_CPU, CPU_SAMPLE, CYCLES = 40000033, 30000300, 30000301

SCHEDULED = (
    "sched",
    "cpu-only",
    "one-process-4gpu",
    "gpu-metrics-a100",
    "cloverleaf-3.13",
    "openacc-mpas",
    "tensorrt-3.1",
    "mpi-as-nvtx-2.9",
    "v100x8",
)
FEW = {"sched", "mpi-as-nvtx-2.9"}
EACH = pytest.mark.parametrize("report", few_of(SCHEDULED, FEW))
SAMPLED = tuple(name for name in SCHEDULED if name not in ("tensorrt-3.1", "v100x8"))

Translation = Callable[[str], Translated]


def tids(translated: Translated) -> dict[tuple[int, int], int]:
    """Thread id of the system of each row of a host thread, by task and thread."""
    names = iter(translated.trace.names["THREAD"])
    rows = [(task, thread) for task, row in enumerate(translated.trace.header.tasks, 1) for thread in range(1, row.threads + 1)]
    found = zip(rows, names, strict=True)
    return {row: int(name.rpartition("tid ")[2]) for row, name in found if "tid " in name}


def per_thread(translated: Translated, counted: pl.DataFrame) -> Counter[int]:
    """Sums (columns task, thread and a number) by thread id of the system."""
    of_row = tids(translated)
    sums: Counter[int] = Counter()
    for task, thread, number in counted.iter_rows():
        sums[of_row[task, thread]] += number
    return sums


@EACH
def test_time_on_cpu_of_each_thread_is_that_of_the_table(translation: Translation, report: str) -> None:
    translated = translation(report)
    # Every thread goes on as often as off: what it was taken off at, less what it was put on at.
    in_table = translated.query(
        """select globalTid & 0xFFFFFF, sum(case when isSchedIn then -start else start end), sum(isSchedIn), count(*)
           from SCHED_EVENTS group by globalTid"""
    )
    assert all(ons * 2 == rows for _, _, ons, rows in in_table)
    expected: Counter[int] = Counter()
    for tid, time, *_ in in_table:
        expected[tid] += time

    stays = translated.trace.intervals([EXECUTING_CPU])
    found = stays.group_by("task", "thread").agg((pl.col("end") - pl.col("begin")).sum())

    assert per_thread(translated, found) == expected
    assert stays.height == sum(ons for _, _, ons, _ in in_table)


def time_on_cpus(translated: Translated) -> Counter[int]:
    """Time that threads are on each CPU by the tables, ns."""
    found: Counter[int] = Counter()
    on_cpu = "select cpu, sum(case when isSchedIn then -start else start end) from SCHED_EVENTS group by cpu"
    for cpu, time in translated.query(on_cpu):
        found[cpu] += time
    return +found


@EACH
def test_records_of_a_stay_and_states_meanwhile_are_on_its_cpu(translation: Translation, report: str) -> None:
    trace = translation(report).trace
    events = trace.events([EXECUTING_CPU]).filter(pl.col("value") > 0)
    nodes = pl.DataFrame(
        {
            "task": range(1, len(trace.header.tasks) + 1),
            "first": [sum(trace.header.cpus_per_node[: task.node - 1]) for task in trace.header.tasks],
        },
        schema={"task": pl.Int64, "first": pl.Int64},
    )
    assert events.join(nodes, on="task").filter(pl.col("cpu") != pl.col("first") + pl.col("value")).is_empty()
    # States cover the stays, on the CPU of each.
    states = trace.states().filter(pl.col("cpu") > 0).join(nodes, on="task")
    time_of_states = states.group_by("task", cpu=pl.col("cpu") - pl.col("first")).agg(
        time=(pl.col("end") - pl.col("begin")).sum()
    )
    stays = trace.intervals([EXECUTING_CPU])
    time_of_stays = stays.group_by("task", cpu="value").agg(time=(pl.col("end") - pl.col("begin")).sum())
    order = ["task", "cpu"]
    assert time_of_states.sort(order).equals(time_of_stays.filter(pl.col("time") > 0).sort(order))


@pytest.mark.parametrize("report", few_of(SAMPLED, FEW))
def test_each_thread_has_as_many_samples_as_the_table(translation: Translation, report: str) -> None:
    translated = translation(report)
    in_table = translated.query(
        "select globalTid & 0xFFFFFF, count(*), sum(cpuCycles) from COMPOSITE_EVENTS group by globalTid"
    )
    expected, cycles = Counter[int](), 0
    for tid, samples, of_thread in in_table:
        expected[tid] += samples
        cycles += of_thread

    samples = translated.trace.events([CPU_SAMPLE])

    assert per_thread(translated, samples.group_by("task", "thread").agg(pl.len())) == expected
    assert translated.trace.events([CYCLES])["value"].sum() == cycles


@pytest.mark.parametrize("report", few_of(("sched", "one-process-4gpu"), {"sched"}))
def test_paraver_shows_on_each_cpu_the_time_that_threads_are_there(
    translation: Translation, paramedir: Paramedir, report: str
) -> None:
    translated = translation(report)
    of_cpus = STATES_VIEW.replace("window_level thread", "window_level cpu")
    time: dict[str, int] = {}
    for line in paramedir.show_one(translated.trace.path, of_cpus).read_text().splitlines():
        cpu, _, length, state = line.split("\t")
        time[cpu] = time.get(cpu, 0) + (round(float(length)) if float(state) else 0)
    # The CPUs come in their order, whatever their names.
    assert len(time) == sum(translated.trace.header.cpus_per_node)
    assert +Counter(dict(enumerate(time.values()))) == time_on_cpus(translated)
