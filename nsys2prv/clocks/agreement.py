"""How far apart ends of one collective are on the hosts, and what that says of their clocks.

All ranks end a collective at nearly the same time. Where ends of many collectives agree after clocks were aligned, the clocks
do. What remains is looked at in the order of time: ends of a host that are apart from those of the others for several
collectives in a row are an error of its clock, a single one is a rank that ended late."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import polars as pl

from nsys2prv.clocks.anchors import UNKNOWN_DRIFT, Floats, Ints, entries_of_each, running_median
from nsys2prv.clocks.sync_points import ReportClock
from nsys2prv.sources.communication.collectives import ALL
from nsys2prv.timeline.time_axis import ClockError

LEAST_UNKNOWN_DRIFT = 5e-7
"""However well the drift over the whole run is known, clocks wander with their temperature."""
ENDS_APART_NS = 15e6
"""Ends of a single collective are not further apart between hosts."""
FEW = 5
"""Collectives from which nothing better than that is concluded."""

_OUTLIER = 6.0  # An anchor that is off by more than this many times the usual is an outlier
_USUAL = 10e3  # ns; ends of a collective are usually not closer
_TIMES_NOISE, _NOISE = 1.2, 90  # Ends may be late in the same way each time, by about as much as they vary: this percentile
_OUT, _BEND = 3.0, 100e3
_ARRIVES_EARLY = pl.col("to_time") + pl.col("doubt") < pl.col("time")  # Whether a message arrives before it was sent
_OFF = 1e6  # A report that is off by more, ns, has a separate clock: no session reads the time of its start so late
_LEAST, _LEAST_OF_FEW = 20e3, 40e3  # ns: ends of collectives on the GPUs of a host are not closer, and a few of them not surely
_INSIDE_HOST_NS = 100e3  # Time stamps of GPUs of one host agree better, ns
INSIDE_HOST, MESSAGE, BETWEEN_HOSTS = "inside host", "message", "between hosts"


def deviations(collectives: pl.DataFrame) -> pl.DataFrame:
    """How far the ends on each clock are from those on the others.

    Collectives are as of `Anchors`, as placed; those that tie ranks in one direction only do not count. A row per collective
    and clock: `event`, `clock`, `communicator`, `kind`, `end`, `off` (how much later than the median of the clocks it ends,
    ns), and `is_outlier`: it is much further off than is usual for its kind."""
    off = pl.col("off").abs()
    return (
        collectives.filter(pl.col("rule") == ALL)
        .group_by("event", "clock")
        # A rank may end late because it was not running: not the latest of its host.
        .agg(pl.col("communicator", "kind").first(), pl.col("end").quantile(0.5, "lower").cast(pl.Int64))
        .filter(pl.len().over("event") > 1)
        .with_columns(off=pl.col("end") - pl.col("end").median().over("event"))
        .with_columns(is_outlier=off > _OUTLIER * off.median().over("kind").clip(lower_bound=_USUAL))
        .sort("clock", "end", "event")
    )


def count_anchors(ends: pl.DataFrame, messages: Iterable[pl.DataFrame], clocks: int) -> list[dict[str, dict[str, int]]]:
    """How many collectives (of `deviations`) and messages (as of `Anchors`, as placed) tie each of the clocks, and how many do
    not fit: `used`, `outliers` by kind. A message that arrives before it was sent is an outlier."""
    counts = [ends.group_by("clock", "kind", "is_outlier").len()]
    for part in messages:
        between = part.filter(pl.col("clock") != pl.col("to_clock")).select(
            clock=pl.concat_list("clock", "to_clock"), kind=pl.lit("messages"), is_outlier=_ARRIVES_EARLY
        )
        counts.append(between.explode("clock").group_by("clock", "kind", "is_outlier").len())
    anchors: list[dict[str, dict[str, int]]] = [{} for _ in range(clocks)]
    for clock, kind, is_outlier, count in pl.concat(counts).sort("clock", "kind").iter_rows():
        anchors[clock].setdefault(kind, {"used": 0, "outliers": 0})["outliers" if is_outlier else "used"] += count
    return anchors


def usual_variation(off: Floats) -> float:
    """How far clocks may be apart though ends vary by no more than this about their usual distance, ns."""
    return _TIMES_NOISE * float(np.percentile(np.abs(off), _NOISE))


def widths_by_ends(ends: pl.DataFrame, times: Ints, clocks: int, has_steps: bool) -> Iterator[Floats]:
    """How far each clock may be from the others that take part in the same collectives.

    `ends` are as of `deviations`, times are ns of the axis, rising: a width counts for all of the time between the neighbors of
    its time. `has_steps`: whether clocks were corrected by steps. For each communicator: (times, clocks), ns, infinite for a
    clock without such ends."""
    for _, members in ends.group_by("communicator", maintain_order=True):
        numbers, begins = np.unique(members["clock"].to_numpy(), return_index=True)
        ends_of, off_of = (np.split(members[name].to_numpy(), begins[1:]) for name in ("end", "off"))
        levels = [running_median(off) for off in off_of]
        spread = usual_variation(np.concatenate(off_of) - np.concatenate(levels))
        widths = np.full((len(times), clocks), np.inf)
        for clock, end, off, level in zip(numbers, ends_of, off_of, levels, strict=True):
            least = spread + ENDS_APART_NS * min(1.0, (FEW / len(end)) ** 4)
            # Where clocks step, a single one that is not much off may be where a slew begins or ends; else a rank was late.
            is_bend = has_steps & (np.abs(off - level) > _OUT * spread)
            bend = np.where(is_bend, np.minimum(np.abs(off), _BEND), 0)
            widths[:, clock] = _width(times, end, np.maximum(np.abs(level), bend), least)
        yield widths


def _width(times: Ints, end: Ints, off: Floats, least: float) -> Floats:
    """How far a clock may be off at times, from its ends and how far each is off; ns."""
    # From one end to the next the clock may be as far off as at either.
    around = np.max(np.lib.stride_tricks.sliding_window_view(np.pad(off, 1, mode="edge"), 3), axis=1)
    neighbors = np.pad(times, 1, mode="edge")
    first = np.maximum(np.searchsorted(end, neighbors[:-2]) - 1, 0)
    last = np.minimum(np.searchsorted(end, neighbors[2:]), len(end) - 1)
    largest = np.array([around[begin : stop + 1].max() for begin, stop in zip(first, np.maximum(first, last), strict=True)])
    following = np.searchsorted(end, times)
    nearest = np.stack([end[np.maximum(following - 1, 0)], end[np.minimum(following, len(end) - 1)]])
    drift = np.clip(2 * least / max(end[-1] - end[0], 1), LEAST_UNKNOWN_DRIFT, UNKNOWN_DRIFT)
    width: Floats = largest + least + drift * np.abs(nearest - times).min(axis=0)
    return width


def report_agreement(collectives: pl.DataFrame, clocks: Sequence[ReportClock]) -> tuple[Floats, list[int]]:
    """How far each report may be from the others of its clock, ns; and the reports that contradict the others: one of their
    ranks would have ended a collective long before another began it.

    Of hosts whose sessions tell only UTC, by collectives of ranks of the host: columns `event`, `clock`, `report`, `start`,
    `end` (ns of the rough placement), `rule`."""
    widths = np.array([clock.of_report for clock in clocks])
    event = ["event", "clock"]
    compared = (
        collectives.filter((pl.col("rule") == ALL) & pl.col("report").is_in(np.flatnonzero(widths).tolist()))
        .group_by(*event, "report")
        .agg(pl.col("end").min(), pl.col("start").max())
        .filter(pl.len().over(event) > 1)
        .select(
            "report",
            distance=pl.col("end") - pl.col("end").median().over(event),
            impossible=pl.max_horizontal(
                pl.col("start").max().over(event) - pl.col("end"), pl.col("start") - pl.col("end").min().over(event)
            ),
        )
    )
    off: list[int] = []
    for (report,), of_report in compared.group_by("report"):
        index = int(report)
        distance, impossible = (of_report[name].to_numpy().astype(np.float64) for name in ("distance", "impossible"))
        # Half of it: of two reports, both are as far from the middle.
        if np.median(impossible) > _OFF and np.median(np.abs(distance)) > _OFF / 2:
            off.append(index)
        widths[index] = max(_width_of_report(distance, widths[index]), float(impossible.max()))
    return widths, sorted(off)


def _width_of_report(distance: Floats, by_utc: float) -> float:
    """How far a report may be off its host, ns, by its ends and by UTC. A single late end is no error of a clock."""
    middle = float(np.median(distance))
    is_few = len(distance) < FEW
    varies = float(np.ptp(distance)) if is_few else usual_variation(distance - middle)
    if varies > by_utc or len(distance) == 1:
        return min(by_utc, float(np.abs(distance).min()) + _LEAST_OF_FEW) if is_few else by_utc
    return abs(middle) + max(varies, _LEAST_OF_FEW if is_few else _LEAST)


@dataclass(frozen=True)
class Disagreement:
    """What cannot be as it was placed, of one host or of two: how often, and the largest, ns.

    INSIDE_HOST, BETWEEN_HOSTS: a rank ends a collective before another one of its host, or of another host, has begun it, by
    more than what is unknown of their clocks; MESSAGE: a message arrives before it was sent. Hosts are names of clocks: one, or
    that of the sender (the rank that ended first) and that of the receiver."""

    what: str
    hosts: tuple[str, ...]
    size: float
    count: int


def check_axis(
    collectives: pl.DataFrame, messages: Iterable[pl.DataFrame], errors: Sequence[ClockError], names: Sequence[str]
) -> tuple[Disagreement, ...]:
    """What cannot be as it was placed, the largest first.

    Collectives and messages are as of `Anchors`, in time of the axis; `errors` are of the reports, `names` of the clocks."""
    disagreements = chain(_impossible(collectives, errors, names), _early_messages(messages, names))
    return tuple(sorted(disagreements, key=lambda disagreement: -disagreement.size))


def _impossible(collectives: pl.DataFrame, errors: Sequence[ClockError], names: Sequence[str]) -> Iterator[Disagreement]:
    """Of each collective the rank that surely began it last, and the one that surely ended it first: if these fit, all do."""
    of_all = collectives.filter(pl.col("rule") == ALL)
    report, end = (of_all[name].to_numpy() for name in ("report", "end"))
    of_report = np.array([error.of_report for error in errors])[report]
    of_clock = np.zeros(len(report))
    for error, entries in zip(errors, entries_of_each(report, len(errors)), strict=True):
        of_clock[entries] = error.at(end[entries])
    group = pl.Series("group", np.array([error.group for error in errors])[report])
    of_one, of_two = (INSIDE_HOST, "clock", of_report + _INSIDE_HOST_NS / 2), (BETWEEN_HOSTS, group, of_report + of_clock)
    for what, key, width in (of_one, of_two):
        beyond = (
            of_all.with_columns(begun=pl.col("start") - pl.Series(width), ended=pl.col("end") + pl.Series(width))
            .group_by("event", key)
            .agg(
                pl.col("begun").max(),
                pl.col("ended").min(),
                first=pl.col("clock").get(pl.col("ended").arg_min()),
                last=pl.col("clock").get(pl.col("begun").arg_max()),
            )
            .filter(pl.col("begun") > pl.col("ended"), (pl.col("first") == pl.col("last")) == (what == INSIDE_HOST))
            .group_by("first", "last")
            .agg(size=(pl.col("begun") - pl.col("ended")).max(), count=pl.len())
            .sort("first", "last")
        )
        for first, last, size, count in beyond.iter_rows():
            yield Disagreement(what, tuple(dict.fromkeys((names[first], names[last]))), float(size), count)


def _early_messages(messages: Iterable[pl.DataFrame], names: Sequence[str]) -> Iterator[Disagreement]:
    clocks, size = ("clock", "to_clock"), pl.col("time") - pl.col("to_time")
    early = [pl.DataFrame(schema=dict.fromkeys((*clocks, "size"), pl.Int64))]
    early += [part.filter(_ARRIVES_EARLY).select(*clocks, size=size) for part in messages]
    largest = pl.concat(early).group_by(clocks).agg(pl.col("size").max(), count=pl.len()).sort(clocks)
    for clock, to_clock, size, count in largest.iter_rows():
        yield Disagreement(MESSAGE, tuple(dict.fromkeys((names[clock], names[to_clock]))), float(size), count)
