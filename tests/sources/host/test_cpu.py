"""What threads do on CPUs: scheduling, samples, call chains, calls of the OS, OpenMP, math libraries."""

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nsys_columns import COLUMNS
from support.report_builder import ReportBuilder
from support.trace_properties import assert_account_balances
from support.traces import labels_of, table_summary, trace_of, translate_reports
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.run.inspect import inspect
from nsys2prv.sources.cuda import api_calls
from nsys2prv.sources.host import call_chains, cpu_samples, library_calls, openmp, scheduling
from nsys2prv.sources.host.profiled import FOREIGN
from nsys2prv.sources.host.scheduling import Stays
from nsys2prv.timeline.coverage import NO_VALUE, OUTSIDE
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match


def on_cpu(trace: WholeTrace) -> list[tuple[int, ...]]:
    """Thread, begin, end, CPU of each stay on a CPU."""
    found = trace.intervals([event_types.EXECUTING_CPU]).sort("task", "thread", "begin")
    return found.select("thread", "begin", "end", pl.col("value") - 1).rows()


def test_a_thread_that_moves_between_cpus_gives_this_trace_and_no_other(tmp_path: Path) -> None:
    report = ReportBuilder(host="nid001", pid=1000)
    report.on_cpu(0, 100, cpu=3).on_cpu(150, 300, cpu=71)
    summary = translate_reports(tmp_path, report)
    # The host says that it has 64 CPUs; the report speaks of a 72nd one.
    assert summary.prv.read_text().splitlines() == [
        "#Paraver (14/11/2023 at 22:13):300_ns:1(72):1:1(1:1)",
        "1:4:1:1:1:0:100:1",
        "2:4:1:1:1:0:40000033:4",
        "1:0:1:1:1:100:150:9",
        "2:4:1:1:1:100:40000033:0",
        "2:0:1:1:1:100:40000161:12",
        "1:72:1:1:1:150:300:1",
        "2:0:1:1:1:150:40000161:0",
        "2:72:1:1:1:150:40000033:72",
        "2:72:1:1:1:300:40000033:0",
        "2:0:1:1:1:300:40000161:12:40000161:0",
    ]
    assert labels_of(open_whole(summary.prv), event_types.OFF_CPU)[12] == "off CPU"


def test_a_stay_on_a_cpu_below_zero_is_left_out(tmp_path: Path) -> None:
    summary = translate_reports(tmp_path, ReportBuilder().on_cpu(0, 100, cpu=-1).on_cpu(150, 300, cpu=2))
    assert on_cpu(open_whole(summary.prv)) == [(1, 150, 300, 2)]
    assert table_summary(summary, "SCHED_EVENTS")["sources"][0]["left_out"] == {NO_VALUE: 1}


def test_cpus_are_counted_over_the_nodes(tmp_path: Path) -> None:
    first, second = (ReportBuilder(host=f"nid{index}", pid=1000 + index, rank=index) for index in range(2))
    first.on_cpu(0, 10, cpu=5)
    second.on_cpu(0, 10, cpu=5)
    trace = open_whole(translate_reports(tmp_path, first, second).prv)
    assert trace.header.cpus_per_node == (64, 64)
    begins = trace.events([event_types.EXECUTING_CPU]).filter(pl.col("value") > 0)
    assert begins.sort("task").select("task", "cpu", "value").rows() == [(1, 6, 6), (2, 70, 6)]


def test_what_is_open_at_the_begin_and_at_the_end_reaches_there(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.nvtx_range("all", 0, 1000).switch(200, 1, on=False).switch(700, 2, on=True)
    summary = translate_reports(tmp_path, report)
    assert on_cpu(open_whole(summary.prv)) == [(1, 0, 200, 1), (1, 700, 1000, 2)]
    states = open_whole(summary.prv).states().select("cpu", "begin", "end", "state").rows()
    assert states == [
        (2, 0, 200, event_types.RUNNING),
        (0, 200, 700, event_types.STATE_BLOCKED),
        (3, 700, 1000, event_types.RUNNING),
    ]
    entry = table_summary(summary, "SCHED_EVENTS")
    assert (assert_account_balances(summary.content), entry["derived"][0]["written"]) == (3, 1)


def test_a_thread_is_blocked_off_cpu_where_no_call_says_more(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.on_cpu(0, 100).on_cpu(300, 400)
    report.api_call("cudaDeviceSynchronize", 200, 350)
    states = open_whole(translate_reports(tmp_path, report).prv).states().select("begin", "end", "state", "cpu").rows()
    # Off CPU at 100, in the call from 200 on, back on the CPU at 300 and still in the call.
    assert states == [
        (0, 100, event_types.RUNNING, 1),
        (100, 200, event_types.STATE_BLOCKED, 0),
        (200, 300, event_types.STATE_SYNCHRONIZATION, 0),
        (300, 350, event_types.STATE_SYNCHRONIZATION, 1),
        (350, 400, event_types.RUNNING, 1),
    ]


def test_time_off_cpu_tells_the_state_of_the_thread_and_its_reason(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.row("ENUM_SCHEDULING_THREAD_BLOCK", id=6, name="Mutex", label="Mutex")
    report.switch(0, 0, on=True).switch(10, 0, on=False, threadState=2, threadBlock=6)
    report.switch(20, 0, on=True).switch(30, 0, on=False, threadState=77, threadBlock=99).switch(40, 0, on=True)
    report.switch(50, 0, on=False)
    trace = open_whole(translate_reports(tmp_path, report).prv)
    off = trace.named(trace.intervals([event_types.OFF_CPU]).sort("begin"))
    assert off["begin", "name"].rows() == [(10, "Interruptible"), (30, "thread state 77"), (50, "off CPU")]
    reasons = trace.events([scheduling.BLOCK_REASON]).filter(pl.col("value") > 0)
    assert trace.named(reasons)["name"].to_list() == ["Mutex", "reason 99"]


def test_switches_of_one_nanosecond_follow_each_other_as_they_must(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    # Off and on again while it runs; then on and off again while it does not: nsys writes "off" first both times.
    report.switch(0, 0, on=True).switch(10, 0, on=False).switch(10, 1, on=True).switch(20, 1, on=False)
    report.switch(30, 2, on=False).switch(30, 2, on=True).switch(40, 3, on=True).switch(50, 3, on=False)
    assert on_cpu(open_whole(translate_reports(tmp_path, report).prv)) == [
        (1, 0, 10, 0), (1, 10, 20, 1), (1, 30, 30, 2), (1, 40, 50, 3)
    ]  # fmt: skip


def test_a_lost_row_costs_no_time_that_is_known(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.switch(0, 0, on=True).switch(10, 1, on=True).switch(20, 1, on=False).switch(35, 1, on=False).switch(40, 0, on=True)
    report.switch(50, 0, on=False)
    summary = translate_reports(tmp_path, report)
    assert on_cpu(open_whole(summary.prv)) == [(1, 0, 10, 0), (1, 10, 20, 1), (1, 40, 50, 0)]
    assert assert_account_balances(summary.content) == 6


def whole_system(report: ReportBuilder) -> ReportBuilder:
    """Adds threads of another program, of the kernel, and the idle thread."""
    report.process(77, "someone-else")
    for tid, pid in ((77, 77), (78, 77), (2, 2), (0, 0)):
        report.on_cpu(5, 15, cpu=1, tid=tid, pid=pid).cpu_sample(7, tid=tid, pid=pid)
    return report


@pytest.mark.parametrize("sign", ["setting", "mode", "idle thread"])
def test_threads_of_other_programs_have_no_rows_and_are_counted(tmp_path: Path, sign: str) -> None:
    report = whole_system(ReportBuilder(pid=1000).on_cpu(0, 10).cpu_sample(3).os_call("read", 1, 2))
    if sign == "setting":
        report.row("META_DATA_CAPTURE", name="TRACE_ALL_TASKS", value="true")
        report.row("META_DATA_CAPTURE", name="SAMPLE_ALL_TASKS", value="true")
    elif sign == "mode":
        report.row("META_DATA_CAPTURE", name="LINUX_PERF_OPTIONS:COLLECTION_MODE", value="SystemWide")
    summary = translate_reports(tmp_path, report)
    assert [task["pid"] for task in summary.content["tasks"]] == [1000]
    for table, rows in (("SCHED_EVENTS", 8), ("COMPOSITE_EVENTS", 4)):
        assert table_summary(summary, table)["left_out"] == {FOREIGN: rows}
    assert_account_balances(summary.content)
    inspected = inspect([tmp_path / "out0.sqlite"])[0]["tables"]
    assert {entry["table"]: entry["left_out"] for entry in inspected if entry["left_out"]} == {
        "SCHED_EVENTS": {FOREIGN: 8},
        "COMPOSITE_EVENTS": {FOREIGN: 4},
    }


def test_the_launched_program_is_known_by_its_name_where_nothing_else_was_recorded(tmp_path: Path) -> None:
    report = whole_system(ReportBuilder(pid=1000, process_name="a.out").on_cpu(0, 10))
    report.row("META_DATA_CAPTURE", name="PROCESS_0:COMMAND", value="/home/me/a.out")
    assert [task["pid"] for task in translate_reports(tmp_path, report).content["tasks"]] == [1000]


def test_children_without_other_events_keep_their_rows(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).os_call("fork", 0, 5).on_cpu(0, 10)
    report.process(1001, "child")
    report.on_cpu(20, 30, pid=1001, tid=1001)
    assert [task["pid"] for task in translate_reports(tmp_path, report).content["tasks"]] == [1000, 1001]


SWITCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(0, 2), st.booleans()), max_size=40)


def as_switches(rows: list[tuple[int, int, int, bool]]) -> pl.DataFrame:
    ordered = sorted(rows, key=lambda row: (row[0], row[3]))
    return pl.DataFrame(
        [(thread, time, cpu, is_in, None, None) for time, thread, cpu, is_in in ordered],
        schema={
            "globalTid": pl.Int64,
            "start": pl.Int64,
            "cpu": pl.Int64,
            "isIn": pl.Boolean,
            "threadState": pl.Int64,
            "threadBlock": pl.Int64,
        },
        orient="row",
    )


def stays_of(switches: pl.DataFrame, cuts: set[int]) -> pl.DataFrame:
    """Stays, from pieces of the switches that are cut at some times."""
    stays = Stays()
    edges = [-1, *sorted(cuts), 100]
    pieces = [stays(switches.filter(pl.col("start").is_between(begin + 1, end))) for begin, end in pairwise(edges)]
    found = pl.concat([*pieces, stays.finish()])
    return found.sort(found.columns)


@given(rows=SWITCHES, cuts=st.sets(st.integers(0, 30), max_size=6))
def test_stays_are_the_same_in_any_pieces(rows: list[tuple[int, int, int, bool]], cuts: set[int]) -> None:
    switches = as_switches(rows)
    whole = stays_of(switches, set())
    assert stays_of(switches, cuts).equals(whole)
    # Each switch begins one stay, and the stays of a thread follow each other without a gap.
    assert whole.height == switches.height
    assert sorted(whole["globalTid"]) == sorted(switches["globalTid"])
    for _, of_thread in whole.group_by("globalTid"):
        assert of_thread["end"].null_count() == 1
        begins = sorted(of_thread["start"].to_list())
        assert sorted(of_thread["end"].drop_nulls().to_list()) == begins[1:]


def test_a_sample_is_one_line_with_its_cpu_and_its_call_chain(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.nvtx_range("all", 0, 100)
    report.cpu_sample(10, [("work(long)", "app"), ("0x7fd9", "libx.so"), ("main", "app")], cpu=4, cycles=7)
    report.cpu_sample(20, cpu=5, state=3)
    summary = translate_reports(tmp_path, report)
    lines = [line for line in summary.prv.read_text().splitlines() if f":{cpu_samples.CPU_SAMPLE}:" in line]
    trace = open_whole(summary.prv)
    assert lines[1] == "2:6:1:1:1:20:30000300:4:30000301:1"
    assert lines[0].startswith("2:5:1:1:1:10:30000300:2:30000301:7:30000000:")
    chain = trace.events().filter(pl.col("type").is_between(30000000, 30000299))
    assert trace.named(chain)["type", "name"].rows() == [
        (30000000, "work(long)"), (30000001, "unresolved in libx.so"), (30000002, "main"),
        (30000200, "app"), (30000201, "libx.so"), (30000202, "app"),
    ]  # fmt: skip
    assert trace.labels.types[30000002].label == "Sampled functions (depth 2)"
    # Nothing is labelled that no sample has.
    assert 30000003 not in trace.labels.types


def test_a_stack_without_cycles_is_no_sample(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).nvtx_range("all", 0, 100)
    report.cpu_sample(10, [("work", "app")]).cpu_sample(20, [("futex", "libc.so")], cycles=0).cpu_sample(30, cycles=0, tid=7)
    summary = translate_reports(tmp_path, report)
    assert open_whole(summary.prv).events([cpu_samples.CPU_SAMPLE])["time"].to_list() == [10]
    (samples,) = table_summary(summary, "COMPOSITE_EVENTS")["sources"]
    assert (samples["rows"], samples["written"], list(samples["left_out"].values())) == (3, 1, [2])


def test_the_innermost_frames_of_a_deep_call_chain_are_kept(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).nvtx_range("all", 0, 100)
    report.cpu_sample(10, [(f"f{depth}", "app") for depth in range(call_chains.MOST_FRAMES + 5)])
    trace = open_whole(translate_reports(tmp_path, report).prv)
    functions = trace.events().filter(pl.col("type").is_between(30000000, 30000099))
    assert trace.named(functions)["name"].to_list() == [f"f{depth}" for depth in range(call_chains.MOST_FRAMES)]


def test_many_samples_get_each_their_own_call_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys2prv.execution.external_sort.RUN_ROWS", 50)
    monkeypatch.setattr("nsys2prv.execution.external_sort.WINDOW_ROWS", 40)
    monkeypatch.setattr("nsys2prv.execution.external_sort._KEPT_ROWS", 10)
    monkeypatch.setattr("nsys2prv.sources.host.call_chains.PIECE_ROWS", 30)
    report = ReportBuilder(pid=1000)
    for number in range(300):
        report.cpu_sample(10 * number, [(f"f{number % 7}", "app"), (f"g{number % 5}", "app")][: number % 3])
    trace = open_whole(translate_reports(tmp_path, report).prv)
    for depth, (name, modulo) in enumerate((("f", 7), ("g", 5))):
        found = trace.named(trace.events([call_chains.SAMPLED_FUNCTION + depth]))
        assert dict(found["time", "name"].rows()) == {10 * n: f"{name}{n % modulo}" for n in range(300) if n % 3 > depth}


def test_calls_have_the_chain_of_their_callers(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.os_call("ioctl", 0, 50, chain=3).os_call("read", 60, 70)
    report.call_chain("OSRT_CALLCHAINS", 3, [("__GI___ioctl", "libc.so.6"), ("0x7f24", "libcuda.so"), ("main", "app")])
    report.api_call("cudaMalloc", 100, 200)
    report._rows["CUPTI_ACTIVITY_KIND_RUNTIME"][0]["callchainId"] = 9
    report.call_chain("CUDA_CALLCHAINS", 9, [("cudaMalloc", "libcudart.so"), ("setup()", "app")])
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    callers = trace.events().filter(pl.col("type").is_between(call_chains.CALLER, call_chains.CALLER + 99), pl.col("value") > 0)
    assert trace.named(callers)["time", "type", "name"].rows() == [
        (0, 70000000, "__GI___ioctl"), (0, 70000001, "unresolved in libcuda.so"), (0, 70000002, "main"),
        (100, 70000000, "cudaMalloc"), (100, 70000001, "setup()"),
    ]  # fmt: skip
    assert trace.intervals([call_chains.CALLER]).select("begin", "end").rows() == [(0, 50), (100, 200)]
    assert table_summary(summary, "OSRT_API")["derived"][0]["written"] == 1
    assert assert_account_balances(summary.content) == 3


FAMILY = {
    event_types.PTHREAD_CALL: "pthread_mutex_lock pthread_cond_timedwait pthread_create sem_timedwait pthread_rwlock_trywrlock",
    event_types.IO_CALL: (
        "open open64 openat openat64 fopen fopen64 fdopen freopen creat read pread pread64 preadv readv fread fread_unlocked"
        " write pwrite writev fwrite close fclose fgets getc getdelim fputs_unlocked fputc printf vfprintf fflush fsync"
        " fdatasync lseek lseek64 ftruncate posix_fallocate stat lstat fstat fstatat sendfile"
    ),
    event_types.OS_CALL: (
        "ioctl poll epoll_wait select socket connect send recv recvmsg mmap mmap64 munmap usleep nanosleep fork waitpid prctl"
        " sigaction pipe2 dup fcntl shmget process_vm_readv backtrace thread_spread flockfile"
    ),
}


@pytest.mark.parametrize(("family", "call"), [(family, call) for family, calls in FAMILY.items() for call in calls.split()])
def test_each_call_of_the_os_is_in_its_family(family: int, call: str) -> None:
    frame = pl.DataFrame({"name": [call]})
    assert frame.select(first_match(pl.col("name"), library_calls._FAMILIES, event_types.OS_CALL)).item() == family


def test_a_note_of_nsys_is_no_call_and_makes_no_trace_longer(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).os_call("read", 60, 70)
    report.os_call("OS runtime libraries profiling started", -(10**12), -(10**12), chain=3, tid=0)
    report.os_call("[Unknown]", 65, 65, tid=0).profiler("CUPTI: Instrumentation", 61, 62, tid=0)
    summary = translate_reports(tmp_path, report)
    assert summary.content["trace"]["length_ns"] == 10
    assert open_whole(summary.prv).names["THREAD"] == ("python3 tid 1000",)
    assert table_summary(summary, "OSRT_API")["sources"][0]["left_out"] == {OUTSIDE: 1}
    assert table_summary(summary, "PROFILER_OVERHEAD")["left_out"] == {}


def test_families_of_os_calls_have_types_and_states_of_their_own_and_may_nest(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.os_call("pthread_join", 0, 100).os_call("fopen", 110, 200).os_call("open", 120, 130, nesting=1)
    report.os_call("ioctl", 210, 220).os_call("read", 230, 240)
    trace = open_whole(translate_reports(tmp_path, report).prv)
    found = trace.intervals([event_types.PTHREAD_CALL, event_types.IO_CALL, event_types.OS_CALL]).sort("begin")
    assert trace.named(found)["type", "begin", "name", "depth"].rows() == [
        (event_types.PTHREAD_CALL, 0, "pthread_join", 1), (event_types.IO_CALL, 110, "fopen", 1),
        (event_types.IO_CALL, 120, "open", 2), (event_types.OS_CALL, 210, "ioctl", 1), (event_types.IO_CALL, 230, "read", 1),
    ]  # fmt: skip
    # Extrae's numbers where it has some.
    assert found["value"][0] == 3
    assert found["value"][4] == 1
    states = trace.states().select("begin", "end", "state").rows()
    assert states[:3] == [
        (0, 100, event_types.STATE_BLOCKED), (100, 110, event_types.RUNNING), (110, 200, event_types.STATE_IO)
    ]  # fmt: skip


def test_file_accesses_have_the_name_of_the_file_and_bytes(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.row("ENUM_OSRT_FILE_ACCESS_EVENT_TYPE", id=3, name="Read", label="Read from file")
    report.row("OSRT_FILE_ACCESS_DESCRIPTORS", fileAccessId=0, processId=1000, openedAt=0, closedAt=0, filePath="/data/in.h5")
    for file, thread, kind, size in ((0, 1000, 3, 4096), (0, 1001, 5, 0), (1, 1000, 3, 8)):
        report.row(
            "OSRT_FILE_ACCESS_EVENTS",
            fileAccessId=file, threadId=thread, startedAt=10 + size, endedAt=20 + size, eventType=kind, apiCallId=1,
            bytesProcessed=size,
        )  # fmt: skip
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    assert trace.names["THREAD"] == ("python3 tid 1000", "tid 1001")
    found = trace.named(trace.intervals([library_calls.FILE_ACCESS]).sort("begin"))
    assert found["thread", "begin", "name"].rows() == [(2, 0, "access 5"), (1, 4096, "Read from file")]
    assert set(trace.named(trace.events([library_calls.FILE_NAME]).filter(pl.col("value") > 0))["name"]) == {"/data/in.h5"}
    assert trace.events([library_calls.IO_SIZE])["value"].sum() == 4096
    # The table of files does not say whose the second file is.
    entry = table_summary(summary, "OSRT_FILE_ACCESS_EVENTS")
    assert entry["sources"][0]["left_out"] == {"the table names no thread, stream or device": 1}


def test_openmp_constructs_have_types_kinds_and_ids(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    thread = report.global_tid()
    report.row("ENUM_OPENMP_SYNC_REGION", id=2, name="ompt_sync_region_barrier_implicit", label="Implicit barrier")

    def construct(table: str, start: int, end: int, name: str, **columns: int) -> None:
        report.row(f"OPENMP_EVENT_KIND_{table}", start=start, end=end, globalTid=thread, nameId=report.string(name), **columns)

    construct("PARALLEL", 0, 100, "Parallel", parallelId=5, parentTaskId=1)
    construct("WORKSHARE", 10, 60, "Loop", kind=1, parallelId=5, taskId=2)
    construct("SYNC_REGION", 60, 100, "Barrier", kind=2, parallelId=5, taskId=2)
    construct("TASK_CREATE", 20, 20, "Task create", parentTaskId=2, newTaskId=7)
    construct("MUTEX_WAIT", 30, 40, "Mutex", kind=5, waitId=9, taskId=2)
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    found = trace.named(trace.intervals().sort("type"))
    assert found["type", "begin", "end", "name"].rows() == [
        (60000001, 0, 100, "Parallel"),
        (60000002, 10, 60, "worksharing, kind 1"),
        (60000005, 60, 100, "Implicit barrier"),
        (60000009, 30, 40, "wait for lock, kind 5"),
        (60000021, 20, 20, "Task create"),
    ]
    assert set(trace.events([openmp.OPENMP_PARALLEL_ID])["value"]) == {5, 0}
    assert set(trace.events([openmp.OPENMP_TASK_ID])["value"]) == {1, 2, 7, 0}
    assert (60, 100, event_types.STATE_SYNCHRONIZATION) in trace.states().select("begin", "end", "state").rows()
    assert_account_balances(summary.content)


def test_every_openmp_table_has_a_source(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    tables = [table for table in COLUMNS if table.startswith("OPENMP_EVENT_KIND_")]
    for start, table in enumerate(tables):
        report.row(table, start=10 * start, end=10 * start + 5, globalTid=report.global_tid(), nameId=report.string(table))
    assert len(tables) == 18
    found = trace_of(tmp_path, report).intervals()
    assert (found.height, found["type"].n_unique()) == (18, 18)


def test_calls_of_math_libraries_the_system_and_cuda_are_intervals(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000, schema="3.30.1")
    names = {
        "CUBLAS_EVENTS": "cublasSgemm_v2", "CUDNN_EVENTS": "cudnnConvolutionForward", "SYSCALL": "futex",
        "CUPTI_ACTIVITY_KIND_JIT": "cuModuleLoadData", "CUDA_HOST_CALLBACK": "schedule(void*)",
    }  # fmt: skip
    for start, (table, name) in zip(range(0, 250, 50), names.items(), strict=True):
        report.row(table, start=start, end=start + 30, eventClass=1, globalTid=report.global_tid(), nameId=report.string(name))
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    assert {table["table"] for table in summary.content["reports"][0]["tables"] if table["left_out"]} == set()
    found = trace.named(trace.intervals().sort("begin"))
    kinds = (67000000, 67000001, library_calls.SYSTEM_CALL, api_calls.JIT_COMPILATION, api_calls.HOST_FUNCTION)
    assert found["type", "begin", "end", "name"].rows() == [
        (kind, start, start + 30, name) for start, kind, name in zip(range(0, 250, 50), kinds, names.values(), strict=True)
    ]
