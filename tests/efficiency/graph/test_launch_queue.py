"""Launch calls that wait for a place in the queue of their stream, against what the simulated machine did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.report_builder import ReportBuilder
from support.simulated_run.causes import with_and_without
from support.simulated_run.cluster import Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.measure import measure

US = 1_000


def blocked_calls(folder: Path, cluster: Cluster) -> float | None:
    tables = measure(write_reports(simulate(cluster), folder)).tables
    numbers = tables["finding_numbers"]
    found = numbers.filter(kind="full-launch-queue", number="blocked calls")["value"]
    return found[0] if len(found) else None


@pytest.mark.parametrize("has_limit", [True, False])
def test_calls_are_blocked_where_the_queue_has_a_limit_and_not_where_it_has_none(tmp_path: Path, has_limit: bool) -> None:
    limited, unlimited = with_and_without(replace(Cluster(gpus=1), launches_ahead=2_000), "full queue")
    run = simulate(limited if has_limit else unlimited)
    kernels = [operation for operation in run.operations_of(0) if operation.stream == 7]
    # Blocked: its call ended when the operation 1,024 places before it started.
    truly = sum(
        one.call.end.time == earlier.start.time + run.cluster.machine.wake and earlier.start.time > one.call.start
        for earlier, one in zip(kernels, kernels[1_024:], strict=False)
    )
    found = blocked_calls(tmp_path, limited if has_limit else unlimited)

    assert (truly > 0) == has_limit
    assert found == (pytest.approx(truly, rel=0.05) if has_limit else None)


def test_before_the_first_work_of_a_run_nothing_makes_place(tmp_path: Path) -> None:
    """A module is loaded while more than 1,000 kernels are launched: a call that takes long then is not blocked by a queue."""
    made = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    for index in range(1_300):
        call = index * 10 * US
        start = 20_000 * US + index * 20 * US
        made.kernel("k(int)", start, start + 15 * US, launch=(call, call + (9 if index >= 1_000 else 2) * US))
    found = measure([made.write(tmp_path / "rank0.sqlite")]).tables["findings"]

    assert "full-launch-queue" not in found["kind"].to_list()


def test_long_calls_with_few_pending_operations_and_short_ones_with_many_are_not_blocked(tmp_path: Path) -> None:
    """Half of the launches are far ahead, and take as long as any; others take long, and their kernels start at once."""
    made = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    for index in range(1_200):
        start = 6_000 * US + index * 20 * US
        made.kernel("k(int)", start, start + 20 * US, launch=(index * 5 * US, index * 5 * US + 4 * US))
    for index in range(100):
        start = 40_000 * US + index * 100 * US
        made.kernel("k(int)", start + 60 * US, start + 80 * US, launch=(start, start + 50 * US))
    found = measure([made.write(tmp_path / "rank0.sqlite")]).tables["findings"]

    assert "full-launch-queue" not in found["kind"].to_list()
