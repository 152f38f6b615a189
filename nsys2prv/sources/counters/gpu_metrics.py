"""Sampled metrics of GPUs: all that the export names, from its own table or (schema 3.0) from the JSON rows of plugins.

Impossible values are repaired or left out, and the account of rows counts both, and the mark of nsys that sampling ended:

- nsys keeps samples in 32 bits, and large ones come back negative: 2^32 is added.
- The first sample of a clock can be garbage. A GPC or SYS clock three tenths above that which the export names, or above
  4 GHz where it names none, is left out.
- nsys 2024 exports clocks of older recordings in Hz where their names say MHz: they are divided.
- A percentage below 0 or above 100 is left out: 32 bits are more than enough for it, so there is nothing to add."""

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text
from nsys2prv.sources.counters import plugins
from nsys2prv.sources.source import CONTINUATION, LEFT_OUT, REPAIRED, RowKind, Source
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import PERCENTAGE

INSTANCE_OF_TYPE = 0xFFFFFFFF
"""Bits of `typeId` that identify the sampler: the lowest 8 are nsys' index of the GPU (`TARGET_INFO_GPU.id`)."""

GARBAGE_CLOCK = "a clock that the GPU can't have"
GARBAGE_PERCENTAGE = "a percentage below 0 or above 100"
END_OF_SAMPLES = "when sampling ended, no metric"
_WRAP = 2**32
_HIGHEST_CLOCK_HZ = 4e9
_CLOCK_TOLERANCE = 1.3
"""Highest clock against that of the export, which is the usual one under load: an RTX 3090 of 1.695 GHz runs at 1.956."""
_CLOCK = r"(?i)\b(GPC|SYS)\b.*\bclock\b"


def _kinds(names: pl.DataFrame, name: str) -> pl.DataFrame:
    """Names of metrics (in a column) with what is asked of each sample, found once for each name: columns `is_percentage`,
    `is_clock`, `scale`."""
    of_name = pl.col(name)
    return names.with_columns(
        is_percentage=of_name.str.contains(PERCENTAGE),
        is_clock=of_name.str.contains(_CLOCK),
        scale=pl.when(of_name.str.contains("[MHz]", literal=True)).then(1e6).otherwise(1.0),
    )


def _plausible(samples: pl.LazyFrame, report: Report) -> pl.LazyFrame:
    """Samples (columns `gpu`, `value`, and those of `_kinds`, null for metrics without a name) with values repaired, and why
    some are left out; without the columns of `_kinds`."""
    gpus = report.read("TARGET_INFO_GPU", optional=("id", "clockRate")).drop_nulls()
    limits = {
        gpu: rate * _CLOCK_TOLERANCE for gpu, rate in gpus.filter(pl.col("clockRate") > 0).select("id", "clockRate").rows()
    }
    gpu = pl.col("gpu") & 0xFF
    limit = gpu.replace_strict(limits, default=_HIGHEST_CLOCK_HZ, return_dtype=pl.Float64)
    is_percentage, is_clock = pl.col("is_percentage").fill_null(False), pl.col("is_clock").fill_null(False)
    wrapped = ~is_percentage & (pl.col("value") < 0) & (pl.col("value") >= -(_WRAP // 2))
    value = pl.when(wrapped).then(pl.col("value") + _WRAP).otherwise("value")
    value = pl.when((pl.col("scale") > 1) & (value >= 1e5)).then((value / 1e6).round().cast(pl.Int64)).otherwise(value)
    return (
        samples.with_columns(value.alias("value"), wrapped.alias(REPAIRED))
        .with_columns(
            pl.when(is_clock & ((pl.col("value") < 0) | (pl.col("value") * pl.col("scale") > limit)))
            .then(pl.lit(GARBAGE_CLOCK))
            .when(is_percentage & ~pl.col("value").is_between(0, 100))
            .then(pl.lit(GARBAGE_PERCENTAGE))
            .when(pl.col("series") == "EndTimestamp")
            .then(pl.lit(END_OF_SAMPLES))
            .alias(LEFT_OUT)
        )
        .with_columns(pl.col(REPAIRED) & pl.col(LEFT_OUT).is_null())
        .drop("is_percentage", "is_clock", "scale")
    )


def _frame(report: Report) -> pl.LazyFrame:
    names = report.read("TARGET_INFO_GPU_METRICS", optional=("typeId", "metricId", Text("metricName")))
    # Ids of metrics differ between reports: only their names are equal.
    key = ["typeId", "metricId"]
    metrics = _kinds(drop_duplicates(names, key), "metricName")
    named = METRICS.scan(report).join(metrics.lazy(), on=key, how="left", maintain_order="left")
    samples = named.select(
        "value",
        "is_percentage",
        "is_clock",
        "scale",
        gpu=pl.col("typeId") & INSTANCE_OF_TYPE,
        start=pl.col("timestamp"),
        end=pl.col("timestamp"),
        type=pl.lit(event_types.GPU_METRIC, pl.Int64),
        series=pl.coalesce("metricName", pl.format("GPU metric {}", "metricId")),
    )
    return _plausible(samples, report)


def _fields_of_types(report: Report) -> dict[int, list[str]]:
    """Names of the metrics in the JSON rows of each type that holds GPU metrics."""
    of_gpus = plugins.plugin_types(report).filter("of_gpu")["typeId"].to_list()
    types = report.read("GENERIC_EVENT_TYPES", optional=("typeId", Text("data"))).drop_nulls()
    return {kind: plugins.field_names(data) for kind, data in drop_duplicates(types, "typeId").iter_rows() if kind in of_gpus}


def _json_rows(report: Report, fields: dict[int, list[str]]) -> pl.LazyFrame:
    """Rows of the JSON table that are samples of GPUs, none where these are in their own table too."""
    types = [] if report.has("GPU_METRICS") else list(fields)
    start = pl.coalesce("timestamp", "rawTimestamp")
    return (
        METRICS_IN_JSON.scan(report)
        .filter(pl.col("typeId").is_in(types))
        .select("data", gpu=pl.col("typeId") & INSTANCE_OF_TYPE, start=start, end=start)
    )


def _json_frame(report: Report) -> pl.LazyFrame:
    fields = _fields_of_types(report)
    names = list(dict.fromkeys(name for of_type in fields.values() for name in of_type)) or [_NO_NAME]
    pairs = pl.concat_list(pl.struct(series=pl.lit(name), value=pl.col("fields").struct.field(name)) for name in names)
    with_value = pl.element().filter(pl.element().struct.field("value").is_not_null())
    samples = (
        _json_rows(report, fields)
        .with_columns(fields=pl.col("data").str.json_decode(pl.Struct(dict.fromkeys(names, pl.String))))
        .with_row_index("row_of_table")
        .select("row_of_table", "gpu", "start", "end", pairs=pairs.list.eval(with_value))
        .explode("pairs")
        .unnest("pairs")
        .with_columns(
            pl.col("series").fill_null(_NO_NAME),
            pl.col("value").cast(pl.Float64, strict=False).round().cast(pl.Int64, strict=False),
            type=pl.lit(event_types.GPU_METRIC, pl.Int64),
        )
    )
    kinds = _kinds(pl.DataFrame({"series": list(dict.fromkeys([*names, _NO_NAME]))}), "series")
    unreadable = pl.when(pl.col("value").is_null()).then(pl.lit(UNREADABLE))
    return (
        _plausible(samples.join(kinds.lazy(), on="series", how="left", maintain_order="left"), report)
        .with_columns(pl.coalesce(LEFT_OUT, unreadable).alias(LEFT_OUT))
        # Rows are counted: one with a sample that is left out counts as left out, although its others are in the trace.
        .sort("row_of_table", pl.col(LEFT_OUT).is_null(), maintain_order=True)
        .with_columns(pl.col("row_of_table").is_first_distinct().not_().alias(CONTINUATION))
        .drop("row_of_table")
    )


_NO_NAME = "GPU metric"
UNREADABLE = "no value is given"

METRICS = Source(
    name="gpu-metrics",
    title="GPU metrics",
    table="GPU_METRICS",
    required=("timestamp", "typeId", "metricId", "value"),
    row=RowKind.GPU,
    types=(event_types.GPU_METRIC,),
    frame=_frame,
    times=("timestamp", "timestamp"),
    since="3.7",
    assumption=(
        "The lowest 8 bits of `typeId` are the GPU. Types of one report with the same GPU and other bits above these, up to "
        "the 32nd, are its instances (MIG), each on a separate row."
    ),
)

METRICS_IN_JSON = Source(
    name="gpu-metrics",
    title="GPU metrics (JSON rows)",
    table="GENERIC_EVENTS",
    required=("typeId", Text("data")),
    optional=("timestamp", "rawTimestamp"),
    row=RowKind.GPU,
    types=(event_types.GPU_METRIC,),
    frame=_json_frame,
    times=lambda report: _json_rows(report, _fields_of_types(report)).select("start", "end"),
    since="3.7",
    assumption=(
        "A row of a type whose source is called GpuMetrics is a sample of all metrics of one GPU; without `timestamp` its "
        "`rawTimestamp` is in the time of the report. The table GPU_METRICS, where there is one, holds the same samples."
    ),
)
