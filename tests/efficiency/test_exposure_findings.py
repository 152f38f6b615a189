"""Findings of collectives that are exposed and not blocking, and of those that are hidden and blocking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
US, MS = 1_000, 1_000_000
STEPS = 20


def findings(report: ReportBuilder, folder: Path) -> dict[str, dict[str, Any]]:
    """Rows of the table by kind."""
    result = measure([report.write(folder / "report.sqlite")], EfficiencyOptions(progress=False))
    return {row["kind"]: row for row in result.tables["findings"].iter_rows(named=True)}


def exposed_in_steps(launched_at: int, steps: int = STEPS) -> ReportBuilder:
    """Steps of 2 ms: a kernel of 1 ms, a collective of 0.5 ms that nothing waits for, and the next kernel, launched at
    `launched_at` ns of the step before its own."""
    report = ReportBuilder(ranks=1).gpu(0)
    for index in range(steps):
        begin = 2 * MS * index + MS
        report.kernel("k(int)", begin, begin + MS, launch=(begin - 2 * MS + launched_at, begin - 2 * MS + launched_at + 5 * US))
        report.kernel(ALL_REDUCE, begin + MS, begin + 1500 * US, stream=20, launch=(begin + 100 * US, begin + 105 * US))
    return report


def test_the_next_kernel_is_not_launched_while_a_collective_is_exposed(tmp_path: Path) -> None:
    found = findings(exposed_in_steps(launched_at=1990 * US), tmp_path)["starved-beside-communication"]

    # Not of the last step, after which there is no kernel.
    assert found["cost_ns"] == (STEPS - 1) * 500 * US
    assert found["saved_ns"] == found["cost_ns"]


@pytest.mark.parametrize(
    "report",
    [
        # The next kernel was launched before: the device has something to do, and does not do it.
        pytest.param(exposed_in_steps(launched_at=800 * US), id="launched"),
        pytest.param(exposed_in_steps(launched_at=1990 * US, steps=8), id="few"),
    ],
)
def test_launched_kernels_and_few_collectives_are_not_starved(report: ReportBuilder, tmp_path: Path) -> None:
    assert "starved-beside-communication" not in findings(report, tmp_path)


def hidden_in_steps(hides: int, *, waits: bool = True) -> ReportBuilder:
    """Steps of 1.5 ms, all launched before the first: a collective of 1 ms beside a kernel of `hides` ns on another stream,
    then a kernel of 0.5 ms that waits for the collective by an event, as the next collective waits for it."""
    report = ReportBuilder(ranks=1).gpu(0)
    calls = iter(range(0, MS, 2 * US))

    def launch() -> tuple[int, int]:
        begin = next(calls)
        return begin, begin + US

    def wait(stream: int, event: int, of: int, sync: int) -> None:
        report.event_record(event, correlation=report.api_call("cudaEventRecord_v3020", *launch()), stream=of, sync=sync)
        times = launch()
        call = report.api_call("cudaStreamWaitEvent_v3020", *times)
        report.synchronization(*times, kind=2, correlation=call, stream=stream, event=event, sync=sync)

    for index in range(STEPS):
        begin = MS + index * 1500 * US
        report.kernel(ALL_REDUCE, begin, begin + MS, stream=20, launch=launch())
        report.kernel("beside(int)", begin, begin + hides, stream=9, launch=launch())
        if waits:
            wait(7, 3, 20, 2 * index + 1)
        report.kernel("last(int)", begin + MS, begin + 1500 * US, launch=launch())
        wait(20, 4, 7, 2 * index + 2)
    return report


def test_a_launched_kernel_waits_for_a_hidden_collective(tmp_path: Path) -> None:
    found = findings(hidden_in_steps(MS), tmp_path)["hidden-communication"]

    assert found["cost_ns"] == STEPS * MS
    # Without the collectives the kernels beside them are in the way of each other: 1 ms in each step, not 1.5.
    assert found["saved_ns"] == pytest.approx(STEPS * 500 * US, rel=0.05)
    assert found["saved_how"].startswith("at most")


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(hidden_in_steps(MS, waits=False), id="nothing waits"),
        pytest.param(hidden_in_steps(20 * US), id="exposed"),
    ],
)
def test_collectives_that_nothing_waits_for_or_hides_are_not_hidden_and_blocking(report: ReportBuilder, tmp_path: Path) -> None:
    assert "hidden-communication" not in findings(report, tmp_path)
