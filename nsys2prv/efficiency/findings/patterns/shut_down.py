"""Long shut-down: the time after the last activity of any device."""

from __future__ import annotations

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import DeviceStats
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, time

SHORTEST = Threshold("shortest time after the last activity", 100_000_000, "ns", "the end of a process takes as long")
LEAST_LOST = Threshold("least part of E", 0.1, "0 to 1", "every run has an end")


def _judge(evidence: Evidence) -> Finding | None:
    """All devices that ever did something."""
    last = max(evidence.last, default=-1)
    after = evidence.length - last
    if last < 0 or after < SHORTEST.value or after < LEAST_LOST.value * evidence.length:
        return None
    devices = [
        DeviceStats(device, 1, after, last, evidence.length, (last, evidence.length), evidence.streams(device))
        for device, first in enumerate(evidence.first)
        if first >= 0
    ]
    text = f"nothing runs on any GPU in the last {time(after)} ({percent(after / evidence.length)} of the window)"
    return Finding(text, devices, (Number("time after the last activity", after, NANOSECONDS),), wall=after)


RULE = FindingRule(
    kind="shut-down",
    title="Long shut-down: nothing runs on GPUs at the end",
    sees="a long time after the last activity of any device",
    needs=(needs.LAST_WORK,),
    cost="this time, of each device",
    view="0-start-here/host_activity",
    advice="Look at output, checkpoints, and what the program does after its last work on the GPU; stop the profiler before "
    "(--capture-range). The profiler's own work at its end is in this time, too.",
    thresholds=(SHORTEST, LEAST_LOST),
    judge=_judge,
)
