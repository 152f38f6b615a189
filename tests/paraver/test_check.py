"""The check passes a valid trace, and names each line that breaks a rule."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.paraver import trace_reader
from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.record_checks import CheckResult, TraceRule, one_key, order_of_keys

PRV = """\
#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:2(2:1,1:2)
1:0:1:1:1:0:100:1
1:0:1:2:1:0:400:0
2:1:1:1:1:0:63000000:20:9200:7
2:1:1:1:1:5:63000000:21
3:0:1:1:1:5:5:6:1:2:1:50:50:8:55001
2:1:1:1:1:10:63000000:0:63000000:0
2:0:1:1:2:50:63000006:22:9200:7:63000006:0
1:0:1:1:1:100:1000:0
2:0:1:1:1:1000:9005:3
"""
PCF = """\
STATES
0    Idle
1    Running

EVENT_TYPE
0    63000000    CUDA library call
0    63000006    CUDA kernel
VALUES
0      End
20     cudaLaunchKernel
21     cuLaunchKernel
22     a_kernel

EVENT_TYPE
0    9200    Correlation ID

EVENT_TYPE
0    9005    NVTX marks
VALUES
3      a mark
"""
ROW = """\
LEVEL NODE SIZE 2
nid001
nid002

LEVEL TASK SIZE 2
rank 0
rank 1

LEVEL THREAD SIZE 3
main
CUDA-D0.S7
main
"""
GOOD = {".prv": PRV, ".pcf": PCF, ".row": ROW}


def check(folder: Path, files: dict[str, str], limit: int = 20) -> CheckResult:
    for suffix, text in files.items():
        (folder / f"trace{suffix}").write_bytes(text.encode())
    return check_trace(folder / "trace.prv", limit)


def changed(suffix: str, line: int, instead: str | None) -> dict[str, str]:
    """The good trace with one line replaced, or removed (None)."""
    lines = GOOD[suffix].splitlines(keepends=True)
    lines[line - 1 : line] = [] if instead is None else [f"{instead}\n"]
    return {**GOOD, suffix: "".join(lines)}


def test_a_good_trace_is_valid(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD)

    assert result.violations == ()
    assert result.valid
    assert result.violations_per_rule == {}
    assert result.counts == {
        "rows": 3,
        "records": 9,
        "states": 3,
        "event_lines": 5,
        "events": 9,
        "messages": 1,
        "intervals": 3,
        "backward_messages": 0,
    }


def test_a_compressed_trace_is_checked_the_same(tmp_path: Path) -> None:
    plain = check(tmp_path, GOOD)
    (tmp_path / "trace.prv.gz").write_bytes(gzip.compress(PRV.encode()))
    assert check_trace(tmp_path / "trace.prv.gz") == plain


@pytest.mark.parametrize(
    ("suffix", "line", "instead", "rule", "found_on", "text"),
    [
        (".prv", 1, "#Paraver (21/11/2025 at 06:36):1000:2(4,2):1:2(2:1,1:2)", TraceRule.HEADER, 1, "_ns"),
        (".prv", 1, "#Paraver (now):1000_ns:2(4,2):1:2(2:1,1:2)", TraceRule.HEADER, 1, "date"),
        (".prv", 1, "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:2(2:1,1:3)", TraceRule.HEADER, 1, "task 2 is on node 3"),
        (".prv", 1, "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,0):1:2(2:1,1:2)", TraceRule.HEADER, 1, "node 2 has no CPU"),
        (".prv", 1, "#Paraver (21/11/2025 at 06:36):1000_ns:2(4,2):1:2(65535:1,1:2)", TraceRule.HEADER, 1, "65536 rows"),
        (".prv", 1, "#Paraver (21/11/2025 at 06:36):999_ns:2(4,2):1:2(2:1,1:2)", TraceRule.END, 10, "1000 ns"),
        (".prv", 5, "2:1:1:1:1:5:63000000:21\t", TraceRule.RECORDS, 5, "not a whole number"),
        (".prv", 8, "2:0:1:1:2:4:63000006:22:63000006:0", TraceRule.SORTED, 8, "4 ns follows one at 10 ns"),
        (".prv", 8, "2:0:1:1:3:50:63000006:22:63000006:0", TraceRule.PLACES, 8, "task 1 thread 3"),
        (".prv", 8, "2:0:1:3:1:50:63000006:22:63000006:0", TraceRule.PLACES, 8, "task 3 thread 1"),
        (".prv", 8, "2:0:1:1:0:50:63000006:22:63000006:0", TraceRule.PLACES, 8, "thread 0"),
        (".prv", 8, "2:5:1:1:2:50:63000006:22:63000006:0", TraceRule.PLACES, 8, "CPU 5"),
        (".prv", 8, "2:7:1:1:2:50:63000006:22:63000006:0", TraceRule.PLACES, 8, "CPU 7"),
        (".prv", 6, "3:0:1:1:1:5:5:6:1:2:2:50:50:8:55001", TraceRule.PLACES, 6, "task 2 thread 2"),
        (".prv", 6, "3:0:1:1:1:5:5:4:1:2:1:50:50:8:55001", TraceRule.PLACES, 6, "CPU 4"),
        (".prv", 6, "3:0:1:1:1:5:5:6:1:2:1:50:1001:8:55001", TraceRule.END, 6, "a message at 1001 ns"),
        (".prv", 9, "1:0:1:1:1:99:1000:0", TraceRule.STATES, 9, "before the previous one ends at 100 ns"),
        (".prv", 9, "1:0:1:1:1:100:100:0", TraceRule.STATES, 9, "starts at 100 ns and ends at 100 ns"),
        (".prv", 9, "1:0:1:1:1:100:1001:0", TraceRule.END, 9, "a state at 1001 ns"),
        (".prv", 9, "1:0:1:1:1:100:1000:2", TraceRule.LABELLED, 9, "state 2 has no label"),
        (".prv", 7, "2:1:1:1:1:10:63000000:0", TraceRule.CLOSED, 4, "1 interval(s) of it never end"),
        (".prv", 7, "2:1:1:1:1:10:63000000:0:63000000:0:63000000:0", TraceRule.CLOSED, 7, "none is open"),
        (".prv", 8, "2:0:1:1:2:50:63000006:0:63000006:22", TraceRule.CLOSED, 8, "none is open"),
        (".prv", 10, "2:0:1:1:1:1000:9006:3", TraceRule.LABELLED, 10, "type 9006 has no label"),
        (".prv", 10, "2:0:1:1:1:1000:9005:4", TraceRule.LABELLED, 10, "value 4 of type 9005"),
        (".prv", 10, "2:0:1:1:1:1000:9005:0", TraceRule.LABELLED, 10, "value 0 of type 9005"),
        (".prv", 10, "2:0:1:1:1:1000:9200:9007199254740993", TraceRule.NUMBERS, 10, "9007199254740993"),
        (".prv", 10, "2:0:1:1:1:1000:9200:-9007199254740993", TraceRule.NUMBERS, 10, "-9007199254740993"),
        (".prv", 10, "2:0:1:1:1:1000:4294967296:1", TraceRule.NUMBERS, 10, "4294967296"),
        (".pcf", 3, "1\tRunning", TraceRule.PCF, 3, "tab"),
        (".pcf", 9, None, TraceRule.LABELLED, 7, "value 0 of type 63000000"),
        (".pcf", 12, None, TraceRule.LABELLED, 8, "value 22 of type 63000006"),
        (".row", 2, None, TraceRule.ROW, 3, "name 2 of level NODE is empty"),
        (".row", 5, "LEVEL TASK SIZE 1", TraceRule.ROW, 7, "'rank 1'"),
        (".row", 1, "#", TraceRule.ROW, 2, "'nid001'"),
        (".row", 10, "main\t1", TraceRule.ROW, 10, "tab"),
    ],
)
def test_one_damaged_line_is_found(
    tmp_path: Path, suffix: str, line: int, instead: str | None, rule: TraceRule, found_on: int | None, text: str
) -> None:
    result = check(tmp_path, changed(suffix, line, instead))
    assert not result.valid
    violation = next(violation for violation in result.violations if violation.rule is rule)
    assert violation.line == found_on
    assert text in violation.text
    where = "" if found_on is None else f" line {found_on}"
    assert f"{where}: " in violation.text
    assert violation.text.startswith("trace.")


def test_an_overlap_is_one_violation(tmp_path: Path) -> None:
    assert check(tmp_path, changed(".prv", 9, "1:0:1:1:1:99:1000:0")).violations_per_rule == {TraceRule.STATES: 1}


@pytest.mark.parametrize(("level", "names", "size"), [("NODE", 3, 2), ("TASK", 1, 2), ("THREAD", 2, 3), ("CPU", 5, 6)])
def test_a_wrong_number_of_names_of_a_level_is_found(tmp_path: Path, level: str, names: int, size: int) -> None:
    sizes = {"NODE": 2, "TASK": 2, "THREAD": 3, level: names}
    row = "\n".join(f"LEVEL {each} SIZE {number}\n" + "name\n" * number for each, number in sizes.items())
    result = check(tmp_path, {**GOOD, ".row": row})
    assert [violation.text for violation in result.violations] == [
        f"trace.row: level {level} has {names} names, and the header has {size}"
    ]


@pytest.mark.parametrize(
    ("files", "rule", "line"),
    [
        (
            {
                **GOOD,
                ".prv": PRV.replace(":0:100:1\n", ":1:100:1\n")
                .replace(":0:400:0\n", ":1:400:0\n")
                .replace(":0:63000000:20", ":1:63000000:20"),
            },
            TraceRule.START,
            2,
        ),
        ({**GOOD, ".prv": PRV.splitlines(keepends=True)[0]}, TraceRule.START, None),
        ({".prv": PRV, ".row": ROW}, TraceRule.PCF, None),
        ({".prv": PRV, ".pcf": PCF}, TraceRule.ROW, None),
    ],
)
def test_what_a_whole_trace_lacks_is_found(tmp_path: Path, files: dict[str, str], rule: TraceRule, line: int | None) -> None:
    assert [(violation.rule, violation.line) for violation in check(tmp_path, files).violations] == [(rule, line)]


def test_a_message_that_is_received_before_it_is_sent_is_counted_but_allowed(tmp_path: Path) -> None:
    result = check(tmp_path, changed(".prv", 6, "3:0:1:1:1:5:5:6:1:2:1:3:3:8:55001"))
    assert result.valid
    assert result.counts["backward_messages"] == 1


def test_types_of_other_tools_may_stay_open(tmp_path: Path) -> None:
    pcf = f"{PCF}\nEVENT_TYPE\n0    70000001    something of another tool\n"
    assert check(tmp_path, {**changed(".prv", 10, "2:0:1:1:1:1000:70000001:3"), ".pcf": pcf}).valid


def test_violations_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    many = "".join(f"2:0:1:1:1:1000:{9300 + number}:1\n" for number in range(50)) + "x\n" * 30
    result = check(tmp_path, {**GOOD, ".prv": PRV + many}, limit=5)
    assert len(result.violations) == 10
    assert result.violations_per_rule == {TraceRule.LABELLED: 50, TraceRule.RECORDS: 30}


def test_compressed_data_that_is_cut_off_is_found(tmp_path: Path) -> None:
    check(tmp_path, GOOD)
    (tmp_path / "trace.prv.gz").write_bytes(gzip.compress(PRV.encode())[:-9])
    result = check_trace(tmp_path / "trace.prv.gz")
    assert TraceRule.RECORDS in result.violations_per_rule
    assert "cut off" in next(violation.text for violation in result.violations if violation.rule is TraceRule.RECORDS)


@pytest.mark.parametrize("line", range(2, 11))
def test_blocks_of_any_size_give_the_same_result(tmp_path: Path, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = check(tmp_path, changed(".prv", line, None))
    monkeypatch.setattr(trace_reader, "BLOCK_BYTES", 10)
    in_blocks = check_trace(tmp_path / "trace.prv")
    assert set(in_blocks.violations) == set(whole.violations)
    assert (in_blocks.violations_per_rule, in_blocks.counts) == (whole.violations_per_rule, whole.counts)


# -- keys of several columns, against the plain way to find them ----------------------------------------
numbers = st.one_of(st.integers(-3, 70_000), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=20))
def test_a_key_is_equal_where_all_columns_are(rows: list[tuple[int, int, int]]) -> None:
    key = one_key([np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)])
    assert len(set(key.tolist())) == len(set(rows))
    assert len(set(zip(key.tolist(), rows, strict=True))) == len(set(rows))


@given(st.lists(st.integers(0, 100_000), max_size=30))
def test_keys_are_ordered_and_equal_ones_stay_in_their_order(keys: list[int]) -> None:
    assert order_of_keys(np.array(keys, dtype=np.int64)).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
