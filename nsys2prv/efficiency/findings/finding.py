"""A finding, before it becomes rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from nsys2prv.efficiency.findings.aggregate import PARTS
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.efficiency.sweep import SweepContext
from nsys2prv.vocabulary.wording import ranges

NANOSECONDS, BYTES, SHARE, PLAIN, HERTZ = "ns", "bytes", "0 to 1", "", "Hz"
"""Units of numbers."""


@dataclass(frozen=True)
class OnDevice:
    """What was seen on one device.

    Attributes
    ----------
    device
        Its index.
    count, cost
        How often, and what it costs there at most, ns.
    begin, end
        When it was first and last seen, ns.
    worst
        Begin and end of the place to look at, ns.
    rows
        Rows of the trace that show it there.
    """

    device: int
    count: int
    cost: int
    begin: int
    end: int
    worst: tuple[int, int]
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Number:
    """A number that a finding rests on: what it is, its value and unit."""

    what: str
    value: float
    unit: str = PLAIN


@dataclass(frozen=True)
class Finding:
    """What a rule found.

    Attributes
    ----------
    kind
        The rule.
    seen
        What was seen, for people.
    cost
        ns of device time at most, of the whole run.
    on
        The devices that show it, at least one.
    numbers
        What it rests on.
    """

    kind: str
    seen: str
    cost: int
    on: Sequence[OnDevice]
    numbers: Sequence[Number] = ()

    @property
    def worst(self) -> OnDevice:
        """The device where it costs most."""
        return max(self.on, key=lambda one: (one.cost, -one.device))


@dataclass(frozen=True)
class Measured:
    """What rules judge beside what was measured for them: the run and its tables.

    Attributes
    ----------
    ground
        What slices share.
    tables
        Tables of the schema, in their types.
    first, last
        First begin and last end of activity of each device; -1: none.
    further
        What is no table: frames by name.
    """

    ground: SweepContext
    tables: Mapping[str, pl.DataFrame]
    first: Sequence[int]
    last: Sequence[int]
    further: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """E, ns."""
        return self.ground.recording.length

    @property
    def devices(self) -> int:
        """n."""
        return len(self.ground.recording.rows.devices)

    def name(self, device: int) -> str:
        """Name of a device."""
        return self.ground.recording.rows.devices[device].name

    def index(self, name: str) -> int:
        """Index of a device."""
        return next(index for index, one in enumerate(self.ground.recording.rows.devices) if one.name == name)

    def streams(self, device: int) -> tuple[int, ...]:
        """Rows of the streams of a device."""
        rows = self.ground.recording.rows
        return tuple(
            row for row, (kind, of) in enumerate(zip(rows.kind, rows.device, strict=True)) if kind == STREAM and of == device
        )

    def kernel(self, number: int, value: int) -> str:
        """Name of a kernel."""
        return str(self.ground.recording.named(pl.Series([number]), pl.Series([value]))[0])

    def active(self, device: int) -> int:
        """Time from the first to the last activity of a device, ns."""
        return self.last[device] - self.first[device]

    @property
    def active_time(self) -> int:
        """Time from the first to the last activity of any device, ns."""
        begins = [first for first in self.first if first >= 0]
        return max(self.last) - min(begins) if begins else 0

    def active_parts(self, device: int) -> tuple[int, int]:
        """First and last part of the run in which a device is active."""
        length = max(self.length, 1)
        return min(self.first[device] * PARTS // length, PARTS - 1), min(self.last[device] * PARTS // length, PARTS - 1)


def recurs(measured: Measured, device: int, parts: Sequence[int], least: float, least_active: float) -> bool:
    """Whether something is seen in many of the tenths of the time in which a device is active.

    Parameters
    ----------
    parts
        Parts of the run in which it is seen.
    least
        Least share of the tenths.
    least_active
        Least share of the run from the first to the last activity.
    """
    first, last = measured.active_parts(device)
    count = last - first + 1
    if count < least_active * PARTS:
        return False
    tenths = {(part - first) * 10 // count for part in parts if first <= part <= last}
    return len(tenths) >= least * 10


def as_rows(findings: Sequence[Finding], measured: Measured, texts: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables of findings, most costly first.

    Parameters
    ----------
    findings
        In any order.
    texts
        The rules by kind; those of the same cost come in this order.
    """
    rows = measured.ground.recording.rows
    order = {kind: place for place, kind in enumerate(texts)}
    ordered = sorted(findings, key=lambda one: (-one.cost, order[one.kind], one.worst.device))
    told: dict[str, list[dict[str, Any]]] = {"findings": [], "finding_devices": [], "finding_numbers": []}
    for place, one in enumerate(ordered, start=1):
        rule, worst = texts[one.kind], one.worst
        key = {"place": place, "kind": one.kind}
        tasks = [task for on in one.on for task in rows.tasks_of_device.get(on.device, ())]
        ranks = [rank for task in tasks if (rank := rows.tasks[task].rank) is not None]
        told["findings"].append(
            {
                **key,
                "title": rule.title,
                "seen": one.seen,
                "cost_ns": one.cost,
                "share": one.cost / (measured.length * measured.devices),
                "devices": len(one.on),
                "device": measured.name(worst.device),
                "tasks": "; ".join(rows.tasks[task].name for task in rows.tasks_of_device.get(worst.device, ())),
                "ranks": ranges(ranks) if ranks else None,
                "rows": "; ".join(dict.fromkeys(rows.names[row].strip() for row in worst.rows)),
                "begin_ns": min(on.begin for on in one.on),
                "end_ns": max(on.end for on in one.on),
                "worst_begin_ns": worst.worst[0],
                "worst_end_ns": worst.worst[1],
                "view": rule.view,
                "advice": rule.advice,
            }
        )
        told["finding_devices"] += [
            {
                **key,
                "device": measured.name(on.device),
                "count": on.count,
                "cost_ns": on.cost,
                "begin_ns": on.begin,
                "end_ns": on.end,
                "worst_begin_ns": on.worst[0],
                "worst_end_ns": on.worst[1],
            }
            for on in sorted(one.on, key=lambda on: (-on.cost, on.device))
        ]
        told["finding_numbers"] += [
            {**key, "number": number.what, "value": float(number.value), "unit": number.unit} for number in one.numbers
        ]
    return told
