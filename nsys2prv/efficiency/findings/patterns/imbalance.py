"""Imbalance: one device has more useful work than others."""

from __future__ import annotations

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.patterns import slow_device, unequal_work
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, time

LEAST_LOST = Threshold(
    "least share lost, of n x the active time of all, beside what slow devices explain", 0.05, "0 to 1",
    "a load balance above 95 % is good",
)  # fmt: skip


def _judge(evidence: Evidence) -> Finding | None:
    """The device with most useful work; what slow devices explain is left out."""
    devices = evidence.tables["devices"]
    useful = devices["useful_ns"]
    if devices.height < 2 or not useful.max():
        return None
    most = int(useful.max())  # type: ignore[arg-type]
    known = [evidence.finding(rule) for rule in (slow_device.RULE, unequal_work.RULE)]
    # What all devices wait for costs the others as much as it is longer.
    explained = max(((one.wall or 0) * (evidence.devices - 1) for one in known if one is not None), default=0)
    lost = most * devices.height - int(useful.sum()) - explained
    if lost < LEAST_LOST.value * evidence.active_time * evidence.devices:
        return None
    mean, least = float(useful.mean()), int(useful.min())  # type: ignore[arg-type]
    largest = int(useful.arg_max() or 0)
    balance = mean / most
    text = (
        f"{devices['device'][largest]} computes {time(most)}, the {devices.height} GPUs {time(mean)} on average, and the one "
        f"with least work {time(least)}: load balance {percent(balance)}"
    )
    numbers = (
        Number("load balance", balance, SHARE),
        Number("largest useful time", most, NANOSECONDS),
        Number("mean useful time", mean, NANOSECONDS),
        Number("smallest useful time", least, NANOSECONDS),
        Number("of it explained by slow GPUs and unequal work", explained, NANOSECONDS),
    )
    wall = lost // devices.height
    return Finding(text, [evidence.whole_device(largest, 1, lost)], numbers, wall=wall)


RULE = FindingRule(
    kind="imbalance",
    title="Imbalance: one device has more useful work than others",
    sees="useful time of the device that has most of it against the mean over devices, beside what slow GPUs and unequal work "
    "explain",
    needs=(needs.SEVERAL_DEVICES,),
    cost="n max U - sum U, less that of slow GPUs and of unequal work",
    view="1-gpu-kernels/useful_time",
    advice="Distribute the work anew: sizes of parts, sequence lengths, pipeline stages, experts; use devices that are idle.",
    thresholds=(LEAST_LOST,),
    judge=_judge,
)
