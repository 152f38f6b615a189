"""Efficiency numbers for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.meters.gaps import CAUSE_TITLES
from nsys2prv.efficiency.metrics import DEVICE_TREE, EFFICIENCIES, HOST_TREE
from nsys2prv.efficiency.result_tables import Column
from nsys2prv.efficiency.verdict import WINDOW_TITLES
from nsys2prv.errors import counted
from nsys2prv.vocabulary.printable import printable_lines
from nsys2prv.vocabulary.wording import percent, quantity, short, time

_ROWS = 10
_LONGEST_PATH = 200
_LEAST_PART = 0.01

_OF_DEVICES = {one.name: one.abbreviation for one in DEVICE_TREE.of_parts}
_HOST_ROOT = HOST_TREE.efficiencies[0]
# Columns of each table that are shown, and their headings.
_SHOWN: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("nodes", {"node": "node", "devices": "GPUs", **_OF_DEVICES, _HOST_ROOT.name: _HOST_ROOT.abbreviation}),
    ("devices", {"device": "device", "useful_ns": "useful", "communication_ns": "communication", "idle_ns": "idle",
                 "useful_share": "useful", "active_share": "active"}),
    ("regions", {"region": "region", "count": "count", "total_ns": "total", **_OF_DEVICES}),
    ("windows", {"window": "part of the run", "begin_ns": "start", "length_ns": "length", "share": "of the run",
                 **_OF_DEVICES}),
    ("iterations", {"iteration": "iteration", "begin_ns": "start", "longest_ns": "length", "kind": "kind", **_OF_DEVICES}),
    ("overlap_summary", {"kernels": "kernels at once", "base": "of", "average": "average", "maximum": "maximum",
                         "minimum": "minimum", "deviation": "deviation"}),
    ("families", {"family": "kernels", "count": "count", "total_ns": "total", "mean_ns": "mean", "share": "share"}),
    ("kernels", {"kernel": "kernel", "count": "count", "total_ns": "total", "median_ns": "median", "p95_ns": "p95",
                 "modes": "modes", "share": "share"}),
    ("memory_operations", {"operation": "operation", "source": "from", "destination": "to", "from_bytes": "sizes from",
                           "count": "count", "bytes": "sum", "total_ns": "total", "bandwidth": "bandwidth"}),
    ("nccl", {"operation": "NCCL", "communicator": "communicator", "size_bytes": "size", "count": "count",
              "mean_ns": "mean", "bandwidth": "bandwidth", "bus_bandwidth": "bus bandwidth"}),
    ("nccl_exposure", {"operation": "NCCL", "communicator": "communicator", "placement": "members", "total_ns": "total",
                       "exposed_ns": "exposed", "blocking_ns": "blocking", "not_blocking_ns": "exposed, not blocking",
                       "overlapped_blocking_ns": "blocking, not exposed"}),
    ("nccl_waits", {"communicator": "communicator", "collectives": "collectives", "residence_ns": "time in them",
                    "transfer_ns": "transfer", "waiting_ns": "rest", "waited_ns": "waited", "undecided_ns": "not decidable"}),
    ("nccl_stragglers", {"task": "task", "collectives": "collectives", "decided": "decided", "last": "last",
                         "waited_ns": "waited", "caused_ns": "others waited", "undecided_ns": "not decidable"}),
    ("cuda_calls", {"call": "CUDA call", "count": "count", "total_ns": "total", "mean_ns": "mean", "max_ns": "longest"}),
    ("mpi_calls", {"call": "MPI call", "count": "count", "total_ns": "total", "mean_ns": "mean", "max_ns": "longest"}),
    ("critical_path_totals", {"by": "by", "name": "critical path", "total_ns": "total", "share": "share"}),
    ("longest_gaps", {"device": "gap on", "begin_ns": "at", "length_ns": "length", "after": "until"}),
    ("clocks", {"host": "clock of", "method": "method", "interval_ns": "known to within", "offset_ns": "offset",
                "drift_ppm": "drift [ppm]", "anchors": "anchors", "contradiction_ns": "contradiction"}),
)  # fmt: skip
_ALL_GAPS, _WAITS, _CLOCKS = "gaps", "nccl_waits", "clocks"
_SEVERAL = 2

_LEFT = frozenset({"of", "from", "to", "until", "communicator"})


def efficiency_as_text(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], rows: int = _ROWS) -> str:
    """A summary of an `EfficiencyResult`, with so many rows of each table."""
    run = tables["run"].row(0, named=True)
    gpus, nodes = counted(run["devices"], "GPU"), counted(tables["nodes"].height, "node")
    lines = [
        f"{short(head['title'], _LONGEST_PATH)}: {time(head['window']['length_ns'])}, {gpus} on {nodes}",
        window_line(head),
        iterations_line(head, tables["iterations"]),
        f"(NCCL kernels count as {head['nccl']})",
        "",
        *tree_lines(tables["tree"]),
        *_findings(head, tables["findings"], tables["finding_checks"]),
    ]
    for name, columns in _SHOWN:
        if name == _CLOCKS and tables[name].height < _SEVERAL:
            continue
        lines += _section(name, tables[name], columns, rows)
        if name == "devices":
            lines += _idle(tables[_ALL_GAPS])
            lines += _absent(tables["absent_time"], tables["absent_parts"])
        if name == _WAITS:
            lines += [f"  {sentence}" for sentence in undecided(tables[_WAITS])]
    return printable_lines(lines)


def window_line(head: Mapping[str, Any]) -> str:
    """Which part of the run was measured."""
    window = head["window"]
    begin, end = window["offset_ns"], window["offset_ns"] + window["length_ns"]
    return f"measured: {WINDOW_TITLES[window['name']]}, {_seconds(begin)} to {_seconds(end)} s of the trace"


def iterations_line(head: Mapping[str, Any], iterations: pl.DataFrame) -> str:
    """How iterations were found, their number and lengths; or why there are none."""
    found = head["iterations"]
    if found["how"] is None:
        return f"no iterations: {short(str(found['reason']), _LONGEST_PATH)}"
    kinds = iterations["kind"].value_counts().sort("kind").rows()
    special = "".join(f", {count} {kind}" for kind, count in kinds if kind is not None)
    lengths = iterations.filter(pl.col("kind").is_null())["longest_ns"].to_numpy()
    usual = f", usually {time(float(np.median(lengths)))}" if len(lengths) else ""
    return f"{counted(iterations.height, 'iteration')} ({short(found['how'], _LONGEST_PATH)}){special}{usual}"


def _findings(head: Mapping[str, Any], findings: pl.DataFrame, checks: pl.DataFrame) -> list[str]:
    """Each finding: its title, its cost, and where to look; then what was looked for in vain."""
    title = f"Findings in {WINDOW_TITLES[head['window']['name']]} (it would be shorter by this time)"
    lines = ["", title] if findings.height else []
    for row in findings.iter_rows(named=True):
        where = row["device"] if row["devices"] == 1 else f"{row['devices']} GPUs, most on {row['device']}"
        place = f"{_seconds(row['worst_begin_ns'])} to {_seconds(row['worst_end_ns'])} s"
        cause = f"; a consequence of {row['consequence_of']}" if row["consequence_of"] is not None else ""
        lines += [
            f"  {row['place']}. {row['title']}",
            f"     {time(row['saved_ns'])} ({percent(row['saved_share'])} of the run), {row['saved_how']}{cause}; "
            f"{time(row['cost_ns'])} of device time ({percent(row['share'])}), on {where}; see {row['view']} at {place}",
        ]
    if checks.height:
        absent = checks.filter(pl.col("result") == "not found")["kind"]
        lines += ["", f"Looked for and not found: {', '.join(absent) or 'nothing'}"]
        for reason, kinds in checks.filter(pl.col("result") == "not decidable").group_by("reason", maintain_order=True):
            lines.append(f"Not decidable: {', '.join(kinds['kind'])} ({reason[0]})")
    return lines


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.6f}"


def tree_lines(tree: pl.DataFrame) -> list[str]:
    """Efficiencies, indented by their level; factors of one product have a sign."""
    width = max((len(title) + 2 * level for title, level in tree.select("title", "level").iter_rows()), default=0) + 2
    lines: list[str] = []
    parents: set[str] = set()
    for row in tree.iter_rows(named=True):
        if row["level"] == 0 and lines:
            lines.append("")
        # What divides the product of those above in another way is no factor.
        is_factor = row["level"] > 0 and row["product_of"] is None
        sign = ("x " if row["parent"] in parents else "= ") if is_factor else ""
        parents.add(row["parent"] or "")
        name = f"{'  ' * row['level']}{sign}{row['title']}"
        lines.append(f"{name:<{width + 2}}{percent(row['value']):>8}   {reading(row['metric'], row['value'])}")
    return lines


def reading(metric: str, value: float | None) -> str:
    """What an efficiency means in words: of a factor the share that is lost.

    >>> reading("load_balance", 0.875)
    'lost to imbalance between devices: 12.5 %'
    """
    one = EFFICIENCIES[metric]
    return f"{one.loss}: {percent(None if value is None else 1 - value)}" if one.loss else one.reads_as


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int]) -> list[str]:
    """Cells in columns of equal width."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            f"{cell:<{width}}" if place in left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  " + "  ".join(aligned).rstrip()

    return [line(columns), *map(line, rows)]


def _section(name: str, table: pl.DataFrame, columns: Mapping[str, str], most: int) -> list[str]:
    if table.is_empty():
        return []
    known = table_registry.BY_NAME[name]
    units = {column.name: column for column in known.columns}
    cells = [
        [_cell(units[column], value) for column, value in zip(columns, row, strict=True)]
        for row in table.head(most).select(list(columns)).iter_rows()
    ]
    left = frozenset(
        place for place, (column, title) in enumerate(columns.items()) if units[column].dtype is pl.String or title in _LEFT
    )
    more = f" ({table.height - most} more)" if table.height > most else ""
    return ["", f"{known.title}{more}", *grid(list(columns.values()), cells, left)]


def _idle(gaps: pl.DataFrame) -> list[str]:
    total = int(gaps["total_ns"].sum())
    if not total:
        return []
    shares = {title: int(gaps[name].sum()) / total for name, title in CAUSE_TITLES.items()}
    shown = ", ".join(f"{what} {percent(share)}" for what, share in shares.items() if share >= 0.005)
    return [f"  Idle GPU time by host activity: {shown}"]


def _absent(devices: pl.DataFrame, of_parts: pl.DataFrame) -> list[str]:
    """What the time without computation of all devices went to: what takes a hundredth of their time or more, and the rest."""
    elapsed, absent = int(devices["elapsed_ns"].sum()), int(devices["absent_ns"].sum())
    if not absent:
        return []
    sums = of_parts.group_by("part", "detail").agg(pl.col("total_ns").sum())
    shown = sums.filter(pl.col("total_ns") >= elapsed * _LEAST_PART).sort("total_ns", "part", descending=[True, False])
    cells = [
        [f"{part}, {short(detail, _LONGEST_PATH)}" if detail else part, time(total), percent(total / elapsed)]
        for part, detail, total in shown.iter_rows()
    ]
    if rest := absent - int(shown["total_ns"].sum()):
        cells.append(["less each", time(rest), percent(rest / elapsed)])
    title = f"Time without computation: {time(absent)} of device time ({percent(absent / elapsed)})"
    off = int(devices["off_cpu_ns"].sum())
    note = f"  Of host computing, the launching threads were off their CPUs for {time(off)}"
    noted = [note] if off >= elapsed * _LEAST_PART else []
    return ["", title, *grid(["cause", "total", "of all time"], cells, frozenset({0})), *noted]


def undecided(waits: pl.DataFrame) -> list[str]:
    """What is not decidable about waits in collectives, from the table `nccl_waits`: a sentence, or none."""
    sums = waits.select(pl.col("collectives", "decided", "residence_ns", "undecided_ns").sum()).row(0, named=True)
    unknown = sums["collectives"] - sums["decided"]
    if not unknown:
        return []
    time_share = sums["undecided_ns"] / sums["residence_ns"] if sums["residence_ns"] else None
    return [
        f"Which rank arrives last is not decidable in {unknown:,} of {counted(sums['collectives'], 'collective')} "
        f"({percent(unknown / sums['collectives'])}), and {percent(time_share)} of the time in them may be waits: "
        f"ranks arrive closer together than their clocks are known"
    ]


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return "-"
    if with_unit := quantity(value, column.unit):
        return with_unit
    if column.dtype is pl.Int64:
        return f"{value:,}"
    return short(str(value)) if column.dtype is pl.String else f"{value:.3g}"
