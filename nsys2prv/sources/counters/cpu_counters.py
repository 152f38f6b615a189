"""Counters of CPU cores, sockets and the rest of the chip (Grace, Tegra), sampled over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import Real, Text
from nsys2prv.exports.enumerations import enum_labels
from nsys2prv.sources.counters.sampling import REAL_PRECISION, EndsOfSamples, per_second, sampled_series, with_ends, with_values
from nsys2prv.sources.source import CONTINUATION, RowKind, Source, StreamedSource, TableSource
from nsys2prv.vocabulary import row_names

CPU_METRIC = sampled_series(94200000, "events per second")
CPU_REAL_METRIC = sampled_series(94300000, "as its label says", precision=REAL_PRECISION)
SYSTEM_METRIC = sampled_series(94400000, "as the report has it")

_COUNTS = "A count is what happened from the start of a sample to its end: it is shown as a rate per second, then 0."
_PER_SECOND = "{} (per second)"


# -- sampled performance counters of CPUs -----------------------------------------------------------------------------


def _components(report: Report) -> pl.DataFrame:
    """Columns `componentId`, `component`: cores, sockets and other parts of the chip by name."""
    known = report.collect(report.scan("TARGET_INFO_COMPONENT", optional=("componentId", Text("name"), "instance")))
    named = pl.when(pl.col("instance").is_null()).then("name").otherwise(pl.format("{} {}", "name", "instance"))
    return known.select("componentId", component=named).drop_nulls().unique("componentId", keep="first", maintain_order=True)


def _names(report: Report, key: str) -> pl.DataFrame:
    """Columns named `key`, `metric` and `measure` (the unit, null where none is known)."""
    known = report.collect(
        report.scan("TARGET_INFO_PERF_METRIC", optional=("id", Text("name"), Text("unit"), Text("displayName")))
    )
    return known.select(pl.col("id").alias(key), metric=pl.coalesce("displayName", "name"), measure="unit").unique(
        key, keep="first", maintain_order=True
    )


def _on_components(report: Report, table: pl.LazyFrame, key: str) -> pl.LazyFrame:
    return (
        table.join(_components(report).lazy(), on="componentId", how="left", maintain_order="left")
        .join(_names(report, key).lazy(), on=key, how="left", maintain_order="left")
        .with_columns(
            component=pl.coalesce("component", pl.format(row_names.CPU, "componentId"), pl.lit("CPUs")),
            metric=pl.coalesce("metric", pl.format("CPU event {}", key), pl.lit("CPU event")),
        )
    )


def _events_of(table: str, since: str) -> TableSource:
    def frame(report: Report) -> pl.LazyFrame:
        counted = _on_components(report, source.scan(report), "eventId")
        return with_ends(
            counted.select(
                "component",
                "start",
                "end",
                type=pl.lit(CPU_METRIC, pl.Int64),
                series=pl.format(_PER_SECOND, "metric"),
                value=per_second(pl.col("count")),
            )
        )

    source = TableSource(
        name="cpu-metrics",
        title="CPU and chip events",
        table=table,
        required=("start", "end", "count"),
        optional=("componentId", "eventId"),
        row=RowKind.COMPONENT,
        types=(CPU_METRIC,),
        frame=frame,
        in_order=EndsOfSamples,
        since=since,
        assumption=f"{_COUNTS} Without TARGET_INFO_COMPONENT, componentId is the number of a CPU.",
    )
    return source


def _metrics_of(table: str, since: str) -> TableSource:
    def frame(report: Report) -> pl.LazyFrame:
        measured = _on_components(report, source.scan(report), "metricId")
        written = (pl.col("value") * 10**REAL_PRECISION).round().cast(pl.Int64, strict=False)
        return with_ends(
            measured.select(
                "component",
                "start",
                "end",
                type=pl.lit(CPU_REAL_METRIC, pl.Int64),
                series=pl.when(pl.col("measure").is_null()).then("metric").otherwise(pl.format("{} ({})", "metric", "measure")),
                value=written,
            )
        )

    source = TableSource(
        name="cpu-metrics",
        title="CPU and chip metrics",
        table=table,
        required=("start", "end", Real("value")),
        optional=("componentId", "metricId"),
        row=RowKind.COMPONENT,
        types=(CPU_REAL_METRIC,),
        frame=frame,
        in_order=EndsOfSamples,
        since=since,
        assumption=(
            "A value holds from the start of its sample to its end, then 0. Without TARGET_INFO_COMPONENT, componentId is the"
            " number of a CPU."
        ),
    )
    return source


# -- counters whose values are in a second table ------------------------------------------------------------------------

_Frame = Callable[[Report], pl.LazyFrame]
_Named = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True)
class _BesideValues:
    """Events whose counts are in another table.

    Attributes
    ----------
    of_events
        Columns `component`, `start`, `end`, `values_id`.
    of_values
        Columns `values_id`, `count`, and those that the name is made of.
    named
        Gives what makes `type`, `series` and `value` of the two together.
    """

    of_events: _Frame
    of_values: _Frame
    named: Callable[[Report], _Named]

    def names(self, report: Report) -> pl.LazyFrame:
        """Any counter for any component: which component has which is known when the tables are joined."""
        components = self.of_events(report).select("component").unique()
        counters = self.of_values(report).with_columns(start=pl.lit(0, pl.Int64), end=pl.lit(1, pl.Int64)).drop("values_id")
        kinds = self.named(report)(counters).select("type", "series").unique()
        none = [pl.lit(None, pl.Int64).alias(column) for column in ("start", "end", "value")]
        return components.join(kinds, how="cross").with_columns(none)

    def stream(self, report: Report, folder: Path) -> Iterator[pl.DataFrame]:
        """The events with their values, as the sources give them."""
        name = self.named(report)
        for joined in with_values(report, folder, self.of_events, self.of_values):
            columns = ("component", "start", "end", "type", "series", "value")
            points = with_ends(name(joined.lazy()).select(*columns, is_further=CONTINUATION))
            yield points.with_columns(pl.col(CONTINUATION) | pl.col("is_further")).drop("is_further").collect()


def _rates(type_number: int, name: pl.Expr) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    return lambda joined: joined.with_columns(
        type=pl.lit(type_number, pl.Int64), series=pl.format(_PER_SECOND, name), value=per_second(pl.col("count"))
    )


def _core_events(report: Report) -> pl.LazyFrame:
    return CORES.scan(report).select("start", "end", component=pl.format(row_names.CPU, "cpu"), values_id="counter_id")


def _core_values(report: Report) -> pl.LazyFrame:
    table = report.scan_events("PMU_EVENT_COUNTERS", ("id", "idx", "value"), (), None)
    return table.select("idx", values_id="id", count="value")


def _core_names(report: Report) -> _Named:
    requests = report.collect(report.scan("PMU_EVENT_REQUESTS", optional=("id", Text("event_name"))))
    known = requests.unique("id", keep="first").select(idx="id", name="event_name").lazy()
    rates = _rates(CPU_METRIC, pl.coalesce("name", pl.format("CPU event {}", "idx"), pl.lit("CPU event")))
    return lambda joined: rates(joined.join(known, on="idx", how="left", maintain_order="left"))


_CORES_COUNTS = _BesideValues(_core_events, _core_values, _core_names)

CORES = StreamedSource(
    name="cpu-metrics",
    title="CPU core events",
    table="PMU_EVENTS",
    required=("start", "end", "cpu", "counter_id"),
    row=RowKind.COMPONENT,
    types=(CPU_METRIC,),
    names=_CORES_COUNTS.names,
    stream=_CORES_COUNTS.stream,
    in_order=EndsOfSamples,
    since="3.7",
    assumption=f"{_COUNTS} Values are in PMU_EVENT_COUNTERS, their names in PMU_EVENT_REQUESTS.",
)


def _uncore_events(report: Report) -> pl.LazyFrame:
    unit = pl.coalesce(pl.format("CPU cluster {}", "clusterId"), pl.lit("CPU uncore"))
    return UNCORE.scan(report).select("start", "end", component=unit, values_id="counterId")


def _uncore_values(report: Report) -> pl.LazyFrame:
    table = report.scan_events("UNCORE_PMU_EVENT_VALUES", ("id", "type", "value", "rawId"), (), None)
    return table.select("rawId", values_id="id", kind="type", count="value")


def _uncore_names(report: Report) -> _Named:
    kinds = enum_labels(report, "ENUM_NSYS_EVENT_TYPE")
    kind = pl.col("kind").replace_strict(kinds, default="Uncore event", return_dtype=pl.String)
    return _rates(CPU_METRIC, pl.format("{} {}", kind, pl.coalesce("rawId", "kind")))


_UNCORE_COUNTS = _BesideValues(_uncore_events, _uncore_values, _uncore_names)

UNCORE = StreamedSource(
    name="cpu-metrics",
    title="CPU uncore events",
    table="UNCORE_PMU_EVENTS",
    required=("start", "end", "counterId"),
    optional=("clusterId",),
    row=RowKind.COMPONENT,
    types=(CPU_METRIC,),
    names=_UNCORE_COUNTS.names,
    stream=_UNCORE_COUNTS.stream,
    in_order=EndsOfSamples,
    since="3.7",
    assumption=f"{_COUNTS} Values are in UNCORE_PMU_EVENT_VALUES and are named by their raw id.",
)


def _bandwidth_events(report: Report) -> pl.LazyFrame:
    return BANDWIDTH.scan(report).select("start", "end", component=pl.lit("Memory controller"), values_id="valuesId")


def _bandwidth_values(report: Report) -> pl.LazyFrame:
    table = report.scan_events("BANDWIDTH_USAGE_VALUES", ("id", "idx", "value"), (), None)
    return table.select("idx", values_id="id", count="value")


def _bandwidth_names(report: Report) -> _Named:
    clients = report.collect(report.scan("TARGET_INFO_XMC_SPEC", optional=("clientId", Text("name"))))
    known = clients.unique("clientId", keep="first").select(idx="clientId", name="name").lazy()
    client = pl.coalesce("name", pl.format("client {}", "idx"), pl.lit("unnamed client"))

    def named(joined: pl.LazyFrame) -> pl.LazyFrame:
        return joined.join(known, on="idx", how="left", maintain_order="left").with_columns(
            type=pl.lit(SYSTEM_METRIC, pl.Int64), series=pl.format("Memory bandwidth of {}", client), value="count"
        )

    return named


_BANDWIDTH_COUNTS = _BesideValues(_bandwidth_events, _bandwidth_values, _bandwidth_names)

BANDWIDTH = StreamedSource(
    name="system-metrics",
    title="Memory bandwidth of the chip",
    table="BANDWIDTH_USAGE_EVENTS",
    required=("start", "end", "valuesId"),
    row=RowKind.COMPONENT,
    types=(SYSTEM_METRIC,),
    names=_BANDWIDTH_COUNTS.names,
    stream=_BANDWIDTH_COUNTS.stream,
    in_order=EndsOfSamples,
    since="3.28",
    assumption="Values are in BANDWIDTH_USAGE_VALUES as the report has them; idx is a client of TARGET_INFO_XMC_SPEC.",
)


# -- the chip -----------------------------------------------------------------------------------------------------------


def _soc(report: Report) -> pl.LazyFrame:
    names = report.collect(report.scan("TARGET_INFO_SOC_METRICS", optional=("typeId", "metricId", Text("metricName"))))
    named = SOC.scan(report).join(
        names.unique(["typeId", "metricId"], keep="first").lazy(), on=["typeId", "metricId"], how="left", maintain_order="left"
    )
    return named.select(
        "value",
        component=pl.lit("SoC"),
        start=pl.col("timestamp"),
        end=pl.col("timestamp"),
        type=pl.lit(SYSTEM_METRIC, pl.Int64),
        series=pl.coalesce("metricName", pl.format("SoC metric {}", "metricId")),
    )


SOC = TableSource(
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
