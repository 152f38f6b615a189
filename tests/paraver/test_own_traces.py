"""Traces of nsys2prv keep more than other traces: states without gaps, times of messages, and an account that fits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.report_builder import ReportBuilder
from support.traces import translate_unaligned

from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.record_checks import TraceRule

PRV = """\
#Paraver (21/11/2025 at 06:36):1000_ns:1(4):1:1(2:1)
1:0:1:1:1:0:100:1
1:0:1:1:2:0:50:0
2:0:1:1:1:10:63000000:20
3:0:1:1:1:10:10:0:1:1:2:50:50:0:55001
2:0:1:1:1:20:63000000:0
1:0:1:1:2:50:80:1
2:0:1:1:2:50:63000006:22
1:0:1:1:2:80:100:0
2:0:1:1:2:80:63000006:0
1:0:1:1:1:300:1000:1
1:0:1:1:2:300:1000:0
"""
"""Its records are in two windows of time."""
PCF = """\
  STATES
0    Idle
1    Running

EVENT_TYPE
0    63000000    CUDA library call
0    63000006    CUDA kernel
"""
ROW = """\
LEVEL NODE SIZE 1
n0
LEVEL TASK SIZE 1
Rank 0 n0
LEVEL THREAD SIZE 2
main tid 1
CUDA-D0.S7-n0
"""
SUMMARY: dict[str, Any] = {
    "nsys2prv": "1.0",
    "trace": {
        "records": 11,
        "length_ns": 1000,
        "origin_ns": 5000,
        "nodes": 1,
        "tasks": 1,
        "rows": 2,
        "windows_ns": [[5000, 5100], [5300, 6000]],
    },
    "nodes": [{"name": "n0", "cpus": 4}],
    "tasks": [{"name": "Rank 0 n0", "threads": ["main tid 1", "CUDA-D0.S7-n0"], "report": "r.sqlite"}],
    "event_types": [{"number": 63000000, "label": "CUDA library call"}, {"number": 63000006, "label": "CUDA kernel"}],
    "reports": [
        {
            "path": "r.sqlite",
            "tables": [
                {
                    "table": "CUPTI_ACTIVITY_KIND_KERNEL",
                    "rows": 3,
                    "sources": [
                        {"title": "kernels", "rows": 2, "written": 1, "left_out": {"too short": 1}, "events": {"63000006": 1}},
                        {"title": "calls", "rows": 1, "written": 1, "left_out": {}, "events": {"63000000": 1}},
                    ],
                    "left_out": {},
                }
            ],
        }
    ],
}


def broken(folder: Path, prv: str = PRV, summary: object = None, row: str = ROW) -> dict[TraceRule, list[str]]:
    """Sentences about a trace, by rule; without a summary there is no .json."""
    for suffix, text in ((".prv", prv), (".pcf", PCF), (".row", row)):
        (folder / f"trace{suffix}").write_text(text)
    if summary is not None:
        (folder / "trace.json").write_text(summary if isinstance(summary, str) else json.dumps(summary))
    found: dict[TraceRule, list[str]] = {}
    for violation in check_trace(folder / "trace.prv").violations:
        found.setdefault(violation.rule, []).append(violation.text)
    return found


def without(line: str) -> str:
    assert line in PRV
    return PRV.replace(f"{line}\n", "")


@pytest.mark.parametrize("summary", [None, SUMMARY], ids=["alone", "with OUT.json"])
def test_a_trace_of_two_windows_is_valid(tmp_path: Path, summary: object) -> None:
    assert broken(tmp_path, PRV, summary) == {}


@pytest.mark.parametrize("summary", [None, SUMMARY], ids=["alone", "with OUT.json"])
@pytest.mark.parametrize(
    ("prv", "text"),
    [
        (without("1:0:1:1:2:50:80:1"), "task 1 thread 2 has no state from 50 ns to 80 ns"),
        (without("1:0:1:1:2:0:50:0"), "task 1 thread 2 has no state from 0 ns to 50 ns"),
        (without("1:0:1:1:1:300:1000:1"), "task 1 thread 1 has no state from 100 ns to the end, 1000 ns"),
        (PRV.replace(":50:80:1", ":50:79:1"), "task 1 thread 2 has no state from 79 ns to 80 ns"),
        (PRV.replace("1:1:1:300:1000:1\n", "1:1:1:301:1000:1\n"), "task 1 thread 1 has no state from 100 ns to 301 ns"),
        ("".join(line for line in PRV.splitlines(keepends=True) if line[:2] != "1:"), "task 1 thread 1 has no state"),
    ],
)
def test_a_thread_or_stream_without_a_state_is_found(tmp_path: Path, prv: str, text: str, summary: object) -> None:
    assert f"{text}" in "\n".join(broken(tmp_path, prv, summary)[TraceRule.COMPLETE])


@pytest.mark.parametrize(
    ("prv", "summary"),
    [
        (PRV.replace("1:0:1:1:1:300", "2:0:1:1:1:200:63000000:20:63000000:0\n1:0:1:1:1:300"), None),
        (PRV, {**SUMMARY, "trace": {**SUMMARY["trace"], "windows_ns": [[5000, 6000]]}}),
    ],
)
def test_what_all_rows_lack_is_not_always_between_windows(tmp_path: Path, prv: str, summary: object) -> None:
    assert len(broken(tmp_path, prv, summary)[TraceRule.COMPLETE]) == 2


def test_rows_of_gpus_and_of_nodes_have_no_states(tmp_path: Path) -> None:
    row = ROW.replace("Rank 0 n0", "Node n0").replace("main tid 1", "NIC mlx5_0").replace("CUDA-D0.S7-n0", "Metrics GPU0")
    header, *records = PRV.splitlines(keepends=True)
    found = broken(tmp_path, "".join([header, *(line for line in records if line[:2] != "1:")]), row=row)
    assert TraceRule.COMPLETE not in found


@pytest.mark.parametrize("date", ["31/02/2025 at 06:36", "21/13/2025 at 06:36", "21/11/2025 at 24:00", "21/11/2025 at 06:60"])
def test_a_date_that_does_not_exist_is_found(tmp_path: Path, date: str) -> None:
    found = broken(tmp_path, PRV.replace("21/11/2025 at 06:36", date))
    assert [date in text for text in found[TraceRule.HEADER]] == [True]


@pytest.mark.parametrize(
    ("times", "text"),
    [("10:11:0:1:1:2:50:50", "sent at 10 ns and at 11 ns"), ("10:10:0:1:1:2:51:50", "arrives at 50 ns, before")],
)
def test_times_of_messages_that_contradict_each_other_are_found(tmp_path: Path, times: str, text: str) -> None:
    (found,) = broken(tmp_path, PRV.replace("10:10:0:1:1:2:50:50", times))[TraceRule.MESSAGES]
    assert text in found


def changed(**trace: object) -> dict[str, Any]:
    return {**SUMMARY, "trace": {**SUMMARY["trace"], **trace}}


def with_source(**keys: object) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(SUMMARY))
    content["reports"][0]["tables"][0]["sources"][0].update(keys)
    return content


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        (changed(records=12), "trace.records is 12, and that of the trace 11"),
        (changed(length_ns=999), "trace.length_ns is 999"),
        (changed(types=[63000000]), "trace.types are not those of the trace: 63000006 is in one of them only"),
        (
            changed(rows_of_types=[{"types": [63000000], "rows": [[1, 3]]}]),
            "trace.rows_of_types or trace.rows_of_messages has other rows than 1 to 2",
        ),
        (changed(rows_of_messages=[[2, 1]]), "trace.rows_of_types or trace.rows_of_messages has other rows than 1 to 2"),
        (
            changed(rows_of_types=[{"types": [63000000, 9], "rows": [[1, 2]]}]),
            "trace.rows_of_types has 9, which is not in the trace",
        ),
        (changed(rows="2"), "trace.rows is '\"2\"' and not a whole number"),
        ({**SUMMARY, "nodes": [{"name": "n1", "cpus": 4}]}, "names of level NODE"),
        ({**SUMMARY, "nodes": [{"name": "n0", "cpus": 5}]}, "CPUs of its nodes"),
        ({**SUMMARY, "tasks": []}, "numbers of threads of its tasks"),
        ({**SUMMARY, "event_types": []}, "event types are not those of the .pcf"),
        (with_source(written=2), "source 'kernels' has 2 rows, 2 written and 1 left out"),
        (with_source(rows=3, left_out={"too short": 2}), "has 3 rows, 4 read and 0 left out"),
        (with_source(events={"63000006": 2}), "2 events of type 63000006 were written, and the trace has 1"),
        (with_source(events={}), "source 'kernels' has 1 rows written in fewer events"),
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
    ],
)
def test_an_account_that_does_not_fit_is_found(tmp_path: Path, summary: object, text: str) -> None:
    assert text in "\n".join(broken(tmp_path, PRV, summary)[TraceRule.ACCOUNT])


def test_a_trace_of_another_tool_need_not_keep_what_nsys2prv_does(tmp_path: Path) -> None:
    prv = without("1:0:1:1:2:50:80:1").replace("10:10:0:1:1:2:50:50", "10:11:0:1:1:2:51:50")
    broken(tmp_path, prv, {"trace": "of another program"})
    (tmp_path / "trace.pcf").write_text(PCF.replace("  STATES", "STATES"))
    assert check_trace(tmp_path / "trace.prv").violations == ()


# basicanalysis: rows of streams, in traces of nsys2prv and in those of Extrae; rows of metrics, the others are host threads.
_STREAM = re.compile(r"^(?:CUDA|HIP)-(D\d+)\.S(\d+)(?:-(\S+))?\s*$")
_STREAM_OF_EXTRAE = re.compile(r"^(?:CUDA|HIP)-(D\d+)\.[^-]*-([^\s]+)\s*$")
_METRICS = re.compile(r"^Metrics GPU\d+\s*$")


def is_taken_for_nsys2prv(pcf: bytes) -> bool:
    """Whether basicanalysis analyses a trace as one of nsys2prv: it has no STATES, and one of two labels."""
    return not re.search(rb"^STATES\s*$", pcf, re.MULTILINE) and any(
        label in pcf for label in (b"CUDA memcpy kernel", b"NCCL kernel")
    )


def two_nodes() -> list[ReportBuilder]:
    reports = []
    for rank in range(2):
        report = ReportBuilder(rank=rank, pid=10, host=f"n-{rank}")
        report.gpu(0, uuid=f"uuid-{rank}").metric("SM Active", 5, 50)
        report.kernel("k", 20, 30, launch=(0, 10))
        reports.append(report)
    return reports


@pytest.mark.parametrize("copies", [True, False])
def test_basicanalysis_knows_the_trace_its_streams_and_its_metrics(tmp_path: Path, copies: bool) -> None:
    reports = two_nodes()
    if copies:
        reports[0].copy(40, 50, 8)
    prv = translate_unaligned(tmp_path, *reports).prv
    names = prv.with_suffix(".row").read_text().partition("LEVEL THREAD SIZE")[2].split("\n\n")[0].splitlines()[1:]

    assert is_taken_for_nsys2prv(prv.with_suffix(".pcf").read_bytes())
    for pattern, groups in ((_STREAM, (1, 3)), (_STREAM_OF_EXTRAE, (1, 2))):
        found = [pattern.match(name) for name in names]
        assert [one.group(*groups) for one in found if one] == [("D0", "n-0"), ("D0", "n-1")]
    assert sum(_METRICS.match(name) is not None for name in names) == 2


def test_basicanalysis_does_not_take_a_trace_without_gpus_for_one_with_them(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("read", 0, 5)
    prv = translate_unaligned(tmp_path, report).prv
    assert not is_taken_for_nsys2prv(prv.with_suffix(".pcf").read_bytes())
