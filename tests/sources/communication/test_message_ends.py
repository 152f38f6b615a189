"""Messages between ranks: small reports by hand, and the lines that they must give."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import rest
from support.report_builder import ReportBuilder
from support.traces import NONE, RankMessage, rank_messages, translate_unaligned, unmatched_messages

from nsys2prv.paraver.check import check_trace
from nsys2prv.run.options import TimeRange
from nsys2prv.sources.communication.message_ends import END_SCHEMA
from nsys2prv.timeline import messages as matching
from nsys2prv.trace.translate import Summary
from nsys2prv.trace.translate_options import TranslateOptions

WORLD = 94577367172512


def rank_report(rank: int, ranks: int = 2) -> ReportBuilder:
    """A report of one rank, with a call at time 0, so that times of the trace are times of the report."""
    report = ReportBuilder(pid=1000 + rank, rank=rank, ranks=ranks, with_mpi=True)
    report.mpi_other("MPI_Init", 0, 10)
    return report


def test_a_message_goes_from_the_begin_of_the_send_to_the_end_of_the_receive(tmp_path: Path) -> None:
    sender, receiver = rank_report(0), rank_report(1)
    sender.mpi_p2p("MPI_Send", 100, 200, partner=1, size=64, tag=7)
    receiver.mpi_p2p("MPI_Recv", 50, 180, partner=0, size=4096, tag=7)
    summary = translate_unaligned(tmp_path, sender, receiver)
    # The size is that of the message; a receive may have room for more.
    assert rank_messages(summary) == [RankMessage(0, 100, 1, 50, 180, 64, 7)]
    assert "3:0:1:1:1:100:100:0:1:2:1:50:180:64:7" in summary.prv.read_text().splitlines()
    assert summary.content["messages"] == {
        "matched": 1, "written": 1, "left_out": {}, "backward": 0, "unmatched": {"sends": {}, "receives": {}},
    }  # fmt: skip


def test_the_wait_that_completes_a_receive_ends_its_message(tmp_path: Path) -> None:
    sender, receiver = rank_report(0), rank_report(1)
    for index in range(3):
        sender.mpi_p2p("MPI_Isend", 100 + 10 * index, 105 + 10 * index, partner=1, size=index, tag=index, request=70 + index)
        receiver.mpi_p2p("MPI_Irecv", 50 + 10 * index, 55 + 10 * index, partner=0, size=8, tag=index, request=90 + index)
    sender.mpi_wait("MPI_Waitall", 200, 300, requests=(70, 71, 72))
    receiver.mpi_wait("MPI_Test", 150, 160, requests=(92,))
    receiver.mpi_wait("MPI_Waitall", 200, 400, requests=(90, 91))
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert rank_messages(summary) == [
        RankMessage(0, 100, 1, 50, 400, 0, 0),
        RankMessage(0, 110, 1, 60, 400, 1, 1),
        RankMessage(0, 120, 1, 70, 160, 2, 2),
    ]


def test_a_handle_that_is_used_again_is_another_request(tmp_path: Path) -> None:
    sender, receiver = rank_report(0), rank_report(1)
    for round_ in (1000, 2000, 3000):
        sender.mpi_p2p("MPI_Isend", round_, round_ + 5, partner=1, size=8, request=70)
        sender.mpi_wait("MPI_Wait", round_ + 10, round_ + 20, requests=(70,))
        receiver.mpi_p2p("MPI_Irecv", round_ + 30, round_ + 40, partner=0, size=8, request=70)
        receiver.mpi_wait("MPI_Wait", round_ + 50, round_ + 60, requests=(70,))
        # A collective, and a send, may get the same handle after it.
        receiver.mpi_collective("MPI_Ibarrier", round_ + 70, round_ + 80, request=70)
        receiver.mpi_wait("MPI_Wait", round_ + 90, round_ + 100, requests=(70,))
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert rank_messages(summary) == [RankMessage(0, at, 1, at + 30, at + 60, 8, 0) for at in (1000, 2000, 3000)]


def test_equal_handles_of_two_processes_are_different_requests(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    for rank, pid in enumerate((1000, 2000)):
        report.process(pid)
        report.mpi_rank(rank, pid=pid).communicator(WORLD, rank=rank, size=2).mpi_other("MPI_Init", 0, 10, pid=pid)
        report.mpi_p2p("MPI_Irecv", 20, 30, partner=1 - rank, size=8, request=70, pid=pid)
        report.mpi_p2p("MPI_Send", 40 + rank, 50, partner=1 - rank, size=8, pid=pid)
        report.mpi_wait("MPI_Wait", 60, 70 + rank, requests=(70,), pid=pid)
    summary = translate_unaligned(tmp_path, report)
    assert rank_messages(summary) == [RankMessage(0, 40, 1, 20, 71, 8, 0), RankMessage(1, 41, 0, 20, 70, 8, 0)]
    assert unmatched_messages(summary) == NONE


def test_persistent_requests_are_one_message_per_start(tmp_path: Path) -> None:
    sender, receiver = rank_report(0), rank_report(1)
    sender.mpi_p2p("MPI_Send_init", 20, 25, partner=1, size=80, tag=9, request=70)
    receiver.mpi_p2p("MPI_Recv_init", 20, 25, partner=0, size=80, tag=9, request=90)
    receiver.mpi_p2p("MPI_Recv_init", 26, 28, partner=0, size=80, tag=8, request=91)
    for at in (100, 200, 300):
        sender.mpi_wait("MPI_Start", at, at + 5, requests=(70,))
        sender.mpi_wait("MPI_Wait", at + 10, at + 15, requests=(70,))
        receiver.mpi_wait("MPI_Startall", at + 20, at + 25, requests=(90,))
        receiver.mpi_wait("MPI_Waitany", at + 30, at + 40, requests=(90,))
        # MPI_Waitall tells of requests that are complete already.
        receiver.mpi_wait("MPI_Waitall", at + 50, at + 60, requests=(90, 91))
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert rank_messages(summary) == [RankMessage(0, at, 1, at + 20, at + 40, 80, 9) for at in (100, 200, 300)]
    assert unmatched_messages(summary) == NONE


def test_sendrecv_is_a_send_and_a_receive_with_one_row_or_two(tmp_path: Path) -> None:
    reports = [rank_report(rank, 3) for rank in range(3)]
    for rank, report in enumerate(reports):
        # A ring: two rows, first the send.
        report.mpi_p2p("MPI_Sendrecv", 100, 100, partner=(rank + 1) % 3, size=40, tag=7)
        report.mpi_p2p("MPI_Sendrecv", 100, 150 + rank, partner=(rank - 1) % 3, size=40, tag=7)
    for rank, report in enumerate(reports[:2]):
        # An exchange: one row.
        report.mpi_p2p("MPI_Sendrecv_replace", 300, 350 + rank, partner=1 - rank, size=16, tag=8)
    summary = translate_unaligned(tmp_path, *reports)
    ring = [RankMessage(rank, 100, (rank + 1) % 3, 100, 150 + (rank + 1) % 3, 40, 7) for rank in range(3)]
    exchange = [RankMessage(0, 300, 1, 300, 351, 16, 8), RankMessage(1, 300, 0, 300, 350, 16, 8)]
    assert rank_messages(summary) == sorted(ring + exchange)
    assert unmatched_messages(summary) == NONE


def test_ranks_of_a_communicator_are_those_of_its_split(tmp_path: Path) -> None:
    # Ranks 0 and 2, and 1 and 3, are ranks 0 and 1 of two communicators. Handles are addresses of each process.
    reports = [rank_report(rank, 4) for rank in range(4)]
    for rank, report in enumerate(reports):
        report.communicator(500 + rank, rank=rank, size=2, parent=WORLD, local_rank=rank // 2, group=(rank % 2, 0), time=11)
        if rank < 2:
            report.mpi_p2p("MPI_Send", 100, 110, partner=1, size=rank, communicator=500 + rank)
        else:
            report.mpi_p2p("MPI_Recv", 100, 120, partner=0, size=8, communicator=500 + rank)
    summary = translate_unaligned(tmp_path, *reports)
    assert rank_messages(summary) == [RankMessage(0, 100, 2, 100, 120, 0, 0), RankMessage(1, 100, 3, 100, 120, 1, 0)]
    assert unmatched_messages(summary) == NONE


def test_a_communicator_that_tells_no_group_has_the_ranks_of_its_parent(tmp_path: Path) -> None:
    reports = [rank_report(rank, 4) for rank in range(4)]
    for rank, report in enumerate(reports):
        split, grid, copy = 500 + rank, 600 - rank, 700 + rank
        report.communicator(split, rank=rank, size=2, parent=WORLD, local_rank=1 - rank // 2, group=(rank % 2, 3), time=11)
        report.communicator(grid, rank=rank, size=None, parent=split, time=12)
        report.communicator(copy, rank=rank, size=None, parent=split, time=13)
        if rank >= 2:
            for handle, size in ((grid, 1), (copy, 2)):
                report.mpi_p2p("MPI_Send", 100 * size, 100 * size + 10, partner=1, size=size, communicator=handle)
        else:
            for handle, size in ((copy, 2), (grid, 1)):
                report.mpi_p2p("MPI_Recv", 300 - size, 300, partner=0, size=8, communicator=handle)
    summary = translate_unaligned(tmp_path, *reports)
    assert rank_messages(summary) == [
        RankMessage(sender, 100 * size, sender - 2, 300 - size, 300, size, 0) for sender in (2, 3) for size in (1, 2)
    ]
    assert unmatched_messages(summary) == NONE


def test_the_handle_of_a_communicator_that_was_freed_gets_a_new_meaning(tmp_path: Path) -> None:
    reports = [rank_report(rank) for rank in range(2)]
    for rank, report in enumerate(reports):
        report.communicator(500, rank=rank, size=2, parent=WORLD, local_rank=rank, group=(0, 0), time=100)
        # The same ranks the other way round.
        report.communicator(500, rank=rank, size=2, parent=WORLD, local_rank=1 - rank, group=(1, 0), time=200)
        call, end = (("MPI_Send", 10), ("MPI_Recv", 40))[rank]
        report.mpi_p2p(call, 150, 150 + end, partner=1 - rank, size=1, communicator=500)
        report.mpi_p2p(call, 250, 250 + end, partner=rank, size=2, communicator=500)
    summary = translate_unaligned(tmp_path, *reports)
    assert rank_messages(summary) == [RankMessage(0, 150, 1, 150, 190, 1, 0), RankMessage(0, 250, 1, 250, 290, 2, 0)]
    assert unmatched_messages(summary) == NONE


def test_what_is_in_no_message_is_counted_under_a_reason(tmp_path: Path) -> None:
    sender, receiver = rank_report(0, 3), rank_report(1, 3)
    sender.mpi_p2p("MPI_Send", 100, 110, partner=1, size=8, tag=1)
    sender.mpi_p2p("MPI_Send", 120, 130, partner=1, size=8, tag=2)
    sender.mpi_p2p("MPI_Send", 140, 150, partner=2, size=8)
    sender.mpi_p2p("MPI_Send", 160, 170, partner=-2, size=8)
    sender.mpi_p2p("MPI_Send", 180, 190, partner=1, size=8, communicator=123)
    sender.mpi_p2p("MPI_Bsend", 200, 210, partner=1, size=8, tag=4)
    receiver.mpi_p2p("MPI_Recv", 100, 110, partner=0, size=8, tag=1)
    receiver.mpi_p2p("MPI_Recv", 120, 130, partner=0, size=8, tag=3)
    receiver.mpi_p2p("MPI_Recv", 140, 150, partner=-1, size=8, tag=2)
    receiver.mpi_p2p("MPI_Irecv", 160, 170, partner=0, size=8, tag=4, request=9)
    # A probe is no message.
    receiver.mpi_p2p("MPI_Probe", 180, 190, partner=0, size=0, tag=2)
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert rank_messages(summary) == [RankMessage(0, 100, 1, 100, 110, 8, 1)]
    sends, receives = unmatched_messages(summary)
    assert sends == {
        matching.NO_MATCH: 1, matching.NO_PARTNER: 1, matching.NO_DESTINATION: 1, matching.NO_COMMUNICATOR: 1,
    }  # fmt: skip
    assert receives == {matching.NO_MATCH: 1, matching.NO_SOURCE: 1}
    assert summary.content["messages"]["left_out"] == {matching.NO_END: 1}
    assert summary.content["messages"]["matched"] == 2


@pytest.mark.parametrize(("sent", "backward"), [(300, 1), (150, 0), (200, 0)])
def test_a_message_that_runs_backwards_is_counted(tmp_path: Path, sent: int, backward: int) -> None:
    sender, receiver = rank_report(0), rank_report(1)
    sender.mpi_p2p("MPI_Send", sent, 310, partner=1, size=8)
    # Who waits before the send makes no message run backwards.
    receiver.mpi_p2p("MPI_Recv", 100, 200, partner=0, size=8)
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert summary.content["messages"]["backward"] == backward
    assert check_trace(summary.prv).counts["backward_messages"] == backward


def exchange(tmp_path: Path, options: TranslateOptions) -> Summary:
    sender, receiver = rank_report(0), rank_report(1)
    for at in (100, 200, 300):
        sender.mpi_p2p("MPI_Send", at, at + 10, partner=1, size=at)
        receiver.mpi_p2p("MPI_Recv", at - 60, at + 20, partner=0, size=8)
    sender.nvtx_range("work", 0, 400)
    return translate_unaligned(tmp_path, sender, receiver, options=options)


def test_messages_inside_the_chosen_time_keep_their_partners(tmp_path: Path) -> None:
    summary = exchange(tmp_path, TranslateOptions(time=TimeRange(150, 250)))
    # What was begun before the chosen time is drawn from there.
    assert rank_messages(summary) == [RankMessage(0, 50, 1, 0, 70, 200, 0)]
    assert summary.content["messages"]["left_out"] == {matching.OUTSIDE: 2}


def test_messages_that_are_skipped_are_not_in_the_trace(tmp_path: Path) -> None:
    assert rank_messages(exchange(tmp_path, TranslateOptions(skip=("messages",)))) == []


def test_messages_to_ranks_that_were_not_chosen_are_counted(tmp_path: Path) -> None:
    summary = exchange(tmp_path, TranslateOptions(ranks=frozenset({0})))
    assert rank_messages(summary) == []
    assert unmatched_messages(summary) == ({matching.NO_PARTNER: 3}, {})


def test_old_columns_suffice(tmp_path: Path) -> None:
    sender, receiver = rank_report(0), rank_report(1)
    sender.mpi_p2p("MPI_Isend", 100, 200, partner=1, size=64, tag=7)
    receiver.mpi_p2p("MPI_Recv", 50, 180, partner=0, size=4096, tag=7)
    receiver.mpi_p2p("MPI_Irecv", 200, 210, partner=0, size=4096, tag=7)
    for report in (sender, receiver):
        report.without("MPI_P2P_EVENTS", "requestHandle", "tag", "size")
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert rank_messages(summary) == [RankMessage(0, 100, 1, 50, 180, 0, 0)]
    assert unmatched_messages(summary) == ({}, {matching.NO_MATCH: 1})


@pytest.mark.parametrize(
    "test",
    [
        test_a_handle_that_is_used_again_is_another_request,
        test_persistent_requests_are_one_message_per_start,
        *rest(test_sendrecv_is_a_send_and_a_receive_with_one_row_or_two),
    ],
)
def test_the_same_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: Callable[[Path], None]) -> None:
    """Requests, persistent ones too, reach over the edges of pieces, runs and windows."""
    monkeypatch.setattr("nsys2prv.sources.communication.message_ends.PIECE_ROWS", 3)
    for name, rows in (("RUN_ROWS", 4), ("WINDOW_ROWS", 5), ("_KEPT_ROWS", 2), ("_BATCH_ROWS", 2)):
        monkeypatch.setattr(f"nsys2prv.execution.external_sort.{name}", rows)
    test(tmp_path)


_CALLS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0, 1]), st.sampled_from([0, 1]), st.sampled_from([-1, 0, 1, 2])), max_size=60
)


@given(_CALLS)
def test_matching_is_that_of_mpi(tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[bool, int, int, int]]) -> None:
    """Against the rule itself: each receive takes the first send that is left and that it accepts."""
    ends = [
        (place, place, place + 1000, is_send, 1, source, destination, abs(tag) if is_send else tag, place, place)
        for place, (is_send, source, destination, tag) in enumerate(calls)
    ]
    left = [end for end in ends if end[3]]
    expected = set()
    for receive in (end for end in ends if not end[3]):
        send = next((one for one in left if one[5:7] == receive[5:7] and receive[7] in (-1, one[7])), None)
        if send is not None:
            left.remove(send)
            expected.add((send[0], receive[0], send[7]))
    columns = ("start", "order", "end", "is_send", "communicator", "source", "destination", "tag", "size", "row")
    found = matching.Messages(tmp_path_factory.mktemp("messages"))
    frame = pl.DataFrame(ends, schema=dict(zip(columns, _TYPES, strict=True)), orient="row")
    found.add(frame.with_columns(pl.lit(None, pl.Int64).alias(name) for name in END_SCHEMA if name not in columns))
    windows = matching.TimeSelection((0,), (5000,))
    pairs = {pair for frame in found.messages(windows) for pair in frame.select("row", "to_row", "tag").iter_rows()}
    assert pairs == expected
    assert found.unmatched["sends"].total() == len(left)


_TYPES = [pl.Int64] * 3 + [pl.Boolean] + [pl.Int64] * 6
