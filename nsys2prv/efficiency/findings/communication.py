"""Communication that nothing covers: NCCL kernels beside which no other kernel runs, without their waits for the last rank."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.aggregate import part_of
from nsys2prv.efficiency.findings.device_stats import on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Measured, Number, OnDevice
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import MEMORY, NCCL, SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, time

_KERNEL = ["row", "begin", "until"]
_UNCOVERED = (1 << NCCL, 1 << NCCL | 1 << MEMORY)
"""Masks of activity of a device: NCCL kernels, with copies or without, and no other kernel."""


class Communication:
    """The time of each NCCL kernel in which no other kernel runs. There are few NCCL kernels against others: they are kept."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        self._found: list[pl.DataFrame] = []

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        inside = part.inside[ON_DEVICES.name].filter(pl.col("number") == event_types.NCCL_KERNEL)
        device = self._ground.recording.rows.device[inside["row"].to_numpy()]
        inside = inside.with_columns(device=pl.Series(device, dtype=pl.Int64)).filter(pl.col("device") >= 0)
        if inside.is_empty():
            return
        on, times = inside["device"].to_numpy(), part.device_times
        spent = times.until(on, inside["end"].to_numpy()) - times.until(on, inside["start"].to_numpy())
        alone = spent[:, list(_UNCOVERED)].sum(axis=1)
        self._found.append(inside.select(*_KERNEL, "device", alone=pl.Series(alone, dtype=pl.Int64)))

    def findings(self, measured: Measured, arrivals: pl.DataFrame) -> list[Finding]:
        """What is wrong, by these kernels.

        Parameters
        ----------
        arrivals
            `row`, `start` and `last`: when the last rank arrived in the collective of a kernel, where that is known.
        """
        if not self._found:
            return []
        kernels = pl.concat(self._found).group_by(*_KERNEL, "device").agg(pl.col("alone").sum())
        last = arrivals.select("row", "last", begin="start").unique(["row", "begin"], keep="first")
        kernels = kernels.join(last, on=["row", "begin"], how="left")
        arrived = pl.max_horizontal("begin", pl.coalesce("last", "begin"))
        length = (pl.col("until") - arrived).clip(lower_bound=0)
        kernels = kernels.with_columns(
            length=length, cost=pl.min_horizontal("alone", length), is_matched=pl.col("last").is_not_null()
        )
        beyond = self._beyond(kernels, measured)
        if not beyond:
            return []
        kept = kernels.filter(pl.col("device").is_in([one.device for one in beyond]))
        lost, moving, waiting = sum(one.cost for one in beyond), int(kept["length"].sum()), _waits(kept)
        seen = (
            f"NCCL kernels {on_devices(beyond)} run {time(moving)}, waits for the last rank left out, and in "
            f"{percent(lost / moving)} of that no other kernel runs"
            + ("" if kept["is_matched"].all() else "; where not all ranks of a collective are known, waits are in these times")
        )
        numbers = (
            Number("NCCL kernels", kept.height),
            Number("their time, waits for the last rank left out", moving, NANOSECONDS),
            Number("part of it beside no other kernel", lost / moving, SHARE),
            Number("their waits for the last rank", waiting, NANOSECONDS),
        )
        return [Finding(limits.COMMUNICATION, seen, lost, beyond, numbers)]

    def _beyond(self, kernels: pl.DataFrame, measured: Measured) -> list[OnDevice]:
        alone = dict(zip(measured.tables["devices"]["device"], measured.tables["devices"]["nccl_alone_ns"], strict=True))
        parted = kernels.with_columns(part=part_of(pl.col("begin"), measured.length))
        found = []
        for (device,), rows in parted.partition_by("device", as_dict=True).items():
            index = int(device)
            # NCCL kernels that run at the same time are alone at the same time.
            cost, length = min(int(rows["cost"].sum()), alone[measured.name(index)]), int(rows["length"].sum())
            if (
                rows.height < limits.COMMUNICATION_COUNT.value
                or cost < limits.COMMUNICATION_PART.value * length
                or cost < limits.COMMUNICATION_SHARE.value * measured.active(index)
            ):
                continue
            costly = rows.filter(pl.col("cost") > 0)
            by_part = costly.group_by("part").agg(pl.col("cost").sum(), pl.col("begin").min(), pl.col("until").max())
            worst = by_part.sort("cost", "part", descending=[True, False]).row(0, named=True)
            found.append(
                OnDevice(
                    index,
                    costly.height,
                    cost,
                    int(costly["begin"].min()),  # type: ignore[arg-type]
                    int(costly["until"].max()),  # type: ignore[arg-type]
                    (worst["begin"], worst["until"]),
                    tuple(sorted(costly["row"].unique().to_list())),
                )
            )
        return sorted(found, key=lambda one: one.device)


def _waits(kernels: pl.DataFrame) -> int:
    return int((kernels["until"] - kernels["begin"] - kernels["length"]).sum())
