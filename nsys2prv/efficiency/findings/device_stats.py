"""What was measured on each device: how often, at what cost, since when, and where to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from nsys2prv.efficiency.findings.aggregate import NONE
from nsys2prv.efficiency.sweep import SweepContext
from nsys2prv.errors import counted


@dataclass(frozen=True)
class DeviceStats:
    """What a rule measured on one device: times in ns, by its index.

    `cost` is what all occurrences cost at most, and `longest` that of the most costly one. `begin` and `end` are of all
    occurrences, `worst` of the place to look at. `rows` of the trace show it there; `parts` of the run have occurrences, and
    `costs` are the costs of these parts, where they are known.
    """

    device: int
    count: int
    cost: int
    begin: int
    end: int
    worst: tuple[int, int]
    rows: tuple[int, ...] = ()
    parts: Sequence[int] = ()
    costs: Mapping[int, int] = field(default_factory=dict)
    longest: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)


def by_device(
    context: SweepContext, frame: pl.DataFrame, sums: Sequence[str] = (), *, worst: Literal["part", "occurrence"] = "part"
) -> list[DeviceStats]:
    """Statistics of each device.

    Parameters
    ----------
    frame
        Rows of `OccurrenceSums.frame` with `device` and `part` in the key, and `count` and `cost` among the sums.
    sums
        Further sums.
    worst
        Where to look: the part of the run with the highest cost, or the most costly occurrence.
    """
    stats = []
    for (device,), rows in frame.partition_by("device", as_dict=True, maintain_order=True).items():
        part = rows.sort("cost", "part", descending=[True, False]).row(0, named=True)
        top = rows.sort("top_cost", "top_begin", descending=[True, False]).row(0, named=True)
        stats.append(
            DeviceStats(
                device=int(device),
                count=int(rows["count"].sum()),
                cost=int(rows["cost"].sum()),
                begin=int(rows["begin"].min()),  # type: ignore[arg-type]
                end=int(rows["end"].max()),  # type: ignore[arg-type]
                worst=(part["begin"], part["end"]) if worst == "part" else (top["top_begin"], top["top_end"]),
                rows=_rows(context, part if worst == "part" else top),
                parts=rows.filter(pl.col("count") > 0)["part"].to_list(),
                costs=dict(rows.select("part", "cost").iter_rows()),
                longest=int(top["top_cost"]),
                sums={name: int(rows[name].sum()) for name in sums},
            )
        )
    return stats


def total(stats: Sequence[DeviceStats], name: str) -> int:
    """A sum over devices."""
    return sum(one.sums[name] for one in stats)


def count(stats: Sequence[DeviceStats]) -> int:
    """Number of occurrences on all devices."""
    return sum(one.count for one in stats)


def cost(stats: Sequence[DeviceStats]) -> int:
    """Cost on all devices, ns."""
    return sum(one.cost for one in stats)


def lost_together(stats: Sequence[DeviceStats]) -> int:
    """Sum over the parts of the run of the highest cost of a device there, ns; without parts the highest cost of a device."""
    if not all(one.costs for one in stats):
        return max((one.cost for one in stats), default=0)
    highest: dict[int, int] = {}
    for one in stats:
        for part, lost in one.costs.items():
            highest[part] = max(highest.get(part, 0), lost)
    return sum(highest.values())


def on_devices(stats: Sequence[DeviceStats]) -> str:
    """The number of devices, for a sentence about them."""
    return f"on {counted(len(stats), 'GPU')}"


def _rows(context: SweepContext, occurrence: Mapping[str, Any]) -> tuple[int, ...]:
    """Rows of the trace that show an occurrence: the stream and the host thread."""
    row, thread = occurrence["top_row"], occurrence["top_thread"]
    host = (int(context.callers[thread]),) if thread != NONE else ()
    return (*((int(row),) if row != NONE else ()), *host)
