"""The strict reader reads every line of a valid trace, and names each malformed line."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.whole_trace import events_of, open_whole, unchanged

from nsys2prv.errors import TraceError
from nsys2prv.paraver import trace_reader
from nsys2prv.paraver.label_files import TypeLabel
from nsys2prv.paraver.trace_files import Header, HeaderTask

HEADER = "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:2(2:1,1:2)"
RECORDS = [
    "1:0:1:1:1:0:100:1",
    "2:1:1:1:1:0:63000000:20:9200:-1",
    "# a comment",
    "2:1:1:1:1:5:63000000:21",
    "3:0:1:1:1:5:6:5:1:2:1:50:51:8:55001",
    "2:1:1:1:1:10:63000000:0:63000000:0",
    "2:0:1:1:2:50:63000006:22:9101:4:63000006:0",
]
PCF = """\
DEFAULT_OPTIONS
LEVEL               THREAD
UNITS               NANOSEC

DEFAULT_SEMANTIC
THREAD_FUNC         State As Is

STATES
0    Idle
1    Running

STATES_COLOR
0    {117,195,255}

EVENT_TYPE
0    63000000    CUDA library call
0    63000006    CUDA kernel
VALUES
0      End
20     cudaLaunchKernel
21     a kernel<int, 2>: it's "one" [with] # everything

EVENT_TYPE
7    9200    Correlation ID
"""
ROW = """\
LEVEL NODE SIZE 2
nid001
nid002

LEVEL THREAD SIZE 3
main thread
CUDA-D0.S7
# not a comment
"""


def write(folder: Path, records: list[str], *, header: str = HEADER, pcf: str | None = None, row: str | None = None) -> Path:
    path = folder / "trace.prv"
    path.write_bytes("".join(f"{line}\n" for line in [header, *records]).encode())
    for suffix, text in ((".pcf", pcf), (".row", row)):
        if text is not None:
            path.with_suffix(suffix).write_bytes(text.encode())
    return path


def test_header_gives_end_nodes_and_tasks(tmp_path: Path) -> None:
    header = open_whole(write(tmp_path, RECORDS)).header
    assert header.date == "21/11/2025 at 06:36"
    assert header.end == 1000
    assert header.cpus_per_node == (4, 2)
    assert header.tasks == (HeaderTask(2, 1, 0), HeaderTask(1, 2, 2))
    assert header.rows == 3


def test_records_have_their_line_numbers(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, RECORDS))

    assert trace.states().rows() == [(2, 0, 1, 1, 0, 100, 1)]
    assert trace.events().rows() == [
        (3, 0, 1, 1, 1, 0, 63000000, 20),
        (3, 1, 1, 1, 1, 0, 9200, -1),
        (5, 0, 1, 1, 1, 5, 63000000, 21),
        (7, 0, 1, 1, 1, 10, 63000000, 0),
        (7, 1, 1, 1, 1, 10, 63000000, 0),
        (8, 0, 0, 1, 2, 50, 63000006, 22),
        (8, 1, 0, 1, 2, 50, 9101, 4),
        (8, 2, 0, 1, 2, 50, 63000006, 0),
    ]
    assert trace.messages().rows() == [(6, 0, 1, 1, 5, 6, 5, 2, 1, 50, 51, 8, 55001)]
    assert trace.events([9200])["line"].to_list() == [3]
    assert {*trace.states().dtypes, *trace.events().dtypes, *trace.messages().dtypes} == {pl.Int64}


@pytest.mark.parametrize("block_bytes", [1, 7, 40, 1 << 20])
def test_blocks_of_any_size_hold_the_same_records(tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_whole(write(tmp_path, RECORDS))
    monkeypatch.setattr(trace_reader, "BLOCK_BYTES", block_bytes)
    blocks = list(trace.read(unchanged))
    assert [line for block in blocks for line in block.records["line"]] == [2, 3, 5, 6, 7, 8]
    assert all(block.records["line"].min() >= block.first_line for block in blocks if not block.records.is_empty())  # type: ignore[operator]
    assert pl.concat([events_of(block) for block in blocks]).equals(trace.events())


def test_a_trace_in_several_gzip_members_is_read_whole(tmp_path: Path) -> None:
    plain = write(tmp_path, RECORDS, pcf=PCF)
    text = plain.read_bytes()
    packed = tmp_path / "trace.prv.gz"
    packed.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]))
    assert open_whole(packed).events().equals(open_whole(plain).events())
    assert open_whole(packed).labels == open_whole(plain).labels


def test_communicators_that_the_header_announces_are_skipped(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, ["c:1:1:2:1:2", *RECORDS], header=f"{HEADER},1"))
    assert trace.states()["line"].to_list() == [3]


def test_a_trace_without_records_has_empty_frames(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, []))
    assert trace.events().is_empty()
    assert trace.intervals().is_empty()
    assert list(trace.read(unchanged)) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "empty"),
        ("  ", "only blanks"),
        ("1:0:1:1:1:0:100:1\r", "CR LF"),
        ("4:0:1:1:1:0:100:1", "kind"),
        ("c:1:1:2:1:2", "kind"),
        ("1:0:1:1:1:0:100", "7 fields"),
        ("1:0:1:1:1:0:100:1:1", "9 fields"),
        ("2:0:1:1:1:0", "6 fields"),
        ("2:0:1:1:1:0:9200", "7 fields"),
        ("2:0:1:1:1:0:9200:1:9201", "9 fields"),
        ("3:0:1:1:1:5:6:0:1:2:1:50:51:8", "14 fields"),
        ("2:0:1:1:1:0:9200:1.5", "field 8, '1.5'"),
        ("2:0:1:1:1:0:9200: 1", "field 8, ' 1'"),
        ("2:0:1:1:1:0:9200:+1", "field 8"),
        ("2:0:1:1:1:0:9200:٣", "field 8"),
        ("2:0:1:1:1:0:9200:", "field 8"),
        ("2:0:1:1:1::9200:1", "field 6"),
        ("2:0:1:1:1:-5:9200:1", "negative"),
        ("2:0:2:1:1:5:9200:1", "application"),
        ("3:0:1:1:1:5:6:0:2:2:1:50:51:8:55001", "application"),
        ("2:0:1:1:1:5:9200:9223372036854775808", "64 bits"),
    ],
)
def test_a_line_that_is_not_a_record_is_named(tmp_path: Path, line: str, why: str) -> None:
    trace = open_whole(write(tmp_path, [*RECORDS, line, RECORDS[-1]]))
    with pytest.raises(TraceError, match=rf"trace\.prv: line 9: .*{why}"):
        trace.events()


def test_malformed_lines_can_be_reported_and_skipped(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, ["9", *RECORDS, "2:0:1:1:1:0:9200:9223372036854775808", "x"]))
    lines: list[int | None] = []
    blocks = list(trace.read(unchanged, lambda line, why: lines.append(line)))
    assert sorted(line for line in lines if line) == [2, 10, 11]
    assert [line for block in blocks for line in block.records["line"]] == [3, 4, 6, 7, 8, 9]


def test_a_last_line_without_line_end_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, RECORDS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TraceError, match=r"line 8: .*cut off"):
        open_whole(path).events()


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:2(2:1,1:2)",
        "#Paraver (21/11/2025 at 06:36):1000:2(4,2):1:2(2:1,1:2)",
        "#Paraver (21/11/2025 at 06:36):1000_us:2(4,2):1:2(2:1,1:2)",
        "#Paraver (21/11/2025 at 06:36):1000_ns:3(4,2):1:2(2:1,1:2)",
        "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):2:2(2:1,1:2):1(1:1)",
        "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:3(2:1,1:2)",
        "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:2(2:1,1:2)\r",
    ],
)
def test_a_malformed_header_is_an_error(tmp_path: Path, header: str) -> None:
    with pytest.raises(TraceError, match=r"trace\.prv: line 1: "):
        open_whole(write(tmp_path, RECORDS, header=header))


def test_a_missing_or_empty_file_or_another_suffix_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        open_whole(tmp_path / "none.prv")
    (tmp_path / "empty.prv").touch()
    with pytest.raises(TraceError, match="empty"):
        open_whole(tmp_path / "empty.prv")
    with pytest.raises(TraceError, match=r"\.prv\.gz"):
        open_whole(tmp_path / "trace.txt")


def test_labels_of_states_types_and_shared_values(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, RECORDS, pcf=PCF))
    values = {0: "End", 20: "cudaLaunchKernel", 21: 'a kernel<int, 2>: it\'s "one" [with] # everything'}
    assert trace.has_labels
    assert trace.labels.states == {0: "Idle", 1: "Running"}
    assert trace.labels.types == {
        63000000: TypeLabel("CUDA library call", 0, values),
        63000006: TypeLabel("CUDA kernel", 0, values),
        9200: TypeLabel("Correlation ID", 7, None),
    }


def test_names_of_each_level(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, RECORDS, row=ROW))
    assert trace.names == {"NODE": ("nid001", "nid002"), "THREAD": ("main thread", "CUDA-D0.S7", "# not a comment")}


def test_a_trace_without_labels_and_names_is_marked(tmp_path: Path) -> None:
    trace = open_whole(write(tmp_path, RECORDS))
    assert not trace.has_labels
    assert (dict(trace.labels.types), dict(trace.names)) == ({}, {})


@pytest.mark.parametrize(
    ("file", "line", "instead", "why"),
    [
        ("pcf", 1, "0    5    early", "comes before the first section"),
        ("pcf", 8, "STATE", "not a line of section DEFAULT_SEMANTIC"),
        ("pcf", 9, "0    Idle\r", "CR LF"),
        ("pcf", 10, "1", "label of state 1 is empty"),
        ("pcf", 10, "0    Running", "state 0 has two labels"),
        ("pcf", 11, "  ", "blanks"),
        ("pcf", 13, "0    117,195,255", "not a line of section STATES_COLOR"),
        ("pcf", 16, "0    x    CUDA library call", "not a line of section EVENT_TYPE"),
        ("pcf", 16, "0    2147483648    CUDA library call", "event type 2147483648 is above 2147483647"),
        ("pcf", 17, "0    63000000    CUDA kernel", "event type 63000000 has two labels"),
        ("pcf", 20, "0      cudaLaunchKernel", "value 0 has two labels"),
        ("pcf", 20, "2147483648      cudaLaunchKernel", "value 2147483648 is above 2147483647"),
        ("pcf", 20, "20", "label of value 20 is empty"),
        ("pcf", 24, "7    9200    ", "label of event type 9200 is empty"),
        ("row", 1, "LEVEL NODES SIZE 2", "LEVEL NODES SIZE 2"),
        ("row", 1, "LEVEL NODE SIZE 1", ""),
        ("row", 2, "", "name 1 of level NODE is empty"),
        ("row", 5, "LEVEL NODE SIZE 3", "level NODE appears twice"),
        ("row", 5, "LEVEL THREAD SIZE 4", "announces 4 names and has 3"),
    ],
)
def test_a_malformed_line_of_labels_and_names_is_named(tmp_path: Path, file: str, line: int, instead: str, why: str) -> None:
    lines = {"pcf": PCF, "row": ROW}[file].split("\n")
    lines[line - 1] = instead
    where = line if file == "pcf" else r"\d"
    with pytest.raises(TraceError, match=rf"trace\.{file}: line {where}: .*{why}"):
        open_whole(write(tmp_path, RECORDS, **{file: "\n".join(lines)}))


def test_intervals_pair_each_end_with_the_innermost_start(tmp_path: Path) -> None:
    intervals = open_whole(write(tmp_path, RECORDS)).intervals()
    assert intervals.columns == ["task", "thread", "type", "begin", "end", "value", "depth"]
    assert intervals.rows() == [(1, 1, 63000000, 0, 10, 20, 1), (1, 1, 63000000, 5, 10, 21, 2), (1, 2, 63000006, 50, 50, 22, 1)]


def test_rows_are_those_of_the_header_and_no_others() -> None:
    header = Header("", 1, (4,), (HeaderTask(2, 1, 0), HeaderTask(0, 1, 2), HeaderTask(3, 1, 2)))
    task = np.array([1, 1, 1, 2, 3, 3, 3, 0, 4, -1, 2**62, 1])
    thread = np.array([1, 2, 3, 1, 1, 3, 4, 1, 1, 1, 1, 2**63 - 1])
    assert header.rows_at(task, thread).tolist() == [0, 1, -1, -1, 2, 4, -1, -1, -1, -1, -1, -1]
