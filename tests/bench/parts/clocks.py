"""Clocks: errors after each way to align them, and the intervals reported of simulated clusters of many kinds."""

from __future__ import annotations

from typing import Any

from bench.results import CLOCKS_PAGE, replace_between
from bench.workplace import Workplace

NODES, GPUS = 16, 8
GOALS = {"median_us": 5.0, "percentile_99_us": 20.0}
MARK = "<!-- measured by make bench -->"


def clocks(place: Workplace) -> dict[str, Any]:
    """Errors of clocks of two clusters, and all kinds of clusters."""
    aligned = [{"kind": kind, **place.script("align_clocks", kind, str(NODES), str(GPUS))[1]} for kind in ("nccl", "mpi")]
    runs = place.sizes.clock_runs
    return {"aligned": aligned, "of_each": runs, **place.script("simulated_clusters", str(runs))[1]}


def clocks_table(found: dict[str, Any]) -> str:
    """Errors of clocks, and how often the told intervals hold, as text."""
    aligned, kinds = found["aligned"], found["kinds"]
    head = f"{found['of_each']} runs of each kind of cluster"
    lines = [
        *_errors_of_clocks(aligned),
        f"{head:38} {'interval holds':>14} {'in a host':>10} {'not known':>10} {'half width':>11} {'largest':>11} "
        f"{'error':>11} {'99 %':>11} {'largest':>11}",
    ]
    for kind in kinds:
        cells = _cells(kind)
        lines.append(
            f"  {kind['kind']:36} {cells[0]:>14} {cells[1]:>10} {cells[2]:>10} "
            + " ".join(f"{cell:>11}" for cell in cells[3:])
            + f"  {_verdict(kind)}"
        )
    return "\n".join([*lines, "  of pairs of reports of different hosts; goal: the interval holds in 99 of 100"])


_NUMBERS = ("margin_median", "margin_largest", "error_median", "error_99", "error_largest")


def _cells(kind: dict[str, Any]) -> list[str]:
    """Numbers of a kind of cluster as text: shares, then times."""
    shares = (kind[name] for name in ("inside", "inside_host", "not_known"))
    # What is not quite everything must not look so.
    texts = ["-" if share is None else f"{int(float(str(share)) * 1000) / 10:.1f} %" for share in shares]
    nothing = kind["inside"] is None
    return [*texts, *("-" if nothing else _duration(float(str(kind[name]))) for name in _NUMBERS)]


def _duration(ns: float) -> str:
    unit, size = next((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if ns >= size or size == 1e3)
    return f"{ns / size:.3g} {unit}"


def _errors_of_clocks(found: list[dict[str, Any]]) -> list[str]:
    shape = f"{NODES} nodes x {GPUS} GPUs, 60 s, offsets to 5 s, drifts to 50 ppm"
    lines = [f"{shape:64} {'median':>12} {'99 %':>12} {'largest':>12}  told error holds"]
    for one in found:
        for method, told in (("auto", "aligned by"), ("monotonic", "not aligned")):
            error = one[method]
            name = f"  {told} {one['kind']}" if method == "auto" else f"  {told}"
            errors = " ".join(f"{error[key]:10.1f} us" for key in ("median_us", "percentile_99_us", "largest_us"))
            verdict = ""
            if method == "auto":
                good = all(error[key] < goal for key, goal in GOALS.items()) and error["honest"] >= 0.95
                verdict = f"  for {error['honest']:.0%} of the hosts: {'reached' if good else 'MISSED'}"
            lines.append(f"{name:64} {errors}{verdict}")
    return lines


def _verdict(found: dict[str, Any]) -> str:
    return "reached" if found["reached"] else "MISSED"


def write_clocks_table(found: dict[str, Any]) -> None:
    """The intervals of simulated clusters as a table of the documentation."""
    rows = [
        f"nsys2prv {found['version']}, {found['of_each']} runs of each kind:",
        "",
        "| kind of cluster | | interval holds | in a host | not known | half width, median | largest | error, median | 99 % "
        "| largest |",
        "| --- | --- " + "| ---: " * 8 + "|",
        *(f"| {kind['kind']} | {kind['text']} | {' | '.join(_cells(kind))} |" for kind in found["kinds"]),
    ]
    replace_between(CLOCKS_PAGE, MARK, rows)
