"""Devices whose times contradict those of their hosts: nothing that compares both is claimed."""

from pathlib import Path

import pytest
from support.measured import MS, US, measured
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import verdict

SYNC_STREAM = 3


def run(folder: Path, late: int, *, waits: bool = True, copies: bool = False) -> EfficiencyResult:
    """Twenty steps of 20 ms that end with a synchronization, or with a pageable copy as well. Times of the device are late by
    some ns."""
    report = ReportBuilder(rank=0).gpu(0)
    for step in range(20):
        start = (step + 1) * 20 * MS
        report.kernel("train(float*)", start + late, start + 8 * MS + late, launch=(start - 10 * US, start - 5 * US))
        waited, until = start + 1 * MS, start + 8 * MS + 10 * US
        call = report.api_call("cudaStreamSynchronize_v3020", waited, until)
        if waits:
            report.synchronization(waited, until, kind=SYNC_STREAM, correlation=call)
        if copies:
            copied, calls = start + 12 * MS + late, (start + 9 * MS, start + 15 * MS)
            report.copy(copied, copied + 10 * US, 1 << 20, pageable=True, launch=calls)
            report.kernel("in time", start + 16 * MS, start + 17 * MS, launch=(start + 15 * MS, start + 15 * MS + US))
    return measured(folder, report, no_critical_path=False)


def results(result: EfficiencyResult) -> dict[str, str]:
    return dict(result.finding_checks.select("kind", "result").iter_rows())


@pytest.mark.parametrize(
    ("late", "how"),
    [
        (500 * MS, "nothing starts sooner than 500.010 ms after its launch, but synchronizations end before their work begins"),
        (-300 * MS, "most work starts before it was launched, by up to 299.990 ms"),
    ],
)  # fmt: skip
def test_what_compares_a_device_with_its_host_is_not_decidable(tmp_path: Path, late: int, how: str) -> None:
    result = run(tmp_path, late)
    assert any(f"times of node01:D0 contradict those of its host: {how}" in text for text in result.head["warnings"])
    assert result.findings.is_empty()
    found = results(result)
    assert {found[kind] for kind in ("start-up", "shut-down", "host-bound", "data-loading", "idle-devices")} == {
        "not decidable"
    }
    # What is measured on the device alone is known.
    assert found["exposed-copies"] == "not found"
    assert not result.critical_path.height
    absent, whole = (table.row(0, named=True) for table in (result.absent_time, result.run))
    assert (absent["undecided_ns"], absent["off_cpu_ns"]) == (absent["absent_ns"], None)
    assert absent["absent_ns"] == whole["elapsed_ns"] - 20 * 8 * MS
    assert sum(absent[name] for name in PART_COLUMNS) == absent["absent_ns"]
    assert result.absent_parts.select("part", "detail", "total_ns").rows() == [
        ("not decidable", "times of the device contradict those of its host", absent["absent_ns"])
    ]
    assert (result.absent_stretches["undecided_ns"] == result.absent_stretches["length_ns"]).all()
    assert result.absent_calls.is_empty()
    assert (result.gaps["unknown_ns"] == result.gaps["total_ns"]).all()
    assert whole["transfer_efficiency"] is None
    sentence = verdict(result.head, result.tables).sentence
    assert "; clocks allow " in sentence
    assert "largest part of the rest: not decidable (times of device and host contradict each other)" in sentence


@pytest.mark.parametrize("late", [0, -300 * MS])
def test_calls_of_other_times_are_no_part_of_copies(tmp_path: Path, late: int) -> None:
    assert ("pageable-copies" in run(tmp_path, late, copies=True).findings["kind"]) == (late == 0)


def test_devices_in_time_are_not_doubted(tmp_path: Path) -> None:
    result = run(tmp_path, 500 * US)
    assert not any("contradict" in text for text in result.head["warnings"])
    assert results(result)["idle-devices"] != "not decidable"
    assert not result.absent_time["undecided_ns"].item()
    assert result.critical_path.height


def test_work_that_is_launched_far_ahead_contradicts_nothing(tmp_path: Path) -> None:
    # Nothing starts sooner than 12 ms after its launch, and each synchronization is done when it returns.
    report = ReportBuilder(rank=0).gpu(0)
    for step in range(40):
        start = (step + 1) * 20 * MS
        report.kernel("train(float*)", start, start + 19 * MS, launch=(start - 12 * MS, start - 11 * MS))
        call = report.api_call("cudaStreamSynchronize_v3020", start - 10 * MS, start + 19 * MS + 5 * US)
        report.synchronization(start - 10 * MS, start + 19 * MS, kind=SYNC_STREAM, correlation=call)
    result = measured(tmp_path, report, no_critical_path=False)
    assert not any("contradict" in text for text in result.head["warnings"])


def test_without_recorded_waits_late_launches_are_believed(tmp_path: Path) -> None:
    result = run(tmp_path, 500 * MS, waits=False)
    assert not any("contradict" in text for text in result.head["warnings"])
