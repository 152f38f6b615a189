"""Findings of the real reports: which there are, and why."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support import few_of
from support.checkout import REAL_REPORTS
from support.real_reports import REPORTS, RUNS

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.path import path_end, path_segments
from nsys2prv.efficiency.graph.replay import replay
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.host_states import COMMUNICATOR, CONTEXT, PROFILER, WAITING
from nsys2prv.efficiency.iterations import BY_KERNELS, find_iterations
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meters.absent_tables import OF_STATES, PART_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.window import RunIterations
from nsys2prv.run.options import TimeRange

FOUND: dict[str, list[str]] = {
    # 1.8 ms of kernels in half a second.
    "gpu-metrics-a100": ["profiler-set-up", "creating-context", "little-gpu-work"],
    # Where another finding explains most of the idle time, that comes first.
    "callchains": ["profiler-set-up", "creating-context", "little-gpu-work"],
    "mpi-openacc-4gpu": ["creating-context", "start-up", "profiler-set-up", "allocations", "little-gpu-work"],
    "cuda-graphs": ["profiler-set-up", "creating-context", "little-gpu-work"],
    "tensorrt-3.1": ["shut-down", "little-gpu-work"],
    # Nothing runs on any GPU for 5.8 s between two phases.
    "v100x8": ["idle-devices", "start-up", "shut-down", "little-gpu-work"],
    **{
        f"v100x8/report{number}": ["idle-devices", "start-up", *(["shut-down"] if number > 5 else []), "little-gpu-work"]
        for number in range(1, 9)
    },
    # Processes that get work by MPI, prepare it, copy it to the GPU, and compute for 50 us.
    "mpi-as-nvtx-2.9": [
        "data-loading", "start-up", "creating-context", "pageable-copies", "mpi-waits", "profiler-set-up", "few-blocks"
    ],
    # Memory that is allocated before every kernel, a wait for the device after it, and copies of single values.
    "no-metadata-2020": ["idle-devices", "allocations", "synchronization-stalls", "launch-stalls", "small-copies"],
    # A host that computes between short phases of four GPUs.
    "one-process-4gpu": ["host-bound", "start-up", "creating-context", "host-waits", "profiler-set-up", "pageable-copies"],
    # Python and calls of the OS between short bursts of kernels, and each kernel is loaded when it is launched first.
    "pytorch-h100": ["start-up", "launch-stalls", "idle-devices"],
    # One of two GPUs waits for its host.
    "pytorch-nccl-2gpu": ["unfused-kernels", "layout-changes", "host-bound"],
    # More goes back to the host than to the device.
    "pytorch-uvm": ["unified-memory", "start-up", "creating-context"],
    "cloverleaf-3.13": ["creating-context", "profiler-set-up", "pageable-copies"],
    # Halos of 16 KiB.
    "openacc-mpas": ["start-up", "shut-down", "profiler-set-up", "idle-devices", "creating-context"],
}  # fmt: skip
"""What is found in the reports; in all others nothing is."""

PARTS_OF_FINDING = {
    "profiler-set-up": [OF_STATES[PROFILER]],
    "creating-communicators": [OF_STATES[COMMUNICATOR]],
    "creating-context": [OF_STATES[CONTEXT]],
    "host-waits": [OF_STATES[state] for state in WAITING],
    "start-up": ["start_up"],
    "shut-down": ["shut_down"],
}
"""Findings that are parts of the wall time by cause."""

Measured = Callable[..., EfficiencyResult]


def test_findings_and_the_wall_time_by_cause_say_the_same(name: str, efficiency: Measured) -> None:
    tables = efficiency(name, "communication").tables
    devices = tables["finding_devices"].join(tables["absent_time"], on="device")
    for row in tables["findings"].iter_rows(named=True):
        of_devices = devices.filter(kind=row["kind"])
        if parts := PARTS_OF_FINDING.get(row["kind"]):
            assert row["cost_ns"] == of_devices.select(pl.col(f"{part}_ns").sum() for part in parts).sum_horizontal().item()
        elif "gaps" in row["seen"]:
            assert row["cost_ns"] <= of_devices["absent_ns"].sum(), row["kind"]


MUCH, SHORT = 0.1, 250_000_000
"""Part of the time of all devices that has a finding, and ns of a device that have: every process has a short start."""
SAYS_IT = {
    "copy": {"pageable-copies", "exposed-copies", "bound-by-copies", "small-copies", "synchronous-copies"},
    "transfer": {"exposed-communication", "starved-beside-communication"},
    "late_rank": {"straggler", "imbalance", "exposed-communication"},
    **{part: {kind} for kind, parts in PARTS_OF_FINDING.items() if kind != "host-waits" for part in parts},
}
"""Kinds of findings that tell a cause; of others any finding that costs as much."""
UNEXPLAINED = {"undecided", "queued"}


def test_what_takes_much_time_has_a_finding(name: str, efficiency: Measured) -> None:
    result = efficiency(name)
    absent, findings = result.tables["absent_time"], result.tables["findings"]
    for part in (column.removesuffix("_ns") for column in PART_COLUMNS):
        lost = absent[f"{part}_ns"].sum() if part not in UNEXPLAINED else 0
        if lost >= max(MUCH * absent["elapsed_ns"].sum(), SHORT * absent.height):
            told = findings.filter(pl.col("kind").is_in(SAYS_IT.get(part, findings["kind"].to_list())))
            assert (told["cost_ns"] >= lost / 2).any(), (part, findings["kind"].to_list())


def test_what_is_found_and_no_more(name: str, efficiency: Measured) -> None:
    tables = efficiency(name).tables
    findings, length, window = tables["findings"], tables["run"]["elapsed_ns"][0], efficiency(name).head["window"]

    if not name.startswith("nccl-"):
        assert findings["kind"].to_list() == FOUND.get(name, [])
    causes = findings.filter(pl.col("consequence_of").is_null(), pl.col("kind") != "little-gpu-work")
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


@pytest.mark.thorough
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


UNET: dict[str, set[str]] = {
    # Two workers: its authors say that large gaps between iterations are data loading.
    "baseline": {"data-loading"},
    # Eight: groups of iterations wait now and then, and nothing computes while the input is copied.
    "8workers": {"full-precision", "exposed-copies", "data-loading", "layout-changes", "unfused-kernels", "host-waits"},
    # The GPU is busy for 98.5 % of the time.
    "dali": {"full-precision", "layout-changes", "unfused-kernels"},
    "dali_amp": {"layout-changes", "unfused-kernels", "data-loading", "exposed-copies"},
    # Its GPU is 325 ms late, and the work of the last steps is not recorded.
    "4gpu_baseline": {"layout-changes", "full-precision"},
}


@cache
def unet(version: str) -> EfficiencyResult:
    """The numbers of a version of this training."""
    if version not in RUNS:
        pytest.skip(f"no report {version}")
    return measure(RUNS[version])


@pytest.mark.parametrize("version", few_of(UNET, ()))
def test_what_the_authors_of_a_training_found_in_its_versions(version: str) -> None:
    assert set(unet(version).tables["findings"]["kind"]) == UNET[version]


def test_a_gpu_that_is_late_against_its_host_is_named() -> None:
    """A start-up of 325 ms was found on it. By SQL all kernels are late, by as much as synchronizations with them end early."""
    measured = unet("4gpu_baseline")
    (path,) = RUNS["4gpu_baseline"]
    database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    call = "FROM {} k JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON c.correlationId = k.correlationId"
    starts, streams = ("SELECT {} " + call.format(f"CUPTI_ACTIVITY_KIND_{table}") for table in ("KERNEL", "SYNCHRONIZATION"))
    ((least,),) = database.execute(starts.format("min(k.start - c.start)"))
    waits = (
        " WHERE c.nameId = (SELECT id FROM StringIds WHERE value LIKE 'cudaStreamSynchronize%') AND k.end - k.start > 10000000"
    )
    early = []
    for thread, begin, end in database.execute(streams.format("c.globalTid, c.start, c.end") + waits):
        launched = f" WHERE c.globalTid = {thread} AND c.start < {begin} ORDER BY c.start DESC LIMIT 1"
        early += [done - end for (done,) in database.execute(starts.format("k.end") + launched)]
    most = max(early)
    reasons = dict(measured.tables["finding_checks"].select("kind", "reason").iter_rows())

    assert 324_500_000 < most < least < 324_800_000
    assert any("nothing starts sooner than 324.722 ms after its launch" in text for text in measured.head["warnings"])
    assert reasons["start-up"] == "times of nid003748:D0 contradict those of the host"
    # By these times its queue is full.
    assert reasons["full-launch-queue"] == reasons["start-up"]


# -- who arrives last in the collectives of real runs over several nodes, against plain SQL --------------
NCCL_RUNS = [path for path in sorted(REAL_REPORTS.glob("nccl-*")) if path.is_dir()]
_UTC = 10**18
"""Times above are of UTC, ns since 1970."""
_KERNELS = (
    "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName "
    "WHERE value LIKE 'nccl%AllReduce%' ORDER BY start"
)


def reductions(report: Path) -> list[tuple[int, int]]:
    """Start and end of the all-reduces of a report, in UTC."""
    with sqlite3.connect(f"file:{report}?mode=ro", uri=True) as database:
        kernels = database.execute(_KERNELS).fetchall()
        ((began,),) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    return [(start, end) if start > _UTC else (start + began, end + began) for start, end in kernels]


@pytest.fixture(scope="module", params=[pytest.param(run, id=run.name, marks=pytest.mark.thorough) for run in NCCL_RUNS])
def run(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def measured(run: Path) -> EfficiencyResult:
    return measure([run])


def test_the_rank_that_arrives_last_is_that_of_the_tables_or_not_decidable(run: Path, measured: EfficiencyResult) -> None:
    of_ranks = {report.stem.rpartition("_")[2]: reductions(report) for report in sorted(run.glob("*.sqlite"))}
    found = measured.nccl_collectives.sort("begin_ns")

    assert {len(kernels) for kernels in of_ranks.values()} == {found.height}
    for turn, collective in enumerate(found.iter_rows(named=True)):
        starts = {pid: kernels[turn][0] for pid, kernels in of_ranks.items()}
        ordered = sorted(starts, key=lambda pid: starts[pid])
        apart = starts[ordered[-1]] - starts[ordered[-2]]
        if collective["last_task"] is None:
            # It is not decidable only where ranks arrive within what clocks can be wrong, or where the last one may be missing.
            assert apart <= collective["margin_ns"] or "5of6" in run.name
        else:
            assert f"pid {ordered[-1]} " in collective["last_task"]
        durations = [kernels[turn][1] - kernels[turn][0] for kernels in of_ranks.values()]
        assert collective["residence_ns"] == sum(durations)
        assert collective["transfer_ns"] == min(durations) * len(durations)


def test_ranks_of_a_host_end_together_as_placed(run: Path, measured: EfficiencyResult) -> None:
    assert measured.clocks.height == len({report.stem.rpartition("_")[0] for report in run.glob("*.sqlite")})
    assert not [warning for warning in measured.head["warnings"] if warning.startswith("as placed")]


# -- compute-absent time of the real reports: its parts against each other -------------------------------


def test_the_parts_add_up_to_the_time_without_computation(name: str, efficiency: Measured) -> None:
    """Parts of each device, iteration and region."""
    measured = efficiency(name, "communication")
    tables, elapsed = measured.tables, measured.head["window"]["length_ns"]
    absent = tables["absent_time"]

    assert sorted(absent["absent_ns"]) == sorted(elapsed - tables["devices"]["useful_ns"])
    assert (absent.select(pl.sum_horizontal(PART_COLUMNS)).to_series() == absent["absent_ns"]).all()
    assert absent.select(pl.col(PART_COLUMNS).min()).min_horizontal().item() >= 0
    by_part = tables["absent_parts"].group_by("device").agg(pl.col("total_ns").sum())
    assert dict(by_part.iter_rows()) == dict(absent.filter(pl.col("absent_ns") > 0).select("device", "absent_ns").iter_rows())
    for inside in (tables["absent_iterations"], tables["absent_regions"]):
        assert (inside.select(pl.sum_horizontal(PART_COLUMNS)).to_series() == inside["absent_ns"]).all()
        assert (inside["compute_ns"] + inside["absent_ns"] == inside["elapsed_ns"]).all()
    stretches = tables["absent_stretches"]
    assert (stretches.select(pl.sum_horizontal(PART_COLUMNS)).to_series() == stretches["length_ns"]).all()
    starved = absent.select(
        pl.col(f"starved_{kind}_ns").sum() for kind in (*host_states.NAMES, "unified_memory")
    ).sum_horizontal().item()  # fmt: skip
    if tables["absent_calls"].height < 500:
        assert tables["absent_calls"]["total_ns"].sum() == starved


# -- the graph of every real report: it replays exactly, and its critical path is as long as the run -----
pytestmark = pytest.mark.real


@pytest.mark.parametrize("run", few_of(RUNS, {"cuda-graphs"}))
def test_a_replay_without_a_change_is_the_run(run: str, tmp_path: Path) -> None:
    built = graph_of_run(MeasuredRun(read_events(RUNS[run], EfficiencyOptions(), tmp_path, with_dependencies=True)))
    replayed, measured = replay(built.graph), replay(built.graph)
    assert np.array_equal(replayed.time, built.graph.time)
    assert np.array_equal(replayed.edge, measured.edge)
    window = built.context.events.length
    assert path_end(built, measured)[1] == window
    segments = path_segments(built, measured)
    begin, end = segments["begin"].to_list(), segments["end"].to_list()
    assert all(start < until for start, until in zip(begin, end, strict=True))
    # Without a hole.
    assert [*begin, window] == [0, *end] if begin else path_end(built, measured)[0] < 0


# -- iterations of real reports: found without NVTX they are those that NVTX has -------------------------


def iterations_of(path: Path, scratch: Path) -> RunIterations:
    events = read_events([path], EfficiencyOptions(progress=False), scratch)
    return find_iterations(MeasuredRun(events))


def without_nvtx(path: Path, folder: Path) -> Path:
    """A copy of a report without NVTX events."""
    copied = Path(shutil.copyfile(path, folder / path.name))
    with closing(sqlite3.connect(copied)) as database, database:
        database.execute("DROP TABLE NVTX_EVENTS")
    return copied


@pytest.mark.parametrize("version", few_of(UNET, ()))
def test_without_nvtx_the_iterations_of_unet_training_are_the_same(version: str, real_reports: Path, tmp_path: Path) -> None:
    path = real_reports / "unet-training" / f"{version}.sqlite"
    by_ranges = iterations_of(path, tmp_path / "with")
    by_kernels = iterations_of(without_nvtx(path, tmp_path), tmp_path / "without")
    assert by_ranges.how == "nvtx step #"
    assert by_kernels.how == BY_KERNELS
    assert by_ranges.iterations.height == by_kernels.iterations.height == (23 if version == "4gpu_baseline" else 29)
    begin, other = (one.iterations["begin"].to_numpy() for one in (by_ranges, by_kernels))
    # Without NVTX the trace may begin elsewhere.
    apart = (begin - begin[0]) - (other - other[0])
    assert np.abs(apart).max() <= 0.03 * np.median(np.diff(begin))


def test_time_steps_of_two_directions_are_found(real_reports: Path, tmp_path: Path) -> None:
    """By SQL the state is updated 924 times, in x and z three times for each of 154 steps; the last one is cut."""
    found = iterations_of(real_reports / "openacc-mpas.sqlite", tmp_path)
    assert found.how == BY_KERNELS
    lengths = (found.iterations["end"] - found.iterations["begin"]).to_numpy()
    assert len(lengths) == 153
    assert lengths.max() < 1.06 * lengths.min()


@pytest.mark.thorough
def test_blocks_of_a_model_are_found_where_no_range_is_around_them(real_reports: Path, tmp_path: Path) -> None:
    found = iterations_of(real_reports / "pytorch-nccl-2gpu.sqlite", tmp_path)
    assert found.how == BY_KERNELS
    # The first and the last of 17 executions of what a block has once are of blocks that were not recorded whole.
    assert found.iterations.group_by("task").len()["len"].to_list() == [16, 16]
    # Both ranks meet in each block.
    begins = found.iterations.sort("task", "number")["begin"].to_numpy().reshape(2, 16)
    assert np.abs(begins[0] - begins[1]).max() < 0.25 * np.median(np.diff(begins[0]))


@pytest.mark.parametrize(
    ("report", "count", "usual_ms"),
    [
        # By SQL each kernel of a time step is executed 10 times.
        pytest.param("cloverleaf-3.13", 10, 32, marks=pytest.mark.thorough),
        # 13 batches of 416 operations; the first ones load code.
        pytest.param("pytorch-uvm", 13, 182, marks=pytest.mark.thorough),
        # 28 layers of 78 operations, in which a matrix product repeats eight times.
        ("conclusions/llm-2h100-1s", 28, 29),
    ],
)
def test_iterations_are_what_the_program_repeats(
    report: str, count: int, usual_ms: int, real_reports: Path, tmp_path: Path
) -> None:
    lengths = iterations_of(real_reports / f"{report}.sqlite", tmp_path).lengths
    assert lengths.height == count
    assert int(np.median(lengths["median"].to_numpy()) / 1e6) in range(usual_ms - 2, usual_ms + 1)
