"""What NCCL kernels cost, by device, and by communicator and operation."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings.aggregate import part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Number
from nsys2prv.efficiency.findings.rule import Evidence
from nsys2prv.vocabulary.wording import short, time

_MOST_NAMED = 3
_COLLECTIVES = ["communicator", "communicator_name", "operation", "placement"]


def nccl_devices(kernels: pl.DataFrame, evidence: Evidence) -> list[DeviceStats]:
    """Of each device what its NCCL kernels cost (columns `device`, `row`, `start`, `end`, `cost` in ns; those without a cost
    don't count)."""
    found = []
    with_parts = kernels.filter(pl.col("cost") > 0).with_columns(part=part_of(pl.col("start"), evidence.length))
    for (device,), rows in with_parts.sort("device").partition_by("device", as_dict=True, maintain_order=True).items():
        by_part = rows.group_by("part").agg(pl.col("cost").sum(), pl.col("start").min(), pl.col("end").max()).sort("part")
        worst = by_part.sort("cost", "part", descending=[True, False]).row(0, named=True)
        found.append(
            DeviceStats(
                device=int(device),
                count=rows.height,
                cost=int(rows["cost"].sum()),
                begin=int(by_part["start"].to_numpy().min()),
                end=int(by_part["end"].to_numpy().max()),
                worst=(worst["start"], worst["end"]),
                rows=tuple(sorted(rows["row"].unique().to_list())),
                parts=by_part["part"].to_list(),
                costs=dict(by_part.select("part", "cost").iter_rows()),
                longest=int(rows["cost"].to_numpy().max()),
            )
        )
    return found


def by_collective(kernels: pl.DataFrame, what: str) -> tuple[str, list[Number]]:
    """Costs of NCCL kernels by communicator and operation, those inside a node and over nodes apart: a text with those that
    cost most, and a number for each of them; `what` says of what."""
    summed = kernels.group_by(_COLLECTIVES).agg(pl.col("cost").sum()).filter(pl.col("cost") > 0)
    top = summed.sort("cost", *_COLLECTIVES, descending=[True, *(False for _ in _COLLECTIVES)], nulls_last=True)
    named = [
        (" ".join(filter(None, (operation, f"of {short(name)}" if name else None, placement))), spent)
        for _, name, operation, placement, spent in top.head(_MOST_NAMED).select(*_COLLECTIVES, "cost").iter_rows()
    ]
    more = top.height - len(named)
    text = ", ".join(f"{name} {time(spent)}" for name, spent in named) + (f", and {more:,} more" if more > 0 else "")
    return text, [Number(f"{name}: {what}", spent, NANOSECONDS) for name, spent in named]
