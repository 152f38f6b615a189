"""Who arrives last in the collectives of real runs over several nodes, against plain SQL."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest
from support.checkout import REAL_REPORTS

from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult

RUNS = [path for path in sorted(REAL_REPORTS.glob("nccl-*")) if path.is_dir()]
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


EACH = [
    # A run of three nodes in which a rank is late, and one in which a rank is missing.
    pytest.param(
        run,
        id=run.name,
        marks=[] if run.name in {"nccl-3nodes-9gpus-sleep", "nccl-2nodes-5of6-utc"} else [pytest.mark.thorough],
    )
    for run in RUNS
]


@pytest.fixture(scope="module", params=EACH)
def run(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def measured(run: Path) -> EfficiencyResult:
    return measure([run])


def test_the_rank_that_arrives_last_is_that_of_the_tables_or_not_decidable(run: Path, measured: EfficiencyResult) -> None:
    of_ranks = {report.stem.rpartition("_")[2]: reductions(report) for report in sorted(run.glob("*.sqlite"))}
    found = measured.nccl_collectives.sort("begin_ns")

    counts = {len(kernels) for kernels in of_ranks.values()}
    assert counts == {found.height}
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
    hosts: dict[str, set[str]] = defaultdict(set)
    for report in run.glob("*.sqlite"):
        hosts[report.stem.rpartition("_")[0]].add(report.stem)
    assert measured.clocks.height == len(hosts)
    assert not [warning for warning in measured.head["warnings"] if warning.startswith("as placed")]
