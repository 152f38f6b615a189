"""Rules about NCCL: communication that is exposed, starved or blocks, and kernels that are slower beside it.

The rank that is in a collective for the shortest time waits least: its duration is the transfer, and what others take longer is
waiting. Durations are of one clock each, so that errors of clocks don't matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import (
    Finding,
    Losses,
    Number,
    Threshold,
    least_share,
    losses_of,
    losses_of_events,
    part_of,
)
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without
from nsys2prv.efficiency.graph.changes import scaled_kernels, without_collectives, without_gaps, without_transfers
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Elapsed, Intervals, segments
from nsys2prv.efficiency.measured_run import KERNEL, KERNEL_TYPES, NCCL, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.kernel_stats import Kernels, bar_of
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.errors import counted
from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import short, time

_MOST_NAMED = 3
_COLLECTIVES = ["communicator", "communicator_name", "operation", "placement"]


def _by_collective(kernels: pl.DataFrame, what: str) -> tuple[str, list[Number]]:
    """Costs of NCCL kernels by communicator and operation, those inside a node and over nodes apart: a text with those that
    cost most, and a number for each of them; `what` says of what."""
    costs = kernels.group_by(_COLLECTIVES).agg(pl.col("cost").sum()).filter(pl.col("cost") > 0)
    top = costs.sort("cost", *_COLLECTIVES, descending=[True, *(False for _ in _COLLECTIVES)], nulls_last=True)
    named = [
        (" ".join(filter(None, (operation, f"of {short(name)}" if name else None, placement))), lost)
        for _, name, operation, placement, lost in top.head(_MOST_NAMED).select(*_COLLECTIVES, "cost").iter_rows()
    ]
    more = top.height - len(named)
    text = ", ".join(f"{name} {time(lost)}" for name, lost in named) + (f", and {more:,} more" if more > 0 else "")
    return text, [Number.time(f"{name}: {what}", lost) for name, lost in named]


def _on_devices(kernels: pl.DataFrame, losses: Losses) -> pl.DataFrame:
    return kernels.filter(pl.col("device").is_in(losses.indices))


# -- exposed communication ------------------------------------------------------------------------

EXPOSED_PART = Threshold(
    "least part of the time of NCCL kernels, without waits, that is exposed", 0.3, "0 to 1",
    "the last bucket of a step is always exposed",
)  # fmt: skip
FEWEST_KERNELS = Threshold("fewest NCCL kernels on a device", 10, "", "few are a start: broadcasts of parameters")
LEAST_EXPOSED = least_share(0.05, "less is the normal end of a step")


def _without_waits(evidence: Evidence) -> pl.DataFrame | None:
    """NCCL kernels without their waits for the last rank; None: there are none.

    Columns `row`, `start`, `end`, `device`, `length` (duration without waits, ns), `cost` (the part of `length` that is exposed
    at most, ns), `of_last` (of `cost` what is exposed on the rank that arrives last, ns) and `is_matched` (whether the kernels
    of the other ranks are known).
    """
    kernels = evidence.measured(NcclExposure).kernels
    if kernels.is_empty():
        return None
    kernel = ["row", "start"]
    kernels = kernels.group_by(*kernel, "end", "device").agg(pl.col("exposed").sum()).filter(pl.col("device") >= 0)
    transfers = evidence.measured(Nccl).transfers.with_columns(pl.col("row").cast(kernels.schema["row"]))
    kernels = kernels.join(drop_duplicates(transfers, kernel), on=kernel, how="left")
    residence = pl.col("end") - pl.col("start")
    length = pl.min_horizontal(residence, "transfer")
    # The last rank waits for none: what it can't cover, nobody can.
    of_last = pl.col("exposed").sort_by(residence, "row").first().over("collective")
    cost = pl.min_horizontal("exposed", length)
    return kernels.with_columns(
        length=length,
        cost=cost,
        of_last=pl.when(pl.col("collective").is_null()).then(cost).otherwise(pl.min_horizontal(cost, of_last)),
        is_matched=pl.col("transfer").is_not_null(),
    )


def _exposed_communication(evidence: Evidence) -> Finding | None:
    """Devices whose NCCL kernels are exposed for much of their time."""
    kernels = _without_waits(evidence)
    losses = _exposed_devices(kernels, evidence) if kernels is not None else Losses()
    if kernels is None or not losses:
        return None
    kernels = _on_devices(kernels, losses)
    length = int(kernels["length"].sum())
    moving = Number.time("their time, waits for the last rank left out", length)
    exposed = Number.share("part of it beside no other kernel", losses.cost / length)
    waiting = int((kernels["end"] - kernels["start"] - kernels["length"]).sum())
    text = (
        f"NCCL kernels {losses} run {moving}, waits for the last rank left out, and in "
        f"{exposed} of that no other kernel runs"
        + ("" if kernels["is_matched"].all() else "; where not all ranks of a collective are known, waits are in these times")
    )
    of_last = int(kernels["of_last"].sum())
    active = sum(evidence.active(loss.index) for loss in losses)
    # Ranks that wait have nothing left to compute: with the late rank this exposure vanishes.
    is_cause = of_last >= EXPOSED_PART.value * length and of_last >= LEAST_EXPOSED.value * active
    numbers = (
        Number("NCCL kernels", kernels.height),
        moving,
        exposed,
        Number.time("their waits for the last rank", waiting),
        Number.time("of the exposed time, also exposed on the rank that arrives last", of_last),
    )
    return Finding(text, losses, numbers, follows=None if is_cause else "straggler")


def _exposed_devices(kernels: pl.DataFrame, evidence: Evidence) -> Losses:
    devices = evidence.tables["devices"]
    alone = dict(zip(devices["device"], devices["nccl_alone_ns"], strict=True))
    of_devices = kernels.group_by("device").agg(pl.len(), pl.col("length").sum()).iter_rows()
    enough = {device: EXPOSED_PART.value * length for device, count, length in of_devices if count >= FEWEST_KERNELS.value}
    # NCCL kernels that run at the same time are alone at the same time.
    losses = Losses(
        replace(loss, cost=min(loss.cost, alone[evidence.name(loss.index)]), costs={})
        for loss in losses_of_events(evidence.run, kernels)
        if loss.index in enough
    )
    return evidence.costly(losses.where(lambda loss: loss.cost >= enough[loss.index]), LEAST_EXPOSED)


EXPOSED_COMMUNICATION = FindingRule(
    kind="exposed-communication",
    title="Exposed communication: nothing computes while NCCL kernels run",
    sees="NCCL kernels beside which no other kernel runs, without the time that they wait for the last rank",
    needs=(rule.NCCL_KERNELS,),
    cost="of each NCCL kernel the smaller one of its time beside no kernel, and the shortest duration over the ranks of its "
    "collective: the rank that arrives last waits for none",
    view="3-communication/overlap_of_communication",
    advice="Start collectives earlier and in smaller buckets, during the backward pass; prefetch parameters; overlap with "
    "independent work; less to move: gradient accumulation, compression, other parallelism.",
    thresholds=(EXPOSED_PART, FEWEST_KERNELS, LEAST_EXPOSED),
    judge=_exposed_communication,
    # Collectives take no time once all ranks are there.
    without=lambda _, finding, built: Without(without_transfers(built, finding.losses.indices), at_most=True),
)

# -- exposed, and not blocking --------------------------------------------------------------------

STARVED_PART = Threshold(
    "least part of the time in which NCCL kernels run and nothing computes", 0.3, "0 to 1", "else the kernels do wait for them"
)
FEWEST_SUCH_KERNELS = Threshold("fewest such NCCL kernels on a device", 10, "", "few are a start: broadcasts of parameters")
LEAST_STARVED = least_share(0.02, "less is not worth a change of the program")


def _starved_kernels(evidence: Evidence) -> pl.DataFrame | None:
    """NCCL kernels with their `cost`: the time beside them in which the device is launch-starved."""
    exposure = evidence.measured(NcclExposure)
    starved, kernels = exposure.starved, exposure.kernels
    if starved is None or starved.is_empty() or kernels.is_empty():
        return None
    times = segments(Intervals.of(starved["device"].to_numpy(), starved["begin"].to_numpy(), starved["end"].to_numpy()))
    elapsed = Elapsed(times, (times.counts[0] > 0).astype(np.int64), 2)
    device, begin, end = (kernels[name].to_numpy().astype(np.int64) for name in ("device", "start", "end"))
    inside = elapsed.between(device, begin, end.clip(max=evidence.length))
    return kernels.with_columns(cost=pl.Series(inside[:, 1], dtype=pl.Int64))


def _starved_beside_communication(evidence: Evidence) -> Finding | None:
    kernels = _starved_kernels(evidence)
    if kernels is None:
        return None
    exposed = dict(kernels.group_by("device").agg(pl.col("exposed").sum()).iter_rows())
    starved = losses_of_events(evidence.run, kernels)
    starved = starved.where(lambda loss: loss.cost >= STARVED_PART.value * exposed.get(loss.index, 0))
    losses = evidence.costly(starved, LEAST_STARVED, FEWEST_SUCH_KERNELS, recurring=True)
    if not losses:
        return None
    of_devices = _on_devices(kernels, losses)
    of_collectives, numbers = _by_collective(of_devices, "nothing is launched beside it")
    beside = Number.time("NCCL kernels run, and nothing computes", int(of_devices["exposed"].sum()))
    part = Number.share("of it, nothing is launched", losses.cost / beside.value)
    text = (
        f"NCCL kernels {losses} run for {beside} while nothing computes; for {time(losses.cost)} of it "
        f"({part}) no kernel that could run beside them is launched, and the host does not wait for the "
        f"device: {of_collectives}. A faster network would not win that"
    )
    return Finding(text, losses, (beside, part, *numbers))


def _launched_beside(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
    """Launching threads take no time while devices are starved."""
    starved = evidence.measured(NcclExposure).starved
    return (
        None
        if starved is None
        else Without(without_gaps(built, starved.filter(pl.col("device").is_in(finding.losses.indices))))
    )


STARVED_BESIDE_COMMUNICATION = FindingRule(
    kind="starved-beside-communication",
    title="Exposed, but not blocking: collectives run, and the next kernel is not launched",
    sees="time in which NCCL kernels run, nothing computes, and the next compute kernel is not launched yet, while its thread "
    "neither waits for the device nor copies, allocates or calls MPI; by communicator and operation",
    needs=(rule.CUDA_CALLS, rule.NCCL_KERNELS),
    cost="that time; where several NCCL kernels run at once it counts for each of their collectives, and once for the device "
    "in the time that is saved",
    view="3-communication/overlap_of_communication",
    advice="Launch what does not need the result before it is needed, from the same or another thread: no work of the host "
    "between the collective and the next kernel, CUDA graphs, prefetching of batches. The collective itself is not what "
    "costs time.",
    thresholds=(STARVED_PART, FEWEST_SUCH_KERNELS, LEAST_STARVED),
    judge=_starved_beside_communication,
    without=_launched_beside,
)

# -- hidden, and blocking -------------------------------------------------------------------------

LEAST_BLOCKING = Threshold("least share of such time", 0.02, "0 to 1", "less is not worth a change of the program")


def _hidden_kernels(evidence: Evidence) -> pl.DataFrame:
    """NCCL kernels that are waited for while others hide them; the `cost` is how long."""
    kernels = evidence.measured(NcclExposure).kernels
    return kernels.with_columns(cost="hidden_wait") if kernels.height else kernels


def _hidden_communication(evidence: Evidence) -> Finding | None:
    kernels = _hidden_kernels(evidence)
    if kernels.is_empty():
        return None
    hidden = losses_of_events(evidence.run, kernels)
    losses = evidence.costly(hidden, LEAST_BLOCKING, FEWEST_SUCH_KERNELS, recurring=True)
    if not losses:
        return None
    of_collectives, numbers = _by_collective(_on_devices(kernels, losses), "hidden, and waited for")
    lost = Number.time("launched kernels wait for hidden NCCL kernels", losses.cost)
    text = (
        f"{losses.occurrences:,} NCCL kernels {losses} run beside kernels that hide them, and others, which are "
        f"launched, wait for them for {lost}: {of_collectives}. They could run beside what hides the collective"
    )
    return Finding(text, losses, (lost, *numbers))


def _no_hidden_collectives(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """These collectives take no time once all ranks are there."""
    kernels = _on_devices(_hidden_kernels(evidence), finding.losses).filter(pl.col("cost") > 0)
    return Without(without_collectives(built, kernels.select("end", begin="start", group="row")), at_most=True)


HIDDEN_COMMUNICATION = FindingRule(
    kind="hidden-communication",
    title="Hidden, but blocking: launched kernels wait for collectives that others hide",
    sees="NCCL kernels beside which compute kernels run, while another compute kernel is launched and waits for them, next in "
    "its stream or by an event; by communicator and operation",
    needs=(rule.CUDA_CALLS, rule.NCCL_KERNELS),
    cost="of each such NCCL kernel the time from when it alone is waited for, as far as other kernels run beside it; saved is "
    "what a replay gains in which these collectives take no time once all ranks are there",
    view="3-communication/overlap_of_communication",
    advice="The overlap only looks complete: put what does not need the collective before what does, on another stream; start "
    "the collective earlier, in smaller pieces, or with higher priority of its stream.",
    thresholds=(FEWEST_SUCH_KERNELS, LEAST_BLOCKING),
    judge=_hidden_communication,
    without=_no_hidden_collectives,
)

# -- kernels that are slower beside NCCL kernels --------------------------------------------------

SLOWDOWN = Threshold(
    "least ratio of the durations beside and alone (means)", 1.2, "", "sharing the GPU always costs some percent"
)
FEWEST_EXECUTIONS = Threshold("fewest executions alone, and beside NCCL kernels", 20, "", "means of fewer are chance")
SEPARATION = Threshold(
    "least part of the executions, alone and beside, on their side of the middle (geometric mean of the means)", 0.9, "0 to 1",
    "only then NCCL kernels explain the durations, and not the work",
)  # fmt: skip
LEAST_SLOWED = least_share(0.01, "less is not worth a look")

_WORK = ["value", "former"]
_BARS = 8
"""Bars of a doubling, as in the histograms of kernels."""


@dataclass(frozen=True)
class NcclContention(Measurement):
    """Kernels whose durations beside NCCL kernels are clearly above those alone.

    The same kernel after the same kernel of its stream most likely does the same work, so that its durations, alone and beside
    NCCL kernels, can be compared.

    Attributes
    ----------
    slowed
        Such work, what loses most first: `value` of the kernel and of the `former` one, `executions`, `beside` and `alone`
        (executions), `beside_mean`, `alone_mean` (ns), `lost` (ns), and others.
    losses
        On each device what executions beside NCCL kernels take longer than the mean alone.
    """

    slowed: pl.DataFrame
    losses: Losses


def nccl_contention(run: MeasuredRun) -> NcclContention:
    """Durations of kernels, alone and beside NCCL kernels. A run without NCCL kernels is not measured."""
    executions = _executions(run)
    slowed = _slowed(executions)
    return NcclContention(slowed, _losses(run, executions, slowed))


def _executions(run: MeasuredRun) -> pl.DataFrame:
    """Kernels beside which no other compute kernel runs: `device`, `start`, `length`, `value`, `former` (that of the kernel
    before it on its row; 0: none), and whether it starts beside an NCCL kernel (`is_beside`)."""
    has_nccl = event_types.NCCL_KERNEL in run.events.types
    kernels = run.operations.filter(pl.col("number").is_in(KERNEL_TYPES if has_nccl else ())).select(
        "row",
        "start",
        pl.col("value").cast(pl.Int32),
        length=pl.col("end") - pl.col("start"),
        is_kernel=pl.col("number") == event_types.KERNEL,
    )
    device = pl.lit(pl.Series(run.events.rows.device, dtype=pl.Int32)).gather("row")
    # Operations are in the order of time: so are those of a row.
    kernels = kernels.with_columns(device=device, former=pl.col("value").shift(1, fill_value=0).over("row"))
    kernels = kernels.filter(pl.col("is_kernel") & (pl.col("device") >= 0)).drop("row", "is_kernel")
    place = run.on_devices.place(kernels["device"].to_numpy().astype(np.int64), kernels["start"].to_numpy())
    counts = run.on_devices.counts
    # Several compute kernels at once are left out: together they may well be faster.
    is_alone = (place >= 0) & (counts[KERNEL][place] == 1)
    return kernels.with_columns(is_beside=pl.Series(counts[NCCL][place] > 0)).filter(pl.Series(is_alone))


def _slowed(executions: pl.DataFrame) -> pl.DataFrame:
    """Columns of `NcclContention.slowed`."""
    is_beside, count = pl.col("is_beside"), pl.col("count")
    durations = executions.group_by(*_WORK, "is_beside", bar=bar_of(pl.col("length"))).agg(
        count=pl.len().cast(pl.Int64), length=pl.col("length").sum()
    )
    beside, alone = count.filter(is_beside).sum(), count.filter(~is_beside).sum()
    means = (
        durations.group_by(_WORK)
        .agg(
            executions=count.sum(),
            beside=beside,
            alone=alone,
            beside_mean=pl.col("length").filter(is_beside).sum() / beside,
            alone_mean=pl.col("length").filter(~is_beside).sum() / alone,
        )
        .filter(pl.min_horizontal("beside", "alone") >= FEWEST_EXECUTIONS.value)
        .filter(pl.col("beside_mean") >= SLOWDOWN.value * pl.col("alone_mean"))
    )
    middle = ((pl.col("beside_mean") * pl.col("alone_mean")).log(2) / 2 * _BARS).floor()
    is_separate = pl.when(is_beside).then(pl.col("bar") >= middle).otherwise(pl.col("bar") <= middle)
    separate = durations.join(means, on=_WORK, how="inner").filter(is_separate)
    of_beside, of_alone = (count.filter(which).sum() for which in (is_beside, ~is_beside))
    separate = separate.group_by(_WORK).agg(of_beside=of_beside, of_alone=of_alone)
    least = SEPARATION.value
    slowed = means.join(separate, on=_WORK, how="inner").filter(
        (pl.col("of_beside") >= least * pl.col("beside")) & (pl.col("of_alone") >= least * pl.col("alone"))
    )
    lost = (pl.col("beside_mean") - pl.col("alone_mean")) * pl.col("beside")
    return slowed.with_columns(lost=lost).sort("lost", *_WORK, descending=[True, False, False])


def _losses(run: MeasuredRun, executions: pl.DataFrame, slowed: pl.DataFrame) -> Losses:
    """What executions of slowed work beside NCCL kernels lose on each device."""
    extra = (pl.col("length").sum() - pl.col("alone_mean").first() * pl.len()).round().cast(pl.Int64).clip(lower_bound=0)
    costs = (
        executions.filter("is_beside")
        .join(slowed.select(*_WORK, "alone_mean"), on=_WORK, how="inner")
        .group_by(*_WORK, "device", part=part_of(pl.col("start"), run.events.length))
        .agg(count=pl.len(), cost=extra, begin=pl.col("start").min(), end=(pl.col("start") + pl.col("length")).max())
    )
    return losses_of(run, costs)


def _contention_slowdown(evidence: Evidence) -> Finding | None:
    """Devices with slowed kernels."""
    contention = evidence.measured(NcclContention)
    costly = evidence.costly(contention.losses, LEAST_SLOWED)
    losses = Losses(replace(loss, rows=evidence.streams(loss.index)) for loss in costly)
    if not losses:
        return None
    first = contention.slowed.row(0, named=True)
    name = evidence.kernel_name(event_types.KERNEL, first["value"])
    kernels = contention.slowed["value"].n_unique()
    alone = Number.time("mean duration alone, of the kernel that loses most", first["alone_mean"])
    beside = Number.time("mean duration beside NCCL kernels", first["beside_mean"])
    part = Number.share("part of its executions beside NCCL kernels", first["beside"] / first["executions"])
    text = (
        f"{counted(kernels, 'kernel')} {losses}: {short(name)} takes {beside} when an NCCL "
        f"kernel runs as it starts and {alone} otherwise ({part} of "
        f"{first['executions']:,} executions are beside NCCL kernels)"
    )
    numbers = (Number("kernels with a slowdown", kernels), Number("executions beside NCCL kernels", losses.occurrences))
    return Finding(text, losses, (*numbers, alone, beside, part))


def _as_alone(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """The slowed kernels take less by what they lose: each device's loss is shared out by their time."""
    slowed = evidence.measured(NcclContention).slowed.select(pl.col("value").cast(pl.Int64)).unique()
    lost = pl.DataFrame([(loss.index, loss.cost) for loss in finding.losses], schema=["device", "lost"], orient="row")
    kernels = (
        evidence.measured(Kernels)
        .by_device.filter(pl.col("number") == event_types.KERNEL)
        .with_columns(pl.col("value", "device").cast(pl.Int64))
        .join(slowed, on="value", how="semi")
        .join(lost, on="device", how="inner")
    )
    factor = 1 - pl.col("lost") / pl.col("total").sum().over("device")
    return Without(scaled_kernels(built, kernels.with_columns(factor=factor)))


CONTENTION_SLOWDOWN = FindingRule(
    kind="contention-slowdown",
    title="Contention slowdown: kernels are slower beside communication",
    sees="kernels that, after the same kernel of their stream, take clearly longer when an NCCL kernel runs as they start than "
    "when nothing else does",
    needs=(rule.NCCL_KERNELS,),
    cost="executions beside NCCL kernels x difference of the means",
    view="1-gpu-kernels/kernel_durations",
    advice="Overlap costs multiprocessors and bandwidth: fewer NCCL channels (NCCL_MAX_CTAS), transfers by copy engines, other "
    "points in time for collectives; compare with the time that overlap saves.",
    thresholds=(SLOWDOWN, FEWEST_EXECUTIONS, SEPARATION, LEAST_SLOWED),
    judge=_contention_slowdown,
    without=_as_alone,
)
