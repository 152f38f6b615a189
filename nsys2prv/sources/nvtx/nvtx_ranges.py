"""NVTX: push/pop ranges per domain, start/end ranges, marks, with their categories and payloads.

Among them are ranges of PyTorch's `emit_nvtx`: operator, sequence id and sizes are in one text, different each time, such as
``aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], [3, 4]], input_op_ids = [(9,0)]``; each part after the name may be absent. The
sequence id counts the operators of a thread that autograd records, and the node that later computes the gradient of one carries
the id of that operator: ``MmBackward0, seq = 7, op_id = 40`` on a thread of autograd. So the id ties forward and backward
together."""

from collections.abc import Callable, Collection
from typing import Any

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Blob, Real, Text, process_of
from nsys2prv.exports.identity import NVTX_DOMAIN_CREATED
from nsys2prv.exports.report import once
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.nvtx import payloads
from nsys2prv.sources.source import UNNAMED, RowKind, Source, with_text
from nsys2prv.vocabulary import event_types, nccl_names
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet
from nsys2prv.vocabulary.name_rules import fits

AUTOGRAD_FORWARD, AUTOGRAD_BACKWARD = "forward", "backward"
AUTOGRAD_SEQUENCE = EventType(9610, "Autograd sequence", Role.ATTRIBUTE, unit="sequence id + 1")
AUTOGRAD_DIRECTION = EventType(
    9611,
    "Autograd direction",
    Role.ATTRIBUTE,
    ValueSet("autograd directions", {AUTOGRAD_FORWARD: 1, AUTOGRAD_BACKWARD: 2}, first=3),
)
AUTOGRAD_OPERATION = EventType(9612, "Autograd operation", Role.ATTRIBUTE, unit="id")
AUTOGRAD_SIZES = EventType(9613, "Autograd sizes", Role.ATTRIBUTE, ValueSet("autograd sizes"))


AUTOGRAD_TYPES = (AUTOGRAD_SEQUENCE, AUTOGRAD_DIRECTION, AUTOGRAD_OPERATION, AUTOGRAD_SIZES)
"""Attributes that `with_autograd` adds."""

_AUTOGRAD_ASSUMPTION = (
    "Names of PyTorch's backward ranges end in Backward and a number, or begin with autograd::engine:: or torch::autograd::, "
    "and have the sequence id of the forward operator; sizes and ids of inputs follow in brackets."
)
"""The real reports hold forward ranges, without sizes."""

# A list may be cut off, where the text was too long for the profiler.
_LIST = r"\[[\d\s,()\[\]-]*"
_TAIL = rf"((?:, (?:(?:stashed )?seq|op_id|sizes|input_op_ids) ?= ?(?:\d+|{_LIST}))+)$"
_SEQUENCE = r"\bseq ?= ?(\d+)"
_OPERATION = r", op_id ?= ?(\d+)"
_SIZES = rf", sizes ?= ?({_LIST}?)(?:, input_op_ids|$)"
# What computes gradients; PyTorch before 1.5 called sequence ids of backward "stashed".
_BACKWARD = r"Backward\d*$|^autograd::engine::|^torch::autograd::"
_STASHED = ", stashed seq"


def name_of(text: pl.Expr) -> pl.Expr:
    """The name of the operator in a text; other texts stay as they are."""
    return text.str.strip_suffix(text.str.extract(_TAIL).fill_null(""))


def with_autograd(ranges: pl.LazyFrame) -> pl.LazyFrame:
    """Ranges (with a column `label`) with the name of the operator as their label, and the attributes `AUTOGRAD_TYPES`."""
    tail, name = pl.col("tail"), pl.col("label")
    sequence = tail.str.extract(_SEQUENCE).cast(pl.Int64, strict=False)
    is_backward = name.str.contains(_BACKWARD) | tail.str.contains(_STASHED, literal=True)
    direction = (
        pl.when(tail.is_not_null() & is_backward)
        .then(pl.lit(AUTOGRAD_BACKWARD))
        .when(sequence.is_not_null())
        .then(pl.lit(AUTOGRAD_FORWARD))
    )
    return (
        ranges.with_columns(tail=name.str.extract(_TAIL))
        .with_columns(label=name.str.strip_suffix(tail.fill_null("")))
        .with_columns(
            (sequence + 1).alias(str(AUTOGRAD_SEQUENCE)),
            direction.alias(str(AUTOGRAD_DIRECTION)),
            tail.str.extract(_OPERATION).cast(pl.Int64, strict=False).alias(str(AUTOGRAD_OPERATION)),
            tail.str.extract(_SIZES).alias(str(AUTOGRAD_SIZES)),
        )
        .drop("tail")
    )


REAL_DIGITS = 6
"""Paraver takes integers only: real numbers are written as millionths."""
NVTX_CATEGORY = EventType(9510, "NVTX category", Role.ATTRIBUTE, ValueSet("nvtx categories"))
NVTX_INTEGER = EventType(9511, "NVTX payload", Role.ATTRIBUTE, unit="the program's own")
NVTX_REAL = EventType(9512, "NVTX payload, real", Role.ATTRIBUTE, unit="millionths", precision=REAL_DIGITS)


def _of_fields(number: int, label: str, values: ValueSet | None = None, *, unit: str = "", precision: int = 0) -> EventType:
    """Event types of fields of payloads, one per name."""
    series = {"step": 1, "members": 20, "overflow": 10_000 * number, "gradient": 0}
    return EventType(number, label, Role.ATTRIBUTE, values, unit=unit, precision=precision, **series)


NVTX_INTEGER_FIELD = _of_fields(9520, "NVTX payload {}", unit="the program's own")
NVTX_REAL_FIELD = _of_fields(9540, "NVTX payload {}, real", unit="millionths", precision=REAL_DIGITS)
NVTX_TEXT_FIELD = _of_fields(9560, "NVTX payload {}, text", ValueSet("nvtx texts"))


CATEGORY_NAMED, MARK, PUSHPOP_RANGE, STARTEND_RANGE = 33, 34, 59, 60
"""`eventType` of the events that are translated. The others (33, 39, 75, 76) give names to these."""

DEFAULT_DOMAIN = "default"
NCCL_DOMAIN = "NCCL"
# The row that names a domain is lost when the recording began after the program.
_NCCL_FUNCTION = r"^nccl[A-Z]\w*$"
NVSHMEM_DOMAIN = "NVSHMEM"
MPI_DOMAIN = "MPI"
"""Up to nsys 2023 calls of MPI are push/pop ranges of this domain."""

_REQUIRED = ("start", "eventType", "globalTid")
_OPTIONAL = ("end", Text("text"), "textId", "domainId")
_INTEGERS = ("int64Value", "uint64Value", "int32Value", "uint32Value")
_REALS = (Real("doubleValue"), Real("floatValue"))
_VALUES = ("category", *_INTEGERS, *_REALS)
"""What an event says in one number; a payload is of one type."""
_STRUCTURED = (Text("jsonText"), "jsonTextId", Blob("binaryData"))
"""What an event says in several fields."""


def ranges_in_domains(
    report: Report, source: Source, columns: Collection[str] = (), *, with_default: bool = True
) -> pl.LazyFrame:
    """Events of NVTX with `label`, `globalPid`, the name of their `domain`, and further columns (null in a table without).

    `with_default`: with those of the default domain, which can be nearly all."""
    scanned = report.scan_events(source.table, source.required, (*source.optional, *columns), source.only)
    if not with_default:
        scanned = scanned.filter(pl.col("domainId").fill_null(0) != 0)
    table = scanned.with_columns(globalPid=process_of(pl.col("globalTid")), domainId=pl.col("domainId").fill_null(0))
    return (
        with_text(report, table, "textId", "name")
        .join(_domains(report).lazy(), on=["globalPid", "domainId"], how="left", maintain_order="left")
        .with_columns(label=pl.coalesce("text", "name", pl.lit(UNNAMED)))
        .with_columns(
            domain=pl.when(pl.col("domainId") == 0)
            .then(pl.lit(DEFAULT_DOMAIN))
            .when(pl.col("domain").is_null() & pl.col("label").str.contains(_NCCL_FUNCTION))
            .then(pl.lit(NCCL_DOMAIN))
            .otherwise(pl.coalesce("domain", pl.format("{}", pl.col("domainId"))))
        )
    )


def has_text(report: Report, condition: Callable[[pl.Expr], pl.Expr]) -> bool:
    """Whether a text in a report, which may be that of an event of NVTX, fulfils a condition."""
    if not report.has("NVTX_EVENTS", *_REQUIRED):
        return False
    if not report.strings.filter(condition(pl.col("value"))).is_empty():
        return True
    texts = report.scan("NVTX_EVENTS", optional=(Text("text"),)).filter(condition(pl.col("text")))
    return report.count(texts.head(1)) > 0


@once
def used_columns(report: Report) -> frozenset[str]:
    """Columns of categories and payloads that any event of a report has a value in: the others need not be read."""
    columns = [name for name in (*_VALUES, *_STRUCTURED) if report.has("NVTX_EVENTS", name)]
    counts = report.collect(report.scan("NVTX_EVENTS", optional=columns).select(pl.col(columns).count()))
    return frozenset(name for name in columns if counts[name][0])


def structured_columns(report: Report) -> tuple[str, ...]:
    """Columns with payloads of several fields that a report has."""
    return tuple(name for name in _STRUCTURED if name in used_columns(report))


def with_payloads(report: Report, ranges: pl.LazyFrame) -> pl.LazyFrame:
    """Events of `ranges_in_domains`, read with `structured_columns`, and `payload`: what `payloads.fields` makes fields of."""
    structured = structured_columns(report)
    if "jsonTextId" in structured:
        ranges = with_text(report, ranges, "jsonTextId", "registered")
    json = [pl.col(name) for name, column in (("jsonText", "jsonText"), ("registered", "jsonTextId")) if column in structured]
    return ranges.with_columns(
        payload=pl.struct(
            pl.coalesce(*json, pl.lit(None, pl.String)).alias("json"),
            (pl.col("binaryData") if "binaryData" in structured else pl.lit(None, pl.Binary)).alias("blob"),
            pl.col("domainId"),
            (pl.col("domain") == NCCL_DOMAIN).alias("is_nccl"),
        )
    )


def all_ranges(report: Report) -> pl.LazyFrame:
    """Push/pop and start/end ranges: `globalTid`, `domain`, `start`, `end`, and `label`, the text as the report has it."""
    columns = {"globalTid": pl.Int64, "domain": pl.String, "start": pl.Int64, "end": pl.Int64, "label": pl.String}
    if not report.has(PUSHPOP.table):
        return pl.LazyFrame(schema=columns)
    return pl.concat(ranges_in_domains(report, source).select(*columns) for source in (PUSHPOP, STARTEND))


def names_of_ranges(report: Report) -> set[str]:
    """Names of all ranges of a report, as the trace has them."""
    return set(report.collect(all_ranges(report).select(name_of(pl.col("label"))).drop_nulls())["label"])


def is_called(requested: str, name: pl.Expr, domain: pl.Expr) -> pl.Expr:
    """Whether ranges fit NAME or NAME@DOMAIN, with the wildcards * and ?; a name with an @ in it also fits as it is."""
    before, at, of_domain = requested.rpartition("@")
    has_name = fits(name, requested)
    return has_name | (fits(name, before) & fits(domain, of_domain)) if at else has_name


def is_mpi_call() -> pl.Expr:
    """Whether a range of `ranges_in_domains` is a call of MPI."""
    return (pl.col("domain") == MPI_DOMAIN) & pl.col("label").str.starts_with("MPI_")


def is_nvshmem_call() -> pl.Expr:
    """Whether a range of `ranges_in_domains` is a call of NVSHMEM."""
    return (pl.col("domain") == NVSHMEM_DOMAIN) & pl.col("label").str.contains("^(?i)nvshmem")


@once
def _domains(report: Report) -> pl.DataFrame:
    """Columns `globalPid`, `domainId`, `domain`: ids of domains differ between processes."""
    created = report.scan("NVTX_EVENTS", _REQUIRED, _OPTIONAL, only={"eventType": (NVTX_DOMAIN_CREATED,)})
    domain = pl.coalesce("text", "name").str.strip_chars()
    domains = report.collect(
        with_text(report, created, "textId", "name").select(
            "domainId", globalPid=process_of(pl.col("globalTid")), domain=domain
        )
    )
    return drop_duplicates(domains, ["globalPid", "domainId"])


def _value_columns(report: Report) -> tuple[str, ...]:
    """Columns with categories and numbers that a report has."""
    return tuple(name for name in _VALUES if name in used_columns(report))


@once
def _categories(report: Report) -> pl.DataFrame:
    """Columns `globalPid`, `domainId`, `category`, `category_name`; ids belong to a process and a domain."""
    named = report.scan("NVTX_EVENTS", _REQUIRED, (*_OPTIONAL, "category"), only={"eventType": (CATEGORY_NAMED,)})
    categories = with_text(report, named, "textId", "name").select(
        pl.col("domainId").fill_null(0),
        "category",
        globalPid=process_of(pl.col("globalTid")),
        category_name=pl.coalesce("text", "name"),
    )
    return drop_duplicates(report.collect(categories), ["globalPid", "domainId", "category"])


def _with_values(report: Report, ranges: pl.LazyFrame) -> pl.LazyFrame:
    """Events of `ranges_in_domains`, read with `_value_columns`, with their category and their number as attributes."""
    columns = _value_columns(report)
    category = pl.lit(None, pl.String)
    if "category" in columns:
        ranges = ranges.join(
            _categories(report).lazy(), on=["globalPid", "domainId", "category"], how="left", maintain_order="left"
        )
        named = pl.coalesce("category_name", pl.format("category {}", "category"))
        # 0 is no category.
        category = pl.when(pl.col("category") != 0).then(named)
    return ranges.with_columns(
        category.alias(str(NVTX_CATEGORY)),
        pl.coalesce(*(name for name in _INTEGERS if name in columns), pl.lit(None, pl.Int64)).alias(str(NVTX_INTEGER)),
        as_integer(pl.coalesce(*(name for name in _REALS if name in columns), pl.lit(None, pl.Float64))).alias(str(NVTX_REAL)),
    )


def as_integer(real: pl.Expr) -> pl.Expr:
    """A real number as the trace has it; null for what is none or too large."""
    scaled = (real * 10**REAL_DIGITS).round()
    return pl.when(scaled.is_finite()).then(scaled).cast(pl.Int64, strict=False)


_VALUE_TYPES = (NVTX_CATEGORY, NVTX_INTEGER, NVTX_REAL)
_ATTRIBUTES = tuple(map(str, _VALUE_TYPES))


def _pushpop(report: Report) -> pl.LazyFrame:
    return (
        _with_values(report, ranges_in_domains(report, PUSHPOP, _value_columns(report)))
        .filter(~is_mpi_call() & ~is_nvshmem_call() & (pl.col("domain") != NCCL_DOMAIN))
        .pipe(with_autograd)
        .select(
            *RowKind.THREAD.interval,
            "label",
            *_ATTRIBUTES,
            *map(str, AUTOGRAD_TYPES),
            type=pl.lit(event_types.NVTX_PUSHPOP, pl.Int64),
            series="domain",
        )
    )


def _startend(report: Report) -> pl.LazyFrame:
    return ranges_in_domains(report, STARTEND).select(
        "globalTid", "start", "end", "label", type=pl.lit(event_types.NVTX_RANGE, pl.Int64)
    )


def _marks(report: Report) -> pl.LazyFrame:
    return _with_values(report, ranges_in_domains(report, MARKS, _value_columns(report))).select(
        "globalTid", "start", "label", *_ATTRIBUTES, end=pl.col("start"), type=pl.lit(event_types.NVTX_MARK, pl.Int64)
    )


_FIELDS = pl.List(pl.Struct({name: dtype for name, dtype in payloads.FIELD_SCHEMA.items() if name != "event"}))
_INTEGER_COLUMNS = ("globalTid", "start", "end", "type", "value")
_NO_FIELDS = {**dict.fromkeys(_INTEGER_COLUMNS, pl.Int64), "series": pl.String, "label": pl.String}


def _fields(report: Report) -> pl.LazyFrame:
    structured, values = structured_columns(report), _value_columns(report)
    parts = [pl.LazyFrame(schema=_NO_FIELDS)]
    if structured or values:
        # A piece of the table is read once, whatever is made of it.
        ranges = ranges_in_domains(report, FIELDS, (*structured, *values))
        parts += [_structured(report, ranges)] if structured else []
        parts += _values_of_ranges(report, ranges) if values else []
    return pl.concat(parts, how="diagonal")


def _structured(report: Report, ranges: pl.LazyFrame) -> pl.LazyFrame:
    """Fields of payloads, but for those that regions of NCCL have as attributes."""
    schemas = payloads.read_schemas(report)

    def decode(column: pl.Series) -> pl.Series:
        of_events = column.struct.unnest()
        fields_of_events = (
            payloads.fields(of_events, schemas)
            .group_by("event", maintain_order=True)
            .agg(fields=pl.struct(pl.exclude("event")))
        )
        rows = of_events.select(event=pl.int_range(pl.len(), dtype=pl.Int64))
        decoded: pl.Series = rows.join(fields_of_events, on="event", how="left", maintain_order="left")["fields"].cast(_FIELDS)
        return decoded.rename(column.name)

    value = pl.col("fields").struct.field
    is_pushpop = pl.col("eventType") == PUSHPOP_RANGE
    return (
        with_payloads(report, ranges)
        .with_columns(fields=pl.col("payload").map_batches(decode, return_dtype=_FIELDS, is_elementwise=True))
        .explode("fields")
        .filter(pl.col("fields").is_not_null())
        .filter((pl.col("domain") != NCCL_DOMAIN) | ~nccl_names.field_name(value("field")).is_in(list(nccl_names.FIELDS)))
        .select(
            "globalTid",
            "start",
            end=pl.when(is_pushpop).then("end").otherwise("start"),
            type=pl.when(value("text").is_not_null())
            .then(NVTX_TEXT_FIELD)
            .when(value("real").is_not_null())
            .then(NVTX_REAL_FIELD)
            .otherwise(NVTX_INTEGER_FIELD)
            .cast(pl.Int64),
            series=pl.format("{} {}", "domain", value("field")),
            label=value("text"),
            value=pl.coalesce(value("integer"), as_integer(value("real"))),
        )
        .filter(pl.col("label").is_not_null() | pl.col("value").is_not_null())
    )


def _values_of_ranges(report: Report, ranges: pl.LazyFrame) -> list[pl.LazyFrame]:
    """Categories and numbers of start/end ranges, where these begin: ranges that overlap would end each other's."""
    values = _with_values(report, ranges.filter(pl.col("eventType") == STARTEND_RANGE))
    columns = {NVTX_CATEGORY: "label", NVTX_INTEGER: "value", NVTX_REAL: "value"}
    return [
        values.select("globalTid", "start", end="start", type=pl.lit(number, pl.Int64), **{column: str(number)}).drop_nulls(
            column
        )
        for number, column in columns.items()
    ]


ON_THREADS: dict[str, Any] = {
    "table": "NVTX_EVENTS", "required": _REQUIRED, "optional": _OPTIONAL, "extra": (*_VALUES, *_STRUCTURED),
    "row": RowKind.THREAD,
}  # fmt: skip
"""What sources of NVTX events on threads share."""

PUSHPOP = Source(
    name="nvtx",
    title="NVTX push/pop ranges",
    **ON_THREADS,
    types=(event_types.NVTX_PUSHPOP, *_VALUE_TYPES, *AUTOGRAD_TYPES),
    frame=_pushpop,
    only={"eventType": (PUSHPOP_RANGE,)},
    assumption=_AUTOGRAD_ASSUMPTION,
)

STARTEND = Source(
    name="nvtx-ranges",
    title="NVTX start/end ranges",
    **ON_THREADS,
    types=(event_types.NVTX_RANGE,),
    frame=_startend,
    only={"eventType": (STARTEND_RANGE,)},
    in_order=lambda: Lanes("globalTid"),
)

MARKS = Source(
    name="nvtx-marks",
    title="NVTX marks",
    **ON_THREADS,
    types=(event_types.NVTX_MARK, *_VALUE_TYPES),
    frame=_marks,
    times=("start", "start"),
    only={"eventType": (MARK,)},
)

FIELDS = Source(
    name="nvtx-payloads",
    title="NVTX payloads",
    **ON_THREADS,
    types=(NVTX_INTEGER_FIELD, NVTX_REAL_FIELD, NVTX_TEXT_FIELD, *_VALUE_TYPES),
    frame=_fields,
    only={"eventType": (MARK, PUSHPOP_RANGE, STARTEND_RANGE)},
    derived=True,
    assumption="A binary payload is 32 bytes of head (domain, schema, size, place of the payload or size of the whole; 64 bits "
    "each, little endian) and then the first payload of the event.",
)
"""Fields of payloads of several fields, as long as push/pop ranges are, else without length; and the numbers of start/end
ranges."""
