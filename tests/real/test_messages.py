"""Messages of real MPI programs: every send is in one, none runs backward, and Paraver counts the same on their way."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from support.paramedir import VIEW, Paramedir

from nsys2prv.paraver.check import check_trace

from .conftest import Translated

REPORTS = ("mpi4", "mpi4_parquet", "mpi2_one_report")


def _account(translated: Translated) -> Any:
    return json.loads(translated.trace.path.with_suffix(".json").read_text())


@pytest.mark.parametrize("mpi_report", REPORTS)
def test_all_sends_of_all_ranks_are_there(translation: Callable[[str], Translated], mpi_report: str) -> None:
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
    messages, account = translated.trace.messages(), _account(translated)["messages"]

    assert messages.height == sum(count for (count,) in sends + persistent) > 100
    assert account["unmatched"] == {"sends": {}, "receives": {}}
    assert account["left_out"] == {}
    assert messages["send_task"].n_unique() == messages["recv_task"].n_unique() == (4 if "mpi4" in mpi_report else 2)


@pytest.mark.parametrize("mpi_report", REPORTS)
def test_no_message_runs_backwards(translation: Callable[[str], Translated], mpi_report: str) -> None:
    translated = translation(mpi_report)
    messages = translated.trace.messages()

    assert messages.filter(pl.col("physical_recv") < pl.col("physical_send")).is_empty()
    assert messages.filter(pl.col("logical_recv") > pl.col("physical_recv")).is_empty()
    assert _account(translated)["messages"]["backward"] == 0
    assert check_trace(translated.trace.path).counts["backward_messages"] == 0


@pytest.mark.parametrize("mpi_report", REPORTS)
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
