"""Unequal work: the same kernels, equally often, take longer on some devices, and it is not the device that is slow."""

from __future__ import annotations

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.patterns import slow_device
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.vocabulary.wording import percent, short, time

_MOST_DEVICES = 50
"""Devices that are listed."""


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with more work; the one with most counts."""
    more = slow_device.differing(evidence).filter(~slow_device.is_slow())
    if more.is_empty():
        return None
    worst = more.row(0, named=True)
    ratio = worst["total"] / worst["usual"]
    lost = round(worst["excess"]) * (evidence.devices - 1)
    kernel = evidence.kernel_name(worst["number"], worst["value"])
    text = (
        f"kernels on {evidence.device_name(worst['device'])} take {time(worst['total'])}, {ratio:.2f} times as long as as many "
        f"at the median of the other GPUs; {short(kernel)} takes {worst['ratio']:.2f} times as long. "
        f"{percent(worst['agreeing'])} of the other GPUs agree with each other: so it is their work, and not one slow GPU"
    )
    devices = [
        evidence.whole_device(one["device"], int(one["count"]), lost if place == 0 else 0)
        for place, one in enumerate(more.head(_MOST_DEVICES).iter_rows(named=True))
    ]
    numbers = (
        Number("GPUs with more work", more.height),
        Number("ratio of durations to the median of the others", ratio),
        Number("kernel time that was compared", worst["total"], NANOSECONDS),
        Number("the same at the median of the others", worst["usual"], NANOSECONDS),
        Number("part of it in kernels that are slower there by a like factor", worst["alike"] / worst["total"], SHARE),
        Number("part of the other GPUs that agree with each other", worst["agreeing"], SHARE),
    )
    return Finding(text, devices, numbers, wall=round(worst["excess"]))


RULE = FindingRule(
    kind="unequal-work",
    title="Unequal work: the same kernels have more to do on some devices",
    sees="kernels that all devices execute equally often, and that take longer on one than on the median of the others, where "
    "single kernels differ, or durations are spread over all devices (else it is `slow-device`)",
    needs=(needs.SEVERAL_DEVICES,),
    cost="what its kernels take longer than at the median of the others, for all others: they may have to wait for it",
    view="1-gpu-kernels/kernel_average",
    advice="Distribute the data anew: particles, rows of a sparse matrix, sequence lengths, experts. Kernels of equal grids "
    "differ by what their data make them do.",
    thresholds=(slow_device.SLOWDOWN, slow_device.AGREEMENT, slow_device.COMPARABLE, slow_device.LEAST_LOST),
    judge=_judge,
    without=slow_device.as_others,
)
