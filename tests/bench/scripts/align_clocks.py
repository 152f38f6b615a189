"""Errors of the clocks of a simulated cluster after alignment, as JSON: `align_clocks.py KIND NODES GPUS`."""

from __future__ import annotations

import json
import sys
import tempfile

import numpy as np
from support.clock_truth import alignment_error

from nsys2prv.demo import Cluster, write_reports

kind, nodes, gpus = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(11)
cluster = Cluster(
    nodes=nodes,
    gpus_per_node=gpus,
    iterations=60,
    layers=2,
    pause_ns=950_000_000,
    gpu_metrics_hz=0,
    with_nvtx=False,
    with_os_calls=False,
    with_mpi=kind == "mpi",
    with_nccl=kind == "nccl",
    lost_collectives=0.01,
    late_ns=10_000,
    clock_offsets_ns=tuple(int(one) for one in random.integers(-5_000_000_000, 5_000_000_000, nodes)),
    clock_drifts_ppm=tuple(float(one) for one in random.uniform(-50, 50, nodes)),
    lonely_host=nodes - 1,
)
with tempfile.TemporaryDirectory() as folder:
    reports = write_reports(folder, cluster)
    found = {}
    for method in ("auto", "monotonic"):
        error = alignment_error(reports, cluster, method, hosts=range(nodes - 1))
        found[method] = {
            "median_us": error.percentile(50) / 1e3,
            "percentile_99_us": error.percentile(99) / 1e3,
            "largest_us": error.percentile(100) / 1e3,
            "honest": error.honest,
        }
print(json.dumps(found))
