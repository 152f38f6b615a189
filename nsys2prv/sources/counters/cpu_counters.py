"""Counters of CPU cores, sockets and the rest of the chip (Grace, Tegra), sampled over time."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Real, Text
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.counters.sampling import REAL_PRECISION, EndsOfSamples, per_second, sampled_series, with_ends, with_values
from nsys2prv.sources.source import CONTINUATION, RowKind, Source
from nsys2prv.vocabulary import row_names
from nsys2prv.vocabulary.event_types import EventType

CPU_METRIC = sampled_series(94200000, "events per second")
CPU_REAL_METRIC = sampled_series(94300000, "as its label says", precision=REAL_PRECISION)
SYSTEM_METRIC = sampled_series(94400000, "as the report has it")

_COUNTS = "A count is what happened from the start of a sample to its end: it is shown as a rate per second, then 0."
_PER_SECOND = "{} (per second)"


def _on_components(report: Report, table: pl.LazyFrame, key: str) -> pl.LazyFrame:
    """Rows with `component` (a core, a socket or another part of the chip), `metric` and `measure` (the unit, null where none
    is known)."""
    components = report.read("TARGET_INFO_COMPONENT", optional=("componentId", Text("name"), "instance"))
    part = pl.when(pl.col("instance").is_null()).then("name").otherwise(pl.format("{} {}", "name", "instance"))
    parts = drop_duplicates(components.select("componentId", component=part).drop_nulls(), "componentId")
    metrics = report.read("TARGET_INFO_PERF_METRIC", optional=("id", Text("name"), Text("unit"), Text("displayName")))
    names = metrics.select(pl.col("id").alias(key), metric=pl.coalesce("displayName", "name"), measure="unit")
    return (
        table.join(parts.lazy(), on="componentId", how="left", maintain_order="left")
        .join(drop_duplicates(names, key).lazy(), on=key, how="left", maintain_order="left")
        .with_columns(
            component=pl.coalesce("component", pl.format(row_names.CPU, "componentId"), pl.lit("CPUs")),
            metric=pl.coalesce("metric", pl.format("CPU event {}", key), pl.lit("CPU event")),
        )
    )


def _sampled(title: str, table: str, since: str, event_type: EventType, key: str, value: str, assumption: str) -> Source:
    """A source of samples on components; `key` is the column with the id of what is measured."""

    def frame(report: Report) -> pl.LazyFrame:
        sampled = _on_components(report, source.scan(report), key)
        if event_type is CPU_METRIC:
            series, number = pl.format(_PER_SECOND, "metric"), per_second(pl.col(value))
        else:
            series = pl.when(pl.col("measure").is_null()).then("metric").otherwise(pl.format("{} ({})", "metric", "measure"))
            number = (pl.col(value) * 10**REAL_PRECISION).round().cast(pl.Int64, strict=False)
        columns = ("component", "start", "end")
        return with_ends(sampled.select(*columns, type=pl.lit(event_type, pl.Int64), series=series, value=number))

    source = Source(
        name="cpu-metrics",
        title=title,
        table=table,
        required=("start", "end", value),
        optional=("componentId", key),
        row=RowKind.COMPONENT,
        types=(event_type,),
        frame=frame,
        in_order=EndsOfSamples,
        since=since,
        assumption=f"{assumption} Without TARGET_INFO_COMPONENT, componentId is the number of a CPU.",
    )
    return source


def _events_of(table: str, since: str) -> Source:
    return _sampled("CPU and chip events", table, since, CPU_METRIC, "eventId", "count", _COUNTS)


def _metrics_of(table: str, since: str) -> Source:
    holds = "A value holds from the start of its sample to its end, then 0."
    return _sampled("CPU and chip metrics", table, since, CPU_REAL_METRIC, "metricId", Real("value"), holds)


_Named = Callable[[pl.LazyFrame], pl.LazyFrame]


def _with_values_in(
    values_table: str, columns: Mapping[str, str], component: pl.Expr, naming: Callable[[Report], _Named], **facts: Any
) -> Source:
    """A source of events whose counts are in another table.

    `columns` of that table are `values_id`, `count` and those that names are made of, by their columns there; `component` is
    what an event is on. `naming` gives what makes `type`, `series` and `value` of the two tables together. `facts` are other
    attributes of the source; the last required column is the id of values."""

    def of_events(report: Report) -> pl.LazyFrame:
        return source.scan(report).select("start", "end", component=component, values_id=source.required[-1])

    def of_values(report: Report) -> pl.LazyFrame:
        return report.scan_events(values_table, tuple(columns.values()), (), None).select(**columns)

    def names(report: Report) -> pl.LazyFrame:
        # Any counter for any component: which component has which is known when the tables are joined.
        components = of_events(report).select("component").unique()
        counters = of_values(report).with_columns(start=pl.lit(0, pl.Int64), end=pl.lit(1, pl.Int64)).drop("values_id")
        kinds = naming(report)(counters).select("type", "series").unique()
        none = [pl.lit(None, pl.Int64).alias(column) for column in ("start", "end", "value")]
        return components.join(kinds, how="cross").with_columns(none)

    def stream(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
        name = naming(report)
        for joined in with_values(report, folder, of_events, of_values):
            columns = ("component", "start", "end", "type", "series", "value")
            points = with_ends(name(joined.lazy()).select(*columns, is_further=CONTINUATION))
            yield points.with_columns(pl.col(CONTINUATION) | pl.col("is_further")).drop("is_further").collect()

    source = Source(row=RowKind.COMPONENT, frame=names, stream=stream, in_order=EndsOfSamples, **facts)
    return source


def _names_from(report: Report, table: str, key: str, name: str) -> _Named:
    """Joins the `name` of each `idx` from a table."""
    names = drop_duplicates(report.read(table, optional=(key, Text(name))), key).select(idx=key, name=name).lazy()
    return lambda joined: joined.join(names, on="idx", how="left", maintain_order="left")


def _rates(name: pl.Expr) -> list[pl.Expr]:
    series = pl.format(_PER_SECOND, name).alias("series")
    return [pl.lit(CPU_METRIC, pl.Int64).alias("type"), series, per_second(pl.col("count")).alias("value")]


def _core_names(report: Report) -> _Named:
    with_names = _names_from(report, "PMU_EVENT_REQUESTS", "id", "event_name")
    name = pl.coalesce("name", pl.format("CPU event {}", "idx"), pl.lit("CPU event"))
    return lambda joined: with_names(joined).with_columns(_rates(name))


def _uncore_names(report: Report) -> _Named:
    kinds = enum_labels(report, "ENUM_NSYS_EVENT_TYPE")
    kind = pl.col("kind").replace_strict(kinds, default="Uncore event", return_dtype=pl.String)
    return lambda joined: joined.with_columns(_rates(pl.format("{} {}", kind, pl.coalesce("rawId", "kind"))))


def _bandwidth_names(report: Report) -> _Named:
    with_names = _names_from(report, "TARGET_INFO_XMC_SPEC", "clientId", "name")
    client = pl.coalesce("name", pl.format("client {}", "idx"), pl.lit("unnamed client"))
    series = pl.format("Memory bandwidth of {}", client)
    return lambda joined: with_names(joined).with_columns(type=pl.lit(SYSTEM_METRIC, pl.Int64), series=series, value="count")


CORES = _with_values_in(
    "PMU_EVENT_COUNTERS",
    {"idx": "idx", "values_id": "id", "count": "value"},
    pl.format(row_names.CPU, "cpu"),
    _core_names,
    name="cpu-metrics",
    title="CPU core events",
    table="PMU_EVENTS",
    required=("start", "end", "cpu", "counter_id"),
    types=(CPU_METRIC,),
    since="3.7",
    assumption=f"{_COUNTS} Values are in PMU_EVENT_COUNTERS, their names in PMU_EVENT_REQUESTS.",
)

UNCORE = _with_values_in(
    "UNCORE_PMU_EVENT_VALUES",
    {"rawId": "rawId", "values_id": "id", "kind": "type", "count": "value"},
    pl.coalesce(pl.format("CPU cluster {}", "clusterId"), pl.lit("CPU uncore")),
    _uncore_names,
    name="cpu-metrics",
    title="CPU uncore events",
    table="UNCORE_PMU_EVENTS",
    required=("start", "end", "counterId"),
    optional=("clusterId",),
    types=(CPU_METRIC,),
    since="3.7",
    assumption=f"{_COUNTS} Values are in UNCORE_PMU_EVENT_VALUES and are named by their raw id.",
)

BANDWIDTH = _with_values_in(
    "BANDWIDTH_USAGE_VALUES",
    {"idx": "idx", "values_id": "id", "count": "value"},
    pl.lit("Memory controller"),
    _bandwidth_names,
    name="system-metrics",
    title="Memory bandwidth of the chip",
    table="BANDWIDTH_USAGE_EVENTS",
    required=("start", "end", "valuesId"),
    types=(SYSTEM_METRIC,),
    since="3.28",
    assumption="Values are in BANDWIDTH_USAGE_VALUES as the report has them; idx is a client of TARGET_INFO_XMC_SPEC.",
)


def _soc(report: Report) -> pl.LazyFrame:
    names = report.read("TARGET_INFO_SOC_METRICS", optional=("typeId", "metricId", Text("metricName")))
    key = ["typeId", "metricId"]
    named = SOC.scan(report).join(drop_duplicates(names, key).lazy(), on=key, how="left", maintain_order="left")
    return named.select(
        "value",
        component=pl.lit("SoC"),
        start=pl.col("timestamp"),
        end=pl.col("timestamp"),
        type=pl.lit(SYSTEM_METRIC, pl.Int64),
        series=pl.coalesce("metricName", pl.format("SoC metric {}", "metricId")),
    )


SOC = Source(
    name="system-metrics",
    title="Metrics of the chip",
    table="SOC_METRICS",
    required=("timestamp", "typeId", "metricId", "value"),
    row=RowKind.COMPONENT,
    types=(SYSTEM_METRIC,),
    frame=_soc,
    times=("timestamp", "timestamp"),
    since="3.28",
    assumption="The table is read like GPU_METRICS; all metrics are on one row.",
)

SOURCES: tuple[Source, ...] = (
    _events_of("PERF_EVENT_CPU_RAW_EVENT", "3.7"),
    _metrics_of("PERF_EVENT_CPU_METRIC_EVENT", "3.11"),
    _events_of("PERF_EVENT_SOC_OR_CPU_RAW_EVENT", "3.28"),
    _metrics_of("PERF_EVENT_SOC_OR_CPU_METRIC_EVENT", "3.28"),
    CORES,
    UNCORE,
    BANDWIDTH,
    SOC,
)
