"""Reports: paths, folders and globs come in; opened reports leave.

A `Report` gives lazy tables with declared columns in whatever form the export has; `describe` gives its identity: tool, host,
clocks, processes, ranks, threads, GPUs."""

from nsys2prv.exports.identity import Gpu, Identity, describe
from nsys2prv.exports.paths import find_reports
from nsys2prv.exports.report import Report, open_report

__all__ = ["Gpu", "Identity", "Report", "describe", "find_reports", "open_report"]
