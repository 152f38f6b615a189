"""Intervals of clocks that are told of simulated clusters of many kinds, against their true clocks."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from bench.results import CHECKOUT, Line, replace_table
from bench.workplace import Workplace
from support.simulated_clocks import KINDS
from support.told_intervals import KindResult, try_kind

from nsys2prv.vocabulary import __version__

PAGE = CHECKOUT / "docs" / "reference" / "simulated-clusters.md"
GOAL = 99.0
"""Percent of the pairs of reports of different hosts whose interval holds."""


def clock_results(place: Workplace) -> list[KindResult]:
    """What comes out for each kind of cluster; workers are processes of one thread, as reports are small."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(partial(_tried, place.sizes.clock_runs), KINDS))


def _tried(runs: int, kind: str) -> KindResult:
    return try_kind(kind, range(runs))


def clock_lines(results: list[KindResult]) -> list[Line]:
    """In how many pairs of reports the told interval holds, for each kind."""
    return [
        Line(one.kind, 100 * one.inside, "%", f" ({_duration(one.margin_median)} half width)", at_least=GOAL)
        for one in results
        if one.inside is not None
    ]


def write_clock_table(results: list[KindResult]) -> None:
    """The same, in the documentation with all numbers."""
    rows = [
        f"nsys2prv {__version__}, {results[0].runs} runs of each kind:",
        "",
        "| kind of cluster | | interval holds | in a host | not known | half width, median | largest | error, median | 99 % "
        "| largest |",
        "| --- | --- " + "| ---: " * 8 + "|",
        *(f"| {one.kind} | {KINDS[one.kind].text} | {' | '.join(_cells(one))} |" for one in results),
    ]
    replace_table(PAGE, rows)


def _cells(one: KindResult) -> list[str]:
    # What is not quite everything must not look so.
    shares = [f"{int(share * 1000) / 10:.1f} %" if share is not None else "-" for share in (one.inside, one.inside_host)]
    times = (one.margin_median, one.margin_largest, one.error_median, one.error_99, one.error_largest)
    return [*shares, f"{100 * one.not_known:.1f} %", *("-" if one.inside is None else _duration(time) for time in times)]


def _duration(ns: float) -> str:
    unit, size = next((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if ns >= size or size == 1e3)
    return f"{ns / size:.3g} {unit}"
