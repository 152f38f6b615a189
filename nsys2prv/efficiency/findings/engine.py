"""All rules over a run that is measured: their findings, and by how much the run would be shorter without each of them.

A new rule is a declaration in a module of its theme, and a line here. What it has to measure is a meter in that module, and a
line in `meter_registry`; it asks for it by its type.

Where the graph of the run is known, it is replayed without a finding, or the critical path bounds what can be won: time that
the path does not spend on the devices and host threads of a finding can't be won back there. Else it is known from device time
alone: a graph without launches joins nothing, one of several processes without collectives and messages neither, and one whose
critical path is in threads that only wait (for what is not known) says that nothing can be won.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import communication, copies, devices, hosts, idle, launches, memory, straggler
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
    hosts.SynchronizationStalls(),
    hosts.DataLoading(),
    copies.SmallCopies(),
    launches.SmallGraphs(),
    launches.LaunchBound(),
    launches.LaunchStalls(),
    launches.FullLaunchQueue(),
    hosts.MpiWaits(),
    copies.SynchronousCopies(),
    hosts.HostBound(),
    memory.Allocations(),
    copies.PageableCopies(),
    copies.ExposedCopies(),
    memory.UnifiedMemory(),
    launches.DefaultStream(),
    communication.ExposedCommunication(),
    communication.StarvedBesideCommunication(),
    communication.HiddenCommunication(),
    communication.ContentionSlowdown(),
    devices.SlowDevice(),
    devices.UnequalWork(),
    devices.Imbalance(),
    devices.ClockThrottling(),
    devices.IdleTensorCores(),
    idle.LittleGpuWork(),
    idle.StartUp(),
    idle.ShutDown(),
    straggler.Straggler(),
    idle.IdleDevices(),
)
"""All rules for runs with GPUs. A gap counts for the first rule in this order that it matches; findings of the same cost are in
this order."""
HOST_RULES: tuple[FindingRule, ...] = (hosts.MpiStartUp(), hosts.MpiImbalance(), hosts.LateProcess())
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
    findings = {rule: finding for rule in rules if (finding := evidence.finding(rule.kind)) is not None}
    saved = _saved(findings, evidence)
    shown = [rule for rule in findings if saved[rule.kind].ns >= _least(evidence)]
    checks = [_check(rule, evidence, saved.get(rule.kind), is_shown=rule in shown) for rule in rules]
    # What follows from a finding that is not shown stands for itself.
    kinds = [rule.kind for rule in shown]
    placed = [
        (rule, finding if finding.follows in kinds else replace(finding, follows=None))
        for rule, finding in findings.items()
        if rule in shown
    ]
    # Sorting is stable: of the same cost, the earlier rule comes first.
    placed.sort(key=lambda pair: (pair[1].follows is not None, -saved[pair[0].kind].ns))
    return finding_tables(placed, saved, checks, evidence)


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


def _saved(findings: Mapping[FindingRule, Finding], evidence: Evidence) -> dict[str, Saved]:
    """By the kind of each rule that finds something: as far as the times of devices (or processes) say, and never more than the
    run; by replays without the finding, or bounded by the critical path, where that says more."""
    bound, estimate = (DEVICE_BOUND, DEVICE_ESTIMATE) if evidence.devices else (HOST_BOUND, HOST_ESTIMATE)
    saved = {
        rule.kind: Saved(min(finding.saved, evidence.length), bound if finding.is_bound else estimate)
        for rule, finding in findings.items()
    }
    path = evidence.run.measurements.get(CriticalPath)
    graph = path.graph if isinstance(path, CriticalPath) else None
    if graph is None or not _is_explained(evidence, graph):
        return saved
    costly = {rule: finding for rule, finding in findings.items() if saved[rule.kind].ns >= _least(evidence)}
    changes = {rule: rule.without(finding, evidence, graph.built) for rule, finding in costly.items()}
    steps = {rule: change.step for rule, change in changes.items() if change is not None}
    # What is less is not replayed.
    gains = dict(zip(steps, graph.gains(list(steps.values()), _least(evidence)), strict=True))
    for rule, finding in costly.items():
        change = changes[rule]
        if saved[rule.kind].how == DEVICE_ESTIMATE:
            continue
        if change is None:
            of_graph = Saved(_on_path(finding, evidence, graph), PATH_BOUND)
        else:
            of_graph = _gained(gains[rule], is_bound=change.at_most or len(graph.built.open_ends) > 0)
        # A replay counts, and of bounds the smaller one.
        if of_graph.how == BY_REPLAY or of_graph.ns <= saved[rule.kind].ns:
            saved[rule.kind] = of_graph
    return saved


def _is_explained(evidence: Evidence, graph: MeasuredGraph) -> bool:
    """Whether the graph of the run says what can be won."""
    counted = graph.totals.on_rows(graph.built.counted_rows)
    if not evidence.has_launches or counted < _LEAST_EXPLAINED * graph.totals.length:
        return False
    return len(evidence.rows.devices_of_task) == 1 or graph.joins_tasks


def _gained(gain: Gain, *, is_bound: bool) -> Saved:
    """Ranks that are not known may let others wait as they did: then a replay that ends these waits earlier is a bound."""
    if gain.is_replayed and gain.unexplained <= _MOST_UNEXPLAINED * gain.saved:
        return Saved(gain.saved, REPLAY_BOUND if is_bound else BY_REPLAY)
    return Saved(gain.saved + gain.unexplained, REPLAY_BOUND if gain.is_replayed else PATH_BOUND)


def _on_path(finding: Finding, evidence: Evidence, graph: MeasuredGraph) -> int:
    """Time of the critical path on the devices of a finding and on the threads of the tasks that use them, and where what is
    waited for is not known, ns."""
    rows, devices = evidence.rows, finding.losses.indices
    is_host = (rows.device < 0) & np.isin(rows.task, evidence.tasks_of(devices))
    is_counted = np.isin(rows.device, devices) | is_host
    return graph.totals.on_rows(is_counted) + graph.totals.unexplained(graph.built.counted_rows)
