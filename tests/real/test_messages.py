"""Messages of real MPI programs: matched again in plain Python, which shares nothing with nsys2prv, they are the same."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .conftest import Translated

REPORTS = ("mpi4", "mpi4_parquet", "mpi2_one_report")


class Call(NamedTuple):
    """One row of an MPI table."""

    start: int
    row: tuple[int, int]
    end: int
    name: str
    handle: int | None
    partner: int | None
    tag: int | None
    size: int | None
    request: int | None


class Message(NamedTuple):
    """Sender and receiver with the place of the calls among all calls of their rank: sent, awaited, completed."""

    source: int
    sent: int
    destination: int
    awaited: int
    completed: int
    size: int
    tag: int


def calls_of_ranks(databases: tuple[Path, ...]) -> tuple[dict[int, list[Call]], dict[int, list[int]]]:
    """For each rank its MPI calls in order, and the handles of its communicators in the order of their making."""
    calls, handles = {}, {}
    for path in databases:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
            for thread, rank in database.execute("select globalTid, rank from MPI_RANKS"):
                name = "(select value from StringIds where id = textId)"
                tables = {
                    "MPI_P2P_EVENTS": "commHandle, remoteRank, tag, size, requestHandle",
                    "MPI_START_WAIT_EVENTS": "null, null, null, null, requestHandle",
                    "MPI_COLLECTIVES_EVENTS": "null, null, null, null, requestHandle",
                    "MPI_OTHER_EVENTS": "null, null, null, null, null",
                }
                calls[rank] = sorted(
                    (
                        Call(start, (place, rowid), end, *rest)
                        for place, (table, columns) in enumerate(tables.items())
                        for start, rowid, end, *rest in database.execute(
                            f"select start, rowid, end, {name}, {columns} from {table} where globalTid = ?", (thread,)
                        )
                    ),
                    key=lambda call: call[:2],
                )
                made = "select commHandle from MPI_COMMUNICATORS where rank = ? order by timestamp"
                handles[rank] = [handle for (handle,) in database.execute(made, (rank,))]
    return calls, handles


def messages_in_reports(databases: tuple[Path, ...]) -> tuple[list[Message], int, int]:
    """Messages, and how many sends and receives are in none. One rank after the other, one call after the other."""
    calls, handles = calls_of_ranks(databases)
    sent: dict[tuple[int, ...], deque[tuple[int, int]]] = defaultdict(deque)
    received: dict[tuple[int, ...], deque[list[int]]] = defaultdict(deque)
    for rank, of_rank in calls.items():
        begins = sorted({(call.start, call.name) for call in of_rank})
        places = {begin: place for place, begin in enumerate(begins)}
        requests: dict[int, Any] = {}

        def send(call: Call, place: int, rank: int = rank) -> None:
            key = (handles[rank].index(call.handle or 0), rank, call.partner or 0, call.tag or 0)
            sent[key].append((place, call.size or 0))

        def receive(call: Call, place: int, completed: int, rank: int = rank) -> list[int]:
            end = [place, completed]
            received[handles[rank].index(call.handle or 0), call.partner or 0, rank, call.tag or 0].append(end)
            return end

        of_sendrecv: dict[int, list[Call]] = defaultdict(list)
        for call in of_rank:
            if call.name == "MPI_Sendrecv":
                of_sendrecv[call.start].append(call)
        for call in of_rank:
            place = places[call.start, call.name]
            verb = call.name.removeprefix("MPI_")
            if verb == "Sendrecv":
                if call is of_sendrecv[call.start][0]:
                    send(call, place)
                if call is of_sendrecv[call.start][-1]:
                    receive(call, place, place)
            elif verb == "Send":
                send(call, place)
            elif verb == "Recv":
                receive(call, place, place)
            elif verb in ("Isend", "Issend"):
                send(call, place)
                requests[call.request or 0] = None
            elif verb == "Irecv":
                requests[call.request or 0] = receive(call, place, -1)
            elif verb in ("Send_init", "Recv_init"):
                requests[call.request or 0] = (call, None)
            elif verb == "Startall":
                made = requests[call.request or 0][0]
                if made.name == "MPI_Send_init":
                    send(made, place)
                else:
                    requests[call.request or 0] = (made, receive(made, place, -1))
            elif verb in ("Wait", "Waitall", "Waitany", "Test"):
                found = requests.get(call.request or 0)
                end = found[1] if isinstance(found, tuple) else found
                if end is not None and end[1] < 0:
                    end[1] = place
            elif call.request is not None:
                requests[call.request] = None
    found_messages = []
    for key in [*sent]:
        while sent[key] and received[key]:
            (place, size), (awaited, completed) = sent[key].popleft(), received[key].popleft()
            found_messages.append(Message(key[1], place, key[2], awaited, completed, size, key[3]))
    return sorted(found_messages), sum(map(len, sent.values())), sum(map(len, received.values()))


def messages_in_trace(translated: Translated) -> list[Message]:
    trace = translated.trace
    ranks = {task: entry["rank"] for task, entry in enumerate(_account(translated)["tasks"], start=1)}
    calls = trace.intervals([50000001, 50000002, 50000003, 50000004, 50000005]).sort("begin", "end")
    begins = {task: of_task["begin"].to_list() for (task,), of_task in calls.group_by("task", maintain_order=True)}
    ends = {task: of_task["end"].to_list() for (task,), of_task in calls.group_by("task", maintain_order=True)}

    def beginning(task: int, time: int) -> int:
        place = bisect(begins[task], time) - 1
        assert begins[task][place] == time
        return place

    columns = ("send_task", "logical_send", "recv_task", "logical_recv", "physical_recv", "size", "tag")
    return sorted(
        Message(
            ranks[sender],
            beginning(sender, at),
            ranks[receiver],
            beginning(receiver, awaited),
            ends[receiver].index(completed),
            size,
            tag,
        )
        for sender, at, receiver, awaited, completed, size, tag in trace.messages().select(columns).iter_rows()
    )


def _account(translated: Translated) -> Any:
    return json.loads(translated.trace.path.with_suffix(".json").read_text())


@pytest.mark.parametrize("mpi_report", REPORTS)
def test_each_send_has_the_receive_that_an_independent_matching_finds(
    translation: Callable[[str], Translated], mpi_report: str
) -> None:
    translated = translation(mpi_report)
    expected, sends_left, receives_left = messages_in_reports(translated.databases)

    assert messages_in_trace(translated) == expected
    assert (sends_left, receives_left) == (0, 0)
    found = _account(translated)["messages"]
    assert found["backward"] == 0
    assert found["unmatched"] == {"sends": {}, "receives": {}}
    assert found["written"] == found["matched"] == len(expected)
    assert found["left_out"] == {}
