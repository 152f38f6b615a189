"""The decoders of payloads: bytes by a schema, and JSON texts."""

import json
import struct
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.nccl_regions import payload_blob
from support.report_builder import ReportBuilder

from nsys2prv.exports import Report, open_report
from nsys2prv.exports.columns import Blob
from nsys2prv.sources.nvtx.payloads import Field, Layout, Schemas, binary_fields, fields, json_fields, read_schemas

INT, UINT, INT64, UINT64, FLOAT, DOUBLE, SIZE, CSTRING = 5, 6, 17, 18, 19, 20, 22, 75
FORMS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q", 11: "b", 12: "B", 13: "h", 14: "H",
    15: "i", 16: "I", 17: "q", 18: "Q", 19: "f", 20: "d", 22: "Q", 23: "Q", 42: "e", 43: "f", 44: "d",
}  # fmt: skip
"""Letter of Python's own `struct` for each type code of NVTX."""
SCHEMA = 1 << 24


def decoded(blobs: list[bytes | None], schemas: Schemas, domain: int = 1) -> list[tuple[object, ...]]:
    """(event, field, value) of each field."""
    events = pl.DataFrame({"json": [None] * len(blobs), "blob": blobs}, schema={"json": pl.String, "blob": pl.Binary})
    found = fields(events.with_columns(domainId=pl.lit(domain, pl.Int64), is_nccl=pl.lit(False)), schemas)
    return [
        (event, name, next((value for value in values if value is not None), None))
        for event, name, *values in found.select("event", "field", "integer", "real", "text").iter_rows()
    ]


def schemas_of(tmp_path: Path, builder: ReportBuilder) -> Schemas:
    return read_schemas(open_report(builder.write(tmp_path / "schemas.sqlite")))


def number(code: int) -> st.SearchStrategy[int | float]:
    letter = FORMS[code]
    if letter in "efd":
        return st.floats(width={"e": 16, "f": 32, "d": 64}[letter], allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
    bits = 8 * struct.calcsize(letter)
    return st.integers(0, 2**bits - 1) if letter.isupper() else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def schema_and_payloads(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], int, list[list[int | float]]]:
    """Fields with gaps between them, the size of a payload, and payloads."""
    codes = draw(st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=6))
    place, laid = 0, []
    for index, code in enumerate(codes):
        place += draw(st.integers(0, 5)) if index else 0
        laid.append((f"field {index}", code, place))
        place += struct.calcsize(FORMS[code])
    events = draw(st.lists(st.tuples(*map(number, codes)).map(list), min_size=1, max_size=8))
    return laid, place + draw(st.integers(0, 8)), events


@given(schema_and_payloads(), st.booleans())
def test_what_is_written_by_a_schema_is_read_by_it(
    drawn: tuple[list[tuple[str, int, int]], int, list[list[int | float]]], ends_with_place: bool
) -> None:
    laid, size, events = drawn
    layout = Layout(size, tuple(Field(name, place, struct.calcsize(FORMS[code]), NUMPY[code]) for name, code, place in laid))
    blobs: list[bytes | None] = []
    for values in events:
        payload = bytearray(size)
        for (_, code, place), value in zip(laid, values, strict=True):
            struct.pack_into(f"<{FORMS[code]}", payload, place, value)
        last = 32 if ends_with_place else 32 + size
        blobs += [struct.pack("<4Q", 1, SCHEMA, size, last) + bytes(payload), None]
    expected = [
        (2 * event, name, value - 2**64 if isinstance(value, int) and value >= 2**63 else value)
        for event, values in enumerate(events)
        for (name, _, _), value in zip(laid, values, strict=True)
    ]
    assert decoded(blobs, Schemas({(1, SCHEMA): (layout,)})) == expected


NUMPY = {code: layout.fields[0].dtype for code in FORMS for layout in Schemas().of(0, code)}


def nccl_schema(builder: ReportBuilder, *, domain: str = "NCCL", pid: int | None = None) -> ReportBuilder:
    laid = [("NCCL communicator ID", UINT64, 0), ("Message size [bytes]", SIZE, 8), ("Reduction operation", SCHEMA + 16, 16)]
    return builder.nvtx_schema(SCHEMA + 7, laid, 24, domain=domain, pid=pid)


def test_a_blob_that_is_shorter_than_its_schema_has_no_fields(tmp_path: Path) -> None:
    schemas = schemas_of(tmp_path, nccl_schema(ReportBuilder()))
    payload = struct.pack("<QQi4x", 7, 4096, 2)
    whole = payload_blob(1, SCHEMA + 7, payload)
    short = [whole[:length] for length in (0, 8, 31, 32, 40, 55)]
    told_short = payload_blob(1, SCHEMA + 7, payload[:16])
    found = decoded([whole, None, *short, told_short], schemas)
    assert found == [(0, "NCCL communicator ID", 7), (0, "Message size [bytes]", 4096), (0, "Reduction operation", "Max")]


def test_a_blob_without_a_schema_that_is_known_has_no_fields(tmp_path: Path) -> None:
    schemas = schemas_of(tmp_path, nccl_schema(ReportBuilder()))
    assert decoded([payload_blob(1, SCHEMA + 8, bytes(24))], schemas) == []
    assert decoded([payload_blob(2, SCHEMA + 7, bytes(24))], schemas, domain=2) == []


def test_enumerations_nested_schemas_arrays_and_texts_are_read(tmp_path: Path) -> None:
    builder = ReportBuilder().nvtx_enumeration(SCHEMA + 40, {0: "cold", 3: "warm"}, size=2, domain="app")
    builder.nvtx_schema(SCHEMA + 1, [("x", FLOAT, 0), ("y", FLOAT, 4)], 8, domain="app")
    builder.nvtx_schema(
        SCHEMA + 2,
        [
            ("state", SCHEMA + 40, 0),
            ("place", SCHEMA + 1, 4),
            ("shape", 13, 12),
            ("name", CSTRING, 18),
            ("behind", CSTRING, 32),
        ],
        48,
        domain="app",
        flags=[0, 0, 16, 0, 2],
        arrayOrUnionDetail=[0, 0, 3, 6, 0],
    )
    payload = struct.pack("<h2xff3h6s", 3, 1.5, -2.0, 7, 8, 9, b"ab\x00xyz").ljust(48, b"\xff")
    other = struct.pack("<h2xff3h6s", 5, 0.0, 0.0, 0, 0, 0, "größ".encode()).ljust(48, b"\xff")
    found = decoded([payload_blob(1, SCHEMA + 2, payload), payload_blob(1, SCHEMA + 2, other)], schemas_of(tmp_path, builder))
    assert found[:7] == [
        (0, "state", "warm"), (0, "place.x", 1.5), (0, "place.y", -2.0), (0, "shape(0)", 7), (0, "shape(1)", 8),
        (0, "shape(2)", 9), (0, "name", "ab"),
    ]  # fmt: skip
    assert found[7] == (1, "state", 5)
    assert found[-1] == (1, "name", "größ")
    assert len(found) == 14


def test_a_text_that_is_no_utf8_has_marks_and_spoils_no_other(tmp_path: Path) -> None:
    builder = ReportBuilder().nvtx_schema(SCHEMA, [("name", CSTRING, 0)], 4, domain="app", arrayOrUnionDetail=[4])
    blobs = [payload_blob(1, SCHEMA, text) for text in (b"a\xed\xa0\x80", b"fine")]
    assert decoded(blobs, schemas_of(tmp_path, builder)) == [(0, "name", "a\ufffd\ufffd\ufffd"), (1, "name", "fine")]


def test_places_that_are_not_told_follow_from_alignment(tmp_path: Path) -> None:
    builder = ReportBuilder().nvtx_schema(SCHEMA, [("a", 11, 0), ("b", INT64, 0), ("c", 12, 0), ("d", 13, 0)], 0, domain="app")
    blob = payload_blob(1, SCHEMA, struct.pack("<bxxxxxxxqBxh", -1, 5, 6, -7))
    assert decoded([blob], schemas_of(tmp_path, builder)) == [(0, "a", -1), (0, "b", 5), (0, "c", 6), (0, "d", -7)]


def test_one_id_with_two_layouts_is_told_by_the_size_and_never_guessed(tmp_path: Path) -> None:
    # Ids of domains differ between processes, and nsys does not say whose schema it is.
    builder = ReportBuilder()
    builder.process(2000)
    nccl_schema(builder)
    builder.nvtx_schema(SCHEMA + 7, [("step", INT, 0)], 4, domain="app", pid=2000)
    schemas = schemas_of(tmp_path, builder)
    assert builder.nvtx_domain("app", pid=2000) == builder.nvtx_domain("NCCL") == 1
    assert decoded([payload_blob(1, SCHEMA + 7, struct.pack("<i", 9))], schemas) == [(0, "step", 9)]
    of_nccl = binary_fields(
        pl.Series([payload_blob(1, SCHEMA + 7, struct.pack("<QQi4x", 7, 8, 0))]), pl.Series([1]), pl.Series([True]), schemas
    )
    assert of_nccl["field"].to_list() == ["NCCL communicator ID", "Message size [bytes]", "Reduction operation"]
    builder.process(3000)
    builder.nvtx_schema(SCHEMA + 7, [("other", FLOAT, 0)], 4, domain="third", pid=3000)
    assert decoded([payload_blob(1, SCHEMA + 7, struct.pack("<i", 9))], schemas_of(tmp_path, builder)) == []


def test_a_payload_of_a_predefined_type_needs_no_schema() -> None:
    assert decoded([payload_blob(1, DOUBLE, struct.pack("<d", 2.5))], Schemas()) == [(0, "value", 2.5)]


@pytest.mark.parametrize("form", [".sqlite", "_pqtdir", "_arwdir"])
def test_bytes_come_out_of_every_form_as_they_went_in(tmp_path: Path, form: str) -> None:
    builder = nccl_schema(ReportBuilder())
    blob = payload_blob(1, SCHEMA + 7, b"\xff\xfe\x00\x80" * 6)
    builder.nvtx_range("ncclAllReduce", 0, 10, domain="NCCL", binaryData=blob).nvtx_range("none", 20, 30, domain="NCCL")
    report: Report = open_report(builder.write(tmp_path / f"report{form}"))
    read = report.collect(report.scan("NVTX_EVENTS", ("start",), (Blob("binaryData"),), only={"eventType": (59,)}))
    assert read.sort("start")["binaryData"].to_list() == [blob, None]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=8)
SCALARS = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), NAMES, st.none()
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.just({}))


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=5), min_size=1, max_size=4), st.booleans())
@example([{"00": None, ":": None, "0": None}], False)
@example([{"a": [1], ":": {}, "b": [": 1", ":"], "c": 1}], False)
def test_what_json_says_is_read(objects: list[dict[str, object]], ascii_only: bool) -> None:
    texts = [json.dumps(one, ensure_ascii=ascii_only) for one in objects]
    # Half of a surrogate pair stays as it is written.
    expected = {
        (event, name): value
        for event, (one, text) in enumerate(zip(objects, texts, strict=True))
        if "\\ud" not in text
        for name, value in one.items()
        if value is not None and not isinstance(value, (list, dict))
    }
    found = {
        (event, name): next(value for value in (integer, real, text) if value is not None)
        for event, name, integer, real, text in json_fields(pl.Series(texts, dtype=pl.String)).iter_rows()
        if "\\ud" not in texts[event]
    }
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == (value - 2**64 if isinstance(value, int) and value >= 2**63 else value)


def test_what_is_no_json_has_no_fields() -> None:
    assert json_fields(pl.Series(["", "hello", '{"a": [1, 2]', '{"a" 1}', None])).is_empty()
    assert json_fields(pl.Series([None], dtype=pl.String)).is_empty()
