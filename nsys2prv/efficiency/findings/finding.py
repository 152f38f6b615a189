"""A finding and its parts: numbers, thresholds, and what was lost on each device.

What is lost is measured as occurrences: gaps, copies, kernels, each with a begin, an end and a cost. They are summed by device
and part of the run, which says whether something recurs, where it costs most, and what devices lose at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import polars as pl

from nsys2prv.efficiency.intervals import Intervals, segments
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import quantity

PARTS = 100
"""Parts of equal length that the run is cut into, to see whether something recurs and where it costs most."""
SHARE = "0 to 1"
"""Unit of shares."""
NONE = -1
"""No row, or no thread."""
_OCCURRENCE = ("cost", "begin", "end", "row", "thread")
_TOP = [f"top_{name}" for name in _OCCURRENCE]
Worst = Literal["part", "occurrence"]
"""Where to look: the part of the run with the highest cost, or the most costly occurrence."""


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares with: what is compared, the value, why it is this, and its unit (ns, bytes, "0 to 1", or
    none). A share is one of the active time of a device, from its first to its last activity, unless `what` says otherwise."""

    what: str
    value: float
    reason: str
    unit: str = "0 to 1"


def least_share(value: float, reason: str, of: str = "") -> Threshold:
    """Threshold of the share that is lost."""
    return Threshold(f"least share lost{of}", value, reason)


@dataclass(frozen=True)
class Number:
    """A number that a finding is based on: what it is, its value and unit (ns, bytes, "0 to 1", Hz, or none). As a text it has
    its unit."""

    what: str
    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.value / 1e6:,.0f} MHz" if self.unit == "Hz" else quantity(self.value, self.unit) or f"{self.value:,}"


@dataclass(frozen=True)
class Loss:
    """What a rule measured on one device, or in one process of a run without GPUs: times in ns.

    Attributes
    ----------
    index
        Of the device; in a run without GPUs of the process.
    count, cost, longest
        Number of occurrences, what all of them cost at most, and the most costly one.
    begin, end, worst
        Of all occurrences; and begin and end of the place to look at.
    rows
        Rows of the trace that show it there; none: all streams of the device.
    parts, costs
        Parts of the run with occurrences, and where they are known the costs by part.
    sums
        Further sums of a rule.
    """

    index: int
    count: int
    cost: int
    begin: int
    end: int
    worst: tuple[int, int]
    rows: tuple[int, ...] = ()
    parts: Sequence[int] = ()
    costs: Mapping[int, int] = field(default_factory=dict)
    longest: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)


class Losses(tuple[Loss, ...]):
    """What was lost on several devices."""

    @classmethod
    def of(cls, run: MeasuredRun, occurrences: pl.DataFrame, sums: Sequence[str] = (), *, worst: Worst = "part") -> Losses:
        """What occurrences cost on each device, and no more than the time that they take together: columns as of `with_top`,
        or of `summed`."""
        placed = occurrences if "top_cost" in occurrences.columns else with_top(occurrences, run.events.length)
        by_part = summed([placed], ("device", "part"), ("count", "cost", *sums))
        return cls.of_parts(run, by_part, sums, worst).within(occurrences)

    @classmethod
    def of_parts(cls, run: MeasuredRun, by_part: pl.DataFrame, sums: Sequence[str] = (), worst: Worst = "part") -> Losses:
        """What was lost on each device, from rows of `summed` by `device` and `part` that sum `count`, `cost` and `sums`."""
        place, earliest = ("", "part") if worst == "part" else ("top_", "top_begin")
        ordered = by_part.sort("device", f"{place}cost", earliest, descending=[False, True, False])
        totals = pl.col("count", "cost", *sums).sum(), pl.col("begin").min(), pl.col("end").max()

        def loss(rows: pl.DataFrame) -> Loss:
            top, total = rows.row(0, named=True), rows.select(totals).row(0, named=True)
            return Loss(
                top["device"],
                **{name: total[name] for name in ("count", "cost", "begin", "end")},
                worst=(top[f"{place}begin"], top[f"{place}end"]),
                rows=rows_of_top(run, top),
                parts=rows.filter(pl.col("count") > 0)["part"].to_list(),
                costs=dict(rows.select("part", "cost").iter_rows()),
                longest=rows.select(pl.col("top_cost").max()).item(),
                sums=total,
            )

        return cls(map(loss, ordered.partition_by("device", maintain_order=True)))

    @classmethod
    def of_events(cls, run: MeasuredRun, events: pl.DataFrame, sums: Sequence[str] = ()) -> Losses:
        """What was lost on each device by events with a `device`, `row`, `start`, `end` and `cost` (ns; those without a cost
        don't count); all their rows show it. Further `sums`, and their number `events`, are over all events of a device."""
        if events.is_empty():
            return cls()
        costly = events.filter(pl.col("cost") > 0).select("device", "row", "cost", "end", begin="start")
        rows = dict(costly.group_by("device").agg(pl.col("row").unique().sort()).iter_rows())
        losses = cls(replace(loss, rows=tuple(rows[loss.index])) for loss in cls.of(run, costly))
        return losses.with_sums(events, pl.len().alias("events"), pl.col(sums).sum())

    def where(self, condition: Callable[[Loss], bool]) -> Losses:
        """Those that meet a condition."""
        return Losses(filter(condition, self))

    def at_most(self, limit_of: Callable[[Loss], int]) -> Losses:
        """The same, where each device loses at most its limit, ns: what is above it is taken from all parts alike."""

        def limited(loss: Loss) -> Loss:
            limit = min(limit_of(loss), loss.cost)
            # Rounded up: a part that loses anything is not without a loss.
            costs = {part: -(-cost * limit // max(loss.cost, 1)) for part, cost in loss.costs.items()}
            return replace(loss, cost=limit, costs=costs)

        return Losses(map(limited, self))

    def within(self, occurrences: pl.DataFrame) -> Losses:
        """The same, where each device loses no more than the time that occurrences take together."""
        lengths = dict(together(occurrences).group_by("device").agg(pl.col("cost").sum()).iter_rows())
        return self.at_most(lambda loss: lengths.get(loss.index, 0))

    def with_sums(self, rows: pl.DataFrame, *sums: pl.Expr) -> Losses:
        """The same with sums over rows that have a `device`."""
        totals = {device["device"]: device for device in rows.group_by("device").agg(sums).iter_rows(named=True)}
        return Losses(replace(loss, sums=totals[loss.index]) for loss in self)

    def of_devices(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that are of these devices, by their column `device`."""
        return rows.filter(pl.col("device").is_in(self.indices))

    @property
    def indices(self) -> list[int]:
        """Indices of the devices."""
        return [loss.index for loss in self]

    @property
    def worst(self) -> Loss:
        """The device with the highest cost."""
        return max(self, key=lambda loss: (loss.cost, -loss.index))

    @property
    def occurrences(self) -> int:
        """Their number on all devices."""
        return sum(loss.count for loss in self)

    @property
    def cost(self) -> int:
        """Cost on all devices, ns."""
        return sum(loss.cost for loss in self)

    def total(self, name: str) -> int:
        """One of the further sums, over devices."""
        return sum(loss.sums[name] for loss in self)

    def __str__(self) -> str:
        """The number of devices, for a sentence about them."""
        return f"on {counted(len(self), 'GPU')}"


@dataclass(frozen=True)
class Finding:
    """What a rule found.

    Attributes
    ----------
    text, numbers
        For people: what was seen, with its numbers; and all that it is based on.
    losses
        At least one device that shows it; of a run without GPUs processes.
    wall
        Time by which the run is shorter without it at most, ns; None: `saved` estimates it from the costs of devices.
    follows
        Kind of another finding that causes this one: it vanishes with that.
    is_bound
        Whether no more time can be saved than these times say; else what others wait for it was not recorded.
    at_most
        Whether a replay without it saves more than can be won in truth, because nothing of it is left in the changed run.
    """

    text: str
    losses: Losses
    numbers: Sequence[Number] = ()
    wall: int | None = None
    follows: str | None = None
    is_bound: bool = True
    at_most: bool = False

    @property
    def saved(self) -> int:
        """Time by which the run is shorter without it at most, ns, from the time of devices alone.

        Devices that lose time in the same part of the run lose it together: of each part the device counts that loses most,
        and where parts are not known, the device that loses most. It is never more than all devices lose.
        """
        if self.wall is not None:
            return min(self.wall, self.losses.cost)
        if not all(loss.costs for loss in self.losses):
            return max(loss.cost for loss in self.losses)
        highest: Counter[int] = Counter()
        for loss in self.losses:
            highest |= Counter(loss.costs)
        return min(sum(highest.values()), self.losses.cost)


# -- sums of occurrences --------------------------------------------------------------------------


def together(occurrences: pl.DataFrame) -> pl.DataFrame:
    """Times that occurrences (`device`, `begin`, `end`) take together: the same columns, and their length as `cost`, ns."""
    times = segments(Intervals.of(*(occurrences[name].to_numpy() for name in ("device", "begin", "end"))))
    busy = times.where(times.counts[0] > 0)
    return pl.DataFrame({"device": busy.group, "begin": busy.begin, "end": busy.end, "cost": busy.end - busy.begin})


def part_of(begin: pl.Expr, length: int) -> pl.Expr:
    """The part of the run, 0 to below PARTS, that holds a time; `length` is that of the run, ns."""
    return (begin * PARTS // max(length, 1)).clip(0, PARTS - 1)


def over_parts(occurrences: pl.DataFrame, sums: Sequence[str], length: int) -> pl.DataFrame:
    """Occurrences (columns of `with_top`) cut into pieces, one for each `part` of the run (`length`, ns) that they reach over,
    as `summed` needs them. Columns of `sums` count for the first piece alone; the cost is shared out by time. Few are longer
    than a part: there are few pieces.
    """
    first, last = part_of(pl.col("begin"), length).cast(pl.Int64), part_of(pl.col("end") - 1, length).cast(pl.Int64)
    placed = with_top(occurrences.with_columns(pl.col("cost", *sums).cast(pl.Int64), part=first, last=last), length)
    is_long = pl.col("last") > pl.col("part")
    pieces = placed.filter(is_long).with_columns(first="part", part=pl.int_ranges("part", pl.col("last") + 1)).explode("part")
    # The first time of a part, as `part_of` has it; of the cost what is before a time, so that pieces add up to it.
    edges = (-((max(length, 1) * -part) // PARTS) for part in (pl.col("part"), pl.col("part") + 1))
    inside = (edge.clip("begin", "end") - pl.col("begin") for edge in edges)
    # Of seconds in ns the products have more than 64 bits.
    cost, duration = pl.col("cost").cast(pl.Int128), pl.col("end") - pl.col("begin")
    before, until = ((cost * time // duration).cast(pl.Int64) for time in inside)
    is_first = pl.col("part") == pl.col("first")
    counted_once = (pl.when(is_first).then(name).otherwise(0).alias(name) for name in sums)
    pieces = pieces.with_columns(*counted_once, cost=until - before)
    return pl.concat([placed.filter(~is_long), pieces.select(placed.columns)]).drop("last")


def with_top(occurrences: pl.DataFrame, length: int) -> pl.DataFrame:
    """Occurrences in a run (`length`, ns) as `summed` needs them: with the same columns as those of the most costly one.
    Without a `row` or `thread` none is known; without a `part` it is that of `begin`, and without a `count` each is one."""
    unknown = pl.lit(NONE)
    defaults = {"row": unknown, "thread": unknown, "count": pl.lit(1), "part": part_of(pl.col("begin"), length)}
    missing = (value.alias(name) for name, value in defaults.items() if name not in occurrences.columns)
    return occurrences.with_columns(missing).with_columns(pl.col(_OCCURRENCE).name.prefix("top_"))


def summed(occurrences: Iterable[pl.DataFrame], key: Sequence[str], sums: Sequence[str]) -> pl.DataFrame:
    """Occurrences by key: the key, sums, the first `begin` and last `end`, and of the most costly occurrence `top_` cost,
    begin, end (ns), row (of the trace) and thread (a place in `MeasuredRun.callers`); sorted by the key. They come in blocks,
    of `with_top` or as this returns them. All are whole numbers.
    """
    columns = [*key, *sums, "begin", "end", *_TOP]
    blocks = [pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))]
    blocks += [block.select(pl.col(columns).cast(pl.Int64)) for block in occurrences]
    # Of several with the same cost the first counts.
    top = pl.col(_TOP).get(pl.col("top_cost").arg_max())
    ordered = pl.concat(blocks).sort("top_begin", maintain_order=True)
    return ordered.group_by(key).agg(pl.col(sums).sum(), pl.col("begin").min(), pl.col("end").max(), top).sort(key)


def rows_of_top(run: MeasuredRun, occurrence: Mapping[str, Any]) -> tuple[int, ...]:
    """Rows of the trace that show the most costly occurrence of a row of `summed`: the stream and the host thread."""
    row, thread = occurrence["top_row"], occurrence["top_thread"]
    return tuple(int(place) for place in (row, run.callers[thread] if thread != NONE else NONE) if place != NONE)
