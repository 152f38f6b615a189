"""Hardly any GPU work: devices are idle nearly all the time between their first and last activity."""

from __future__ import annotations

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import DeviceStats
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import percent, time

LARGEST_ACTIVE = Threshold(
    "largest part of E in which anything runs on the busiest device", 0.05, "0 to 1",
    "then the run is one of hosts, and other findings are about its details",
)  # fmt: skip


def _judge(evidence: Evidence) -> Finding | None:
    """All devices, where none does much."""
    table = evidence.tables["devices"]
    running = table["active_ns"].to_list()
    busiest, computing = max(running), int(table["kernels_ns"].max())  # type: ignore[arg-type]
    share = busiest / max(evidence.length, 1)
    if not busiest or share > LARGEST_ACTIVE.value:
        return None
    devices = [
        DeviceStats(device, 1, evidence.length - active, 0, evidence.length, _place(evidence, device), evidence.streams(device))
        for device, active in enumerate(running)
    ]
    text = (
        f"something runs in {time(busiest)} of {time(evidence.length)}, {percent(share)}, on the busiest of "
        f"{counted(evidence.devices, 'GPU')}, and kernels other than NCCL's in {time(computing)}; from the first to the last "
        f"activity it is {time(evidence.active_time)}"
    )
    numbers = (
        Number("part of the window in which anything runs on the busiest GPU", share, SHARE),
        Number("time in which anything runs on it", busiest, NANOSECONDS),
        Number("largest time of kernels on a GPU", computing, NANOSECONDS),
        Number("time from the first to the last activity", evidence.active_time, NANOSECONDS),
    )
    return Finding(text, devices, numbers, wall=evidence.length - busiest)


def _place(evidence: Evidence, device: int) -> tuple[int, int]:
    """Where to look: from the first to the last activity, or everywhere."""
    first, last = evidence.first[device], evidence.last[device]
    return (first, last) if first >= 0 else (0, evidence.length)


RULE = FindingRule(
    kind="little-gpu-work",
    title="Hardly any GPU work: devices are idle nearly all the time",
    sees="devices on which nothing runs for nearly all of the window",
    needs=(needs.NOTHING_ELSE,),
    cost="the idle time of each device",
    view="0-start-here/gaps",
    advice="Is this the right part of the run? If it is, the time is on the host: look at its calls and its samples, give the "
    "GPU more of the work, or use fewer GPUs.",
    thresholds=(LARGEST_ACTIVE,),
    judge=_judge,
)
