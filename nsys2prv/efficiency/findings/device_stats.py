"""What sums tell of each device: how often, how much, since when, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys2prv.efficiency.findings.aggregate import NONE
from nsys2prv.efficiency.findings.finding import OnDevice
from nsys2prv.efficiency.sweep import SweepContext
from nsys2prv.errors import counted


@dataclass(frozen=True)
class Seen:
    """Sums of one shape on one device.

    Attributes
    ----------
    on
        What becomes of it in a finding.
    parts
        Parts of the run in which it is seen.
    longest
        Cost of the most costly occurrence, ns.
    sums
        Sums by name.
    """

    on: OnDevice
    parts: Sequence[int]
    longest: int
    sums: dict[str, int]


def by_device(ground: SweepContext, frame: pl.DataFrame, sums: Sequence[str], *, place: str) -> list[Seen]:
    """Sums of one shape by device.

    Parameters
    ----------
    frame
        Rows of `Sums.frame` with `device` and `part` in the key, and `count` and `cost` among the sums.
    sums
        Further sums that are wanted.
    place
        Where to look: "part" for the part of the run where it costs most, "top" for the most costly occurrence.
    """
    found = []
    for (device,), rows in frame.partition_by("device", as_dict=True, maintain_order=True).items():
        dearest = rows.sort("cost", "part", descending=[True, False]).row(0, named=True)
        top = rows.sort("top_cost", "top_begin", descending=[True, False]).row(0, named=True)
        worst = (dearest["begin"], dearest["end"]) if place == "part" else (top["top_begin"], top["top_end"])
        on = OnDevice(
            device=int(device),
            count=int(rows["count"].sum()),
            cost=int(rows["cost"].sum()),
            begin=int(rows["begin"].min()),  # type: ignore[arg-type]
            end=int(rows["end"].max()),  # type: ignore[arg-type]
            worst=worst,
            rows=_rows(ground, dearest if place == "part" else top),
        )
        told = {name: int(rows[name].sum()) for name in sums}
        found.append(Seen(on, rows["part"].to_list(), int(top["top_cost"]), told))
    return found


def total(found: Sequence[Seen], name: str) -> int:
    """A sum over devices."""
    return sum(one.sums[name] for one in found)


def count(found: Sequence[Seen]) -> int:
    """How often on all devices."""
    return sum(one.on.count for one in found)


def cost(found: Sequence[Seen]) -> int:
    """Cost of all devices, ns."""
    return sum(one.on.cost for one in found)


def on_devices(found: Sequence[Any]) -> str:
    """How a sentence about some devices begins."""
    return f"on {counted(len(found), 'GPU')}"


def _rows(ground: SweepContext, one: dict[str, Any]) -> tuple[int, ...]:
    """Rows of the trace of the most costly occurrence: the stream and the host thread."""
    row, thread = one["top_row"], one["top_thread"]
    host = (int(ground.callers[thread]),) if thread != NONE else ()
    return (*((int(row),) if row != NONE else ()), *host)
