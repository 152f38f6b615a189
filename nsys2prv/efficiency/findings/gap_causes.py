"""Idle devices: gaps by length, and by cause, which is the first rule whose condition they meet.

Time in allocation calls is counted apart."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings.finding import Losses, Worst, over_parts, summed
from nsys2prv.efficiency.host_states import ASLEEP, OFF_CPU, UNSCHEDULED, WAITING
from nsys2prv.efficiency.intervals import NONE
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, CAUSE_TITLES, CLASSES_NS, GAPS, LONGEST_GAPS, idle_gaps, longest_of
from nsys2prv.errors import counted
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, time

NO_CAUSE, UNKNOWN_LAUNCH, AT_START, AT_END = -1, -2, -3, -4
"""Of a gap that no rule matches: its cause or launch is not known, or it is before the first activity, or behind the last."""
_LONG, _MOST_OF_TIME, _MOST_LONG = 0.1, 0.5, 5
"""Length of a gap against the longest one, from which on it is long, and most of all gaps that can be few; the part of the time
that few have at least; and most gaps on each device that are named as few."""
_MOST_NAMED = 3
"""Activities, and moments, that a text names at most."""
MOST_LONGEST = 200
"""Gaps that have a row each: the longest."""
_OCCURRENCE = ("device", "begin", "end", "row", "thread")
_GAP: dict[str, type[pl.DataType]] = {
    "cause": pl.Int8, "device": pl.Int32, "row": pl.Int32, "begin": pl.Int64, "end": pl.Int64, "launched": pl.Int64
}  # fmt: skip


@dataclass(frozen=True)
class GapCause:
    """The gaps that a rule counts: expressions over the columns of gaps, costs in ns.

    A gap has at most one exclusive cause: that of the first rule it matches. One that is not exclusive counts them beside
    others, but for those that it `dominates`: these are its own, also against rules before it or, with `is_last`, only where
    there is no other cause. Without `needs_launch` it is known though nobody launches what follows.
    Columns are those of `idle_gaps`, and

    - `before_kernel`, `after_kernel`, `before_copy`, `after_copy`, `before_upload`, `after_upload`, `after_download`,
      `before_page`: what follows the gap, and what ended before it; uploads are copies to the device, downloads copies to the
      host, pages those of unified memory that migrate to the host; `next_pageable`, `former_pageable`: copies of pageable
      memory;
    - `is_late`: what follows was launched after the gap had begun, so it could have run sooner;
    - `host`: time in which the launching thread is in neither CUDA nor MPI calls, ns; of that `in_os`, in calls of the OS
      runtime, and `waiting`, asleep or waiting."""

    matches: pl.Expr
    cost: pl.Expr = field(default_factory=lambda: pl.col("length") - pl.col("allocation_ns"))
    sums: Mapping[str, pl.Expr] = field(default_factory=dict)
    is_exclusive: bool = True
    dominates: pl.Expr | None = None
    is_last: bool = False
    needs_launch: bool = True


@dataclass(frozen=True)
class GapCauses(Measurement):
    """Gaps of all devices by length, and by cause for all rules that count gaps: `causes` by the kind of the rule, in the order
    in which they are tried.

    `all_gaps` are sums (`finding.summed`) by `cause` (a place in `causes`, or NO_CAUSE, UNKNOWN_LAUNCH, AT_START, AT_END),
    `device` and `part`: `count`, `cost` (their length, ns) and CAUSE_COLUMNS; `sums` those of the gaps of each rule by device
    and part. `gaps` are single ones between the first and the last activity: `cause`, `device`, `row` of the thread that
    launched what follows (-1: not known), `begin`, `end`, and when that `launched` it, ns (null: it calls nothing for it)."""

    run: MeasuredRun
    causes: Mapping[str, GapCause]
    all_gaps: pl.DataFrame
    sums: Mapping[str, pl.DataFrame]
    gaps: pl.DataFrame

    @property
    def after_start(self) -> pl.DataFrame:
        """Those of `all_gaps` that are between the first and the last activity of their device."""
        return self.all_gaps.filter(pl.col("cause") > AT_START)

    def lost_by_cause(self) -> Iterator[tuple[str | None, dict[int, int]]]:
        """Of each cause of gaps after the start: the kind of its rule (None: there is none), and the time by device, ns."""
        by_device = self.after_start.group_by("cause", "device").agg(pl.col("cost").sum()).sort("cause", "device")
        for (cause,), rows in by_device.partition_by("cause", as_dict=True, maintain_order=True).items():
            kind = tuple(self.causes)[cause] if cause >= 0 else None
            yield kind, dict(rows.select("device", "cost").iter_rows())

    def losses(self, kind: str, *, worst: Worst = "part") -> Losses:
        """What the gaps of a rule cost on each device."""
        return Losses.of_parts(self.run, self.sums[kind], tuple(self.causes[kind].sums), worst)

    def of(self, devices: Sequence[int], kind: str | None = None) -> pl.DataFrame:
        """Gaps on some devices after their first activity, of a rule (None: of any cause): columns of `gaps`."""
        is_of_rule = pl.lit(True) if kind is None else pl.col("cause") == list(self.causes).index(kind)
        return self.gaps.filter(pl.col("device").is_in(devices) & is_of_rule).cast(pl.Int64)


def gap_causes(run: MeasuredRun, causes: Mapping[str, GapCause]) -> GapCauses:
    """Gaps of all devices by cause: `causes` by the kind of their rules, in the order in which they are tried."""
    length, by_part = run.events.length, ("device", "part")
    sums_of = {kind: tuple(cause.sums) for kind, cause in causes.items()}
    gaps, all_gaps, by_class, longest_gaps = [pl.DataFrame(schema=_GAP)], [], [], []
    sums: dict[str, list[pl.DataFrame]] = {kind: [] for kind in causes}
    for block in idle_gaps(run):
        length_class = pl.Series(np.searchsorted(CLASSES_NS, block["length"].to_numpy(), side="right") - 1)
        counts = pl.len().cast(pl.Int64).alias("count"), pl.col("length", *CAUSE_COLUMNS).sum()
        by_class.append(block.group_by("device", length_class=length_class).agg(counts))
        longest_gaps.append(longest_of(block, MOST_LONGEST))
        placed = _with_cause(run, block, causes).with_columns(end="start", row=pl.col("next_row").fill_null(NONE))
        occurrences = placed.select("cause", *_OCCURRENCE, *CAUSE_COLUMNS, cost="length")
        all_gaps.append(summed([over_parts(occurrences, CAUSE_COLUMNS, length)], ("cause", *by_part), CAUSE_COLUMNS))
        after_start = placed.filter(pl.col("cause") > AT_START)
        row = pl.lit(pl.Series(run.callers)).gather(pl.when(pl.col("thread") >= 0).then("thread")).fill_null(NONE)
        gaps.append(after_start.with_columns(row=row).select(pl.col(name).cast(dtype) for name, dtype in _GAP.items()))
        for place, (kind, cause) in enumerate(causes.items()):
            is_explained = pl.col("cause") == place if cause.is_exclusive else cause.matches & (pl.col("cause") >= NO_CAUSE)
            matches = placed.lazy().filter(is_explained).select(*_OCCURRENCE, cost=cause.cost, **cause.sums).collect()
            if matches.height:
                sums[kind].append(summed([over_parts(matches, sums_of[kind], length)], by_part, sums_of[kind]))
    edges, longest = pl.lit(pl.Series([*CLASSES_NS, None], dtype=pl.Int64)), longest_of(pl.concat(longest_gaps), MOST_LONGEST)
    classes = pl.concat(by_class).group_by("device", "length_class").sum().sort("device", "length_class")
    from_ns, to_ns = edges.gather("length_class"), edges.gather(pl.col("length_class") + 1)
    tables = {
        GAPS: classes.with_columns(from_ns=from_ns, to_ns=to_ns, total_ns="length"),
        LONGEST_GAPS: longest.with_columns(
            begin_ns="begin",
            end_ns="start",
            length_ns="length",
            before=run.events.named(longest["former_number"], longest["former_value"]),
            after=run.events.named(longest["number"], longest["value"]),
            **run.names_of_threads(pl.col("thread")),
        ),
    }
    device = run.device_names(pl.col("device"))
    return GapCauses(
        run,
        causes,
        summed(all_gaps, ("cause", *by_part), CAUSE_COLUMNS),
        {kind: summed(blocks, by_part, sums_of[kind]) for kind, blocks in sums.items()},
        pl.concat(gaps),
        tables={table: frame.with_columns(device=device) for table, frame in tables.items()},
    )


def _with_cause(run: MeasuredRun, gaps: pl.DataFrame, causes: Mapping[str, GapCause]) -> pl.DataFrame:
    """Gaps with the columns that `GapCause` names, and `cause`."""
    placed = list(enumerate(causes.values()))
    dominant = [(of, pl.when(of.matches & of.dominates).then(place)) for place, of in placed if of.dominates is not None]
    before, behind = ([place for of, place in dominant if of.is_last == is_last] for is_last in (False, True))
    first = (pl.when(of.matches).then(place) for place, of in placed if of.is_exclusive)
    exclusive = pl.coalesce(*before, *first, *behind, pl.lit(NO_CAUSE))
    without_launch = [place for place, of in placed if not of.needs_launch]
    # Of gaps at the start, and of those of unknown launching threads, hardly any rule can know the cause.
    number = (
        pl.when(pl.col("number").is_null()).then(AT_END)
        .when(pl.col("former_number") == 0).then(AT_START)
        .when((pl.col("unknown_ns") > 0) & ~exclusive.is_in(without_launch)).then(UNKNOWN_LAUNCH)
        .otherwise(exclusive)
    )  # fmt: skip
    described = gaps.with_columns(**_neighbours(run), length=pl.col("start") - pl.col("begin"))
    return described.with_columns(cause=number.cast(pl.Int8))


def _neighbours(run: MeasuredRun) -> dict[str, pl.Expr]:
    is_copy, was_copy = (pl.col(name) == event_types.MEMORY_OPERATION for name in ("number", "former_number"))
    kinds = (event_types.COPY_KINDS[kind] for kind in (1, 2, 12))
    upload, download, page = (value_of(run, event_types.MEMORY_OPERATION, kind) for kind in kinds)
    return {
        "before_kernel": pl.col("number").is_in(event_types.KERNEL_TYPES),
        "after_kernel": pl.col("former_number").is_in(event_types.KERNEL_TYPES),
        "before_copy": is_copy,
        "after_copy": was_copy,
        "before_upload": is_copy & (pl.col("value") == upload),
        "after_upload": was_copy & (pl.col("former_value") == upload),
        "after_download": was_copy & (pl.col("former_value") == download),
        "before_page": is_copy & (pl.col("value") == page),
        "next_pageable": is_pageable(run, "next_"),
        "former_pageable": is_pageable(run, "former_"),
        "is_late": pl.col("launched") >= pl.col("begin"),
        "host": sum_of_states(range(ASLEEP, UNSCHEDULED + 1)),
        "in_os": sum_of_states(range(ASLEEP, OFF_CPU)),
        "waiting": sum_of_states(WAITING),
    }


def is_pageable(run: MeasuredRun, side: str = "") -> pl.Expr:
    """Whether an operation copies from or to pageable memory, by its columns `source` and `destination` behind `side`."""
    numbers = {"source": event_types.SOURCE_MEMORY, "destination": event_types.DESTINATION_MEMORY}
    pageable = {column: value_of(run, number, event_types.MEMORY_KINDS[0]) for column, number in numbers.items()}
    return pl.any_horizontal(pl.col(f"{side}{column}") == value for column, value in pageable.items())


def sum_of_states(states: Iterable[int]) -> pl.Expr:
    """Time of gaps in which the launching thread is in some states (places in `host_states.STATES`), ns."""
    return pl.sum_horizontal(CAUSE_COLUMNS[state] for state in states)


def value_of(run: MeasuredRun, number: int, label: str) -> int:
    """Value of an event type with a label; NONE: the run has none."""
    return next((value for value, text in run.events.names(number).items() if text == label), NONE)


def activities_of(times: Mapping[str, int], of_time: int) -> tuple[dict[str, int], str]:
    """What launching threads did (some of CAUSE_COLUMNS, ns), the longest first, and as a text with shares of a time."""
    titled = {CAUSE_TITLES[name]: spent for name, spent in times.items() if spent and percent(spent / of_time) != percent(0)}
    longest = dict(sorted(titled.items(), key=lambda pair: -pair[1]))
    return longest, ", ".join(f"{what} {percent(spent / of_time)}" for what, spent in list(longest.items())[:_MOST_NAMED])


def few_gaps(gaps: pl.DataFrame, losses: Losses, offset: int) -> str:
    """Which gaps (`begin`, `end`, ns) are long against the others, where few of many have most of the time, as the end of a
    text: how many, and when in the trace the first ones begin; else nothing."""
    length = pl.col("end") - pl.col("begin")
    long = gaps.filter(length >= _LONG * losses.longest["longest"]).sort("begin")
    spent, shortest = long.select(length.sum().alias("spent"), length.min().alias("shortest")).row(0)
    if long.height > min(_LONG * gaps.height, _MOST_LONG * len(losses)) or spent < _MOST_OF_TIME * losses.cost:
        return ""
    moments = ", ".join(list(dict.fromkeys(f"{(begin + offset) / 1e9:.3f}" for begin in long["begin"]))[:_MOST_NAMED])
    few = f"{counted(long.height, 'gap')} of {time(shortest)} or more"
    return f"; {percent(spent / gaps.select(length.sum()).item())} of their time is in {few}, from {moments} s on"
