"""Which rows a trace has: nodes, tasks in the order of ranks, threads, streams, devices of a node."""

import itertools
import random
from pathlib import Path

import polars as pl
import pytest
from support.nccl_regions import COMMUNICATOR, Nccl
from support.paramedir import STATES_VIEW, Paramedir, read_timeline
from support.report_builder import ReportBuilder
from support.traces import labels_of, translate_reports
from support.whole_trace import open_whole

from nsys2prv.efficiency.measure import measure
from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.trace_files import read_header
from nsys2prv.timeline import records
from nsys2prv.timeline.reader import look_up
from nsys2prv.timeline.records import RowsOfTypes, row_ranges
from nsys2prv.timeline.survey import _most_at_once
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import CORRELATION_ID, KERNEL, NVTX_PUSHPOP


def tasks(tmp_path: Path, *reports: ReportBuilder) -> list[dict[str, object]]:
    content = translate_reports(tmp_path, *reports).content
    return [{key: task[key] for key in ("node", "rank", "pid", "threads")} for task in content["tasks"]]


def streams(of_tasks: list[dict[str, object]]) -> list[list[str]]:
    return [[name for name in task["threads"] if not name.startswith(("python3", "tid"))] for task in of_tasks]  # type: ignore[attr-defined]


def test_tasks_are_in_the_order_of_ranks_whatever_the_files_are_called(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=100 + rank, host=f"n{rank // 2}") for rank in (3, 0, 2, 1)]
    for report in reports:
        report.os_call("read", 0, 5)
    found = tasks(tmp_path, *reports)
    assert [(task["rank"], task["node"], task["pid"]) for task in found] == [
        (0, "n0", 100), (1, "n0", 101), (2, "n1", 102), (3, "n1", 103),
    ]  # fmt: skip


def test_two_ranks_that_both_say_device_0_on_different_gpus_get_different_numbers(tmp_path: Path) -> None:
    reports = []
    for rank, bus in enumerate(("0000:b3:00.0", "0000:1a:00.0")):
        report = ReportBuilder(rank=rank, pid=10 + rank)
        report.gpu(0, uuid=f"uuid-{rank}", bus=bus)
        report.kernel("k", 0, 10)
        report.metric("SM Active", 5, 50)
        reports.append(report)
    # Both report one GPU with index 0: the place on the bus tells them apart.
    assert streams(tasks(tmp_path, *reports)) == [["CUDA-D1.S7-node01", "Metrics GPU1"], ["CUDA-D0.S7-node01", "Metrics GPU0"]]


def test_a_rank_that_sees_one_gpu_of_many_is_placed_by_what_was_visible(tmp_path: Path) -> None:
    reports = []
    for rank in range(3):
        report = ReportBuilder(rank=rank, pid=10 + rank, environment={"CUDA_VISIBLE_DEVICES": str(2 - rank)})
        for gpu in range(3):
            report.gpu(gpu, uuid=f"uuid-{gpu}")
        report.kernel("k", 0, 10, device=0)
        reports.append(report)
    assert streams(tasks(tmp_path, *reports)) == [["CUDA-D2.S7-node01"], ["CUDA-D1.S7-node01"], ["CUDA-D0.S7-node01"]]


def test_tables_of_newer_exports_say_which_gpu_a_process_calls_0(tmp_path: Path) -> None:
    report = ReportBuilder(pid=10)
    report.process(11)
    for gpu in range(2):
        report.gpu(gpu, uuid=f"uuid-{gpu}")
    report.cuda_device(0, 1, pid=10).cuda_device(0, 0, pid=11)
    report.kernel("k", 0, 10, pid=10)
    report.kernel("k", 0, 10, pid=11)
    assert streams(tasks(tmp_path, report)) == [["CUDA-D1.S7-node01"], ["CUDA-D0.S7-node01"]]


def test_one_gpu_that_two_ranks_share_has_one_number_and_stays_apart(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=10 + rank) for rank in range(2)]
    for report in reports:
        report.gpu(0, uuid="shared")
        report.kernel("k", 0, 10)
    found = tasks(tmp_path, *reports)
    assert streams(found) == [["CUDA-D0.S7-node01"], ["CUDA-D0.S7-node01"]]


def test_streams_of_several_contexts_stay_apart_under_the_name_that_tools_read(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    report.kernel("k", 0, 10, context=1)
    report.kernel("k", 5, 15, context=2)
    report.kernel("k", 5, 15, context=2, stream=9)
    assert streams(tasks(tmp_path, report)) == [["CUDA-D0.S7-node01", "CUDA-D0.S7-node01", "CUDA-D0.S9-node01"]]


def test_equal_pids_and_tids_on_two_hosts_stay_apart(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=10, host=f"n{rank}") for rank in range(2)]
    for rank, report in enumerate(reports):
        report.gpu(0, uuid=f"uuid-{rank}")
        report.kernel("k", 20, 30, launch=(0, 10))
        report.thread(12, name="worker")
        report.os_call("read", 3, 4, tid=12)
    found = tasks(tmp_path, *reports)
    assert [(task["node"], task["threads"]) for task in found] == [
        (f"n{rank}", ["python3 tid 10", "worker tid 12", f"CUDA-D0.S7-n{rank}"]) for rank in range(2)
    ]


def test_the_main_thread_is_first(tmp_path: Path) -> None:
    report = ReportBuilder(pid=100)
    for tid, name in ((7, "early"), (100, "python3"), (200, "")):
        report.thread(tid, name=name)
        report.os_call("read", 0, 5, tid=tid)
    assert tasks(tmp_path, report)[0]["threads"] == ["python3 tid 100", "early tid 7", "tid 200"]


def test_a_gpu_that_no_process_uses_has_its_row_in_a_task_of_the_node(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0)
    for gpu in range(2):
        report.gpu(gpu).metric("SM Active", 5, 50, gpu=gpu)
    report.kernel("k", 0, 10, device=0)
    found = tasks(tmp_path, report)
    assert streams(found) == [["CUDA-D0.S7-node01", "Metrics GPU0"], ["Metrics GPU1"]]
    assert found[1]["pid"] is None


def test_a_blank_in_the_name_of_a_node_does_not_end_the_name_that_tools_read(tmp_path: Path) -> None:
    report = ReportBuilder(host="big node")
    report.gpu(0)
    report.kernel("k", 0, 10)
    assert streams(tasks(tmp_path, report)) == [["CUDA-D0.S7-big_node"]]
    assert measure([report.write(tmp_path / "blank.sqlite")]).tables["devices"]["device"].to_list() == ["big node:D0"]


# -- communicators are lines after the header, and Paraver's tools take traces with them -----------------
WORLD = 10


def mpi_report(rank: int, *, ranks: int = 4) -> ReportBuilder:
    """A rank that is in MPI_COMM_WORLD, in one of two halves in the opposite order, and in a copy of the half."""
    report = ReportBuilder(rank=rank, pid=100 + rank, host="n0").mpi_rank(rank)
    report.communicator(WORLD + rank, rank=rank, size=ranks)
    half, copy = 500 + rank, 700 - rank
    report.communicator(half, rank=rank, size=2, parent=WORLD + rank, local_rank=1 - rank // 2, group=(rank % 2, 0), time=11)
    report.communicator(copy, rank=rank, size=None, parent=half, time=12)
    for at, handle in ((100, WORLD + rank), (200, half)):
        report.mpi_collective("MPI_Barrier", at, at + 10, communicator=handle)
    return report


def translated(tmp_path: Path, *reports: ReportBuilder, **options: object) -> Path:
    return translate_reports(tmp_path, *reports, options=TranslateOptions(align="none", **options)).prv  # type: ignore[arg-type]


def lines(prv: Path) -> list[str]:
    count = read_header(prv).communicators
    return prv.read_text().splitlines()[1 : 1 + count]


def test_communicators_of_mpi_have_the_number_of_their_value_and_tasks_in_the_order_of_ranks(tmp_path: Path) -> None:
    prv = translated(tmp_path, *(mpi_report(rank) for rank in range(4)))
    assert lines(prv) == [
        "c:1:1:4:1:2:3:4",
        # Local ranks of the halves are the other way round than those of the program.
        "c:1:2:2:3:1",
        "c:1:3:2:4:2",
        # No call is made in the copies.
        "c:1:4:2:3:1",
        "c:1:5:2:4:2",
        *(f"c:1:{100_000 + task}:1:{task}" for task in range(1, 5)),
    ]
    assert labels_of(open_whole(prv), event_types.MPI_COMMUNICATOR) == {
        0: "End",
        1: "MPI_COMM_WORLD",
        2: "communicator of 2 ranks from rank 0, number 0",
        3: "communicator of 2 ranks from rank 1, number 0",
    }


def test_ranks_that_are_not_in_the_trace_are_in_no_communicator(tmp_path: Path) -> None:
    prv = translated(tmp_path, *(mpi_report(rank) for rank in range(4)), ranks=frozenset({1, 2}))
    # The copies of the halves are after them.
    assert lines(prv)[:3] == ["c:1:1:2:1:2", "c:1:2:1:2", "c:1:3:1:1"]


def test_copies_of_communicators_and_those_of_one_rank_have_names_of_their_own(tmp_path: Path) -> None:
    reports = []
    for rank in range(2):
        report = ReportBuilder(rank=rank, pid=100 + rank, host="n0").mpi_rank(rank)
        report.communicator(5, rank=rank, size=2).communicator(6, rank=rank, size=1)
        for number in range(2):
            report.communicator(7 + number, rank=rank, size=None, parent=5, time=10 + number)
        for place in range(4):
            report.mpi_collective("MPI_Barrier", 100 + 20 * place, 110 + 20 * place, communicator=5 + place)
        reports.append(report)
    prv = translated(tmp_path, *reports)
    names = labels_of(open_whole(prv), event_types.MPI_COMMUNICATOR)
    assert sorted(names.values()) == [
        *("End", "MPI_COMM_SELF of rank 0", "MPI_COMM_SELF of rank 1", "MPI_COMM_WORLD"),
        *("copy 1 of MPI_COMM_WORLD", "copy 2 of MPI_COMM_WORLD"),
    ]
    members = {names[int(line.split(":")[2])]: line.split(":")[4:] for line in lines(prv)}
    assert members == {
        "MPI_COMM_WORLD": ["1", "2"],
        "MPI_COMM_SELF of rank 0": ["1"],
        "MPI_COMM_SELF of rank 1": ["2"],
        "copy 1 of MPI_COMM_WORLD": ["1", "2"],
        "copy 2 of MPI_COMM_WORLD": ["1", "2"],
    }


def test_communicators_of_nccl_are_those_that_payloads_name(tmp_path: Path, paramedir: Paramedir) -> None:
    reports = []
    for rank in range(3):
        report = ReportBuilder(host=f"n{rank}", rank=rank, ranks=3)
        for identifier, members in ((COMMUNICATOR, (0, 1, 2)), (77, (0, 2))):
            if rank in members:
                Nccl(report, binary=False).call("ncclCommInitRank", 10 + identifier % 50, 90, identifier, len(members), 0, 0)
        reports.append(report)
    prv = translated(tmp_path, *reports)
    names = {200_000 + value: name for value, name in labels_of(open_whole(prv), event_types.NCCL_COMMUNICATOR).items()}
    found = {names[int(line.split(":")[2])]: line.split(":")[3:] for line in lines(prv)}
    assert found == {
        "NCCL communicator of 3 ranks: 0-2 (#1a2b)": ["3", "1", "2", "3"],
        "NCCL communicator of 2 ranks: 0,2 (#004d)": ["2", "1", "3"],
    }
    # Paraver counts the lines that the header announces, and reads records after them.
    assert len(read_timeline(paramedir.show_one(prv, STATES_VIEW))) == 3


@pytest.mark.parametrize(
    ("line", "why"),
    [("c:1:1:3:1:2", "announces 3 tasks and lists 2"), ("i:1:3:1:1:2", "not a communicator"), ("c:1:1:1:2", "has task 2")],
)
def test_check_names_a_communicator_that_is_wrong(tmp_path: Path, line: str, why: str) -> None:
    prv = translated(tmp_path, mpi_report(0, ranks=1))
    text = prv.read_text().splitlines(keepends=True)
    prv.write_text("".join([text[0], f"{line}\n", *text[2:]]))
    (violation,) = check_trace(prv).violations
    assert violation.line == 2
    assert why in violation.text


# -- steps that place events on rows and give them numbers and labels ------------------------------------


def test_what_is_looked_up_does_not_depend_on_what_all_events_have_in_common() -> None:
    key = ["type", "series", "label"]
    table = pl.DataFrame(
        [(1, None, "a", 10), (1, None, None, 11), (1, "s", "a", 12), (2, None, "a", 13)],
        schema={"type": pl.Int64, "series": pl.String, "label": pl.String, "number": pl.Int64},
        orient="row",
    )
    events = pl.DataFrame(
        [(1, None, "a"), (1, None, None), (1, "s", "a"), (2, None, "a"), (2, "s", "a"), (None, None, "a")],
        schema=table.drop("number").schema,
        orient="row",
    )
    numbers = [10, 11, 12, 13, None, None]
    for count in range(len(numbers) + 1):
        for chosen in itertools.combinations(range(len(numbers)), count):
            found = look_up(events[list(chosen)], table, key)
            assert found["number"].to_list() == [numbers[place] for place in chosen]
            assert found.columns == ["number"]


def test_names_that_are_cleaned_into_one_stay_apart(tmp_path: Path) -> None:
    report = ReportBuilder()
    for place, name in enumerate(["gemm(float[4])", "gemm(float(4))", "copy"]):
        report.kernel(name, 10 * place, 10 * place + 5)
    for place, name in enumerate(["a\tb", "a\nb", "a b"]):
        report.nvtx_range(name, 10 * place, 10 * place + 5)

    trace = translate_reports(tmp_path, report)

    lines = trace.prv.with_suffix(".pcf").read_text().splitlines()
    for label in ("gemm(float(4))", "a b"):
        alike = [line.split(maxsplit=1)[1] for line in lines if label in line]
        assert label in alike
        assert len(set(alike)) == len(alike) == (2 if label.startswith("gemm") else 3)
    assert [line.split(maxsplit=1)[1] for line in lines if "copy" in line] == ["copy"]


def test_events_that_run_at_once_are_counted_over_the_edges_of_pieces_in_their_order() -> None:
    events = pl.DataFrame({"stream": 7, "start": [0, 5, 5, 12, 12], "end": [10, 5, 11, 15, 12]})
    assert _most_at_once([events[:2], events[2:2], events[2:]], ["stream"]) == {(7,): 3}
    assert _most_at_once([events[3:], events[:3]], ["stream"]) is None
    assert _most_at_once([events.reverse()], ["stream"]) is None


ATTRIBUTES = ("9101", "9102")


@pytest.mark.parametrize("known", [0, 3, 100_000])
def test_rows_have_the_types_of_their_events_and_attributes_that_are_not_0(known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_KNOWN", known)
    chance = random.Random(known)
    found = RowsOfTypes()
    expected: set[tuple[int, int]] = set()
    for number in range(40):
        # Rows and types appear one after the other, and attributes are 0 or missing at first.
        events = [
            {
                "row": chance.randrange(1 + number // 8),
                "number": chance.choice([KERNEL.number, NVTX_PUSHPOP.number][: 1 + number // 20]),
                "value": chance.randrange(2),
                **{name: chance.choice([None, 0, number // 30]) for name in ATTRIBUTES},
            }
            for _ in range(chance.randrange(1, 6))
        ]
        schema = dict.fromkeys(("row", "number", "value", *ATTRIBUTES), pl.Int64)
        found.add_events(pl.DataFrame(events, schema=schema))
        expected |= {(one["row"], one["number"]) for one in events}
        expected |= {(one["row"], int(name)) for one in events for name in ATTRIBUTES if one[name]}

    types = {number for _, number in expected}
    assert {int(name) for name in ATTRIBUTES} < types
    assert found.ranges() == {number: row_ranges(sorted(row for row, of in expected if of == number)) for number in types}


def test_events_that_are_nothing_but_an_attribute_count_where_it_is_not_0() -> None:
    found = RowsOfTypes()
    for row, value in ((0, 0), (1, 0), (1, 5), (1, 0), (0, 0)):
        found.add_events(pl.DataFrame({"row": [row], "number": [CORRELATION_ID.number], "value": [value]}))
    assert found.ranges() == {CORRELATION_ID.number: ((1, 1),)}
