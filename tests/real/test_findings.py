"""Findings of the real reports: which there are, and why."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import polars as pl
import pytest
from support.real_reports import REPORTS, RUNS

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.host_states import COMMUNICATOR, CONTEXT, WAITING
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.meters.absent_tables import OF_STATES
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.run.options import TimeRange

FOUND: dict[str, list[str]] = {
    # 1.8 ms of kernels in half a second.
    "gpu-metrics-a100": ["little-gpu-work", "creating-context"],
    "callchains": ["little-gpu-work", "start-up", "creating-context"],
    "mpi-openacc-4gpu": ["little-gpu-work", "creating-context", "start-up", "allocations"],
    "cuda-graphs": ["little-gpu-work", "start-up"],
    "tensorrt-3.1": ["little-gpu-work", "shut-down"],
    # Nothing runs on any GPU for 5.8 s between two phases.
    "v100x8": ["idle-devices", "start-up"],
    **{
        f"v100x8/report{number}": [*([] if number in (2, 6) else ["little-gpu-work"]), "idle-devices", "start-up"]
        for number in range(1, 9)
    },
    # Processes that get work by MPI, prepare it, copy it to the GPU, and compute for 50 us.
    "mpi-as-nvtx-2.9": ["data-loading", "start-up", "creating-context", "pageable-copies", "few-blocks"],
    # A wait for the device after every kernel, and copies of single values.
    "no-metadata-2020": ["synchronization-stalls", "small-copies"],
    # A host that computes between short phases of four GPUs.
    "one-process-4gpu": ["host-bound", "start-up", "host-waits", "pageable-copies"],
    # Python and calls of the OS between short bursts of kernels, and each kernel is loaded when it is launched first.
    "pytorch-h100": ["start-up", "launch-stalls", "idle-devices"],
    # One of two GPUs waits for its host.
    "pytorch-nccl-2gpu": ["host-bound"],
    # More goes back to the host than to the device.
    "pytorch-uvm": ["unified-memory", "start-up", "creating-context", "unfused-kernels"],
    "cloverleaf-3.13": ["creating-context", "idle-devices", "pageable-copies"],
    # Halos of 16 KiB.
    "openacc-mpas": ["start-up", "idle-devices", "host-waits", "small-copies"],
}
"""What is found in the reports; in all others nothing is."""

PARTS_OF_FINDING = {
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
    "8workers": {"full-precision", "exposed-copies", "data-loading", "layout-changes", "unfused-kernels"},
    # The GPU is busy for 98.5 % of the time.
    "dali": {"full-precision", "layout-changes", "unfused-kernels"},
    "dali_amp": {"layout-changes", "unfused-kernels", "data-loading", "exposed-copies"},
    # Its GPU is 325 ms late, and the work of the last steps is not recorded.
    "4gpu_baseline": {"layout-changes", "full-precision"},
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
    assert set(measure(RUNS[version]).tables["findings"]["kind"]) == UNET[version]


def test_a_gpu_that_is_late_against_its_host_is_named() -> None:
    """A start-up of 325 ms was found on it. By SQL all kernels are late, by as much as synchronizations with them end early."""
    if "4gpu_baseline" not in RUNS:
        pytest.skip("no report 4gpu_baseline")
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
    measured = measure(RUNS["4gpu_baseline"])
    reasons = dict(measured.tables["finding_checks"].select("kind", "reason").iter_rows())

    assert 324_500_000 < most < least < 324_800_000
    assert any("nothing starts sooner than 324.722 ms after its launch" in text for text in measured.head["warnings"])
    assert reasons["start-up"] == "times of nid003748:D0 contradict those of the host"
    # By these times its queue is full.
    assert reasons["full-launch-queue"] == reasons["start-up"]
