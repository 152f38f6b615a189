"""Exposed communication: NCCL kernels beside which no other kernel runs, without their waits for the last rank.

The rank that is in a collective for the shortest time waits least: its duration is the transfer, and what others take longer is
waiting. Durations are of one clock each, so that errors of clocks don't matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats, cost, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import without_transfers
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import MEMORY, NCCL, SweepContext, TimeChunk
from nsys2prv.execution.row_order import one_of_each
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, time

EXPOSED_PART = Threshold(
    "least part of the time of NCCL kernels, without waits, that is exposed", 0.3, "0 to 1",
    "the last bucket of a step is always exposed",
)  # fmt: skip
FEWEST_KERNELS = Threshold("fewest NCCL kernels on a device", 10, "", "few are a start: broadcasts of parameters")
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "less is the normal end of a step")

_KERNEL = ["row", "begin", "until"]
_EXPOSED = (1 << NCCL, 1 << NCCL | 1 << MEMORY)
"""Masks of activity of a device: NCCL kernels, with copies or without, and no other kernel."""


class ExposedKernels:
    """The time of each NCCL kernel in which no other kernel runs. They are kept one by one, as they are few among kernels."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._kernels: list[pl.DataFrame] = []

    def update(self, chunk: TimeChunk) -> None:
        """Add the NCCL kernels in a chunk."""
        inside = chunk.inside[ON_DEVICES.name].filter(pl.col("number") == event_types.NCCL_KERNEL)
        device = self._context.events.rows.device[inside["row"].to_numpy()]
        inside = inside.with_columns(device=pl.Series(device, dtype=pl.Int64)).filter(pl.col("device") >= 0)
        if inside.is_empty():
            return
        on, times = inside["device"].to_numpy(), chunk.device_times
        spent = times.until(on, inside["end"].to_numpy()) - times.until(on, inside["start"].to_numpy())
        exposed = spent[:, list(_EXPOSED)].sum(axis=1)
        self._kernels.append(inside.select(*_KERNEL, "device", exposed=pl.Series(exposed, dtype=pl.Int64)))

    def kernels(self, transfers: pl.DataFrame) -> pl.DataFrame | None:
        """All NCCL kernels, if there are any.

        Parameters
        ----------
        transfers
            As of `Evidence`.

        Returns
        -------
        Columns `row`, `begin`, `until`, `device`, `length` (duration without waits, ns), `cost` (the part of `length` that is
        exposed at most, ns), `own` (of `cost` what is exposed on the rank that arrives last, ns) and `is_matched` (whether the
        kernels of the other ranks are known).
        """
        if not self._kernels:
            return None
        kernels = pl.concat(self._kernels).group_by(*_KERNEL, "device").agg(pl.col("exposed").sum())
        shortest = one_of_each(transfers.select("row", "transfer", "collective", begin="start"), ["row", "begin"])
        kernels = kernels.join(shortest, on=["row", "begin"], how="left")
        residence = pl.col("until") - pl.col("begin")
        length = pl.min_horizontal(residence, "transfer")
        # The last rank waits for none: what it can't cover, nobody can.
        of_last = pl.col("exposed").sort_by(residence, "row").first().over("collective")
        cost = pl.min_horizontal("exposed", length)
        return kernels.with_columns(
            length=length,
            cost=cost,
            own=pl.when(pl.col("collective").is_null()).then(cost).otherwise(pl.min_horizontal(cost, of_last)),
            is_matched=pl.col("transfer").is_not_null(),
        )


def _judge(evidence: Evidence) -> Finding | None:
    """Devices whose NCCL kernels are exposed for much of their time."""
    kernels = evidence.meter(ExposedKernels).kernels(evidence.transfers)
    devices = _devices(kernels, evidence) if kernels is not None else []
    if kernels is None or not devices:
        return None
    kernels = kernels.filter(pl.col("device").is_in([one.device for one in devices]))
    lost, moving = cost(devices), int(kernels["length"].sum())
    waiting = int((kernels["until"] - kernels["begin"] - kernels["length"]).sum())
    text = (
        f"NCCL kernels {on_devices(devices)} run {time(moving)}, waits for the last rank left out, and in "
        f"{percent(lost / moving)} of that no other kernel runs"
        + ("" if kernels["is_matched"].all() else "; where not all ranks of a collective are known, waits are in these times")
    )
    numbers = [
        Number("NCCL kernels", kernels.height),
        Number("their time, waits for the last rank left out", moving, NANOSECONDS),
        Number("part of it beside no other kernel", lost / moving, SHARE),
        Number("their waits for the last rank", waiting, NANOSECONDS),
    ]
    own = int(kernels["own"].sum())
    active = sum(evidence.active(one.device) for one in devices)
    # Ranks that wait have nothing left to compute: with the late rank this exposure vanishes.
    is_own = own >= EXPOSED_PART.value * moving and own >= LEAST_LOST.value * active
    numbers.append(Number("of the exposed time, also exposed on the rank that arrives last", own, NANOSECONDS))
    return Finding(text, devices, numbers, follows=None if is_own else "straggler")


def _devices(kernels: pl.DataFrame, evidence: Evidence) -> Sequence[DeviceStats]:
    devices = evidence.tables["devices"]
    alone = dict(zip(devices["device"], devices["nccl_alone_ns"], strict=True))
    with_parts = kernels.with_columns(part=part_of(pl.col("begin"), evidence.length))
    found = []
    for (device,), rows in with_parts.partition_by("device", as_dict=True).items():
        exposed = rows.filter(pl.col("cost") > 0)
        if exposed.is_empty():
            continue
        by_part = exposed.group_by("part").agg(pl.col("cost").sum(), pl.col("begin").min(), pl.col("until").max())
        worst = by_part.sort("cost", "part", descending=[True, False]).row(0, named=True)
        stats = DeviceStats(
            device=int(device),
            count=exposed.height,
            # NCCL kernels that run at the same time are alone at the same time.
            cost=min(int(rows["cost"].sum()), alone[evidence.device_name(int(device))]),
            begin=int(exposed["begin"].min()),  # type: ignore[arg-type]
            end=int(exposed["until"].max()),  # type: ignore[arg-type]
            worst=(worst["begin"], worst["until"]),
            rows=tuple(sorted(exposed["row"].unique().to_list())),
        )
        if (
            rows.height >= FEWEST_KERNELS.value
            and stats.cost >= EXPOSED_PART.value * int(rows["length"].sum())
            and evidence.costs_share(stats, LEAST_LOST)
        ):
            found.append(stats)
    return sorted(found, key=lambda one: one.device)


def _without(_: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """Collectives take no time once all ranks are there."""
    return Without(without_transfers(built, [one.device for one in finding.devices]), at_most=True)


RULE = FindingRule(
    kind="exposed-communication",
    title="Exposed communication: nothing computes while NCCL kernels run",
    sees="NCCL kernels beside which no other kernel runs, without the time that they wait for the last rank",
    needs=(needs.NCCL_KERNELS,),
    cost="of each NCCL kernel the smaller one of its time beside no kernel, and the shortest duration over the ranks of its "
    "collective: the rank that arrives last waits for none",
    view="3-communication/overlap_of_communication",
    advice="Start collectives earlier and in smaller buckets, during the backward pass; prefetch parameters; overlap with "
    "independent work; less to move: gradient accumulation, compression, other parallelism.",
    thresholds=(EXPOSED_PART, FEWEST_KERNELS, LEAST_LOST),
    judge=_judge,
    without=_without,
    meters=(ExposedKernels,),
)
