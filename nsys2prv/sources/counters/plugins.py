"""Samples and events of nsys plugins: AWS EFA counters, NVML power and temperature, storage, and any other.

A row is an event of a type, a type belongs to a plugin. Fields with numbers are samples, fields with texts are labels; their
event types are named by plugin, type and field."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Real, Text
from nsys2prv.exports.report import enum_labels, once
from nsys2prv.sources.counters.sampling import REAL_PRECISION, sampled_series, with_values
from nsys2prv.sources.source import CONTINUATION, RowKind, Source, with_absent
from nsys2prv.vocabulary.event_types import ValueSet

PLUGIN_METRIC = sampled_series(94500000, "as the plugin has it")
PLUGIN_REAL_METRIC = sampled_series(94600000, "as the plugin has it", precision=REAL_PRECISION)
PLUGIN_TEXT = sampled_series(94700000, "", ValueSet("texts of plugins"))


TABLE = "GENERIC_EVENTS"
_SESSION_CLOCK = ("SessionNs", "Session Nanoseconds")
"""Time of the session, as all other tables have it (its name and its label); times of other clocks can't be used."""
_GPU_METRICS = r"^(?i)gpu ?metrics"
"""Sources whose events the module `gpu_metrics` reads."""

# Fields that name the part of the node that an event is about.
_NAMES_A_COMPONENT = r"^(?i)(device|dev|interface|iface|nic|hca|port|gpu|disk|mount|socket|uuid)([ _]?(name|id|index|uuid))?$"
_MOST_COMPONENTS = 256
_JSON_NAME = r'"(?:[^"\\]|\\.)*"\s*:'
_MOST_FIELDS = 1_000
"""Names of fields that are looked for: more are no names, but numbers of something."""
_WHOLE_NUMBER = r"^\s*[+-]?[0-9]{1,18}\s*$"
_FLOATING_TYPES = (2, 3)
"""`GENERIC_EVENT_TYPE_FIELDS.type` of numbers that are not whole."""

_SCHEMA: dict[str, Any] = {
    "component": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "type": pl.Int64,
    "series": pl.String,
    "label": pl.String,
    "value": pl.Int64,
    CONTINUATION: pl.Boolean,
}


@once
def plugin_types(report: Report) -> pl.DataFrame:
    """Columns `typeId`, `plugin` (plugin and type by name), `of_gpu`, `in_session` (whether raw times are the session's)."""
    strings = dict(report.strings.iter_rows())
    clocks = enum_labels(report, "ENUM_NSYS_GENERIC_EVENT_SOURCE")
    sources: dict[int, tuple[str, bool]] = {}
    event_sources = report.read("GENERIC_EVENT_SOURCES", optional=("sourceId", "nameId", "timeSourceId", Text("data")))
    for source, name, clock, data in drop_duplicates(event_sources, "sourceId").iter_rows():
        described = _described(data)
        clock_name = described.get("TimeSource") or clocks.get(clock, "")
        sources[source] = _text(described.get("Name")) or strings.get(name, ""), clock_name in _SESSION_CLOCK
    rows = []
    types = report.read("GENERIC_EVENT_TYPES", optional=("typeId", "sourceId", "nameId", Text("data")))
    for number, source, name, data in drop_duplicates(types, "typeId").iter_rows():
        plugin, in_session = sources.get(source, ("", False))
        title = _text(_described(data).get("Name")) or strings.get(name, "")
        rows.append((number, " ".join(f"{plugin} {title}".split()) or "Plugin", plugin, in_session))
    schema = {"typeId": pl.Int64, "plugin": pl.String, "source": pl.String, "in_session": pl.Boolean}
    frame = pl.DataFrame(rows, schema, orient="row")
    return frame.with_columns(of_gpu=pl.col("source").str.contains(_GPU_METRICS)).drop("source")


def _described(data: str | None) -> dict[str, Any]:
    """A description in JSON; nothing when it can't be read: a report is not given up for names."""
    try:
        content = json.loads(data or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _events(report: Report, types: pl.DataFrame, optional: tuple[str, ...]) -> pl.LazyFrame:
    """Rows of the table that are not metrics of GPUs, with `plugin` and `start`."""
    of_gpu = types.filter("of_gpu")["typeId"]
    of_plugins = types.filter(~pl.col("of_gpu"))["typeId"]
    # Long recordings of GPU metrics need not even be read.
    skip = len(of_gpu) > 0 and (of_plugins >= 0).all()
    table = report.scan_events(
        TABLE, ("rawTimestamp", "typeId"), ("timestamp", *optional), {"typeId": of_plugins.to_list()} if skip else None
    )
    named = table.join(types.lazy(), on="typeId", how="left", maintain_order="left").filter(~pl.col("of_gpu").fill_null(False))
    raw = pl.when(pl.col("in_session")).then("rawTimestamp")
    return named.with_columns(start=pl.coalesce("timestamp", raw), plugin=pl.col("plugin").fill_null("Plugin"))


def _time_bounds(report: Report) -> pl.LazyFrame:
    return _events(report, plugin_types(report), ()).select("start", end="start")


def rows_of_gpus(report: Report) -> int:
    """Rows of the table that are metrics of GPUs."""
    types = plugin_types(report).filter("of_gpu")["typeId"].to_list()
    return report.count(report.scan(TABLE, ("typeId",)).filter(pl.col("typeId").is_in(types))) if types else 0


@once
def _has_json(report: Report) -> bool:
    if not report.has(TABLE, "data"):
        return False
    described = report.scan(TABLE, optional=(Text("data"),)).filter(pl.col("data").is_not_null())
    return not report.collect(described.head(1)).is_empty()


# -- fields in JSON -------------------------------------------------------------------------------------------------------


def _field_names(report: Report, types: pl.DataFrame) -> list[str]:
    """Fields of all types: as described, and as events have them."""
    of_plugins = types.filter(~pl.col("of_gpu"))["typeId"].to_list()
    names: dict[str, None] = {}
    described = report.read("GENERIC_EVENT_TYPES", optional=("typeId", Text("data")))
    for number, data in described.iter_rows():
        if number in of_plugins:
            names |= dict.fromkeys(field_names(data))
    # All texts before a colon; those that are no field of an object have no value later on. Of the whole report, also where
    # `report` gives a piece of it.
    quoted = pl.col("data").str.extract_all(_JSON_NAME).explode().unique()
    quoted_names = report.collect(_events(report.all_rows, types, (Text("data"),)).select(quoted))["data"].drop_nulls().sort()
    names |= dict.fromkeys(map(_unquoted_name, quoted_names.head(_MOST_FIELDS)))
    return [name for name in names if name]


def _unquoted_name(text: str) -> str:
    try:
        return _text(json.loads(text.removesuffix(":")))
    except ValueError:
        return ""


def field_names(data: str | None) -> list[str]:
    """Names of the fields in the description of a type.

    >>> field_names('{"Name": "", "Fields": [{"Name": "SM Active"}, {"Name": "GR Active"}]}')
    ['SM Active', 'GR Active']
    """
    fields = _described(data).get("Fields")
    named = [_text(field.get("Name")) for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return [name for name in named if name]


def _long(report: Report, types: pl.DataFrame, names: list[str]) -> pl.LazyFrame:
    """A row per field of an event: `event`, `typeId`, `plugin`, `start`, `field`, `text`, and the struct `fields`."""
    fields = pl.Struct(dict.fromkeys(names, pl.String))
    # Piece by piece: a row whose JSON is damaged must not spoil the others.
    decoded = pl.col("data").map_batches(lambda data: _decoded(data, fields), return_dtype=fields, is_elementwise=True)
    one_each = [pl.struct(field=pl.lit(name), text=pl.col("fields").struct.field(name)) for name in names]
    return (
        _events(report, types, (Text("data"),))
        .with_row_index("event")
        .with_columns(fields=decoded)
        .with_columns(each=pl.concat_list(one_each))
        .explode("each")
        .unnest("each")
        .filter(pl.col("text").is_not_null())
    )


def _decoded(data: pl.Series, fields: pl.Struct) -> pl.Series:
    try:
        return data.str.json_decode(fields)
    except pl.exceptions.ComputeError:
        names = [field.name for field in fields.fields]
        rows = [{name: _as_text(described.get(name)) for name in names} for described in map(_described, data)]
        return pl.Series(data.name, rows, dtype=fields)


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _kinds(report: Report, types: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Columns `typeId`, `field`, `is_real` (some value is not whole) and `names_component`."""
    number = pl.col("text").cast(pl.Float64, strict=False)
    values = (
        _long(report.all_rows, types, names)
        .group_by("typeId", "field")
        .agg(
            is_real=(number.is_finite() & ~pl.col("text").str.contains(_WHOLE_NUMBER)).any(),
            units=pl.col("text").filter(pl.col("field").str.contains(_NAMES_A_COMPONENT)).n_unique(),
        )
    )
    return report.collect(values).select(
        "typeId", "field", pl.col("is_real").fill_null(False), names_component=pl.col("units").is_between(1, _MOST_COMPONENTS)
    )


def _frame(report: Report) -> pl.LazyFrame:
    types = plugin_types(report)
    names = _field_names(report, types) if _has_json(report) else []
    if not names:
        return pl.LazyFrame(schema=_SCHEMA)
    kinds = _kinds(report, types, names)
    of_component = sorted(kinds.filter("names_component")["field"].unique().to_list())
    part = (
        pl.concat_str([pl.col("fields").struct.field(name) for name in of_component], separator=" ", ignore_nulls=True)
        if of_component
        else None
    )
    component = pl.col("plugin") if part is None else pl.concat_str("plugin", part, separator=" ").str.strip_chars()
    number = pl.col("text").cast(pl.Float64, strict=False)
    integer = pl.col("text").str.strip_chars().cast(pl.Int64, strict=False)
    scaled = (number * 10**REAL_PRECISION).round().cast(pl.Int64, strict=False)
    is_number = number.is_finite().fill_null(False)
    is_real = pl.col("is_real") & is_number
    long = (
        _long(report, types, names)
        .with_columns(component=component)
        .join(kinds.lazy(), on=["typeId", "field"], maintain_order="left")
    )
    samples = long.filter(~pl.col("names_component")).with_columns(
        type=pl.when(is_number).then(_type_of(is_real)).otherwise(PLUGIN_TEXT).cast(pl.Int64),
        label=pl.when(~is_number).then("text"),
        value=pl.when(is_real).then(scaled).when(is_number).then(pl.coalesce(integer, number.cast(pl.Int64, strict=False))),
    )
    return samples.select(
        "component",
        "start",
        pl.col("start").alias("end"),
        "type",
        pl.format("{} {}", "plugin", "field").alias("series"),
        "label",
        "value",
        (pl.col("event") == pl.col("event").shift(1)).fill_null(False).alias(CONTINUATION),
    )


# -- fields in a second table ---------------------------------------------------------------------------------------


def _fields(report: Report) -> pl.DataFrame:
    """Columns `typeId`, `fieldIdx`, `field`, `is_real`."""
    scanned = report.scan("GENERIC_EVENT_TYPE_FIELDS", optional=("typeId", "fieldIdx", "fieldNameId", "type"))
    fields = drop_duplicates(report.collect(scanned), ["typeId", "fieldIdx"])
    return fields.join(report.strings, left_on="fieldNameId", right_on="id", how="left").select(
        "typeId", "fieldIdx", field=pl.col("value"), is_real=pl.col("type").is_in(_FLOATING_TYPES).fill_null(False)
    )


def _type_of(is_real: pl.Expr) -> pl.Expr:
    return pl.when(is_real).then(PLUGIN_REAL_METRIC).otherwise(PLUGIN_METRIC).cast(pl.Int64)


def _series() -> pl.Expr:
    return pl.format("{} {}", "plugin", pl.coalesce("field", pl.format("field {}", "fieldIdx")))


def _keys_of_values(report: Report) -> pl.LazyFrame:
    if _has_json(report) or not report.has("GENERIC_EVENT_DATA"):
        return pl.LazyFrame(schema=_SCHEMA)
    fields = plugin_types(report).filter(~pl.col("of_gpu")).join(_fields(report), on="typeId")
    named = fields.lazy().select(component="plugin", type=_type_of(pl.col("is_real")), series=_series())
    return with_absent(named, _SCHEMA)


def _with_values(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    types, fields = plugin_types(report), _fields(report)

    def of_events(piecewise: Report) -> pl.LazyFrame:
        events = _events(piecewise, types, ("genericEventId",))
        return events.select("typeId", "plugin", "start", values_id="genericEventId")

    def of_values(piecewise: Report) -> pl.LazyFrame:
        columns = ("genericEventId", "fieldIdx"), ("intVal", "uintVal", Real("floatVal"), Real("doubleVal"))
        table = piecewise.scan_events("GENERIC_EVENT_DATA", *columns, None)
        return table.select(
            "fieldIdx",
            values_id="genericEventId",
            whole=pl.coalesce("intVal", "uintVal"),
            real=pl.coalesce("floatVal", "doubleVal"),
        )

    scaled = (pl.coalesce("real", pl.col("whole").cast(pl.Float64)) * 10**REAL_PRECISION).round()
    for joined in with_values(report, folder, of_events, of_values):
        named = joined.join(fields, on=["typeId", "fieldIdx"], how="left", maintain_order="left")
        scaled_values = named.with_columns(
            value=pl.when("is_real").then(scaled.cast(pl.Int64, strict=False)).otherwise("whole")
        )
        yield scaled_values.select(
            "start",
            "value",
            CONTINUATION,
            component="plugin",
            end="start",
            type=_type_of(pl.col("is_real").fill_null(False)),
            series=_series(),
        )


_ASSUMPTION = (
    "Values are shown as the plugin gives them, counters since their start too; a value holds until the next one. Fields called"
    " device, interface, port and the like name the row."
)

EVENTS = Source(
    name="plugins",
    title="Events of plugins",
    table=TABLE,
    required=("rawTimestamp", "typeId"),
    optional=("timestamp", Text("data")),
    row=RowKind.COMPONENT,
    types=(PLUGIN_METRIC, PLUGIN_REAL_METRIC, PLUGIN_TEXT),
    frame=_frame,
    times=_time_bounds,
    since="3.7",
    assumption=_ASSUMPTION,
)

EVENTS_WITH_VALUES = Source(
    name="plugins",
    title="Events of plugins (values in a table)",
    table=TABLE,
    required=("rawTimestamp", "typeId"),
    optional=("timestamp", "genericEventId"),
    row=RowKind.COMPONENT,
    types=(PLUGIN_METRIC, PLUGIN_REAL_METRIC),
    frame=_keys_of_values,
    stream=_with_values,
    times=_time_bounds,
    since="3.28",
    assumption="Without JSON in the export, values are in GENERIC_EVENT_DATA; texts are lost then.",
)
