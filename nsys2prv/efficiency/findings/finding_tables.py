"""The tables `findings`, `finding_devices` and `finding_numbers`, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nsys2prv.efficiency.findings.finding import Finding, Loss
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, OnPage, Table
from nsys2prv.vocabulary.wording import ranges

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
        Column.text("title", "name for people"),
        Column.text("seen", "what was observed, with its numbers, in one or two sentences"),
        Column.ns("saved_ns", "time by which the run would be shorter without it"),
        Column.text("saved_how", f"how that is known: {', '.join(f'`{how}`' for how in HOW)}"),
        Column.share("saved_share", "the same, of E"),
        Column.text("consequence_of", "kind of another finding that causes this one; null for none"),
        Column.ns(
            "cost_ns",
            "device time that it costs, summed over devices as docs/reference/findings.md defines for each rule; of a "
            "run without a GPU, time of processes",
        ),
        Column.share("share", "the cost against E n: of the time of all devices, or processes"),
        Column.count("devices", "devices that show it; they are listed in `finding_devices`"),
        Column.text(
            "device",
            "the one of them where it costs most: its node and its number there, `node01:D0`; null in a run without a GPU",
        ),
        Column.text("tasks", "processes that use that device, joined by `; `; of a run without a GPU, the process to look at"),
        Column.text("ranks", "ranks of all these devices, `0-3,7`; null where ranks are not known"),
        Column.text("rows", "names of rows of that device, or of its processes, that show it, joined by `; `"),
        Column.moment("begin_ns", "start of the first occurrence"),
        Column.moment("end_ns", "end of the last occurrence"),
        Column.moment("worst_begin_ns", "start of the place to look at: where it costs most"),
        Column.moment("worst_end_ns", "end of that place"),
        Column.text(
            "view",
            "view that shows it, a file `OUT.cfgs/VIEW.cfg` (of a view of each metric: several): a name of cfgs/views.ini",
        ),
        Column.text("advice", "what people do about it"),
    ),
    when="something that a rule of docs/reference/findings.md names",
    order=30,
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
    page=OnPage("overview", place=1),
)


@dataclass(frozen=True)
class Saved:
    """Time by which the run is shorter without a finding, ns, and one of HOW."""

    ns: int
    how: str


def finding_tables(
    findings: Sequence[tuple[FindingRule, Finding]],
    saved: Mapping[str, Saved],
    checks: Sequence[Mapping[str, str | None]],
    evidence: Evidence,
) -> Filled:
    """The tables from findings with their rules, in the order of their places; from the time that the run is shorter without
    each, by its kind; and from the rows of FINDING_CHECKS."""
    placed = [({"place": place, "kind": rule.kind}, rule, finding) for place, (rule, finding) in enumerate(findings, start=1)]
    return {
        FINDING_CHECKS: checks,
        FINDINGS: [{**key, **_finding_row(rule, finding, saved[rule.kind], evidence)} for key, rule, finding in placed],
        FINDING_DEVICES: [
            {**key, **_device_row(loss, evidence)}
            for key, _, finding in placed
            for loss in sorted(finding.losses, key=lambda loss: (-loss.cost, loss.index))
            if evidence.devices
        ],
        FINDING_NUMBERS: [
            {**key, "number": number.what, "value": float(number.value), "unit": number.unit}
            for key, _, finding in placed
            for number in finding.numbers
        ],
    }


def _finding_row(rule: FindingRule, finding: Finding, saved: Saved, evidence: Evidence) -> Mapping[str, Any]:
    rows, worst = evidence.run.events.rows, finding.worst
    ranks = evidence.ranks_of(finding.losses)
    return {
        "title": rule.title,
        "seen": finding.text,
        "saved_ns": saved.ns,
        "saved_how": saved.how,
        "saved_share": saved.ns / evidence.length if evidence.length else None,
        "consequence_of": finding.follows,
        "cost_ns": finding.losses.cost,
        "share": finding.losses.cost / (evidence.length * (evidence.devices or len(evidence.processes))),
        "devices": len(finding.losses) if evidence.devices else 0,
        "device": evidence.name(worst.index) if evidence.devices else None,
        "tasks": "; ".join(rows.tasks[task].name for task in evidence.tasks_of([worst])),
        "ranks": ranges(ranks) if ranks else None,
        "rows": "; ".join(dict.fromkeys(rows.names[row].strip() for row in worst.rows)),
        "begin_ns": min(loss.begin for loss in finding.losses),
        "end_ns": max(loss.end for loss in finding.losses),
        "worst_begin_ns": worst.worst[0],
        "worst_end_ns": worst.worst[1],
        "view": rule.view,
        "advice": rule.advice,
    }


def _device_row(loss: Loss, evidence: Evidence) -> Mapping[str, Any]:
    return {
        "device": evidence.name(loss.index),
        "count": loss.count,
        "cost_ns": loss.cost,
        "begin_ns": loss.begin,
        "end_ns": loss.end,
        "worst_begin_ns": loss.worst[0],
        "worst_end_ns": loss.worst[1],
    }
