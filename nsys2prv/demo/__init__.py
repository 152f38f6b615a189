"""A simulated training run on a cluster: its size and its problems enter.

Exports as nsys writes them leave, one per rank, and `truth.json` with what a translation must find."""

from nsys2prv.demo.cluster import Cluster, generate, truth, write_reports
from nsys2prv.demo.nsys_tables import write_report

__all__ = ["Cluster", "generate", "truth", "write_report", "write_reports"]
