"""Messages of real MPI programs: every send is in one, none runs backward, and Paraver counts the same on their way."""

import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from support import few_of
from support.checkout import REAL_REPORTS
from support.paramedir import VIEW, Paramedir

from nsys2prv.exports.report import open_report
from nsys2prv.paraver.check import check_trace
from nsys2prv.sources.communication.message_ends import NCCL_NETWORK, kinds_of_messages, read_message_ends
from nsys2prv.timeline.messages import Messages

from .conftest import Translated

EACH = pytest.mark.parametrize("mpi_report", few_of(("mpi4", "mpi4_parquet", "mpi2_one_report"), {"mpi4", "mpi2_one_report"}))


@EACH
def test_all_sends_are_there_and_no_message_runs_backwards(translation: Callable[[str], Translated], mpi_report: str) -> None:
    translated = translation(mpi_report)
    named = "(select value from StringIds where id = textId)"
    sends = translated.query(
        f"select count(distinct start || globalTid) from MPI_P2P_EVENTS where {named} in "
        "('MPI_Send', 'MPI_Isend', 'MPI_Issend', 'MPI_Sendrecv')"
    )
    persistent = translated.query(
        f"""select count(*) from MPI_START_WAIT_EVENTS started where {named} = 'MPI_Startall' and 'MPI_Send_init' = (
        select {named} from MPI_P2P_EVENTS made where made.globalTid = started.globalTid and made.start < started.start
        and made.requestHandle = started.requestHandle order by made.start desc limit 1)"""
    )
    messages = translated.trace.messages()
    account = json.loads(translated.trace.path.with_suffix(".json").read_text())["messages"]

    assert messages.height == sum(count for (count,) in sends + persistent) > 100
    assert account["unmatched"] == {"sends": {}, "receives": {}}
    assert account["left_out"] == {}
    assert account["backward"] == check_trace(translated.trace.path).counts["backward_messages"] == 0
    assert (messages["physical_recv"] >= messages["physical_send"]).all()
    assert (messages["logical_recv"] <= messages["physical_recv"]).all()
    assert messages["send_task"].n_unique() == messages["recv_task"].n_unique() == (4 if "mpi4" in mpi_report else 2)


@EACH
def test_paraver_counts_the_messages_on_their_way(
    translation: Callable[[str], Translated], paramedir: Paramedir, mpi_report: str
) -> None:
    """Paraver's own count of messages sent and not yet received goes up and down as those of the trace do."""
    trace = translation(mpi_report).trace
    view = VIEW.format(function="Send Messages in Transit", types="All", composition="As Is")
    messages = trace.messages()
    most: dict[int, int] = {}
    for (task,), of_task in messages.group_by("send_task"):
        arrival = of_task.select(pl.max_horizontal("logical_recv", "physical_recv")).to_series().to_list()
        on_way = sorted([(at, 1) for at in of_task["logical_send"]] + [(at, -1) for at in arrival])
        height = 0
        for _, step in on_way:
            height += step
            most[task] = max(most.get(task, 0), height)
    shown: dict[int, float] = defaultdict(float)
    for line in paramedir.show_one(trace.path, view).read_text().splitlines():
        row, _, _, value = line.split("\t")
        task = int(row.split(".")[1])
        shown[task] = max(shown[task], float(value))

    assert {task: round(value) for task, value in shown.items() if value} == most


# -- messages of NCCL over the network, of real runs on several nodes ------------------------------------
RUNS = {
    "nccl-2nodes-6gpus-utc": (880, 0, {("ault43", "ault44"): (-92, 11)}),
    "nccl-2nodes-5of6-utc": (40, 40, {("ault43", "ault44"): (-77, None)}),
    "nccl-3nodes-9gpus": (
        512,
        0,
        {("ault42", "ault43"): (-97, 198), ("ault42", "ault44"): (-366, 130), ("ault43", "ault44"): (-102, 157)},
    ),
    "nccl-3nodes-9gpus-utc": (
        512,
        0,
        {("ault42", "ault43"): (-204, 122), ("ault42", "ault44"): (-285, 94), ("ault43", "ault44"): (-103, 673)},
    ),
}
"""Messages with both ends, sends alone, and for each pair of hosts how far the second clock can be ahead of the first, us."""


def utc_of(path: Path) -> tuple[int, bool]:
    """Start of the session, and whether the tables have times in UTC."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        ((start,),) = database.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME")
        ((first,),) = database.execute("select min(start) from CUPTI_ACTIVITY_KIND_RUNTIME")
    return start, first > start // 2


@pytest.mark.parametrize("run", few_of(RUNS, {"nccl-2nodes-5of6-utc"}))
def test_messages_over_the_network_and_the_bounds_that_they_give_to_clocks(run: str, tmp_path: Path) -> None:
    paths = sorted((REAL_REPORTS / run).glob("*.sqlite"))
    if not paths:
        pytest.skip(f"no reports in {REAL_REPORTS / run}")
    count, alone, bounds = RUNS[run]
    messages = Messages(tmp_path / "messages")
    starts = []
    for index, path in enumerate(paths):
        report = open_report(path)
        start, _ = utc_of(path)
        starts.append(start)
        for ends in read_message_ends(report, {}, tmp_path / str(index), kinds_of_messages(report, (NCCL_NETWORK,))):
            messages.add(ends.with_columns(pl.col("start", "end") + start, row=pl.lit(index, pl.Int64)))
    found = pl.concat(messages.matched_ends())

    assert found.height == count
    assert messages.unmatched["sends"].total() == alone
    assert messages.unmatched["receives"].total() == 0

    hosts = pl.Series([path.name.partition("_")[0] for path in paths])
    on_hosts = found.select(
        pl.col("to_time") - pl.col("time"), source=hosts.gather(found["row"]), destination=hosts.gather(found["to_row"])
    )
    fastest = {(source, to): time for source, to, time in on_hosts.group_by("source", "destination").min().iter_rows()}
    for first, second in itertools.combinations(sorted(set(hosts)), 2):
        low, high = bounds[first, second]
        assert round(-fastest[second, first] / 1000) == low
        assert (round(fastest[first, second] / 1000) if (first, second) in fastest else None) == high
