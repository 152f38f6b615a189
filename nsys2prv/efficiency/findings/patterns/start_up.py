"""Long start-up: the time before the first activity of any device."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import NONE
from nsys2prv.efficiency.findings.device_stats import DeviceStats
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import AT_START
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, CAUSE_TITLES
from nsys2prv.vocabulary.wording import percent, time

KIND = "start-up"

SHORTEST = Threshold(
    "shortest time before the first activity", 250_000_000, "ns", "MPI_Init and a CUDA context take some 200 ms"
)
LEAST_LOST = Threshold("least part of E", 0.1, "0 to 1", "every run has a start")


def _judge(evidence: Evidence) -> Finding | None:
    """All devices that ever do something: the run begins when the first of them does."""
    first = min((one for one in evidence.first if one >= 0), default=-1)
    if first < SHORTEST.value or first < LEAST_LOST.value * evidence.length:
        return None
    gaps = evidence.gaps.all_gaps().filter(pl.col("cause") == AT_START).sort("part")
    devices = []
    for row in gaps.unique("device", keep="first", maintain_order=True).sort("device").iter_rows(named=True):
        host = (int(evidence.context.callers[row["top_thread"]]),) if row["top_thread"] != NONE else ()
        rows = (*((row["top_row"],) if row["top_row"] != NONE else ()), *host)
        devices.append(DeviceStats(row["device"], 1, first, 0, first, (0, first), rows))
    spent = {CAUSE_TITLES[name]: int(gaps[name].sum()) for name in CAUSE_COLUMNS}
    known = {what: lost for what, lost in sorted(spent.items(), key=lambda pair: -pair[1]) if lost}
    whole = sum(known.values())
    doing = ", ".join(f"{what} {percent(lost / whole)}" for what, lost in list(known.items())[:3])
    text = (
        f"nothing runs on any GPU in the first {time(first)} ({percent(first / evidence.length)} of the window); the threads "
        f"that launch the first work meanwhile: {doing}"
    )
    numbers = [Number("time before the first activity", first, NANOSECONDS)]
    numbers += [Number(f"of the time of the devices: {what}", lost, NANOSECONDS) for what, lost in known.items()]
    return Finding(text, devices, numbers, wall=first)


RULE = FindingRule(
    kind=KIND,
    title="Long start-up: the first work of a GPU comes late",
    sees="a long time before the first activity of any device",
    needs=(needs.FIRST_WORK,),
    cost="this time, of each device",
    view="0-start-here/host_activity",
    advice="Profile after the start (--capture-range, --delay); look at imports, reading of inputs, creation of contexts and "
    "communicators, and just-in-time compilation. In a long run it costs nothing.",
    thresholds=(SHORTEST, LEAST_LOST),
    judge=_judge,
)
