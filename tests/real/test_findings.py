"""Findings of the real reports: which there are, and their numbers against SQL and loops of their own."""

from __future__ import annotations

import bisect
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.real_reports import REPORTS, RUNS

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.run.options import TimeRange

FOUND: dict[str, list[str]] = {
    # 1.8 ms of kernels in half a second.
    "gpu-metrics-a100": ["little-gpu-work", "start-up"],
    "callchains": ["little-gpu-work", "start-up"],
    "mpi-openacc-4gpu": ["little-gpu-work", "start-up", "allocations"],
    "cuda-graphs": ["little-gpu-work", "start-up"],
    "tensorrt-3.1": ["little-gpu-work", "shut-down"],
    # Nothing runs on any GPU for 5.8 s between two phases.
    "v100x8": ["idle-devices", "start-up"],
    **{
        f"v100x8/report{number}": [*([] if number in (2, 6) else ["little-gpu-work"]), "idle-devices", "start-up"]
        for number in range(1, 9)
    },
    # Processes that get work by MPI, prepare it, copy it to the GPU, and compute for 50 us.
    "mpi-as-nvtx-2.9": ["start-up", "data-loading", "pageable-copies", "few-blocks"],
    # A wait for the device after every kernel, and copies of single values.
    "no-metadata-2020": ["synchronization-stalls", "small-copies"],
    # A host that computes between short phases of four GPUs.
    "one-process-4gpu": ["host-bound", "start-up", "pageable-copies"],
    # Python and calls of the OS between short bursts of kernels, and each kernel is loaded when it is launched first.
    "pytorch-h100": ["start-up", "launch-stalls", "host-bound"],
    # One of two GPUs waits for its host.
    "pytorch-nccl-2gpu": ["host-bound"],
    # More goes back to the host than to the device.
    "pytorch-uvm": ["start-up", "unified-memory", "unfused-kernels"],
    "cloverleaf-3.13": ["start-up", "idle-devices", "pageable-copies"],
    # Halos of 16 KiB.
    "openacc-mpas": ["start-up", "idle-devices", "small-copies"],
}
"""What is found in the reports; in all others nothing is."""

Interval = tuple[int, int]

US, MS = 1_000, 1_000_000
LAUNCH, SYNCHRONIZATION, MEMORY, ALLOCATION, OTHER, MPI, OS, NO_CALL = range(8)
_CATEGORIES = (
    (r"Synchronize", SYNCHRONIZATION),
    (r"LaunchKernel|GraphLaunch|LaunchCooperative|LaunchHostFunc", LAUNCH),
    (r"Memcpy|Memset", MEMORY),
    (r"Malloc|Free|MemAlloc|HostAlloc|MemCreate|MemMap|MemUnmap|MemRelease", ALLOCATION),
)


def category(call: str) -> int:
    return next((found for pattern, found in _CATEGORIES if re.search(pattern, call)), OTHER)


Measured = Callable[..., EfficiencyResult]


def test_what_is_found_and_no_more(name: str, efficiency: Measured) -> None:
    tables = efficiency(name).tables
    findings, length, window = tables["findings"], tables["run"]["elapsed_ns"][0], efficiency(name).head["window"]

    if not name.startswith("nccl-"):
        assert findings["kind"].to_list() == FOUND.get(name, [])
    causes = findings.filter(pl.col("consequence_of").is_null())
    assert causes["saved_ns"].is_sorted(descending=True)
    assert (findings["saved_ns"] <= length).all()
    assert (findings["cost_ns"] <= length * tables["devices"].height).all()
    inside = tables["finding_devices"].select(
        (pl.col("begin_ns") >= window["offset_ns"])
        & (pl.col("begin_ns") <= pl.col("worst_begin_ns"))
        & (pl.col("worst_begin_ns") < pl.col("worst_end_ns"))
        & (pl.col("worst_end_ns") <= pl.col("end_ns"))
        & (pl.col("end_ns") <= window["offset_ns"] + length)
    )
    assert inside.to_series().all()


def test_gpus_with_more_particles_are_not_told_to_be_broken() -> None:
    """Three kernels of equal grids take 2.5 to 6.1 ms, spread over all 8 ranks, while copies and memsets take as long."""
    if "v100x8" not in REPORTS:
        pytest.skip("no report v100x8")
    options = EfficiencyOptions(time=TimeRange(11_230_000_000, 13_000_000_000))
    findings = measure(REPORTS["v100x8"], options).tables["findings"]

    assert "slow-device" not in findings["kind"]
    assert not findings["advice"].str.contains("ECC").any()
    unequal = findings.row(by_predicate=pl.col("kind") == "unequal-work", named=True)
    assert unequal["device"].endswith(":D6")
    assert "nvkernel_ppush__F1L664_1_ takes 1.92 times as long" in unequal["seen"]


UNET: dict[str, list[str]] = {
    # Two workers: its authors say that large gaps between iterations are data loading.
    "baseline": ["data-loading"],
    # Eight: groups of iterations wait now and then, and nothing computes while the input is copied.
    "8workers": ["data-loading", "exposed-copies"],
    # The GPU is busy for 98.5 % of the time.
    "dali": ["layout-changes", "unfused-kernels"],
    "dali_amp": ["layout-changes", "unfused-kernels", "data-loading", "exposed-copies"],
    # Its GPU is 325 ms late, and the work of the last steps is not recorded.
    "4gpu_baseline": [],
}


@pytest.mark.parametrize(
    "version",
    [
        "dali_amp",
        "4gpu_baseline",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("baseline", "8workers", "dali")),
    ],
)
def test_what_the_authors_of_a_training_found_in_its_versions(version: str) -> None:
    if version not in RUNS:
        pytest.skip(f"no report {version}")
    assert measure(RUNS[version]).tables["findings"]["kind"].to_list() == UNET[version]


def test_a_gpu_that_is_late_against_its_host_is_named() -> None:
    """A start-up of 325 ms was found on it. By SQL all kernels are late, by as much as synchronizations with them end early."""
    if "4gpu_baseline" not in RUNS:
        pytest.skip("no report 4gpu_baseline")
    tables = Tables(RUNS["4gpu_baseline"][0])
    call = "FROM {} k JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON c.correlationId = k.correlationId"
    starts, streams = ("SELECT {} " + call.format(f"CUPTI_ACTIVITY_KIND_{table}") for table in ("KERNEL", "SYNCHRONIZATION"))
    ((least,),) = tables.rows(starts.format("min(k.start - c.start)"))
    waits = (
        " WHERE c.nameId = (SELECT id FROM StringIds WHERE value LIKE 'cudaStreamSynchronize%') AND k.end - k.start > 10000000"
    )
    early = []
    for thread, begin, end in tables.rows(streams.format("c.globalTid, c.start, c.end") + waits):
        launched = f" WHERE c.globalTid = {thread} AND c.start < {begin} ORDER BY c.start DESC LIMIT 1"
        early += [done - end for (done,) in tables.rows(starts.format("k.end") + launched)]
    most = max(early)
    measured = measure(RUNS["4gpu_baseline"])
    reasons = dict(measured.tables["finding_checks"].select("kind", "reason").iter_rows())

    assert 324_500_000 < most < least < 324_800_000
    assert any("nothing starts sooner than 324.722 ms after its launch" in text for text in measured.head["warnings"])
    assert reasons["start-up"] == "times of nid003748:D0 contradict those of the host"
    # By these times its queue is full.
    assert reasons["full-launch-queue"] == reasons["start-up"]


@dataclass(frozen=True)
class Work:
    """A kernel, copy or memset on a device; `kind` is that of a copy, 0 for kernels and -1 for memsets."""

    start: int
    end: int
    process: int
    correlation: int
    kind: int
    size: int
    pageable: bool


@dataclass(frozen=True)
class Gap:
    """An idle stretch between two pieces of work, and the time that the launching thread spent in calls, by category."""

    begin: int
    end: int
    before: Work
    after: Work
    launched: int
    times: list[int]

    @property
    def length(self) -> int:
        return self.end - self.begin

    @property
    def host(self) -> int:
        return self.times[NO_CALL] + self.times[OS]


@dataclass
class Tables:
    """A report, read by SQL and row by row."""

    path: Path
    steps: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)

    def rows(self, sql: str) -> list[Any]:
        with sqlite3.connect(f"file:{self.path}?immutable=1", uri=True) as database:
            return database.execute(sql).fetchall()

    @cached_property
    def names(self) -> set[str]:
        """Tables with rows."""
        there = [name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name for name in there if self.rows(f'SELECT 1 FROM "{name}" LIMIT 1')}

    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self.rows(f"PRAGMA table_info({table})")}

    @cached_property
    def work(self) -> dict[tuple[int, int], list[Work]]:
        """What runs on each device of each process, by its begin."""
        found: dict[tuple[int, int], list[Work]] = {}
        parts = {
            "CUPTI_ACTIVITY_KIND_KERNEL": "0, 0, 0",
            "CUPTI_ACTIVITY_KIND_MEMCPY": "copyKind, bytes, srcKind = 0 OR dstKind = 0",
            "CUPTI_ACTIVITY_KIND_MEMSET": "-1, bytes, 0",
        }
        for table in self.names & parts.keys():
            process = "globalPid" if "globalPid" in self.columns(table) else "0"
            sql = f"SELECT {process}, deviceId, start, end, correlationId, {parts[table]} FROM {table}"
            for pid, device, start, end, correlation, kind, size, pageable in self.rows(sql):
                one = Work(start, end, pid, correlation, kind, size, bool(pageable))
                found.setdefault((pid, device), []).append(one)
        return {device: sorted(one, key=lambda work: (work.start, work.end)) for device, one in found.items()}

    @cached_property
    def calls(self) -> dict[int, list[tuple[int, int, int]]]:
        """Begin, end and category of the calls of each thread."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        named = "SELECT globalTid, start, end, value FROM {} t JOIN StringIds s ON s.id = t.{}"
        for thread, start, end, name in self.rows(named.format("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId")):
            found.setdefault(thread, []).append((start, end, category(name)))
        if "OSRT_API" in self.names:
            for thread, start, end in self.rows("SELECT globalTid, start, end FROM OSRT_API"):
                found.setdefault(thread, []).append((start, end, OS))
        if "NVTX_EVENTS" in self.names:
            for thread, start, end, name in self.rows(named.format("NVTX_EVENTS", "textId") + " WHERE end NOT NULL"):
                if name.startswith("MPI_"):
                    found.setdefault(thread, []).append((start, end, MPI))
        return found

    @cached_property
    def launches(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Thread and begin of the call of each process and correlation id: the first one, which is the outermost. Old
        tables tell no process of what runs: it is 0."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        sql = "SELECT globalTid, start, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start DESC"
        for thread, start, correlation in self.rows(sql):
            found[thread >> 24 << 24, correlation] = found[0, correlation] = (thread, start)
        return found

    def spent(self, thread: int, begin: int, end: int) -> list[int]:
        """Time of a thread between two times by category; of calls in each other the first category counts."""
        if thread not in self.steps:
            edges = sorted(
                (time, kind, step) for start, until, kind in self.calls[thread] for time, step in ((start, 1), (until, -1))
            )
            times, kinds, open_calls = [], [], [0] * NO_CALL
            for time, kind, step in edges:
                open_calls[kind] += step
                times.append(time)
                kinds.append(next((one for one, count in enumerate(open_calls) if count), NO_CALL))
            self.steps[thread] = (times, kinds)
        times, kinds = self.steps[thread]
        total = [0] * (NO_CALL + 1)
        place, now = bisect.bisect_right(times, begin) - 1, begin
        while now < end:
            until = min(times[place + 1] if place + 1 < len(times) else end, end)
            total[kinds[place] if place >= 0 else NO_CALL] += until - now
            now, place = until, place + 1
        return total

    @cached_property
    def gaps(self) -> dict[tuple[int, int], list[Gap]]:
        """Gaps of each device whose launching thread is known."""
        found: dict[tuple[int, int], list[Gap]] = {}
        for device, work in self.work.items():
            before = work[0]
            of_device = found.setdefault(device, [])
            for after in work[1:]:
                launch = self.launches.get((after.process, after.correlation))
                if after.start > before.end and launch is not None:
                    times = self.spent(launch[0], before.end, after.start)
                    of_device.append(Gap(before.end, after.start, before, after, launch[1], times))
                if after.end >= before.end:
                    before = after
        return found


def is_turn(gap: Gap) -> bool:
    result = gap.before.kind == 2 and gap.before.size <= 65_536
    waited = gap.times[SYNCHRONIZATION] > 0 or (result and gap.times[MEMORY] > 0)
    return gap.launched >= gap.begin and waited and gap.after.kind in (0, 1) and gap.length <= 200 * US


def is_loading(gap: Gap) -> bool:
    new_data = gap.after.kind == 1 and gap.after.size >= 16_384 and gap.before.kind != 1
    return gap.launched >= gap.begin and new_data and gap.length >= MS and 2 * gap.host >= gap.length and not is_turn(gap)


def is_small(gap: Gap) -> bool:
    both = (gap.before, gap.after)
    return all(one.kind != 0 and one.size < 65_536 for one in both) and gap.length <= 100 * US and not is_turn(gap)


def is_launching(gap: Gap) -> bool:
    busy = gap.times[LAUNCH] + gap.times[OTHER] + gap.host
    is_soon = gap.launched >= gap.begin - 5 * US or gap.end - gap.launched <= 30 * US
    late = is_soon and gap.times[LAUNCH] > 0
    return late and gap.after.kind == 0 and gap.length <= 100 * US and 10 * busy >= 9 * gap.length and not is_turn(gap)


def is_host(gap: Gap) -> bool:
    other = is_turn(gap) or is_loading(gap) or is_small(gap) or is_launching(gap)
    return gap.launched >= gap.begin and 2 * gap.host >= gap.length and not other


def tables_of(name: str) -> Tables:
    if name not in REPORTS:
        pytest.skip(f"no report {name}")
    (path,) = REPORTS[name]
    return Tables(path)


def seen(tables: Tables, is_one: Callable[[Gap], bool]) -> dict[tuple[int, int], list[int]]:
    """Lengths of the gaps of a kind on each device, without time in allocation calls."""
    return {device: [gap.length - gap.times[ALLOCATION] for gap in gaps if is_one(gap)] for device, gaps in tables.gaps.items()}


@pytest.mark.parametrize(
    ("report", "kind", "is_one"),
    [
        ("mpi-as-nvtx-2.9", "data-loading", is_loading),
        ("no-metadata-2020", "synchronization-stalls", is_turn),
        ("one-process-4gpu", "host-bound", is_host),
        ("pytorch-h100", "host-bound", is_host),
        ("pytorch-nccl-2gpu", "host-bound", is_host),
    ],
)
def test_gaps_of_findings_are_in_the_tables(
    report: str, kind: str, is_one: Callable[[Gap], bool], efficiency: Measured
) -> None:
    """Number and length of the gaps of each device that is named, to the nanosecond; the others have less than the limit."""
    tables = tables_of(report)
    wanted = seen(tables, is_one)
    of_devices = efficiency(report).tables["finding_devices"].filter(pl.col("kind") == kind)
    found = sorted(of_devices.select("count", "cost_ns").rows())
    by_device = {device: (len(lengths), sum(lengths)) for device, lengths in wanted.items()}

    assert found
    assert set(found) <= set(by_device.values())
    assert sum(cost for _, cost in found) == efficiency(report).tables["findings"].filter(pl.col("kind") == kind)["cost_ns"][0]
    for device, (count, total) in by_device.items():
        if (count, total) not in found:
            active = max(work.end for work in tables.work[device]) - tables.work[device][0].start
            longest = max(wanted[device], default=0)
            assert count < 10 or total - longest < 0.05 * active


def covered(stretch: Interval, others: Iterable[Interval]) -> int:
    """Time of a stretch that others, which may overlap, cover."""
    total, reached = 0, stretch[0]
    for begin, end in others:
        if begin >= stretch[1]:
            break
        if end > reached:
            total += min(end, stretch[1]) - max(begin, reached)
            reached = min(end, stretch[1])
    return total


@pytest.mark.parametrize("report", ["mpi-as-nvtx-2.9", "one-process-4gpu"])
def test_pageable_copies_of_findings_are_in_the_tables(report: str, efficiency: Measured) -> None:
    wanted = []
    for work in tables_of(report).work.values():
        kernels = [(one.start, one.end) for one in work if one.kind == 0]
        copies = [one for one in work if one.kind in (1, 2) and one.pageable and one.size >= 65_536]
        assert all(later.start >= earlier.end for earlier, later in itertools.pairwise(copies))
        wanted.append((len(copies), sum(one.end - one.start - covered((one.start, one.end), kernels) for one in copies)))
    found = efficiency(report).tables["finding_devices"].filter(pl.col("kind") == "pageable-copies")

    assert sorted(found.select("count", "cost_ns").rows()) == sorted(wanted)


def test_the_gpu_that_waits_in_nccl_is_not_blamed(efficiency: Measured) -> None:
    """Of two ranks that send to each other one waits for the other: what is left is less than the limit."""
    if "pytorch-nccl-2gpu" not in REPORTS:
        pytest.skip("no report pytorch-nccl-2gpu")
    tables = Tables(REPORTS["pytorch-nccl-2gpu"][0])
    sql = (
        "SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName "
        "WHERE value LIKE '%nccl%SendRecv%' ORDER BY start"
    )
    of_device: dict[int, list[Interval]] = {0: [], 1: []}
    for device, start, end in tables.rows(sql):
        of_device[device].append((start, end))
    pairs = list(zip(of_device[0], of_device[1], strict=True))
    devices = efficiency("pytorch-nccl-2gpu").tables["devices"].sort("number")

    assert all(max(one[0], other[0]) < min(one[1], other[1]) for one, other in pairs)
    for device in (0, 1):
        moving = sum(pair[device][1] - max(pair[0][0], pair[1][0]) for pair in pairs)
        active = devices["last_ns"][device] - devices["first_ns"][device]
        assert moving < 0.05 * active < devices["nccl_alone_ns"][0]
