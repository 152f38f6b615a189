"""Reports of runs that never were: the shape of a cluster and of its problems, or single events, come in.

What leaves are exports as nsys writes them, one per rank, and `truth.json`, which tells what a translation must find.
"""

from nsys2prv.demo.builder import ReportBuilder, payload_blob
from nsys2prv.demo.cluster import Cluster, generate, truth, write_reports
from nsys2prv.demo.write_export import write_arrow_report, write_parquet_report, write_report

__all__ = [
    "Cluster",
    "ReportBuilder",
    "generate",
    "payload_blob",
    "truth",
    "write_arrow_report",
    "write_parquet_report",
    "write_report",
    "write_reports",
]
