"""Lines of a .prv: made in whole columns, they are those that are made one by one; and read, they are what was written."""

import gzip
import io
import random
from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.paraver import blocks, trace_format
from nsys2prv.paraver.blocks import Fields
from nsys2prv.paraver.record_text import RecordText
from nsys2prv.paraver.trace_format import gzip_blocks
from nsys2prv.timeline.records import RecordBatch, RecordKind

_ROWS = pl.DataFrame({"task": [1, 2, 2], "thread": [1, 1, 2]})
_LONG = 2**44
"""Almost five hours, ns."""

_Line = tuple[tuple[int, ...], str]

_numbers = st.integers(0, 3)
_attribute = st.none() | st.integers(-5, 2**40) | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([10, 999, 1000])
_lengths = st.sampled_from([0, 0, 1, 2, _LONG, _LONG + 1])
_record = st.fixed_dictionaries(
    {
        "row": st.integers(0, 2),
        "start": _numbers,
        "length": _lengths,
        "cpu": _numbers,
        "number": st.sampled_from([60, 61]),
        "value": st.integers(0, 2**33),
        "70": _attribute,
        "71": _attribute,
    }
)
_with_cpu = st.booleans()


def _intervals(records: Sequence[dict[str, int | None]], *, with_cpu: bool) -> pl.DataFrame:
    schema = dict.fromkeys(("row", "start", "length", "cpu", "number", "value", "70", "71"), pl.Int64)
    frame = pl.DataFrame(records, schema).with_columns(end=pl.col("start") + pl.col("length")).drop("length")
    return (frame if with_cpu else frame.drop("cpu")).sort("start", "row", *frame.columns[2:] if with_cpu else ())


def _head(kind: int, record: dict[str, int]) -> str:
    task, thread = _ROWS.row(record["row"])
    return f"{kind}:{record.get('cpu', 0)}:1:{task}:{thread}"


def _pairs(record: Mapping[str, int | None]) -> list[tuple[int, int]]:
    pairs = [(record["number"], record["value"]), *((int(name), record[name]) for name in ("70", "71"))]
    return [(number, value) for number, value in pairs if number is not None and value is not None]


def _event(record: dict[str, int], time: int, pairs: Sequence[tuple[int, int]]) -> str:
    return ":".join([_head(2, record), str(time), *(str(number) for pair in pairs for number in pair)])


def _lines_of_intervals(batch: int, frame: pl.DataFrame) -> Iterator[_Line]:
    for place, record in enumerate(frame.iter_rows(named=True)):
        start, end, row = record["start"], record["end"], record["row"]
        length, pairs = end - start, _pairs(record)
        closing = [(number, 0) for number, _ in pairs]
        if start == end:
            yield (start, row, 3, 0, batch, place), _event(record, start, pairs + closing)
            continue
        yield (start, row, 2, -length, batch, place), _event(record, start, pairs)
        yield (end, row, 1, length, batch, place), _event(record, end, closing)


def _lines_of_points(batch: int, frame: pl.DataFrame) -> Iterator[_Line]:
    of_line = ["start", "row", *(["cpu"] if "cpu" in frame.columns else [])]
    for place, (_, group) in enumerate(frame.group_by(of_line, maintain_order=True)):
        records = group.to_dicts()
        pairs = [pair for record in records for pair in _pairs(record)]
        yield (records[0]["start"], records[0]["row"], 3, 0, batch, place), _event(records[0], records[0]["start"], pairs)


@given(
    intervals=st.lists(st.tuples(st.lists(_record, max_size=8), _with_cpu), max_size=2),
    points=st.lists(st.tuples(st.lists(_record, max_size=8), _with_cpu), max_size=2),
)
def test_events_are_in_the_order_of_the_trace(
    intervals: list[tuple[list[dict[str, int | None]], bool]], points: list[tuple[list[dict[str, int | None]], bool]]
) -> None:
    batches: list[RecordBatch] = []
    wanted: list[_Line] = []
    for records, with_cpu in intervals:
        frame = _intervals(records, with_cpu=with_cpu)
        wanted += _lines_of_intervals(len(batches), frame)
        batches.append(RecordBatch(RecordKind.INTERVALS, frame, frame))
    for records, with_cpu in points:
        frame = _intervals(records, with_cpu=with_cpu).drop("end").sort("start", "row", maintain_order=True)
        frame = frame.sort("start", "row", *(["cpu"] if with_cpu else []), maintain_order=True)
        wanted += _lines_of_points(len(batches), frame)
        batches.append(RecordBatch(RecordKind.POINTS, frame))
    encoded = RecordText(_ROWS).encode(batches)
    assert bytes(encoded.content).decode().splitlines() == [text for _, text in sorted(wanted)]
    assert encoded.records == len(wanted)


def test_states_come_first_and_messages_last_on_a_row() -> None:
    call = {"row": [0, 0], "start": [0, 5], "end": [5, 7], "number": [60, 60], "value": [1, 2]}
    message = {"row": [0], "time": [5], "to_row": [2], "to_time": [9], "size": [-1], "tag": [3]}
    state = {"row": [0, 0], "start": [0, 5], "end": [5, 2**62], "state": [1, 7], "cpu": [0, 2]}
    calls, messages, states = (pl.DataFrame(columns) for columns in (call, message, state))
    batches = [
        RecordBatch(RecordKind.INTERVALS, calls, calls),
        RecordBatch(RecordKind.MESSAGES, messages),
        RecordBatch(RecordKind.STATES, states),
    ]
    assert bytes(RecordText(_ROWS).encode(batches).content).decode().splitlines() == [
        "1:0:1:1:1:0:5:1",
        "2:0:1:1:1:0:60:1",
        f"1:2:1:1:1:5:{2**62}:7",
        "2:0:1:1:1:5:60:0",
        "2:0:1:1:1:5:60:2",
        "3:0:1:1:1:5:5:0:1:2:2:9:9:0:3",
        "2:0:1:1:1:7:60:0",
    ]


def test_a_window_may_be_longer_than_what_times_and_rows_fit_in() -> None:
    times = [0, 2**61, 2**62, 2**62]
    states = pl.DataFrame({"row": [2, 0, 1, 0], "start": times, "end": [2**62 + 1] * 4, "state": [1] * 4})
    lines = bytes(RecordText(_ROWS).encode([RecordBatch(RecordKind.STATES, states)]).content).decode().splitlines()
    assert [line.split(":")[3:6] for line in lines] == [
        ["2", "2", "0"],
        ["1", "1", str(2**61)],
        ["1", "1", str(2**62)],
        ["2", "1", str(2**62)],
    ]


def test_a_window_may_be_empty() -> None:
    points = pl.DataFrame(schema=dict.fromkeys(("row", "start", "number", "value"), pl.Int64))
    assert RecordText(_ROWS).encode([RecordBatch(RecordKind.POINTS, points)]).records == 0
    assert RecordText(_ROWS).encode([]).records == 0


@pytest.mark.parametrize("fields_at_once", [1, 7, 1 << 15])
def test_each_number_is_read(fields_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_FIELDS_AT_ONCE", fields_at_once)
    chance = random.Random(fields_at_once)
    numbers = [chance.choice([1, 1, 1, -1]) * chance.randrange(10 ** chance.randrange(1, 19)) for _ in range(600)]
    ends = [chance.choice(":::\n") for _ in numbers[1:]] + ["\n"]
    found = Fields("".join(f"{number}{end}" for number, end in zip(numbers, ends, strict=True)).encode())
    assert found.values.tolist() == numbers
    assert found.length.tolist() == [len(str(number)) for number in numbers]
    assert found.first.tolist() == [0, *(place + 1 for place, end in enumerate(ends[:-1]) if end == "\n")]


@pytest.mark.parametrize("lengths", [[255, 0, 256, 1], [511, 512, 2], [256], [3, 1000, 0, 0, 768]])
def test_fields_may_be_long(lengths: list[int]) -> None:
    found = Fields("".join("1:" * before + "0" * length + "\n" for before, length in enumerate(lengths)).encode())
    of_lines = [[1] * before + [length] for before, length in enumerate(lengths)]
    assert found.length.tolist() == [length for line in of_lines for length in line]


def test_numbers_at_the_limits_of_64_bits_and_with_zeros_in_front_are_read() -> None:
    found = Fields(b"9223372036854775807:-9223372036854775808:9223372036854775808\n" + b"0" * 300 + b"12:0007:-0\n")
    assert found.values.tolist() == [2**63 - 1, -(2**63), 0, 12, 7, 0]
    assert found.too_large.tolist() == [2]


@pytest.mark.parametrize("cores", ["1", "2"])
def test_a_file_of_blocks_depends_on_its_content_alone(cores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", cores)
    monkeypatch.setattr(trace_format, "_BLOCK_BYTES", 100)
    content = random.Random(1).randbytes(1_230)
    files = []
    for size in (7, 100, 1_000, 2_000):
        file = io.BytesIO()
        with gzip_blocks(file) as write:
            for start in range(0, len(content), size):
                write(memoryview(content)[start : start + size])
        files.append(file.getvalue())
    assert gzip.decompress(files[0]) == content
    assert set(files) == {files[0]}
    assert files[0].count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00") == 13


def test_work_that_breaks_off_writes_no_last_block() -> None:
    file = io.BytesIO()

    def break_off() -> None:
        with gzip_blocks(file) as write:
            write(b"some")
            raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        break_off()
    assert file.getvalue() == b""
