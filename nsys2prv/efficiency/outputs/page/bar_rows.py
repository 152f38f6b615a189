"""Rows of bars, as the page shows sums: a name, one or more pieces of a bar, and the number; rows can have rows below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.outputs.page.colours import CAUSES, LINES, WALL_PARTS
from nsys2prv.vocabulary.kernel_families import FAMILY, shipped_rules
from nsys2prv.vocabulary.metric_units import unit_of_metric
from nsys2prv.vocabulary.wording import percent, time

MOST_ROWS = 16
"""Rows of one drawing."""
_MOST_BELOW = 12
_LEAST_SHARE = 0.001
_LEAST_WIDTH = 0.15
_PALE = ("#bcd3f2", "#f8d9ae", "#b5e2d5", "#e3c7ec", "#f3c3c8", "#d9dfb2", "#b4dfe8", "#dccdc7")
"""Colours behind black text."""


@dataclass(frozen=True)
class Piece:
    """A piece of a bar: how much of the widest bar it takes (0 to 1), its colour, and the text under the pointer."""

    width: float
    colour: str
    title: str


@dataclass(frozen=True)
class BarRow:
    """A row: its name, its bar, and its number as text; `below`: what it consists of."""

    name: str
    pieces: tuple[Piece, ...]
    number: str
    note: str = ""
    below: tuple[BarRow, ...] = ()


def simple_row(name: str, share: float, widest: float, number: str, note: str = "", below: tuple[BarRow, ...] = ()) -> BarRow:
    """A row with a bar of one piece."""
    piece = Piece(share / widest if widest else 0, LINES[0], f"{name}: {number}")
    return BarRow(name, (piece,), number, note, below)


def family_tree(families: pl.DataFrame, kernels: pl.DataFrame) -> list[BarRow]:
    """Kernels by kind (GEMM is one number first), below that by family, and by kernel; shares are of all kernel time."""
    kinds = kinds_of_families(families["family"])
    total = float(families["total_ns"].sum()) or 1
    by_kind: dict[str, list[dict[str, object]]] = {}
    for row in families.iter_rows(named=True):
        by_kind.setdefault(kinds[row["family"]], []).append(row)
    kernels_of: dict[object, list[dict[str, object]]] = {family: [] for family in families["family"]}
    for row in kernels.iter_rows(named=True):
        kernels_of.setdefault(row["family"], []).append(row)
    sums = {kind: sum(_number(row["total_ns"]) for row in rows) for kind, rows in by_kind.items()}
    widest = max(sums.values(), default=1) / total
    found = []
    for kind in sorted(sums, key=lambda one: -sums[one])[:MOST_ROWS]:
        below = tuple(
            _row(
                str(family["family"]),
                family,
                total,
                widest,
                tuple(
                    _row(str(kernel["kernel"]), kernel, total, widest) for kernel in kernels_of[family["family"]][:_MOST_BELOW]
                ),
            )
            for family in by_kind[kind][:_MOST_BELOW]
        )
        if len(below) == 1 and below[0].name == kind:
            below = below[0].below
        count = sum(int(_number(row["count"])) for row in by_kind[kind])
        number = f"{time(sums[kind])}, {percent(sums[kind] / total)}"
        found.append(simple_row(kind, sums[kind] / total, widest, number, f"{count:,} kernels", below))
    return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _row(name: str, row: Mapping[str, object], total: float, widest: float, below: tuple[BarRow, ...] = ()) -> BarRow:
    spent, count = _number(row["total_ns"]), int(_number(row["count"]))
    return simple_row(name, spent / total, widest, f"{time(spent)}, {percent(spent / total)}", f"{count:,} kernels", below)


def kinds_of_families(families: Iterable[str]) -> dict[str, str]:
    """Families without details: the longest kind of kernel that each begins with, else the family itself.

    >>> kinds_of_families(["GEMM bf16 nt 128x128x64", "mine::step"])
    {'GEMM bf16 nt 128x128x64': 'GEMM', 'mine::step': 'mine::step'}
    """
    kinds = sorted({rule.kind for rule in shipped_rules() if rule.what == FAMILY and rule.kind}, key=len, reverse=True)
    return {
        family: next((kind for kind in kinds if family == kind or family.startswith(f"{kind} ")), family) for family in families
    }


def wall_rows(devices: pl.DataFrame, most: int) -> tuple[list[BarRow], list[tuple[str, str, str]]]:
    """What the wall time went to: the mean of all devices, and those few with least computing; and the legend."""
    columns = [column for column, *_ in WALL_PARTS]
    rows = devices.sort("compute_ns", "device").select("device", "elapsed_ns", pl.col(columns).cast(pl.Float64))
    if devices.height > 1:
        mean = rows.select(pl.lit(f"mean of {devices.height:,}").alias("device"), pl.exclude("device").mean())
        rows = pl.concat([mean, rows.head(most).with_columns(pl.col("elapsed_ns").cast(pl.Float64))])
    shown = [
        _stacked(row["device"], row, row["elapsed_ns"], WALL_PARTS, percent(row["compute_ns"] / (row["elapsed_ns"] or 1)))
        for row in rows.iter_rows(named=True)
    ]
    return shown, [part for part in WALL_PARTS if devices[part[0]].sum()]


def idle_rows(classes: pl.DataFrame) -> tuple[list[BarRow], list[tuple[str, str, str]]]:
    """Idle time by length of gap: columns `class` (text), `count`, `total_ns` and those of CAUSES, ns, over all devices."""
    longest = float(classes["total_ns"].max() or 1)  # type: ignore[arg-type]
    shown = [
        _stacked(row["class"], row, longest, CAUSES, time(row["total_ns"]), f"{row['count']:,} gaps")
        for row in classes.iter_rows(named=True)
    ]
    return shown, [cause for cause in CAUSES if classes[cause[0]].sum()]


def _stacked(
    name: str, row: Mapping[str, float], whole: float, kinds: Sequence[tuple[str, str, str]], number: str, note: str = ""
) -> BarRow:
    pieces = tuple(
        Piece(
            row[column] / (whole or 1), colour, f"{name}: {title} {time(row[column])} ({percent(row[column] / (whole or 1))})"
        )
        for column, title, colour in kinds
        if row[column] > _LEAST_SHARE * whole
    )
    return BarRow(name, pieces, number, note)


def path_rows(totals: pl.DataFrame) -> list[tuple[str, list[BarRow]]]:
    """The critical path by kind, by rank and by kernel family: titles, and rows with most time first."""
    found = []
    for by, title in (("kind", "by kind"), ("task", "by rank"), ("family", "by kernel family"), ("host", "by host activity")):
        rows = totals.filter(pl.col("by") == by).sort("total_ns", descending=True).head(_MOST_BELOW)
        widest = float(rows["share"].max() or 1)  # type: ignore[arg-type]
        if rows.height:
            found.append((title, [
                simple_row(row["name"], row["share"], widest, f"{time(row['total_ns'])}, {percent(row['share'])}")
                for row in rows.iter_rows(named=True)
            ]))  # fmt: skip
    return found


@dataclass(frozen=True)
class IcicleBar:
    """A bar of an icicle: its place from the left and its width, 0 to 100, its row from the top, its name, the text under the
    pointer, and its colour."""

    left: float
    width: float
    level: int
    name: str
    title: str
    colour: str


def icicle(nodes: pl.DataFrame) -> list[IcicleBar]:
    """The table `nvtx_tree`, the outermost ranges at the top; the width is the time. What is too narrow to see is left out."""
    places: dict[int, float] = {}
    rest = 0.0
    bars = []
    for row in nodes.iter_rows(named=True):
        width = 100 * (row["share"] or 0.0)
        left = rest if row["parent"] is None else places.get(row["parent"], 0.0)
        if row["parent"] is None:
            rest += width
        else:
            places[row["parent"]] = left + width
        places[row["node"]] = left
        if width >= _LEAST_WIDTH:
            title = (
                f"{row['range']}: {time(row['total_ns'])} in {row['count']:,} ranges ({percent(row['share'])}), "
                f"{time(row['own_ns'])} in none inside of it"
            )
            bars.append(IcicleBar(left, width, row["level"], row["range"], title, _PALE[row["node"] % len(_PALE)]))
    return bars


_BUSY_METRICS = (
    ("tensor", r"(?i)^tensor[^\[]*active", LINES[0]),
    ("DRAM read", r"(?i)^dram read", LINES[2]),
    ("DRAM write", r"(?i)^dram write", LINES[6]),
)


def unit_activity(summary: pl.DataFrame, families: pl.DataFrame) -> list[tuple[str, list[BarRow]]]:
    """Tensor and DRAM activity by kernel family, from `sampled_summary`: families with most time first, a row per metric."""
    known = summary.filter(pl.col("level") == "family", pl.col("weighted").is_not_null())
    metrics = []
    for title, pattern, colour in _BUSY_METRICS:
        names = known.filter(pl.col("metric").str.contains(pattern))["metric"].unique(maintain_order=True)
        if len(names) and unit_of_metric(names[0]) == "%":
            metrics.append((title, names[0], colour))
    found = []
    for family in families["family"].head(_MOST_BELOW) if metrics else []:
        rows = []
        for title, metric, colour in metrics:
            of_family = known.filter(pl.col("metric") == metric, pl.col("name") == family)
            if of_family.height:
                value, samples = float(of_family["weighted"][0]), int(of_family["samples"][0])
                piece = Piece(value / 100, colour, f"{family}: {title} {value:.1f} % ({samples:,} samples)")
                rows.append(BarRow(title, (piece,), f"{value:.1f} %", f"{samples:,} samples"))
        if rows:
            found.append((family, rows))
    return found
