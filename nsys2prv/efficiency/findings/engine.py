"""All rules over a run that is measured: their findings, and by how much the run would be shorter without each of them.

docs/efficiency.md ("Findings") says how that is known. A graph whose critical path is in threads that only wait, for what is
not known, would say that nothing can be won: it is not asked."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import communication, devices, hosts, idle, memory
from nsys2prv.efficiency.findings.finding import Finding, Losses
from nsys2prv.efficiency.findings.gap_causes import GapCauses, gap_causes
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, TEXTS, Evidence, FindingRule
from nsys2prv.efficiency.graph.path import CriticalPath, Gain, MeasuredGraph
from nsys2prv.efficiency.graph.replay import EdgeKind
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, OnPage, Table
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.vocabulary.wording import percent, ranges, time

BY_REPLAY = "by replay"
REPLAY_BOUND = "at most, by replay"
PATH_BOUND = "at most, from the critical path"
DEVICE_BOUND = "at most, from device time"
DEVICE_ESTIMATE = "about, from device time"
HOST_BOUND = "at most, from the time of processes"
HOST_ESTIMATE = "about, from the waits of processes"
HOW = (BY_REPLAY, REPLAY_BOUND, PATH_BOUND, DEVICE_BOUND, DEVICE_ESTIMATE, HOST_BOUND, HOST_ESTIMATE)
"""How the saved time of a finding is known."""

FINDINGS = Table(
    "findings",
    "Findings, those first that cost the run most time",
    "one thing that costs time; there is none where no rule finds anything",
    (
        Column.count("place", "1 for the one that costs the run most time; consequences of others come last"),
        Column.text("kind", "which rule: the names of docs/reference/findings.md"),
        Column.text("title", "name for people, and who: the device or process where it costs most, its rank and node"),
        Column.text("seen", "what was observed, with its numbers, in one or two sentences"),
        Column.ns("saved_ns", "time by which the run would be shorter without it"),
        Column.text("saved_how", f"how that is known: {', '.join(f'`{how}`' for how in HOW)}"),
        Column.share("saved_share", "the same, of E"),
        Column.text("consequence_of", "kind of another finding that causes this one; null for none"),
        Column.ns("cost_ns", "time of devices (without GPUs, of processes) that it costs, as docs/reference/findings.md says"),
        Column.share("share", "the cost against E n: of the time of all devices, or processes"),
        Column.count("devices", "devices that show it; they are listed in `finding_devices`"),
        Column.text("device", "the one of them where it costs most: node and number there, `node01:D0`; null without GPUs"),
        Column.text("tasks", "processes that use that device, joined by `; `; of a run without a GPU, the process to look at"),
        Column.text("ranks", "ranks of all these devices, `0-3,7`; null where ranks are not known"),
        Column.text("rows", "names of rows of that device, or of its processes, that show it, joined by `; `"),
        Column.moment("begin_ns", "start of the first occurrence"),
        Column.moment("end_ns", "end of the last occurrence"),
        Column.moment("worst_begin_ns", "start of the place to look at: where it costs most"),
        Column.moment("worst_end_ns", "end of that place"),
        Column.text("view", "view that shows it, a file `OUT.cfgs/VIEW.cfg` (or several of them): a name of cfgs/views.ini"),
        Column.text("advice", "what people do about it"),
    ),
    when="something that a rule of docs/reference/findings.md names",
)

FINDING_DEVICES = Table(
    "finding_devices",
    "Findings by device",
    "one device of one finding",
    (
        Column.count("place", "of the finding"),
        Column.text("kind", "of the finding"),
        DEVICE,
        Column.count("count", "number of occurrences on it"),
        Column.ns("cost_ns", "device time that it costs there at most; 0 where it costs others"),
        Column.moment("begin_ns", "start of the first occurrence there"),
        Column.moment("end_ns", "end of the last occurrence there"),
        Column.moment("worst_begin_ns", "start of the place where it costs most there"),
        Column.moment("worst_end_ns", "end of that place"),
    ),
    when="findings",
    page=OnPage("overview", cells=8_000),
)

FINDING_NUMBERS = Table(
    "finding_numbers",
    "Numbers of findings",
    "one number that a finding is based on",
    (
        Column.count("place", "of the finding"),
        Column.text("kind", "of the finding"),
        Column.text("number", "what it is"),
        Column.number("value", "its value"),
        Column.text("unit", "`ns`, `bytes`, `0 to 1`, `Hz`, or empty for counts and ratios"),
    ),
    when="findings",
)


FINDING_CHECKS = Table(
    "finding_checks",
    "What was looked for",
    "one rule",
    (
        Column.text("kind", "the rule"),
        Column.text("title", "name for people"),
        Column.text("result", "`found`, `not found` or `not decidable`"),
        Column.text("reason", "why it is not decidable, found and not shown, or can't be seen; null otherwise"),
    ),
    page=OnPage("overview"),
)

# -- rules ----------------------------------------------------------------------------------------
_MODULES = communication, devices, hosts, idle, memory


def _rules(*, of_processes: bool) -> tuple[FindingRule, ...]:
    """All rules of the modules, in the order of their texts."""
    of_modules = (name for module in _MODULES for name in vars(module).values() if isinstance(name, type))
    classes = {rule.kind: rule for rule in of_modules if issubclass(rule, FindingRule) and "kind" in vars(rule)}
    rules = (classes[kind]() for kind in TEXTS if kind in classes)
    return tuple(rule for rule in rules if rule.of_processes == of_processes)


RULES = _rules(of_processes=False)
"""All rules for runs with GPUs. A gap counts for the first rule in this order that it matches; findings of the same cost are in
this order."""
HOST_RULES = _rules(of_processes=True)
"""All rules for runs without a GPU."""

_MOST_OCCURRENCES = 5_000_000
"""Occurrences that a change of the graph takes away one by one."""
_LEAST_EXPLAINED = 0.9
"""Part of the critical path on streams, and on threads that launch work or call MPI."""
_LEAST_WHY = 0.1
"""Part of the run that a finding saves at least to say more than that GPUs do hardly anything."""
_MOST_UNEXPLAINED = 0.1
"""Waits of unknown cause on the path that stays, against what a replay saves: more may be saved, too."""
_LEAST_SURE = 0.9
"""What is saved where waits for what may keep its pace end when they did, against what a replay saves: less is a bound."""


class Saved(NamedTuple):
    """Time by which the run is shorter without a finding, ns, and one of HOW."""

    ns: int
    how: str


def gaps_by_rule(run: MeasuredRun) -> GapCauses:
    """Gaps of devices by the rules that count them."""
    return gap_causes(run, {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None})


def findings_of(run: MeasuredRun, tables: Mapping[str, pl.DataFrame]) -> Filled:
    """The tables of findings, those first that cost the run most, from the tables of the results."""
    rules = RULES if run.events.rows.devices else (*RULES, *HOST_RULES)
    evidence = Evidence(run, tables, rules)
    findings = {rule: finding for rule in rules if (finding := evidence.finding(rule.kind)) is not None}
    least = int(max(LEAST_COST.value, LEAST_SHARE.value * evidence.length))
    saved = _saved(findings, evidence, least)
    shown = {
        rule: hosts.in_program(finding, run, rule.host_times(finding, evidence))
        for rule, finding in findings.items()
        if saved[rule].ns >= least
    }
    # What follows from a finding that is not shown stands for itself.
    kinds = {rule.kind for rule in shown}
    follows = {rule: finding.follows if finding.follows in kinds else None for rule, finding in shown.items()}
    # Sorting is stable: of the same cost, the earlier rule comes first. That a GPU does little says less than why.
    has_cause = max((saved[rule].ns for rule in shown if not rule.is_summary), default=0) >= _LEAST_WHY * evidence.length
    order = sorted(shown, key=lambda rule: (follows[rule] is not None, rule.is_summary and has_cause, -saved[rule].ns))
    placed = [({"place": place, "kind": rule.kind}, rule, shown[rule]) for place, rule in enumerate(order, start=1)]
    return {
        FINDING_CHECKS: [_check(rule, evidence, saved.get(rule), is_shown=rule in shown) for rule in rules],
        FINDINGS: [
            {**key, **_finding_row(rule, finding, saved[rule], evidence), "consequence_of": follows[rule]}
            for key, rule, finding in placed
        ],
        FINDING_DEVICES: [
            {**key, "device": evidence.name(row["device"]), "count": row["count"]}
            | {f"{name}_ns": row[name] for name in ("cost", "begin", "end", "worst_begin", "worst_end")}
            for key, _, finding in placed
            for row in finding.losses.devices.sort("cost", "device", descending=[True, False]).iter_rows(named=True)
            if evidence.devices
        ],
        FINDING_NUMBERS: [
            {**key, "number": number.what, "value": float(number.value), "unit": number.unit}
            for key, _, finding in placed
            for number in finding.numbers
        ],
    }


def _finding_row(rule: FindingRule, finding: Finding, saved: Saved, evidence: Evidence) -> Mapping[str, Any]:
    rows, losses, worst = evidence.rows, finding.losses, finding.losses.worst
    shown = worst["rows"] or np.flatnonzero((rows.kind == STREAM) & (rows.device == worst["device"])).tolist()
    return {
        "title": f"{finding.title or rule.title}, {_who(losses, evidence)}",
        "seen": finding.text,
        "saved_ns": saved.ns,
        "saved_how": saved.how,
        "saved_share": saved.ns / evidence.length if evidence.length else None,
        "cost_ns": losses.cost,
        "share": losses.cost / (evidence.length * (evidence.devices or evidence.processes)),
        "devices": len(losses) if evidence.devices else 0,
        "device": evidence.name(worst["device"]) if evidence.devices else None,
        "tasks": "; ".join(rows.tasks[task].name for task in evidence.tasks_of([worst["device"]])),
        "ranks": ranges(evidence.ranks_of(losses.indices)) or None,
        "rows": "; ".join(dict.fromkeys(rows.names[row].strip() for row in shown)),
        "begin_ns": losses.devices["begin"].min(),
        "end_ns": losses.devices["end"].max(),
        "worst_begin_ns": worst["worst_begin"],
        "worst_end_ns": worst["worst_end"],
        "view": rule.view,
        "advice": finding.advice or rule.advice,
    }


def _who(losses: Losses, evidence: Evidence) -> str:
    """The device that loses most, with its ranks, or the process with its node; and how many there are."""
    worst = losses.worst["device"]
    if not evidence.devices:
        task = evidence.rows.tasks[worst]
        who = f"{task.name} on {task.node}"
    else:
        ranks = ranges(evidence.ranks_of([worst]))
        who = evidence.name(worst) + (f", rank {ranks}" if ranks else "")
    if len(losses) < 2:
        return f"on {who}"
    several = f"{len(losses):,} {'GPUs' if evidence.devices else 'processes'}"
    return f"on {several}, {'most on' if losses.devices['cost'].n_unique() > 1 else 'such as'} {who}"


def _check(rule: FindingRule, evidence: Evidence, saved: Saved | None, *, is_shown: bool) -> Mapping[str, str | None]:
    """Row of FINDING_CHECKS of a rule; `saved` without its finding, None: it finds nothing."""
    reason = evidence.missing(rule)
    result = "found" if is_shown else "not found" if reason is None else "not decidable"
    if saved is not None and not is_shown:
        reason = f"it costs {time(saved.ns)}, less than is worth a look"
    elif saved is None and reason is None:
        by_device = evidence.tables["absent_time"].select(0, *rule.parts).sum_horizontal()
        spent, shortest = max(by_device, default=0), rule.shortest
        is_much = bool(rule.parts) and sum(by_device) >= rule.least.value * evidence.length * evidence.devices
        why = "which other findings count" if is_much else "too little for a finding"
        why = f"less than {time(shortest.value)}" if shortest and spent < shortest.value else why
        taken = f"it takes {time(spent)} ({percent(spent / max(evidence.length, 1))}), {why}"
        reason = taken if spent >= LEAST_SHARE.value * evidence.length else rule.not_costly(evidence) or rule.unseen
    return {"kind": rule.kind, "title": rule.title, "result": result, "reason": reason}


# -- the time that a run is shorter without a finding ---------------------------------------------


def _saved(findings: Mapping[FindingRule, Finding], evidence: Evidence, least: int) -> dict[FindingRule, Saved]:
    """Of each rule that finds something: as far as the times of devices (or processes) say, and never more than the run; by
    replays without the finding, or bounded by the critical path, where that says more and it is at least `least`, ns."""
    bound, estimate = (DEVICE_BOUND, DEVICE_ESTIMATE) if evidence.devices else (HOST_BOUND, HOST_ESTIMATE)
    # Kernels of several processes may run beside each other: of each its own gaps are lost, too.
    is_shared = any(len(tasks) > 1 for tasks in evidence.rows.tasks_of_device.values())
    idle_at_most = evidence.length - max(evidence.tables["devices"]["kernels_ns"], default=0)
    saved = {}
    for rule, finding in findings.items():
        is_bound = rule.is_bound and not (rule.is_idle and is_shared)
        most = idle_at_most if rule.is_idle else evidence.length
        saved[rule] = Saved(min(finding.saved, most), bound if is_bound else estimate)
    path = evidence.run.measurements.get(CriticalPath)
    graph = path.graph if isinstance(path, CriticalPath) else None
    if graph is None or not _is_explained(evidence, graph):
        return saved
    costly = {rule: finding for rule, finding in findings.items() if saved[rule].ns >= least}
    steps = {
        rule: step
        for rule, finding in costly.items()
        if finding.losses.total("count") <= _MOST_OCCURRENCES and (step := rule.without(finding, evidence, graph.built))
    }
    # What is less is not replayed; waits of the graph are looked for where there is something to replay.
    gains = dict(zip(steps, graph.gains(list(steps.values()), least) if steps else [], strict=True))
    for rule, finding in costly.items():
        of_devices = saved[rule]
        if of_devices.how == DEVICE_ESTIMATE:
            continue
        if rule not in gains:
            of_graph = Saved(_on_path(finding, evidence, graph, with_hosts=not rule.is_of_kernels), PATH_BOUND)
        else:
            is_unsure = rule.keeps_pace and gains[rule].at_least < _LEAST_SURE * gains[rule].saved
            is_bound = rule.at_most or is_unsure or len(graph.built.open_ends) > 0
            of_graph = _gained(gains[rule], is_bound=is_bound)
            if not is_bound and gains[rule].is_replayed and gains[rule].saved > of_devices.ns:
                # A host that does not wait is early afterwards, too: what devices lose is no bound.
                saved[rule] = Saved(of_devices.ns, DEVICE_ESTIMATE)
        # Neither a replay nor a bound is above what devices lose.
        if of_graph.ns <= of_devices.ns:
            saved[rule] = of_graph
    return saved


def _is_explained(evidence: Evidence, graph: MeasuredGraph) -> bool:
    """Whether the graph of the run says what can be won."""
    counted = graph.totals.on_rows(graph.built.counted_rows)
    if not evidence.has_launches or counted < _LEAST_EXPLAINED * graph.totals.length:
        return False
    between_tasks = EdgeKind.ARRIVAL, EdgeKind.COLLECTIVE, EdgeKind.MESSAGE
    return len(evidence.rows.devices_of_task) == 1 or bool(np.isin(graph.built.graph.kind, between_tasks).any())


def _gained(gain: Gain, *, is_bound: bool) -> Saved:
    """Ranks that are not known may let others wait as they did: then a replay that ends these waits earlier is a bound."""
    if gain.is_replayed and gain.unexplained <= _MOST_UNEXPLAINED * gain.saved:
        return Saved(gain.saved, REPLAY_BOUND if is_bound else BY_REPLAY)
    return Saved(gain.saved + gain.unexplained, REPLAY_BOUND if gain.is_replayed else PATH_BOUND)


def _on_path(finding: Finding, evidence: Evidence, graph: MeasuredGraph, *, with_hosts: bool) -> int:
    """Time of the critical path on the devices of a finding, or also on the threads of the tasks that use them, and where what
    is waited for is not known, ns."""
    rows, devices = evidence.rows, finding.losses.indices
    is_host = with_hosts & (rows.device < 0) & np.isin(rows.task, evidence.tasks_of(devices))
    return graph.totals.on_rows(np.isin(rows.device, devices) | is_host) + graph.totals.unexplained
