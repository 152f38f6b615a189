"""All rules over a run that is measured: their findings, and by how much the run would be shorter without each of them.

A new rule is a declaration in a module of its theme, and a line here. What it has to measure is a meter in that module, and a
line in `meter_registry`; it asks for it by its type.

Where the graph of the run is known, it is replayed without a finding, or the critical path bounds what can be won: time that
the path does not spend on the devices and host threads of a finding can't be won back there. Else it is known from device time
alone: a graph without launches joins nothing, one of several processes without collectives and messages neither, and one whose
critical path is in threads that only wait (for what is not known) says that nothing can be won.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import (
    communication,
    copies,
    devices,
    hosts,
    idle,
    launches,
    memory,
    straggler,
)
from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.finding_tables import (
    BY_REPLAY,
    DEVICE_BOUND,
    DEVICE_ESTIMATE,
    HOST_BOUND,
    HOST_ESTIMATE,
    PATH_BOUND,
    REPLAY_BOUND,
    Saved,
    finding_tables,
)
from nsys2prv.efficiency.findings.gap_causes import GapCauses, gap_causes
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, Evidence, FindingRule
from nsys2prv.efficiency.graph.path import CriticalPath, Gain, MeasuredGraph
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.vocabulary.wording import time

RULES: tuple[FindingRule, ...] = (
    hosts.SYNCHRONIZATION_STALLS,
    hosts.DATA_LOADING,
    copies.SMALL_COPIES,
    launches.SMALL_GRAPHS,
    launches.LAUNCH_BOUND,
    launches.LAUNCH_STALLS,
    launches.FULL_QUEUE,
    hosts.MPI_WAITS,
    copies.SYNCHRONOUS_COPIES,
    hosts.HOST_BOUND,
    memory.ALLOCATIONS,
    copies.PAGEABLE_COPIES,
    copies.EXPOSED_COPIES,
    memory.UNIFIED_MEMORY,
    launches.DEFAULT_STREAM_WAITS,
    communication.EXPOSED_COMMUNICATION,
    communication.STARVED_BESIDE_COMMUNICATION,
    communication.HIDDEN_COMMUNICATION,
    communication.CONTENTION_SLOWDOWN,
    devices.SLOW_DEVICE,
    devices.UNEQUAL_WORK,
    devices.IMBALANCE,
    devices.CLOCK_THROTTLING,
    devices.IDLE_TENSOR_CORES,
    idle.LITTLE_GPU_WORK,
    idle.START_UP,
    idle.SHUT_DOWN,
    straggler.STRAGGLER,
    idle.IDLE_DEVICES,
)
"""All rules for runs with GPUs. A gap counts for the first rule in this order that it matches; findings of the same cost are in
this order."""
HOST_RULES: tuple[FindingRule, ...] = (hosts.MPI_START_UP, hosts.MPI_IMBALANCE, hosts.LATE_PROCESS)
"""All rules for runs without a GPU."""

_LEAST_EXPLAINED = 0.9
"""Part of the critical path on streams, and on threads that launch work or call MPI."""
_MOST_UNEXPLAINED = 0.1
"""Waits of unknown cause on the path that stays, against what a replay saves: more may be saved, too."""


def gaps_by_rule(run: MeasuredRun) -> GapCauses:
    """Gaps of devices by the rules that count them."""
    return gap_causes(run, {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None})


def findings_of(run: MeasuredRun, tables: Mapping[str, pl.DataFrame]) -> Filled:
    """The tables of findings, those first that cost the run most.

    Parameters
    ----------
    tables
        Of the results.
    """
    rules = RULES if run.events.rows.devices else (*RULES, *HOST_RULES)
    evidence = Evidence(run, tables, rules)
    path = run.measurements.get(CriticalPath)
    findings = [(rule, finding) for rule in rules if (finding := evidence.finding(rule.kind)) is not None]
    saved = _saved(findings, evidence, path.graph if isinstance(path, CriticalPath) else None)
    shown = {rule.kind for rule, _ in findings if saved[rule.kind].ns >= _least(evidence)}
    checks = [_check(rule, evidence, saved.get(rule.kind), is_shown=rule.kind in shown) for rule in rules]
    # What follows from a finding that is not shown stands for itself.
    findings = [
        (rule, finding if finding.follows in shown else replace(finding, follows=None))
        for rule, finding in findings
        if rule.kind in shown
    ]
    # Sorting is stable: of the same cost, the earlier rule comes first.
    findings.sort(key=lambda pair: (pair[1].follows is not None, -saved[pair[0].kind].ns))
    return finding_tables(findings, saved, checks, evidence)


def _check(rule: FindingRule, evidence: Evidence, saved: Saved | None, *, is_shown: bool) -> Mapping[str, str | None]:
    """Row of FINDING_CHECKS of a rule; `saved` without its finding, None: it finds nothing."""
    reason = evidence.missing(rule)
    result = "found" if is_shown else "not found" if reason is None else "not decidable"
    if saved is not None and not is_shown:
        reason = f"it costs {time(saved.ns)}, less than is worth a look"
    elif saved is None and reason is None:
        reason = rule.unseen
    return {"kind": rule.kind, "title": rule.title, "result": result, "reason": reason}


def _least(evidence: Evidence) -> int:
    """Time that a finding saves at least."""
    return int(max(LEAST_COST.value, LEAST_SHARE.value * evidence.length))


# -- the time that a run is shorter without a finding ---------------------------------------------


def _saved(
    findings: Sequence[tuple[FindingRule, Finding]], evidence: Evidence, graph: MeasuredGraph | None
) -> dict[str, Saved]:
    """Of each rule that finds something: the time by which the run would be shorter."""
    saved = {rule.kind: _from_devices(finding, evidence) for rule, finding in findings}
    if graph is not None and _is_explained(evidence, graph):
        costly = [(rule, finding) for rule, finding in findings if saved[rule.kind].ns >= _least(evidence)]
        saved |= _from_graph(costly, saved, evidence, graph)
    return saved


def _from_devices(finding: Finding, evidence: Evidence) -> Saved:
    """As far as the times of devices (or processes) say: never more than the run."""
    bound, estimate = (DEVICE_BOUND, DEVICE_ESTIMATE) if evidence.devices else (HOST_BOUND, HOST_ESTIMATE)
    return Saved(min(finding.saved, evidence.length), bound if finding.is_bound else estimate)


def _is_explained(evidence: Evidence, graph: MeasuredGraph) -> bool:
    """Whether the graph of the run says what can be won."""
    counted = graph.totals.on_rows(graph.built.counted_rows)
    if not evidence.has_launches or counted < _LEAST_EXPLAINED * graph.totals.length:
        return False
    return len(evidence.run.events.rows.devices_of_task) == 1 or graph.joins_tasks


def _from_graph(
    findings: Sequence[tuple[FindingRule, Finding]],
    from_devices: Mapping[str, Saved],
    evidence: Evidence,
    graph: MeasuredGraph,
) -> dict[str, Saved]:
    """The same by replays without the findings, or bounded by the critical path, where that says more than devices."""
    changes = {
        rule.kind: rule.without(evidence, finding, graph.built) for rule, finding in findings if rule.without is not None
    }
    steps = {kind: change.step for kind, change in changes.items() if change is not None}
    # What is less is not replayed.
    gains = dict(zip(steps, graph.gains(list(steps.values()), _least(evidence)), strict=True))
    saved = {}
    for rule, finding in findings:
        change = changes.get(rule.kind)
        if change is None:
            of_graph = Saved(_on_path(finding, evidence, graph), PATH_BOUND)
        else:
            of_graph = _gained(gains[rule.kind], is_bound=change.at_most or len(graph.built.open_ends) > 0)
        saved[rule.kind] = _smaller(from_devices[rule.kind], of_graph)
    return saved


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
    rows = evidence.run.events.rows
    is_host = (rows.device < 0) & np.isin(rows.task, evidence.tasks_of(finding.losses))
    is_counted = np.isin(rows.device, finding.losses.indices) | is_host
    return graph.totals.on_rows(is_counted) + graph.totals.unexplained(graph.built.counted_rows)
