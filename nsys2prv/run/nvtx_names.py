"""Names of NVTX ranges in reports: how often each occurs, how long, and on how many threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from nsys2prv.errors import counted
from nsys2prv.execution.progress import progress_bar
from nsys2prv.exports import Report, find_reports, open_report
from nsys2prv.exports.nsys import NsysExport
from nsys2prv.sources.nvtx import autograd, nvtx_ranges
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.text_grid import grid
from nsys2prv.vocabulary.wording import short, time

SCHEMA: dict[str, type[pl.DataType]] = {
    "name": pl.String,
    "domain": pl.String,
    "count": pl.Int64,
    "total_ns": pl.Int64,
    "mean_ns": pl.Float64,
    "longest_ns": pl.Int64,
    "threads": pl.Int64,
    "reports": pl.Int64,
}
_OF_REPORT: dict[str, type[pl.DataType]] = {
    **{name: dtype for name, dtype in SCHEMA.items() if name not in ("mean_ns", "reports")},
    "closed": pl.Int64,
}
_LONGEST_NAME, _LONGEST_DOMAIN = 100, 30


def nvtx_names(arguments: Sequence[str | Path], nsys: NsysExport | None = None) -> pl.DataFrame:
    """Names of the NVTX ranges of reports, those first that take most time.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    nsys
        How .nsys-rep files are exported.

    Returns
    -------
    DataFrame
        A row per `name` and `domain`: `count` of ranges, `total_ns` and `longest_ns` of those that were closed, `mean_ns` over
        them, and the numbers of `threads` and of `reports` that have it.

    Raises
    ------
    ReportError
        When a report can't be read.
    """
    paths = find_reports(arguments)
    found = [pl.DataFrame(schema=_OF_REPORT)]
    with progress_bar("inspecting", "report", len(paths)) as bar:
        for path in paths:
            found.append(_names_in(open_report(path, nsys)))
            bar.update()
    by_name = (
        pl.concat(found)
        .group_by("name", "domain")
        .agg(pl.col("count", "total_ns", "threads", "closed").sum(), pl.col("longest_ns").max(), reports=pl.len())
        .with_columns(mean_ns=pl.when(pl.col("closed") > 0).then(pl.col("total_ns") / pl.col("closed")))
        .sort("total_ns", "name", "domain", descending=[True, False, False])
    )
    return by_name.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


def names_of_ranges(reports: Iterable[Report]) -> list[str]:
    """All names of the NVTX ranges of some reports."""
    return sorted({name for report in reports for name in _names_in(report)["name"]})


def _names_in(report: Report) -> pl.DataFrame:
    """Names and domains of the ranges of a report; `closed`: how many of them have an end."""
    if not report.has(nvtx_ranges.PUSHPOP.table):
        return pl.DataFrame(schema=_OF_REPORT)
    ranges = [
        nvtx_ranges.ranges_in_domains(report, source).select(
            "domain", "globalTid", name=autograd.name_of(pl.col("label")), length=pl.col("end") - pl.col("start")
        )
        for source in (nvtx_ranges.PUSHPOP, nvtx_ranges.STARTEND)
    ]
    length = pl.col("length")
    counts = {"count": pl.len(), "closed": length.count(), "threads": pl.col("globalTid").n_unique()}
    by_name = pl.concat(ranges).group_by("name", "domain").agg(total_ns=length.sum(), longest_ns=length.max(), **counts)
    return report.collect(by_name.select(pl.col(name).cast(dtype) for name, dtype in _OF_REPORT.items()))


def names_as_text(names: pl.DataFrame, most: int) -> str:
    """Names as lines of text, so many of them."""
    if names.is_empty():
        return "the reports have no NVTX ranges (nsys profile --trace=nvtx records them)"
    cells = [
        [
            short(row["name"], _LONGEST_NAME),
            short(row["domain"], _LONGEST_DOMAIN),
            f"{row['count']:,}",
            *("-" if row[length] is None else time(row[length]) for length in ("total_ns", "mean_ns", "longest_ns")),
            f"{row['threads']:,}",
        ]
        for row in names.head(most).iter_rows(named=True)
    ]
    title = f"{counted(int(names['count'].sum()), 'NVTX range')} with {counted(names.height, 'name')}"
    headings = ["name", "domain", "count", "total", "mean", "longest", "threads"]
    more = [f"  ... and {counted(names.height - most, 'more name')}; --limit {names.height} shows all"]
    return printable_lines([title, *grid(headings, cells, frozenset({0, 1})), *(more if names.height > most else [])])
