"""Payloads of NVTX events: JSON texts and binary blobs come in, their fields leave, whole columns at a time.

A blob, as nsys writes it into `NVTX_EVENTS.binaryData`, is little endian: a head of four 64-bit numbers (domain; schema; size
of the payload; place of the payload, or size of the whole), then the payload. The schema says which fields lie where; its
types are the numbers of NVTX's own header for payloads."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from nsys2prv.errors import DamagedReport
from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text, decoded
from nsys2prv.exports.report import once
from nsys2prv.sources.source import of_schema
from nsys2prv.vocabulary import nccl_names
from nsys2prv.vocabulary.limits import MOST_PAYLOAD_FIELDS

FIELD_SCHEMA = {"event": pl.Int64, "field": pl.String, "integer": pl.Int64, "real": pl.Float64, "text": pl.String}
"""One row per field of an event: its place among the events, its name, and one of the values. Unsigned 64-bit integers are
the signed ones with the same bits."""

HEAD_BYTES = 32
_LONGEST_ARRAY = 16
"""Elements of a fixed array that become fields; longer ones are data, not facts about an event."""
_DEEPEST = 8
"""Schemas inside schemas."""
_MOST_COMBINATIONS = 64
"""Definitions of one schema that are tried where processes differ; with more of them it is not known which is right."""

# Type codes of NVTX's payload extension.
NUMBERS: Mapping[int, np.dtype] = {
    code: np.dtype(name)
    for code, name in {
        1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8", 9: "<i8", 10: "<u8",
        11: "<i1", 12: "<u1", 13: "<i2", 14: "<u2", 15: "<i4", 16: "<u4", 17: "<i8", 18: "<u8",
        19: "<f4", 20: "<f8", 22: "<u8", 23: "<u8", 24: "<u4", 25: "<u1", 26: "<u2", 27: "<u4", 32: "<u1",
        42: "<f2", 43: "<f4", 44: "<f8", 68: "<u4", 69: "<u4", 70: "<u8", 73: "<u4", 74: "<u8",
    }.items()
}  # fmt: skip
_CHARACTERS = (1, 25)
_TEXTS = (75, 76)
"""Texts in a byte per character or UTF-8; of others, and of texts behind pointers, the bytes are not in the blob."""
_FIRST_CUSTOM_TYPE = 1 << 24
_POINTS_ELSEWHERE = 0b1110
_IS_ARRAY = 0b111 << 4
_FIXED_ARRAY = 1 << 4
_IS_FLAT = (1, 2)
"""Types of schemas whose fields lie one behind the other; in unions they lie over each other."""


@dataclass(frozen=True)
class Field:
    """One field of a payload."""

    # name, offset, size: what it is called and where its bytes are
    name: str
    offset: int
    size: int
    dtype: np.dtype | None  # of a number; None for a text
    labels: tuple[tuple[int, str], ...] | None = None  # names of the values of an enumeration


@dataclass(frozen=True)
class Layout:
    """Where the fields of a payload lie, and how many bytes it must have."""

    size: int
    fields: tuple[Field, ...]

    @property
    def is_nccl(self) -> bool:
        """Whether it is one of NCCL's."""
        return any(field.name in nccl_names.COMMUNICATOR_FIELDS for field in self.fields)


@dataclass(frozen=True)
class Schemas:
    """Layouts by domain and schema id. Ids are those of a process, and nsys does not say whose: there can be several."""

    layouts: Mapping[tuple[int, int], tuple[Layout, ...]] = field(default_factory=dict)

    def of(self, domain: int, schema: int) -> tuple[Layout, ...]:
        """Layouts that a payload of a domain may have."""
        if schema in NUMBERS:
            # A payload may be of a predefined type, without a schema.
            dtype = NUMBERS[schema]
            return (Layout(dtype.itemsize, (Field("value", 0, dtype.itemsize, dtype),)),)
        return self.layouts.get((domain, schema), ())


@dataclass(frozen=True, order=True)
class _Entry:
    """One row of NVTX_PAYLOAD_SCHEMA_ENTRIES."""

    flags: int
    type: int
    name: str
    detail: int
    offset: int


@once
def read_schemas(report: Report) -> Schemas:
    """The schemas of a report.

    Raises
    ------
    ReportError
        When a table can't be read.
    """
    builder = _LayoutBuilder(report)
    return Schemas({key: tuple(dict.fromkeys(builder.layouts(*key))) for key in builder.definitions})


_Definition = tuple[int, int, tuple[_Entry, ...]]
"""Type of a schema, bytes that its payload must have, its entries."""


def _definitions(report: Report) -> dict[tuple[int, int], list[_Definition]]:
    """Definitions of each domain and schema id.

    Each process writes its own, mostly the same. Where they differ, nothing says which entries belong together: each
    combination of them is a definition, except that NCCL's are among themselves."""
    key_columns = ("domainId", "schemaId")
    described = report.read("NVTX_PAYLOAD_SCHEMAS", optional=(*key_columns, "type", "payloadSize", "numEntries"))
    columns = (*key_columns, "idx", "flags", "type", Text("name"), "arrayOrUnionDetail", "offset")
    entries = report.read("NVTX_PAYLOAD_SCHEMA_ENTRIES", optional=columns)
    facts: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
    for domain, schema, kind, size, count in described.drop_nulls(key_columns).iter_rows():
        facts.setdefault((domain, schema), set()).add((1 if kind is None else kind, size or 0, count or 0))
    places: dict[tuple[int, int], dict[int, set[_Entry]]] = {}
    for domain, schema, index, flags, kind, name, detail, offset in entries.drop_nulls(columns[:3]).iter_rows():
        # nsys leaves out numbers that are 0.
        entry = _Entry(flags or 0, kind or 0, name or f"field {index}", detail or 0, offset or 0)
        places.setdefault((domain, schema), {}).setdefault(index, set()).add(entry)
    definitions: dict[tuple[int, int], list[_Definition]] = {}
    for key, of_key in places.items():
        definitions[key] = []
        for kind, size, count in sorted(facts.get(key, {(1, 0, 0)})):
            choices = [sorted(of_key[index]) for index in sorted(of_key)][: count or None]
            count_of_all = math.prod(map(len, choices))
            for combination in itertools.product(*choices) if count_of_all <= _MOST_COMBINATIONS else ():
                of_nccl = {entry.name in nccl_names.FIELDS for entry in combination}
                if count_of_all == 1 or len(of_nccl) == 1:
                    definitions[key].append((kind, size, combination))
    return definitions


def _enumerations(report: Report) -> dict[tuple[int, int], tuple[int, dict[int, str]]]:
    """Bytes and names of the values of each enumeration, by domain and its id."""
    sizes = report.read("NVTX_PAYLOAD_ENUMS", optional=("domainId", "schemaId", "size"))
    values = report.read("NVTX_PAYLOAD_ENUM_ENTRIES", optional=("domainId", "schemaId", Text("name"), "value"))
    enumerations: dict[tuple[int, int], tuple[int, dict[int, str]]] = {}
    # Of those that contradict each other the last one counts, wherever it is in its table.
    for domain, schema, size in sizes.sort(sizes.columns).iter_rows():
        enumerations[domain, schema] = (size or 4, {})
    for domain, schema, name, value in values.drop_nulls(["domainId", "schemaId", "name"]).sort(values.columns).iter_rows():
        enumerations.setdefault((domain, schema), (4, {}))[1][value or 0] = name
    return enumerations


class _LayoutBuilder:
    """Lays out the fields of schemas, those of schemas inside schemas among them."""

    def __init__(self, report: Report) -> None:
        self._path = report.path
        self._enumerations = _enumerations(report)
        self.definitions = _definitions(report)
        self._fields_left = MOST_PAYLOAD_FIELDS

    def layouts(self, domain: int, schema: int) -> Iterator[Layout]:
        """A layout for each definition of a schema; of several only those that can be laid out so."""
        definitions = self.definitions[domain, schema]
        for definition in definitions:
            self._fields_left = MOST_PAYLOAD_FIELDS
            fields, end = self._fields(domain, definition, "", 0, 0)
            size = definition[1] or end
            ends = [0, *(field.offset + field.size for field in fields)]
            starts = [*(field.offset for field in fields), size]
            if len(definitions) == 1 or all(before <= start for before, start in zip(ends, starts, strict=True)):
                yield Layout(size, tuple(fields))

    def _fields(self, domain: int, definition: _Definition, prefix: str, base: int, depth: int) -> tuple[list[Field], int]:
        kind, size, entries = definition
        if kind not in _IS_FLAT or depth > _DEEPEST:
            return [], base + size
        fields: list[Field] = []
        end = base
        for index, entry in enumerate(entries):
            placed = self._entry(domain, entry, prefix, base, end, index, depth)
            if placed is None:
                # Where the fields after it are is not known.
                if all(later.offset == 0 for later in entries[index + 1 :]):
                    break
                continue
            placed_fields, end = placed
            fields += placed_fields
            # At least 1: schemas that hold themselves have no other fields.
            self._fields_left -= max(len(placed_fields), 1)
            if self._fields_left < 0:
                fields_are = f"more than {MOST_PAYLOAD_FIELDS:,} fields, those of schemas inside it counted"
                raise DamagedReport(self._path, f"a schema of NVTX payloads has {fields_are}")
        return fields, max(end, base + size)

    def _entry(
        self, domain: int, entry: _Entry, prefix: str, base: int, end: int, index: int, depth: int
    ) -> tuple[list[Field], int] | None:
        name = f"{prefix}{entry.name}"
        if entry.flags & _POINTS_ELSEWHERE:
            return None
        array = entry.flags & _IS_ARRAY
        if array and array != _FIXED_ARRAY:
            return None
        count = entry.detail if array else 1

        def place(alignment: int) -> int:
            at = entry.offset if entry.offset or not index else -(-(end - base) // alignment) * alignment
            return base + at

        nested = self.definitions.get((domain, entry.type), [])
        if nested:
            return None if array else self._fields(domain, nested[0], f"{name}.", place(8), depth + 1)
        size, dtype, labels = self._number(domain, entry)
        if entry.detail and entry.type in (_CHARACTERS if array else _TEXTS):
            return [Field(name, place(1), entry.detail, None)], place(1) + entry.detail
        if dtype is None:
            return None
        names = [name] if not array else [f"{name}({number})" for number in range(count)] if count <= _LONGEST_ARRAY else []
        offsets = range(place(size), place(size) + size * count, size)
        fields = [Field(of_place, offset, size, dtype, labels) for of_place, offset in zip(names, offsets, strict=False)]
        return fields, place(size) + size * count

    def _number(self, domain: int, entry: _Entry) -> tuple[int, np.dtype | None, tuple[tuple[int, str], ...] | None]:
        if entry.type in NUMBERS:
            dtype = NUMBERS[entry.type]
            return dtype.itemsize, dtype, None
        enumeration = self._enumerations.get((domain, entry.type))
        if enumeration is None and entry.type >= _FIRST_CUSTOM_TYPE and entry.name == nccl_names.REDUCTION:
            # NCCL's only enumeration, in exports without its names.
            enumeration = 4, dict(enumerate(nccl_names.REDUCTIONS))
        if enumeration is None or enumeration[0] not in (1, 2, 4, 8):
            return 0, None, None
        return enumeration[0], np.dtype(f"<i{enumeration[0]}"), tuple(enumeration[1].items())


# -- blobs ----------------------------------------------------------------------------------------------------------------


def binary_fields(blobs: pl.Series, domains: pl.Series, is_nccl: pl.Series, schemas: Schemas) -> pl.DataFrame:
    """Fields of binary payloads.

    A payload with less bytes than its schema, without a schema that is known, or with several that fit, has no fields.

    Parameters
    ----------
    blobs
        Binary, null where an event has none.
    domains
        Ids of the domains of the events.
    is_nccl
        Whether an event is one of NCCL's: schemas of another domain with the same id are not meant then.

    Returns
    -------
    Columns of `FIELD_SCHEMA`, in the order of events.
    """
    empty = pl.DataFrame(schema=FIELD_SCHEMA)
    there = np.flatnonzero((blobs.bin.size() >= HEAD_BYTES).fill_null(False).to_numpy())
    if not len(there):
        return empty
    held = blobs.gather(there)
    head = _bytes_of(held, pl.Series(np.zeros(len(there), dtype=np.int64)), HEAD_BYTES).view("<u8")
    domain = domains.gather(there).to_numpy().astype(np.int64)
    numbers = np.array(sorted({schema for _, schema in schemas.layouts} | set(NUMBERS)), dtype=np.int64)
    ids = head[:, 1].astype(np.int64)
    # Ids of schemas have 64 bits, or 32 with flags above them.
    schema = np.where(np.isin(ids, numbers), ids, ids & 0xFFFF_FFFF)
    length = held.bin.size().to_numpy().astype(np.uint64)
    size, place = head[:, 2], head[:, 3]
    # The last number of the head can be either; with one payload, 32 means the same in both readings.
    is_place = (place >= HEAD_BYTES) & (place <= length) & (size <= length - np.minimum(place, length))
    start = np.where(is_place, place, HEAD_BYTES).astype(np.int64)
    available = np.minimum(size, length - start.astype(np.uint64)).astype(np.int64)
    nccl = is_nccl.gather(there).to_numpy().astype(np.int64)
    parts = [empty]
    for of_domain, of_type, of_nccl in np.unique(np.stack([domain, schema, nccl], axis=1), axis=0).tolist():
        layouts = schemas.of(of_domain, of_type)
        layouts = tuple(layout for layout in layouts if layout.is_nccl == bool(of_nccl)) or layouts
        mine = (domain == of_domain) & (schema == of_type) & (nccl == of_nccl)
        for layout in layouts:
            fits = mine & (available >= layout.size)
            if len(layouts) > 1:
                # Of another process: it has another size, or it is not known whose it is.
                fits &= size == layout.size
                if sum(candidate.size == layout.size for candidate in layouts) > 1:
                    continue
            rows = np.flatnonzero(fits)
            if len(rows) and layout.fields:
                payload = _bytes_of(held.gather(rows), pl.Series(start[rows]), max(layout.size, 1))
                parts += [
                    _decoded(payload, field, there[rows]) for field in layout.fields if field.offset + field.size <= layout.size
                ]
    return pl.concat(parts).drop_nulls("event").sort("event", maintain_order=True)


def _bytes_of(blobs: pl.Series, start: pl.Series, size: int) -> np.ndarray:
    """`size` bytes of each blob, all of which must have them, as a row each."""
    cut = pl.DataFrame({"blob": blobs, "start": start}).select(pl.col("blob").bin.slice(pl.col("start"), size)).to_series()
    array = cut.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    first = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset]
    data = np.frombuffer(array.buffers()[2], dtype=np.uint8)
    return data[first : first + len(blobs) * size].reshape(len(blobs), size)


def _decoded(payload: np.ndarray, field: Field, events: np.ndarray) -> pl.DataFrame:
    """One field of payloads."""
    raw = np.ascontiguousarray(payload[:, field.offset : field.offset + field.size])
    values: dict[str, pl.Series] = {}
    if field.dtype is None:
        values["text"] = _texts(raw)
    elif field.dtype.kind == "f":
        values["real"] = pl.Series(raw.view(field.dtype)[:, 0].astype(np.float64))
    else:
        values["integer"] = integer = pl.Series(raw.view(field.dtype)[:, 0].astype(np.int64))
        if field.labels is not None:
            values["text"] = text = integer.replace_strict(dict(field.labels), default=None, return_dtype=pl.String)
            values["integer"] = integer.zip_with(text.is_null(), pl.Series([None], dtype=pl.Int64))
    frame = pl.DataFrame({"event": pl.Series(events, dtype=pl.Int64), **values}).with_columns(field=pl.lit(field.name))
    return of_schema(frame, FIELD_SCHEMA)


def _texts(raw: np.ndarray) -> pl.Series:
    """Rows of characters up to the first zero."""
    inside = np.cumsum(raw == 0, axis=1) == 0
    offsets = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(np.int64)
    array = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(raw[inside].tobytes())]
    )
    return decoded(pl.Series(pl.from_arrow(array)))


# -- JSON -----------------------------------------------------------------------------------------------------------------
_JSON_TEXT = r'"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_JSON_SCALAR = rf"{_JSON_TEXT}|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null"
# All texts, also those that are no names or have a list as their value: what follows one must not be taken for one.
_JSON_PIECE = rf"{_JSON_TEXT}(?:\s*:\s*(?:{_JSON_SCALAR})?)?"
_JSON_FIELD = rf"(?s)^({_JSON_TEXT})\s*:\s*(\S.*)$"


def json_fields(texts: pl.Series) -> pl.DataFrame:
    """Fields of JSON objects: names with a number, a truth value or a text. Those of objects inside are too, lists are not.

    What is no JSON has no fields.

    >>> json_fields(pl.Series(['{"Root": 0, "op": "Sum", "loss": 1.5, "list": [1], "nothing": null}', None])).rows()
    [(0, 'Root', 0, None, None), (0, 'op', None, None, 'Sum'), (0, 'loss', None, 1.5, None)]
    """
    events = texts.alias("json").to_frame().with_row_index("event").drop_nulls("json")
    # Programs repeat themselves: each text is taken apart once.
    distinct = events.select("json").unique(maintain_order=True)
    pairs = (
        distinct.with_columns(piece=pl.col("json").str.extract_all(_JSON_PIECE))
        .explode("piece")
        .with_columns(name=pl.col("piece").str.extract(_JSON_FIELD, 1), token=pl.col("piece").str.extract(_JSON_FIELD, 2))
        .filter(pl.col("token") != "null")
    )
    is_text = pl.col("token").str.starts_with('"')
    number = pl.col("token").replace({"true": "1", "false": "0"})
    integer = pl.coalesce(number.cast(pl.Int64, strict=False), number.cast(pl.UInt64, strict=False).reinterpret(signed=True))
    fields = pairs.select(
        "json",
        field=_unquoted(pl.col("name")),
        integer=pl.when(~is_text).then(integer),
        real=pl.when(~is_text & integer.is_null()).then(number.cast(pl.Float64, strict=False)),
        text=pl.when(is_text).then(_unquoted(pl.col("token"))),
    ).unique(["json", "field"], keep="first", maintain_order=True)
    return (
        events.join(fields, on="json", how="inner", maintain_order="left_right")
        .select(list(FIELD_SCHEMA))
        .cast(pl.Schema(FIELD_SCHEMA))
    )


def _unquoted(token: pl.Expr) -> pl.Expr:
    """A quoted text of JSON as it was; half of a pair of surrogates stays escaped."""
    plain = token.str.slice(1, token.str.len_chars() - 2)
    is_escaped = token.str.contains("\\", literal=True) & ~token.str.contains(r"\\u[dD][89a-fA-F]")
    escaped = pl.when(is_escaped).then(token).otherwise(pl.lit('""'))
    return pl.when(is_escaped).then(escaped.str.json_decode(pl.String)).otherwise(plain)


# -- both -----------------------------------------------------------------------------------------------------------------


def fields(events: pl.DataFrame, schemas: Schemas) -> pl.DataFrame:
    """Fields of the payloads of events, of either form.

    Parameters
    ----------
    events
        Columns `json` (text), `blob` (bytes), `domainId`, `is_nccl`.

    Returns
    -------
    Columns of `FIELD_SCHEMA`.
    """
    parts = [pl.DataFrame(schema=FIELD_SCHEMA)]
    if events["json"].null_count() < events.height:
        parts.append(json_fields(events["json"]))
    if events["blob"].null_count() < events.height:
        parts.append(binary_fields(events["blob"], events["domainId"], events["is_nccl"], schemas))
    return pl.concat(parts)
