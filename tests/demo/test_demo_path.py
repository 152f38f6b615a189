"""The critical path of the demo: what each of its streams waited for is recorded."""

from __future__ import annotations

from pathlib import Path

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency.measure import measure

BETWEEN_KERNELS = 1_100
"""ns between two operations of a stream of which the first ends late."""


def test_the_path_of_the_demo_has_no_wait_of_unknown_cause(tmp_path: Path) -> None:
    """The optimizer waits for the last collective, and each collective for what computes before it."""
    cluster = Cluster(nodes=1, gpus_per_node=2, iterations=4, layers=2, slow_gpu=1)
    tables = measure(write_reports(tmp_path, cluster)).tables
    totals = {
        name: (total, segments) for by, name, total, _, segments in tables["critical_path_totals"].iter_rows() if by == "kind"
    }
    assert totals["event wait"][1] >= cluster.iterations
    order, segments = totals["stream order"]
    assert order <= (BETWEEN_KERNELS + 10) * segments
    absent = tables["absent_time"]
    assert absent["undecided_ns"].sum() == 0
    assert absent["transfer_ns"].sum() > 0
