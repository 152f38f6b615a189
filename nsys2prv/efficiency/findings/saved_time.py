"""By how much the run would be shorter without each finding.

Where the graph of the run is known, it is replayed without the finding, or the critical path bounds what can be won: time that
the path does not spend on the devices and host threads of a finding can't be won back there. Else it is known from device time
alone: a graph without launches joins nothing, one of several processes without collectives and messages neither, and one whose
critical path is in threads that only wait (for what is not known) says that nothing can be won.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.efficiency.graph.path import Gain, MeasuredGraph

BY_REPLAY = "by replay"
REPLAY_BOUND = "at most, by replay"
PATH_BOUND = "at most, from the critical path"
DEVICE_BOUND = "at most, from device time"
DEVICE_ESTIMATE = "about, from device time"
HOST_BOUND = "at most, from the time of processes"
HOST_ESTIMATE = "about, from the waits of processes"
_LEAST_EXPLAINED = 0.9
"""Part of the critical path on streams, and on threads that launch work or call MPI."""
_MOST_UNEXPLAINED = 0.1
"""Waits of unknown cause on the path that stays, against what a replay saves: more may be saved, too."""
HOW = (BY_REPLAY, REPLAY_BOUND, PATH_BOUND, DEVICE_BOUND, DEVICE_ESTIMATE, HOST_BOUND, HOST_ESTIMATE)
"""How the saved time of a finding is known."""


@dataclass(frozen=True)
class Saved:
    """Time by which the run is shorter without a finding, ns, and one of HOW."""

    ns: int
    how: str


def from_devices(finding: Finding, evidence: Evidence) -> Saved:
    """As far as the times of devices say: never more than the run."""
    return Saved(min(finding.saved, evidence.length), DEVICE_BOUND if finding.is_bound else DEVICE_ESTIMATE)


def is_explained(evidence: Evidence, graph: MeasuredGraph) -> bool:
    """Whether the graph of the run says what can be won."""
    counted = graph.totals.on_rows(graph.built.counted_rows)
    if not evidence.has_launches or counted < _LEAST_EXPLAINED * graph.totals.length:
        return False
    return len(evidence.context.events.rows.devices_of_task) == 1 or graph.joins_tasks


def from_graph(
    found: Sequence[tuple[FindingRule, Finding]], evidence: Evidence, graph: MeasuredGraph, least: int
) -> list[Saved]:
    """The saved time of each finding; what is less than `least` is not replayed."""
    changes = [rule.without(evidence, finding, graph.built) if rule.without is not None else None for rule, finding in found]
    gains = iter(graph.gains([one.step for one in changes if one is not None], least))
    return [
        _smaller(
            from_devices(finding, evidence),
            Saved(_on_path(finding, evidence, graph), PATH_BOUND)
            if change is None
            else _gained(next(gains), is_bound=change.at_most or len(graph.built.open_ends) > 0),
        )
        for (_, finding), change in zip(found, changes, strict=True)
    ]


def _gained(gain: Gain, *, is_bound: bool) -> Saved:
    """Ranks that are not known may let others wait as they did: then a replay that ends these waits earlier is a bound."""
    if gain.is_replayed and gain.unexplained <= _MOST_UNEXPLAINED * gain.saved:
        return Saved(gain.saved, REPLAY_BOUND if is_bound else BY_REPLAY)
    return Saved(gain.saved + gain.unexplained, REPLAY_BOUND if gain.is_replayed else PATH_BOUND)


def _smaller(of_devices: Saved, of_graph: Saved) -> Saved:
    """A replay counts, and of bounds the smaller one."""
    if of_devices.how == DEVICE_ESTIMATE:
        return of_devices
    return of_graph if of_graph.how == BY_REPLAY or of_graph.ns <= of_devices.ns else of_devices


def _on_path(finding: Finding, evidence: Evidence, graph: MeasuredGraph) -> int:
    """Time of the critical path on the devices of a finding and on the threads of the tasks that use them, and where what is
    waited for is not known, ns."""
    rows = evidence.context.events.rows
    own = np.isin(rows.device, [one.device for one in finding.devices]) | (
        (rows.device < 0) & np.isin(rows.task, evidence.tasks_of(finding.devices))
    )
    return graph.totals.on_rows(own) + graph.totals.unexplained(graph.built.counted_rows)
