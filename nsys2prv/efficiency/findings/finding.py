"""A finding and its parts: numbers, thresholds, and what was lost on each device.

What is lost is measured as occurrences: gaps, copies, kernels, each with a begin, an end and a cost. They are summed by device
and part of the run, which says whether something recurs, where it costs most, and what devices lose at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import polars as pl
from polars import selectors

from nsys2prv.efficiency.intervals import NONE, Spans
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.errors import counted
from nsys2prv.execution.row_order import rows_in_order
from nsys2prv.vocabulary.wording import quantity

PARTS = 100
"""Parts of equal length that the run is cut into, to see whether something recurs and where it costs most."""
SHARE = "0 to 1"
"""Unit of shares."""
_OCCURRENCE = ("cost", "begin", "end", "row", "thread")
_OF_PARTS = ["device", "part", "count", "cost"]
_TOP = [f"top_{name}" for name in _OCCURRENCE]
Worst = Literal["part", "occurrence"]
"""Where to look: the part of the run with the highest cost, or the most costly occurrence."""


class Threshold(NamedTuple):
    """A number that a rule compares with: what is compared, the value, why it is this, and its unit (ns, bytes, "0 to 1", or
    none). A share is one of the active time of a device, from its first to its last activity, unless `what` says otherwise."""

    what: str
    value: float
    reason: str
    unit: str = "0 to 1"

    @classmethod
    def least_share(cls, value: float, reason: str, of: str = "") -> Threshold:
        """That of the share that is lost."""
        return cls(f"least share lost{of}", value, reason)


class Number(NamedTuple):
    """A number that a finding is based on: what it is, its value and unit (ns, bytes, "0 to 1", Hz, or none). As a text it has
    its unit, or the noun with which it is formatted."""

    what: str
    value: float
    unit: str = ""

    def __format__(self, noun: str) -> str:
        return counted(int(self.value), noun) if noun else str(self)

    def __str__(self) -> str:
        return f"{self.value / 1e6:,.0f} MHz" if self.unit == "Hz" else quantity(self.value, self.unit) or f"{self.value:,}"


@dataclass(frozen=True)
class Losses:
    """What was lost on several devices, or in several processes of a run without GPUs: times in ns.

    `devices` has a row of each: its index (`device`, also of a process); `count` of occurrences, `cost` of all of them at most,
    and `longest`, the most costly one; `begin` and `end` of all, `worst_begin` and `worst_end` of the place to look at, and
    `rows` of the trace that show it there (none: all streams of the device); and further sums of a rule. `parts` has `count`
    and `cost` by `device` and `part` of the run; no rows where they are not known."""

    devices: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dict.fromkeys(["device", "cost"], pl.Int64)))
    parts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dict.fromkeys(_OF_PARTS, pl.Int64)))

    @classmethod
    def of(cls, run: MeasuredRun, occurrences: pl.DataFrame, sums: Sequence[str] = (), *, worst: Worst = "part") -> Losses:
        """What occurrences cost on each device, and no more than the time that they take together: columns as of `with_top`,
        or of `summed`."""
        if occurrences.is_empty():
            return cls()
        placed = occurrences if "top_cost" in occurrences.columns else with_top(occurrences, run.events.length)
        return cls.of_parts(run, summed([placed], ("device", "part"), sums), sums, worst).within(occurrences)

    @classmethod
    def of_parts(cls, run: MeasuredRun, by_part: pl.DataFrame, sums: Sequence[str] = (), worst: Worst = "part") -> Losses:
        """What was lost on each device, from rows of `summed` by `device` and `part`, with its `sums`."""
        if by_part.is_empty():
            return cls()
        place, earliest = ("", "part") if worst == "part" else ("top_", "top_begin")
        ordered = by_part.sort("device", f"{place}cost", earliest, descending=[False, True, False])
        devices = ordered.group_by("device", maintain_order=True).agg(
            pl.col("count", "cost", *sums).sum(),
            pl.col("begin").min(),
            pl.col("end").max(),
            pl.col("top_row", "top_thread").first(),
            longest=pl.col("top_cost").max(),
            worst_begin=pl.col(f"{place}begin").first(),
            worst_end=pl.col(f"{place}end").first(),
        )
        return cls(devices.with_columns(rows=rows_of_top(run)).drop("top_row", "top_thread"), by_part.select(_OF_PARTS))

    @classmethod
    def placed(cls, devices: pl.DataFrame) -> Losses:
        """Losses whose parts are not known: the place to look at is all of them, and all streams show it, if not given."""
        defaults = {"worst_begin": pl.col("begin"), "worst_end": pl.col("end"), "rows": pl.lit([], pl.List(pl.Int64))}
        devices = devices.with_columns(selectors.integer().cast(pl.Int64))
        return cls(devices.with_columns(value.alias(name) for name, value in defaults.items() if name not in devices.columns))

    @classmethod
    def of_events(cls, run: MeasuredRun, events: pl.DataFrame, sums: Sequence[str] = ()) -> Losses:
        """What was lost on each device by events with a `device`, `row`, `start`, `end` and `cost` (ns; those without a cost
        don't count); all their rows show it. Further `sums`, and their number `events`, are over all events of a device."""
        if events.is_empty():
            return cls()
        costly = events.filter(pl.col("cost") > 0).select("device", "row", "cost", "end", begin="start")
        rows = pl.col("row").unique().sort().alias("rows")
        losses = cls.of(run, costly)
        losses = replace(losses, devices=losses.devices.drop("rows", strict=False)).with_sums(costly, rows)
        return losses.with_sums(events, pl.len().alias("events"), pl.col(sums).sum())

    def where(self, condition: pl.Expr) -> Losses:
        """Those that meet a condition about columns of `devices`."""
        devices = self.devices.filter(condition)
        return Losses(devices, self.parts.join(devices, on="device", how="semi"))

    def at_most(self, limit: pl.Expr) -> Losses:
        """The same, where each device loses at most its limit, ns: what is above it is taken from all parts alike."""
        devices = self.devices.with_columns(cost=pl.min_horizontal(limit, "cost").cast(pl.Int64), lost="cost")
        parts = self.parts.join(devices.select("device", "lost", limit="cost"), on="device", how="left", maintain_order="left")
        # Rounded up: a part that loses anything is not without a loss. Of seconds in ns the products have more than 64 bits.
        scaled, lost = pl.col("cost").cast(pl.Int128) * pl.col("limit"), pl.col("lost").clip(lower_bound=1)
        cost = ((scaled + lost - 1) // lost).cast(pl.Int64)
        return Losses(devices.drop("lost"), parts.select("device", "part", "count", cost=cost))

    def within(self, occurrences: pl.DataFrame) -> Losses:
        """The same, where each device loses no more than the time that occurrences take together."""
        limited = self.with_sums(together(occurrences), pl.col("cost").sum().alias("limit"))
        limited = limited.at_most(pl.col("limit").fill_null(0))
        return replace(limited, devices=limited.devices.drop("limit"))

    def beside(self, others: Losses, name: str) -> Losses:
        """The same devices, that lose also what they lose of others: of each their sum is the column `name`, ns."""
        devices = self.with_sums(others.devices, pl.col("cost").sum().alias(name)).devices
        devices = devices.with_columns(pl.col(name).fill_null(0)).with_columns(cost=pl.col("cost") + pl.col(name))
        added = others.parts.with_columns(count=pl.lit(0, pl.Int64)).join(devices, on="device", how="semi")
        return Losses(devices, pl.concat([self.parts, added]).group_by("device", "part").sum().sort("device", "part"))

    def with_sums(self, rows: pl.DataFrame, *sums: pl.Expr) -> Losses:
        """The same with sums over rows that have a `device`."""
        totals = rows.group_by(pl.col("device").cast(pl.Int64)).agg(sums)
        return replace(self, devices=self.devices.join(totals, on="device", how="left", maintain_order="left"))

    def of_devices(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that are of these devices, by their column `device`."""
        return rows.filter(pl.col("device").is_in(self.indices))

    def __len__(self) -> int:
        return self.devices.height

    @property
    def indices(self) -> list[int]:
        """Indices of the devices."""
        return self.devices["device"].to_list()

    @property
    def worst(self) -> Mapping[str, Any]:
        """The device with the highest cost: a row of `devices`."""
        return self.devices.sort("cost", "device", descending=[True, False]).row(0, named=True)

    @property
    def longest(self) -> Mapping[str, Any]:
        """The device with the most costly occurrence: a row of `devices`."""
        return self.devices.sort("longest", "device", descending=[True, False]).row(0, named=True)

    @property
    def cost(self) -> int:
        """Cost on all devices, ns."""
        return self.total("cost")

    def total(self, name: str) -> int:
        """Sum of one of the columns over devices."""
        return int(self.devices[name].sum())

    def __str__(self) -> str:
        """The number of devices, for a sentence about them."""
        return f"on {counted(len(self), 'GPU')}"


@dataclass(frozen=True)
class Finding:
    """What a rule found: `text` says to people what was seen, with its numbers, and `numbers` are all that it is based on.

    `losses` are of at least one device that shows it (of a run without GPUs, of processes), and `wall` is the time by which the
    run is shorter without it at most, ns; None: `saved` estimates it from the costs of devices. It vanishes with another
    finding that causes it, of the kind that it `follows`. It has its own `advice` and `title` where those of the rule do not
    fit: the run does so already, or it is known better."""

    text: str
    losses: Losses
    numbers: Sequence[Number] = ()
    wall: int | None = None
    follows: str | None = None
    advice: str | None = None
    title: str | None = None

    @property
    def saved(self) -> int:
        """Time by which the run is shorter without it at most, ns, from the time of devices alone.

        Devices that lose time in the same part of the run lose it together: of each part the device counts that loses most,
        and where parts are not known, the device that loses most. It is never more than all devices lose."""
        if self.wall is not None:
            return min(self.wall, self.losses.cost)
        if self.losses.parts["device"].n_unique() < len(self.losses):
            return int(self.losses.worst["cost"])
        highest = self.losses.parts.group_by("part").agg(pl.col("cost").max())
        return min(int(highest["cost"].sum()), self.losses.cost)


def together(occurrences: pl.DataFrame) -> pl.DataFrame:
    """Times that occurrences (`device`, `begin`, `end`) take together: the same columns, and their length as `cost`, ns."""
    return costs_of(Spans(occurrences.select("device", "begin", "end")))


def costs_of(spans: Spans) -> pl.DataFrame:
    """Times of devices, each once: columns as of `together`."""
    busy = spans.merged
    return pl.DataFrame({"device": busy.group, "begin": busy.begin, "end": busy.end, "cost": busy.end - busy.begin})


def part_of(begin: pl.Expr, length: int) -> pl.Expr:
    """The part of the run, 0 to below PARTS, that holds a time; `length` is that of the run, ns."""
    return (begin * PARTS // max(length, 1)).clip(0, PARTS - 1)


def over_parts(occurrences: pl.DataFrame, sums: Sequence[str], length: int) -> pl.DataFrame:
    """Occurrences (columns of `with_top`) cut into pieces, one for each `part` of the run (`length`, ns) that they reach over,
    as `summed` needs them. `count` and columns of `sums` count for the first piece alone; the cost is shared out by time. Few
    are longer than a part: there are few pieces."""
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
    counted_once = (pl.when(is_first).then(name).otherwise(0).alias(name) for name in ("count", *sums))
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
    """Occurrences by key: the key, `count`, `cost`, further sums, the first `begin` and last `end`, and of the most costly
    occurrence `top_` cost, begin, end (ns), row (of the trace) and thread (a place in `MeasuredRun.callers`); sorted by the
    key. They come in blocks, of `with_top` or as this returns them. All are whole numbers."""
    sums = ["count", "cost", *sums]
    columns = [*key, *sums, "begin", "end", *_TOP]
    blocks = [pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))]
    blocks += [block.select(pl.col(columns).cast(pl.Int64)) for block in occurrences]
    # Of several with the same cost the first counts.
    top = pl.col(_TOP).get(pl.col("top_cost").arg_max())
    ordered = rows_in_order(pl.concat(blocks), "top_begin")
    return ordered.group_by(key).agg(pl.col(sums).sum(), pl.col("begin").min(), pl.col("end").max(), top).sort(key)


def rows_of_top(run: MeasuredRun) -> pl.Expr:
    """Rows of the trace that show the most costly occurrence of rows of `summed`: the stream and the host thread."""
    row, thread = (pl.when(pl.col(name) != NONE).then(name) for name in ("top_row", "top_thread"))
    return pl.concat_list(row, pl.lit(pl.Series(run.callers, dtype=pl.Int64)).gather(thread)).list.drop_nulls()
