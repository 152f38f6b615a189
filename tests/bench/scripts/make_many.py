"""Small reports of one run in a new folder: `make_many.py FOLDER COUNT`."""

from __future__ import annotations

import sys

from nsys2prv.demo import Cluster, write_reports

count = int(sys.argv[2])
gpus = min(count, 8)
write_reports(sys.argv[1], Cluster(nodes=count // gpus, gpus_per_node=gpus, iterations=3, layers=3, gpu_metrics_hz=100))
