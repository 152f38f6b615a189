"""What a notebook does with a run, with the public API alone: `python notebook.py REPORTS OUTPUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

import nsys2prv as np


def analyze(reports: str, output: Path) -> pl.DataFrame:
    """Print kernels per rank and family, and the efficiency tree; write a page and a trace; return the kernels."""
    with np.open_run(reports) as run:
        print(run)
        duration = pl.col("end") - pl.col("start")
        families = (
            run.events("kernels")
            .group_by("rank", "family")
            .agg(count=pl.len(), total_ms=duration.sum() / 1e6, mean_us=duration.mean() / 1e3)
            .sort("rank", "total_ms", descending=[False, True])
            .collect()
        )
        print(families)
        result = run.efficiency()
        print(result.tree.select("title", "value"))
        print(result.findings.select("title", "cost_ns", "share"))
        result.to_html(output / "page.html")
        print(run.translate(output / "trace").prv)
    return families


if __name__ == "__main__":
    analyze(sys.argv[1], Path(sys.argv[2]))
