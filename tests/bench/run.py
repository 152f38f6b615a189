"""How fast, how much memory, how exact: nsys2prv against nsys2prv 0.5.8 of PyPI, against itself on a report ten times as
long, its clocks against the true ones of a simulated cluster, itself on 32 times as many reports, and its efficiency
numbers of ten million intervals.

    python tests/bench/run.py [--only speed|scaling|clocks|many|efficiency] [--json]

The long reports are made from real ones in ../shared/reports by ../shared/tools/repeat_report.py, and kept with the other
tool's environment in .bench/. Only the standard library is used: what this process holds would count for its children.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
OTHER_VERSION = "0.5.8"

FASTER_GOAL = 15.0
"""Times faster than the other tool."""
TIME_GOAL = 11.0
"""Times as long for ten times the length: about ten, and a little for the noise."""
MEMORY_GOAL = 1.3
"""Times the memory for ten times the length."""

BUSY = 0.7
"""Load of a machine that does something else as well."""


class Missing(Exception):
    """Something that the benchmark needs is not there; the sentence says what."""


@dataclass(frozen=True)
class LongReport:
    """A report repeated along the time axis."""

    source: str
    times: int
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source} x{self.times}" + (" (CUDA only)" if self.without else "")


@dataclass(frozen=True)
class Run:
    """What one run of a program took: wall time and time on processors in s, highest resident memory in MB, and most files
    that were open at a time (where that was watched)."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    open_files: int = 0


SAMPLED = ("GPU_METRICS", "SCHED_EVENTS", "COMPOSITE_EVENTS", "OSRT_API")
SPEED = LongReport("gpu-metrics-a100", 300, SAMPLED)
SCALING = (
    (LongReport("gpu-metrics-a100", 30, SAMPLED), SPEED),
    (LongReport("pytorch-uvm", 1), LongReport("pytorch-uvm", 10)),
    (LongReport("pytorch-h100", 1), LongReport("pytorch-h100", 10)),
)


CLOCK_SEEDS = 50
"""Runs of each kind of simulated cluster."""
CLOCK_NODES, CLOCK_GPUS = 16, 8
CLOCK_GOALS = {"median_us": 5.0, "percentile_99_us": 20.0}
# In a process of its own: what it loads would count for the others.
_ALIGN = """
import json, sys, tempfile
import numpy as np
from nsys2prv.demo import Cluster, write_reports

sys.path.insert(0, sys.argv[4])
from support.clock_truth import alignment_error

kind, nodes, gpus = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(11)
cluster = Cluster(
    nodes=nodes, gpus_per_node=gpus, iterations=60, layers=2, pause_ns=950_000_000, gpu_metrics_hz=0,
    with_nvtx=False, with_os_calls=False, with_mpi=kind == "mpi", with_nccl=kind == "nccl",
    lost_collectives=0.01, late_ns=10_000,
    clock_offsets_ns=tuple(int(one) for one in random.integers(-5_000_000_000, 5_000_000_000, nodes)),
    clock_drifts_ppm=tuple(float(one) for one in random.uniform(-50, 50, nodes)), lonely_host=nodes - 1,
)
with tempfile.TemporaryDirectory() as folder:
    reports = write_reports(folder, cluster)
    found = {}
    for method in ("auto", "monotonic"):
        error = alignment_error(reports, cluster, method, hosts=range(nodes - 1))
        found[method] = {
            "median_us": error.percentile(50) / 1e3, "percentile_99_us": error.percentile(99) / 1e3,
            "largest_us": error.percentile(100) / 1e3, "honest": error.honest,
        }
print(json.dumps(found))
"""


FEW, MANY = 32, 1024
MANY_TIME_GOAL = 1.25
"""Times as long for each report of many as for each of a few: as long, and a little for the noise."""
MANY_MEGABYTES_GOAL, OPEN_FILES_GOAL = 2000.0, 256
_MAKE_MANY = """
import sys
from nsys2prv.demo import Cluster, write_reports
write_reports(sys.argv[1], Cluster(nodes=int(sys.argv[2]) // 8, gpus_per_node=8, iterations=3, layers=3, gpu_metrics_hz=100))
"""


INTERVALS, SAMPLES = 10_000_000, 2_000_000
EFFICIENCY_SECONDS_GOAL, EFFICIENCY_MEGABYTES_GOAL = 30.0, 2000.0
# 8 processes with a GPU each: kernels on two streams that overlap, NCCL kernels, copies, and the calls that launch them;
# and of each GPU ten sampled metrics.
_MEASURE = """
import sys, tempfile, time
from pathlib import Path
import numpy as np
import polars as pl
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure_events
from nsys2prv.efficiency.run_events import (
    LAUNCH_SCHEMA, ON_DEVICES, ON_HOSTS, SAMPLES, RunEvents, RunRows, TaskRows, TypeNames, new_collections,
)
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.vocabulary import event_types

intervals, samples, gpus, piece, metrics = int(sys.argv[1]), int(sys.argv[2]), 8, 50_000, 10
random = np.random.default_rng(5)
rows = RunRows([
    TaskRows(f"Rank {rank} node01 pid {rank}", "node01", (f"python3 tid {rank}", f"CUDA-D{rank}.S7", f"CUDA-D{rank}.S13",
                                                          f"Metrics GPU{rank}"))
    for rank in range(gpus)
])
names = {value: f"kernel_{value}" for value in range(1, 200)}
types = {
    event_types.KERNEL: TypeNames("CUDA kernel", names),
    event_types.NCCL_KERNEL: TypeNames("NCCL kernel", {300: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"}),
    event_types.MEMORY_OPERATION: TypeNames("CUDA memcpy kernel", {5: "CUDA memcpy Host-to-Device"}),
    event_types.CUDA_CALL: TypeNames("CUDA library call", {400: "cudaLaunchKernel", 401: "cudaStreamSynchronize"}),
}
with tempfile.TemporaryDirectory() as folder:
    started, made = time.monotonic(), 0.0
    collections = new_collections(Path(folder), (ON_DEVICES, ON_HOSTS, SAMPLES))
    launches = ExternalSort(["to_time"], Path(folder) / "launches")
    # Half of the intervals are calls, each of which starts one of the others.
    for first in range(0, intervals // 2, piece):
        making = time.monotonic()
        number = np.arange(first, min(first + piece, intervals // 2))
        rank = number % gpus
        start = (number // gpus) * 9_000 + random.integers(0, 3_000, len(number))
        kind = random.random(len(number))
        others = [event_types.NCCL_KERNEL, event_types.MEMORY_OPERATION]
        what = np.select([kind < 0.05, kind < 0.15], others, event_types.KERNEL)
        value = np.select([kind < 0.05, kind < 0.15], [300, 5], random.integers(1, 200, len(number)))
        row = rank * 4 + np.where(what == event_types.KERNEL, 1, 2)
        end = start + random.lognormal(8.5, 0.6, len(number)).astype(np.int64)
        call = np.maximum(start - 6_000, 0)
        empty = pl.lit(None, pl.Int64)
        on_device = pl.DataFrame({"start": start, "end": end, "row": row, "number": what, "value": value}).with_columns(
            *(empty.alias(name) for name in ON_DEVICES.attributes)
        )
        calls = np.where(kind > 0.98, 401, 400)
        on_host = pl.DataFrame({"start": call, "end": call + 4_000, "row": rank * 4, "value": calls}).with_columns(
            number=event_types.CUDA_CALL, size=empty
        )
        lines = pl.DataFrame({"time": call, "row": rank * 4, "to_time": start, "to_row": row})
        made += time.monotonic() - making
        for collection, frame, schema in (
            (collections["device"], on_device, ON_DEVICES.schema),
            (collections["host"], on_host, ON_HOSTS.schema),
            (launches, lines, LAUNCH_SCHEMA),
        ):
            collection.add(frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items()))
    length = int(intervals // 2 // gpus * 9_000 + 10_000_000)
    # All metrics of a GPU at the same times.
    for first in range(0, samples, piece):
        making = time.monotonic()
        number = np.arange(first, min(first + piece, samples))
        rank = number // metrics % gpus
        at = number // (metrics * gpus) * (length * metrics * gpus // max(samples, 1))
        what = event_types.GPU_METRIC + 1 + number % metrics
        frame = pl.DataFrame({"start": at, "row": rank * 4 + 3, "number": what, "value": random.integers(0, 100, len(number))})
        made += time.monotonic() - making
        collections["samples"].add(frame.select(pl.col(name).cast(dtype) for name, dtype in SAMPLES.schema.items()))
    types |= {event_types.GPU_METRIC + 1 + metric: TypeNames(f"Metric {metric}") for metric in range(metrics)}
    collections = {name: found for name, found in collections.items() if found.rows}
    events = RunEvents(
        inputs=("made",), is_trace=False, title="made", rows=rows, begin=0, length=length, types=types,
        collections=collections, launches=launches, callers=frozenset(range(0, gpus * 4, 4)),
    )
    found = measure_events(events, EfficiencyOptions())
    assert found.tables["memory_operations"]["count"].sum() + found.tables["kernels"]["count"].sum() == intervals // 2
    assert found.tables["sampled_bins"]["samples"].sum() == samples
    print(time.monotonic() - started - made)
"""


SAME_SOURCES = "cuda-api,kernels,copies,memsets,graphs,nvtx"
"""What the other tool is asked for too: calls, kernels, memory operations, push/pop ranges."""


class Bench:
    """The benchmark's folders and the programs that it runs."""

    def __init__(self, shared: Path, cache: Path, runs: int) -> None:
        self._shared = shared
        self._cache = cache
        self._runs = runs

    def speed(self) -> dict[str, object]:
        """Both tools on the same report, in turns, so that what else the machine does hits both."""
        report = self._make(SPEED)
        other = self._other_tool()
        ours: list[Run] = []
        theirs: list[Run] = []
        everything: list[Run] = []
        for _ in range(self._runs):
            ours.append(self._translate(report, "--only", SAME_SOURCES))
            theirs.append(self._translate_with_other(other, report))
            everything.append(self._translate(report))
        seconds, other_seconds = (statistics.median(run.seconds for run in runs) for runs in (ours, theirs))
        faster = other_seconds / seconds
        return {
            "report": SPEED.name,
            "ours": [asdict(run) for run in ours],
            "other": [asdict(run) for run in theirs],
            "everything": [asdict(run) for run in everything],
            "times_faster_with_everything": other_seconds / statistics.median(run.seconds for run in everything),
            "other_version": OTHER_VERSION,
            "times_faster": faster,
            "goal": FASTER_GOAL,
            "reached": faster >= FASTER_GOAL,
        }

    def scaling(self) -> list[dict[str, object]]:
        """nsys2prv on reports and on ten times as long ones."""
        return [self._scale(short, long) for short, long in SCALING]

    def clocks(self) -> dict[str, object]:
        """Errors of clocks after each way to align them, and the intervals told of simulated clusters of many kinds."""
        tests = CHECKOUT / "tests"
        size = [str(CLOCK_NODES), str(CLOCK_GPUS), str(tests)]
        aligned = [{"kind": kind, **_output_of("-c", _ALIGN, kind, *size)} for kind in ("nccl", "mpi")]
        return {"aligned": aligned, **_output_of(str(tests / "bench" / "simulated_clusters.py"), str(CLOCK_SEEDS))}

    def many(self) -> dict[str, object]:
        """nsys2prv on a few small reports of one run, before and after it on many: the many take minutes, in which the machine
        may have become slower or faster. Of the few, the run of the median time counts."""
        few, many = self._make_many(FEW), self._make_many(MANY)
        before = [self._translate(few, watch_files=True) for _ in range(self._runs)]
        of_many = self._translate(many, watch_files=True)
        after = [self._translate(few, watch_files=True) for _ in range(self._runs)]
        of_few = sorted([*before, *after], key=lambda run: run.seconds)
        runs = {FEW: of_few[len(of_few) // 2], MANY: of_many}
        each = {count: run.seconds / count for count, run in runs.items()}
        ratio = each[MANY] / each[FEW]
        fits = of_many.megabytes <= MANY_MEGABYTES_GOAL and of_many.open_files <= OPEN_FILES_GOAL
        return {
            "reports": [FEW, MANY],
            "runs": [asdict(runs[count]) for count in (FEW, MANY)],
            "all_runs_of_few": [asdict(run) for run in (*before, *after)],
            "milliseconds_per_report": [1000 * each[count] for count in (FEW, MANY)],
            "time_ratio": ratio,
            "reached": fits and ratio <= MANY_TIME_GOAL,
        }

    def efficiency(self) -> list[dict[str, object]]:
        """All tables of a run of ten million intervals: collected, sorted and measured; to make them does not count."""
        return [self._measure_made(INTERVALS, samples) for samples in (0, SAMPLES)]

    def _measure_made(self, intervals: int, samples: int) -> dict[str, object]:
        runs = []
        for _ in range(self._runs):
            with tempfile.TemporaryDirectory() as folder:
                environment = {"PYTHONPATH": str(CHECKOUT), "_RJEM_MALLOC_CONF": "narenas:1"}
                taken = measure([sys.executable, "-c", _MEASURE, str(intervals), str(samples)], Path(folder), environment)
                runs.append((float(Path(folder, "output.txt").read_text().split()[-1]), taken.megabytes))
        seconds, megabytes = statistics.median(one[0] for one in runs), max(one[1] for one in runs)
        reached = seconds < EFFICIENCY_SECONDS_GOAL and megabytes < EFFICIENCY_MEGABYTES_GOAL
        return {"intervals": intervals, "samples": samples, "seconds": seconds, "megabytes": megabytes, "reached": reached}

    def _make_many(self, count: int) -> Path:
        made = self._cache / "reports" / f"many-{count}"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            _say(f"making {count} reports")
            with tempfile.TemporaryDirectory(dir=self._cache) as folder:
                _call([sys.executable, "-c", _MAKE_MANY, Path(folder, "made"), str(count)])
                Path(folder, "made").replace(made)
        return made

    def _scale(self, short: LongReport, long: LongReport) -> dict[str, object]:
        runs = {report: [self._translate(self._make(report)) for _ in range(self._runs)] for report in (short, long)}
        seconds = {report: statistics.median(run.seconds for run in runs[report]) for report in runs}
        megabytes = {report: max(run.megabytes for run in runs[report]) for report in runs}
        time_ratio = seconds[long] / seconds[short]
        memory_ratio = megabytes[long] / megabytes[short]
        return {
            "short": short.name,
            "long": long.name,
            "seconds": [seconds[short], seconds[long]],
            "megabytes": [megabytes[short], megabytes[long]],
            "time_ratio": time_ratio,
            "memory_ratio": memory_ratio,
            "reached": time_ratio <= TIME_GOAL and memory_ratio <= MEMORY_GOAL,
        }

    def _make(self, wanted: LongReport) -> Path:
        name = wanted.source + (f"-x{wanted.times}" if wanted.times > 1 else "") + ("-cuda" if wanted.without else "")
        made = self._cache / "reports" / f"{name}.sqlite"
        if made.exists():
            return made
        source, tool = self._shared / "reports" / f"{wanted.source}.sqlite", self._shared / "tools" / "repeat_report.py"
        for needed in (source, tool):
            if not needed.exists():
                raise Missing(f"{needed} is not there; the benchmark repeats real reports, name their folder with --shared")
        made.parent.mkdir(parents=True, exist_ok=True)
        _say(f"making {wanted.name}")
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            # The report may be read-only, and its copy would be too.
            writable, long = Path(folder, "short.sqlite"), Path(folder, "long.sqlite")
            shutil.copyfile(source, writable)
            arguments = [str(wanted.times), *([",".join(wanted.without)] if wanted.without else [])]
            _call([sys.executable, tool, writable, long, *arguments])
            long.replace(made)
        return made

    def _translate(self, report: Path, *options: str, watch_files: bool = False) -> Run:
        program = Path(sys.executable).with_name("nsys2prv")
        if not program.exists():
            raise Missing(f"{program} is not there; install this checkout first (`make bench` does it)")
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            command: list[str | Path] = [program, "translate", report, "-o", Path(folder, "OUT"), "--force", *options]
            run = measure(command, Path(folder), watch_files=watch_files)
            _say(f"  {run.seconds:7.2f} s ({run.cpu_seconds:.2f} s CPU) {run.megabytes:6.0f} MB  ours            {report.name}")
            return run

    def _translate_with_other(self, program: Path, report: Path) -> Run:
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            shutil.copyfile(report, Path(folder, "R.sqlite"))
            # It takes the export that lies beside a report, and opens the report itself for nothing.
            Path(folder, "R.nsys-rep").touch()
            # The stand-in writes the one table of API calls that this version wants from nsys itself.
            path = os.pathsep.join([str(self._shared / "tools"), os.environ.get("PATH", "")])
            command: list[str | Path] = [program, "-t", "cuda_api_trace,nvtx_pushpop_trace", "R.nsys-rep", "OUT"]
            run = measure(command, Path(folder), {"PATH": path})
            if not Path(folder, "OUT.prv").exists():
                raise Missing(f"nsys2prv {OTHER_VERSION} wrote no trace of {report.name}")
            said = f"{run.seconds:7.2f} s ({run.cpu_seconds:.2f} s CPU) {run.megabytes:6.0f} MB"
            _say(f"  {said}  nsys2prv {OTHER_VERSION}  {report.name}")
            return run

    def _other_tool(self) -> Path:
        environment = self._cache / f"nsys2prv-{OTHER_VERSION}"
        program = environment / "bin" / "nsys2prv"
        stand_in = self._shared / "tools" / "nsys"
        if not stand_in.exists():
            raise Missing(f"{stand_in} is not there; nsys2prv {OTHER_VERSION} needs it where nsys is not")
        if not program.exists():
            _say(f"installing nsys2prv {OTHER_VERSION} into {environment}")
            _call([sys.executable, "-m", "venv", "--clear", environment])
            try:
                _call([environment / "bin" / "python", "-m", "pip", "install", "--quiet", f"nsys2prv=={OTHER_VERSION}"])
            except Missing as error:
                raise Missing(
                    f"nsys2prv {OTHER_VERSION} can't be installed from PyPI, is there a network? "
                    f"`--only scaling` does without it ({error})"
                ) from None
        return program


def measure(
    command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None, *, watch_files: bool = False
) -> Run:
    """Wall time and highest resident memory of a program (and of the largest of its children).

    Raises
    ------
    Missing
        When the program fails.
    """
    with Path(folder, "output.txt").open("w+b") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env={**{name: value for name, value in os.environ.items() if name != "NSYS_HOME"}, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        open_files: list[int] = [0]
        watch = threading.Thread(target=_count_open_files, args=(process.pid, open_files))
        if watch_files:
            watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        if watch_files:
            watch.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            said = output.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise Missing(f"{' '.join(map(str, command))} ended with {process.returncode}: {said[-1]}")
    # Linux counts in KiB, macOS in bytes.
    megabytes = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)
    return Run(seconds, usage.ru_utime + usage.ru_stime, megabytes, max(open_files))


def _count_open_files(process: int, found: list[int]) -> None:
    """Look again and again how many files a process has open, until it has ended. Linux tells; elsewhere it stays at 0."""
    while True:
        try:
            found[0] = max(found[0], len(os.listdir(f"/proc/{process}/fd")))
        except OSError:
            return
        time.sleep(0.01)


def _call(command: Sequence[str | Path]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Missing(f"{' '.join(map(str, command))} ended with {done.returncode}: {last_line}")


def _output_of(*arguments: str) -> dict[str, object]:
    """What a program in Python prints as JSON."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"the clocks could not be aligned: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def speed_table(found: dict[str, object]) -> str:
    """The speed comparison as text."""
    lines = [f"{found['report']}: {'':24} fastest     median        CPU  peak memory"]
    for name, key in (
        ("nsys2prv, the sources that the other has", "ours"),
        (f"nsys2prv {found['other_version']}", "other"),
        (f"nsys2prv, all sources: {found['times_faster_with_everything']:.1f} times faster", "everything"),
    ):
        runs = found[key]
        assert isinstance(runs, list)
        seconds = [run["seconds"] for run in runs]
        megabytes = max(run["megabytes"] for run in runs)
        cpu = statistics.median(run["cpu_seconds"] for run in runs)
        times = f"{min(seconds):8.2f} s {statistics.median(seconds):8.2f} s {cpu:8.2f} s"
        lines.append(f"  {name:55} {times} {megabytes:9.0f} MB")
    return "\n".join([*lines, f"  {found['times_faster']:.1f} times faster; goal {FASTER_GOAL:.0f}: {_verdict(found)}"])


def scaling_table(found: list[dict[str, object]]) -> str:
    """Time and memory on long reports as text."""
    lines = [f"{'ten times the length':42} {'time':>22} {'ratio':>6}  {'peak memory':>18} {'ratio':>6}"]
    for pair in found:
        seconds, megabytes = pair["seconds"], pair["megabytes"]
        assert isinstance(seconds, list)
        assert isinstance(megabytes, list)
        lines.append(
            f"  {pair['long']:40} {seconds[0]:8.2f} -> {seconds[1]:8.2f} s {pair['time_ratio']:6.2f}  "
            f"{megabytes[0]:5.0f} -> {megabytes[1]:5.0f} MB {pair['memory_ratio']:6.2f}  {_verdict(pair)}"
        )
    goals = f"  goals: about 10 times the time (at most {TIME_GOAL:.0f}), at most {MEMORY_GOAL} times the memory"
    return "\n".join([*lines, goals])


def many_table(found: dict[str, object]) -> str:
    """Time, memory and files of many reports as text."""
    runs, each = found["runs"], found["milliseconds_per_report"]
    assert isinstance(runs, list)
    assert isinstance(each, list)
    lines = [f"{'small reports':32} {'time':>10} {'each':>10} {'CPU':>10} {'peak memory':>12} {'open files':>11}"]
    for count, run, of_one in zip((FEW, MANY), runs, each, strict=True):
        lines.append(
            f"  {count:<30,} {run['seconds']:8.1f} s {of_one:7.0f} ms {run['cpu_seconds']:8.1f} s {run['megabytes']:9.0f} MB "
            f"{run['open_files']:>11}"
        )
    few = found["all_runs_of_few"]
    assert isinstance(few, list)
    seconds = [run["seconds"] for run in few]
    lines.append(f"  {FEW} before and after: {min(seconds):.1f} to {max(seconds):.1f} s in {len(few)} runs, the median above")
    goals = f"at most {MANY_TIME_GOAL} times the time for each, {MANY_MEGABYTES_GOAL:.0f} MB, {OPEN_FILES_GOAL} files"
    return "\n".join([*lines, f"  {found['time_ratio']:.2f} times the time for each; goals: {goals}: {_verdict(found)}"])


def efficiency_table(found: list[dict[str, object]]) -> str:
    """Efficiency numbers as text."""
    lines = []
    for one in found:
        samples = f" and {one['samples']:,} samples" if one["samples"] else ""
        name = f"efficiency of {one['intervals']:,} intervals{samples}"
        lines.append(f"{name:64} {one['seconds']:10.1f} s  {one['megabytes']:10.0f} MB  {_verdict(one)}")
    return "\n".join(lines)


def clocks_table(found: dict[str, object]) -> str:
    """Errors of clocks, and how often the told intervals hold, as text."""
    aligned, kinds = found["aligned"], found["kinds"]
    assert isinstance(aligned, list)
    assert isinstance(kinds, list)
    head = f"{CLOCK_SEEDS} runs of each kind of cluster"
    lines = [
        *_errors_of_clocks(aligned),
        f"{head:38} {'interval holds':>14} {'in a host':>10} {'not known':>10} {'half width':>11} {'largest':>11} "
        f"{'error':>11} {'99 %':>11} {'largest':>11}",
    ]
    for kind in kinds:
        cells = _cells(kind)
        lines.append(
            f"  {kind['kind']:36} {cells[0]:>14} {cells[1]:>10} {cells[2]:>10} "
            + " ".join(f"{cell:>11}" for cell in cells[3:])
            + f"  {_verdict(kind)}"
        )
    return "\n".join([*lines, "  of pairs of reports of different hosts; goal: the interval holds in 99 of 100"])


_NUMBERS = ("margin_median", "margin_largest", "error_median", "error_99", "error_largest")


def _cells(kind: dict[str, object]) -> list[str]:
    """Numbers of a kind of cluster as text: shares, then times."""
    shares = (kind[name] for name in ("inside", "inside_host", "not_known"))
    # What is not quite everything must not look so.
    texts = ["-" if share is None else f"{int(float(str(share)) * 1000) / 10:.1f} %" for share in shares]
    nothing = kind["inside"] is None
    return [*texts, *("-" if nothing else _duration(float(str(kind[name]))) for name in _NUMBERS)]


def _duration(ns: float) -> str:
    unit, size = next((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if ns >= size or size == 1e3)
    return f"{ns / size:.3g} {unit}"


def _write_docs(found: dict[str, object]) -> None:
    """The intervals of simulated clusters as a table of the documentation."""
    kinds = found["kinds"]
    assert isinstance(kinds, list)
    page = CHECKOUT / "docs" / "clocks.md"
    text = page.read_text(encoding="utf-8")
    start, end = (text.index(mark) for mark in ("<!-- measured by make bench -->", "<!-- end -->"))
    rows = [
        f"nsys2prv {found['version']}, {CLOCK_SEEDS} runs of each kind:",
        "",
        "| kind of cluster | | interval holds | in a host | not known | half width, median | largest | error, median | 99 % "
        "| largest |",
        "| --- | --- " + "| ---: " * 8 + "|",
        *(f"| {kind['kind']} | {kind['text']} | {' | '.join(_cells(kind))} |" for kind in kinds),
    ]
    page.write_text(text[:start] + "\n".join(["<!-- measured by make bench -->", *rows, ""]) + text[end:], encoding="utf-8")


def _errors_of_clocks(found: list[dict[str, object]]) -> list[str]:
    shape = f"{CLOCK_NODES} nodes x {CLOCK_GPUS} GPUs, 60 s, offsets to 5 s, drifts to 50 ppm"
    lines = [f"{shape:64} {'median':>12} {'99 %':>12} {'largest':>12}  told error holds"]
    for one in found:
        for method, told in (("auto", "aligned by"), ("monotonic", "not aligned")):
            error = one[method]
            assert isinstance(error, dict)
            name = f"  {told} {one['kind']}" if method == "auto" else f"  {told}"
            errors = " ".join(f"{error[key]:10.1f} us" for key in ("median_us", "percentile_99_us", "largest_us"))
            verdict = ""
            if method == "auto":
                good = all(error[key] < goal for key, goal in CLOCK_GOALS.items()) and error["honest"] >= 0.95
                verdict = f"  for {error['honest']:.0%} of the hosts: {'reached' if good else 'MISSED'}"
            lines.append(f"{name:64} {errors}{verdict}")
    return lines


def _verdict(found: dict[str, object]) -> str:
    return "reached" if found["reached"] else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("speed", "scaling", "clocks", "many", "efficiency"), help="run one part")
    parser.add_argument("--json", action="store_true", help="print numbers as JSON instead of tables")
    parser.add_argument("--write-docs", action="store_true", help="write the table of docs/clocks.md")
    parser.add_argument("--runs", type=int, default=3, help="runs of each program on each report (default: 3)")
    parser.add_argument("--shared", type=Path, default=CHECKOUT.parent / "shared", help="folder of the real reports and tools")
    parser.add_argument("--cache", type=Path, default=CHECKOUT / ".bench", help="keeps long reports and the other tool")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments.shared, arguments.cache.resolve(), arguments.runs)
    parts: dict[str, tuple[Callable[[], object], Callable[..., str]]] = {
        "speed": (bench.speed, speed_table),
        "scaling": (bench.scaling, scaling_table),
        "clocks": (bench.clocks, clocks_table),
        "many": (bench.many, many_table),
        "efficiency": (bench.efficiency, efficiency_table),
    }
    load = os.getloadavg()[0]
    if load > BUSY:
        _say(f"other programs are running (load {load:.1f}): they slow a program of many threads more than one of one")
    results: dict[str, Any] = {"load_before": load}
    failed = False
    for name, (run, table) in parts.items():
        if arguments.only not in (None, name):
            continue
        try:
            results[name] = run()
        except Missing as error:
            failed = True
            _say(f"{name}: {error}")
            continue
        if not arguments.json:
            print(table(results[name]), flush=True)
        if name == "clocks" and arguments.write_docs:
            _write_docs(results[name])
    if arguments.json:
        print(json.dumps(results, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
