"""What holds for any reports: each function translates or measures them in two ways and compares."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl
from polars.testing import assert_frame_equal

import nsys2prv as np
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import NothingToMeasure, NothingToTranslate
from nsys2prv.paraver.blocks import is_interval
from nsys2prv.run.options import ReadOptions, TimeRange
from nsys2prv.sources.registry import SOURCES, type_of
from nsys2prv.timeline.labels import readable
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.event_types import Role
from support.export_folders import tables_of, write_arrow_report, write_parquet_report
from support.shifted_exports import shift_export
from support.whole_trace import WholeTrace, open_whole, pair_intervals

_ROW = ("task", "thread")


class TraceContents(NamedTuple):
    """Contents of a trace, each sorted by all of its columns. Rows are named; times are ns."""

    intervals: pl.DataFrame
    points: pl.DataFrame
    states: pl.DataFrame
    messages: pl.DataFrame


def contents(trace: WholeTrace) -> TraceContents:
    """Contents of a trace, which must be whole."""
    events = trace.events()
    numbers = [number for number in events["type"].unique() if is_interval(number)]
    named = trace.named(events).sort("line", "position").with_columns(row=_row(trace, "task", "thread"))
    is_edge = pl.col("type").is_in(numbers)
    edges = named.filter(is_edge)
    paired = pair_intervals(edges, [*_ROW, "type"])
    assert paired.open.is_empty()
    assert paired.orphans.is_empty()
    others = named.filter(~is_edge).join(edges.select("line").unique(), on="line", how="semi")
    attributes = others.filter(pl.col("value") != 0).group_by("line").agg(
        attributes=pl.format("{}={}", "label", "name").sort().str.join("; ")
    )  # fmt: skip
    intervals = paired.closed.join(attributes, on="line", how="left").with_columns(pl.col("attributes").fill_null(""))
    # Fields of payloads are attributes with separate lines; they end, too.
    of_payloads = [number for number in events["type"].unique() if (kind := type_of(number)) and kind.role is Role.ATTRIBUTE]
    points = named.join(edges.select("line").unique(), on="line", how="anti").filter(~pl.col("type").is_in(of_payloads))
    return TraceContents(
        _sorted(_events(intervals, pl.col("end"))),
        _sorted(_events(points.with_columns(attributes=pl.lit(""), depth=pl.lit(1, pl.Int64)), pl.col("time"))),
        _sorted(trace.states().select("state", "begin", "end", row=_row(trace, "task", "thread"))),
        _sorted(_messages(trace)),
    )


def _events(found: pl.DataFrame, end: pl.Expr) -> pl.DataFrame:
    depth = pl.col("depth").cast(pl.Int64)
    return found.select("row", "name", "attributes", depth, number="type", type="label", begin="time", end=end)


def _messages(trace: WholeTrace) -> pl.DataFrame:
    rows = {"row": _row(trace, "send_task", "send_thread"), "to_row": _row(trace, "recv_task", "recv_thread")}
    times = {"send": "logical_send", "wait": "logical_recv", "receive": "physical_recv"}
    return trace.messages().select("size", "tag", **rows, **times)


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    ordered = frame.select(sorted(frame.columns))
    return ordered.sort(ordered.columns)


def _row(trace: WholeTrace, task: str, thread: str) -> pl.Expr:
    """Name of a row: of its task and its own, with its place among those of the same name."""
    names: list[str] = []
    for index, of_task in enumerate(trace.header.tasks):
        rows = trace.names["THREAD"][of_task.first_row : of_task.first_row + of_task.threads]
        names += [f"{trace.names['TASK'][index]} | {name} | {rows[:place].count(name)}" for place, name in enumerate(rows)]
    first = pl.Series([one.first_row for one in trace.header.tasks])
    place = pl.lit(first).gather(pl.col(task) - 1) + pl.col(thread) - 1
    return pl.lit(pl.Series(names)).gather(place)


Reports = Sequence[Path]

_OWNERS: dict[int, set[str]] = {}
"""Names of the sources that have events of a type."""
for _source in SOURCES:
    for _type in _source.types:
        if _type.role is not Role.ATTRIBUTE:
            _OWNERS.setdefault(_type.number, set()).add(_source.name)


_NAMED_BY_TYPE = set().union(*_OWNERS.values())
"""Sources whose events are more than attributes of others."""


def sources_together(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Names of sources, those together that share types of events."""
    groups: list[set[str]] = [{name} for name in names]
    for owners in _OWNERS.values():
        shared = [group for group in groups if group & owners]
        if len(shared) > 1:
            groups = [group for group in groups if group not in shared] + [set().union(*shared)]
    return sorted(tuple(sorted(group)) for group in groups)


def translated(reports: Reports, folder: Path, options: TranslateOptions) -> Summary:
    """A trace without views, in a new folder, under a name that all traces share."""
    folder.mkdir(parents=True)
    return translate(reports, folder / "trace", replace(options, no_views=True))


def trace_bytes(summary: Summary) -> dict[str, bytes]:
    """The trace, its labels and its rows."""
    return {suffix: summary.prv.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row")}


# -- the same reports in another way: the same bytes -------------------------------------------------------------------------


def as_parquet(report: Path, out: Path, number: int) -> Path:
    """A report as a folder of Parquet files; one that is a folder already as it is."""
    if report.is_dir():
        return report
    write_parquet_report(out, tables_of(report))
    return out


def as_arrow(report: Path, out: Path, number: int) -> Path:
    """A report as a folder of Arrow files."""
    if report.is_dir():
        write_arrow_report(out, {file.stem: pl.read_parquet(file) for file in report.glob("*.parquet")})
    else:
        write_arrow_report(out, tables_of(report))
    return out


def in_utc_or_shifted(report: Path, out: Path, number: int) -> Path:
    """A report that is exported with times in UTC, or shifted forward or backward, by its number."""
    return shift_export(report, out, normalize=number % 2 == 0, shift=(0, -5_000_000, 250, 3_000_000_000)[number % 4])


COPIES: dict[str, Callable[[Path, Path, int], Path]] = {
    "Parquet": as_parquet,
    "Arrow": as_arrow,
    "in UTC or shifted": in_utc_or_shifted,
}
"""What makes another export of the same recording."""


def assert_same_bytes(whole: Summary, reports: Reports, folder: Path, options: TranslateOptions) -> None:
    """Reports, in whatever way they are given and read, give this trace."""
    assert trace_bytes(translated(reports, folder, options)) == trace_bytes(whole)


# -- parts of the time -------------------------------------------------------------------------------------------------------


def assert_parts_add_up(
    whole: Summary, reports: Reports, cuts: Sequence[int], folder: Path, options: TranslateOptions, *, nested: bool = True
) -> int:
    """Parts of a run cut at some times have what the whole has there, and add up to it; the result is how many there were."""
    of_whole = contents(open_whole(whole.prv))
    end = open_whole(whole.prv).header.end
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < end}), end]
    busy: list[pl.DataFrame] = []
    overlapping = of_whole.intervals.filter((pl.col("depth") > 1) & pl.lit(not nested)).select("row", "number").unique()
    for begin, until in itertools.pairwise(edges):
        of_part = translated(reports, folder / f"part{begin}", replace(options, time=TimeRange(begin, until)))
        part = contents(open_whole(of_part.prv))
        _assert_same_contents(part, _clipped(of_whole, begin, until), overlapping)
        busy.append(_busy(part.intervals))
    assert_frame_equal(_summed(pl.concat(busy)), _summed(_busy(of_whole.intervals)))
    return len(edges) - 1


def _clipped(whole: TraceContents, begin: int, end: int) -> TraceContents:
    def cut(events: pl.DataFrame) -> pl.DataFrame:
        has_length = pl.col("end") > pl.col("begin")
        inside = pl.when(has_length).then((pl.col("begin") < end) & (pl.col("end") > begin))
        kept = events.filter(inside.otherwise(pl.col("begin").is_between(begin, end)))
        return kept.with_columns(pl.col("begin", "end").clip(begin, end) - begin).sort(kept.columns)

    held = whole.messages.filter(pl.col("send").is_between(begin, end) & pl.col("receive").is_between(begin, end))
    messages = held.with_columns(pl.col("wait").clip(lower_bound=begin)).with_columns(pl.col("send", "wait", "receive") - begin)
    return TraceContents(cut(whole.intervals), cut(whole.points), cut(whole.states), messages.sort(messages.columns))


def _assert_same_contents(found: TraceContents, wanted: TraceContents, overlapping: pl.DataFrame) -> None:
    """Equal contents; of intervals on the rows and of the types of `overlapping`, equal times."""
    place = overlapping.columns
    length = pl.col("end") - pl.col("begin")
    both = [frame.join(overlapping, on=place, how="semi") for frame in (found.intervals, wanted.intervals)]
    assert_frame_equal(*(frame.group_by(place).agg(length.sum()).sort(place) for frame in both))
    for name, of_wanted in wanted._asdict().items():
        frames = [getattr(found, name), of_wanted]
        if name == "intervals":
            frames = [frame.join(overlapping, on=place, how="anti") for frame in frames]
        assert_frame_equal(*(frame.sort(frame.columns) for frame in frames))


def _busy(intervals: pl.DataFrame) -> pl.DataFrame:
    return intervals.select("row", "type", time=pl.col("end") - pl.col("begin"))


def _summed(times: pl.DataFrame) -> pl.DataFrame:
    key = ["row", "type"]
    return times.group_by(key).agg(pl.col("time").sum()).filter(pl.col("time") > 0).sort(key)


_TIMES_OF_DEVICES = ("kernels_ns", "nccl_alone_ns", "memory_alone_ns", "idle_ns", "useful_ns")


def assert_busy_times_of_parts_add_up(reports: Reports, cuts: Sequence[int], options: EfficiencyOptions) -> bool:
    """Times of devices in parts of a run add up to those in the whole; False for a run without devices."""
    try:
        whole = measure(list(reports), options)
    except NothingToMeasure:
        return False
    if whole.tables["devices"].is_empty():
        return False
    # The program may begin after its recording.
    begin, end = whole.head["window"]["begin_ns"], whole.head["window"]["end_ns"]
    edges = [begin, *sorted({cut for cut in cuts if begin < cut < end}), end]
    parts = [
        measure(list(reports), replace(options, time=TimeRange(first, until))).tables["devices"]
        for first, until in itertools.pairwise(edges)
    ]
    columns = ["device", *_TIMES_OF_DEVICES]
    added = pl.concat([part.select(columns) for part in parts]).group_by("device").sum().sort("device")
    assert_frame_equal(added, whole.tables["devices"].select(columns).sort("device"))
    return True


# -- sources, streams, what is read back -------------------------------------------------------------------------------------


def assert_only_is_its_part(
    whole: Summary, reports: Reports, sources: tuple[str, ...], folder: Path, options: TranslateOptions
) -> int:
    """Events of some sources (of `sources_together`) alone are those in the whole; the result is their number."""
    chosen = replace(options, only=sources, time=TimeRange(0, None))
    of_whole = contents(open_whole(whole.prv))
    wanted = [_of_sources(frame, sources) for frame in (of_whole.intervals, of_whole.points)]
    try:
        part = contents(open_whole(translated(reports, folder, chosen).prv))
    except NothingToTranslate:
        assert not sum(frame.height for frame in wanted)
        return 0
    found = [_of_sources(frame, sources) for frame in (part.intervals, part.points)]
    # Value sets and members of a series are numbered by what is there.
    for one, other in zip(found, wanted, strict=True):
        assert_frame_equal(one.drop("number"), other.drop("number").sort(other.drop("number").columns))
    return sum(frame.height for frame in found)


def _of_sources(events: pl.DataFrame, sources: tuple[str, ...]) -> pl.DataFrame:
    """Events of the types that some sources have."""
    numbers = [number for number in events["number"].unique() if _owner(number) & set(sources)]
    kept = events.filter(pl.col("number").is_in(numbers)).drop("depth")
    # A GPU is shown with the node where nothing else shows which process uses it.
    of_gpu = pl.col("row").str.contains("| Metrics GPU", literal=True)
    placed = kept.with_columns(row=pl.when(of_gpu).then(pl.col("row").str.split(" | ").list.get(1)).otherwise("row"))
    return placed.sort(placed.drop("number").columns)


def _owner(number: int) -> set[str]:
    known = type_of(number)
    return _OWNERS.get(known.number, set()) if known is not None else set()


def assert_events_are_read_back(whole: Summary, reports: Reports, scratch: Path, options: ReadOptions) -> dict[str, int]:
    """Events of the Python API are those that the trace reader finds in the trace: their starts with what they are, and their
    ends. The result is their number by source; those that are attributes in the trace are not counted.
    """
    found = contents(open_whole(whole.prv))
    trace = pl.concat([found.intervals, found.points])
    counted: dict[str, int] = {}
    with np.open_run(list(reports), align=options.align, scratch=scratch) as run:
        for sources in sources_together(run.sources):
            written = [_as_written(run.events(source).collect()) for source in sources if source in _NAMED_BY_TYPE]
            if written:
                starts, ends = (sum(counters, Counter()) for counters in zip(*written, strict=True))
                assert (starts, ends) == _as_read(trace, set(sources)), sources
                counted[", ".join(sources)] = starts.total()
    return counted


Ends = tuple["Counter[tuple[object, ...]]", "Counter[tuple[object, ...]]"]


def _as_written(events: pl.DataFrame) -> Ends:
    names = {name: readable(name) for name in {*events["name"].drop_nulls(), *events["row"]}}
    columns = events.select("row", "start", pl.col("end").fill_null(pl.col("start")), "name", "value").rows()
    return (
        Counter((names[row], start, names.get(name), value) for row, start, _, name, value in columns),
        Counter((names[row], end) for row, _, end, *_ in columns),
    )


def _as_read(events: pl.DataFrame, sources: set[str]) -> Ends:
    starts: Counter[tuple[object, ...]] = Counter()
    ends: Counter[tuple[object, ...]] = Counter()
    for (number,), of_type in events.partition_by("number", as_dict=True).items():
        kind = type_of(int(number))
        if kind is None or not sources & _OWNERS.get(kind.number, set()):
            continue
        placed = of_type.with_columns(pl.col("row").str.split(" | ").list.get(1))
        ends.update(placed.select("row", "end").iter_rows())
        if kind.values is None:
            added = 1 if kind.unit.endswith(" + 1") else 0
            value = (pl.col("name").cast(pl.Int64) - added) * 10.0**-kind.precision
            starts.update(placed.select("row", "begin", name=pl.lit(None), value=value).iter_rows())
        else:
            starts.update(placed.select("row", "begin", "name", value=pl.lit(None)).iter_rows())
    return starts, ends


def assert_account_balances(content: dict[str, object]) -> int:
    """Rows that were read are those written and those left out with a reason; the result is the number of rows."""
    total = 0
    for report in json.loads(json.dumps(content["reports"])):
        for one in report["tables"]:
            read = sum(source["rows"] for source in one["sources"] if not source["derived"])
            assert read + sum(one["left_out"].values()) == one["rows"], one
            for source in one["sources"]:
                assert source["rows"] == source["written"] + sum(source["left_out"].values()), source
            total += one["rows"]
    return total
