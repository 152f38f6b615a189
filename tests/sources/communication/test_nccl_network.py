"""Messages of NCCL over the network, which an instrumented NCCL notes in NVTX."""

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest
from support.report_builder import ReportBuilder
from support.traces import NONE, RankMessage, rank_messages, table_summary, translate_unaligned, unmatched_messages

from nsys2prv.exports.report import open_report
from nsys2prv.sources.communication.message_ends import NCCL_NETWORK, kinds_of_messages, read_message_ends
from nsys2prv.timeline import messages as matching
from nsys2prv.timeline.messages import Messages
from nsys2prv.vocabulary import event_types

TAG = event_types.TAG_NCCL_NETWORK
PROGRESS = 77
SIZE = 4096


class Rank:
    """A report of one rank, and the notes of the thread that serves its network."""

    def __init__(self, rank: int, thread: int = PROGRESS) -> None:
        self.report = ReportBuilder(host=f"node{rank}").mpi_rank(rank)
        self.report.thread(thread)
        # Times of the trace are those of the report.
        self.report.nvtx_range("begin", 0, 1)
        self.thread = thread

    def send(self, start: int, text: str) -> None:
        self.report.nvtx_range(f"ncclNetIsend(): {text}", start, start + 2, tid=self.thread)

    def mark(self, function: str, time: int, text: str) -> None:
        self.report.nvtx_range(f"ncclNet{function}()", time - 1, time + 1, tid=self.thread)
        self.report.nvtx_mark(f"ncclNet{function}(): {text}", time, tid=self.thread)


def note(
    sequence: int | None, *, size: int = SIZE, source: int = 0, destination: int = 1, channel: int = 0, more: str = ""
) -> str:
    text = f"Data_Size: {size}, Sender_Rank: {source}, Receiver_Rank: {destination}, Channel_ID: {channel}{more}"
    return text if sequence is None else f"{text}, Sequence: {sequence}"


def exchange(sent: Iterable[tuple[int, int | None]], received: Iterable[tuple[int, int | None]]) -> tuple[Rank, Rank]:
    """Sender and receiver with messages by the time when each is posted; it is found complete 20 later."""
    sender, receiver = Rank(0), Rank(1)
    for time, sequence in sent:
        sender.send(time, note(sequence))
        sender.mark("SendTest", time + 20, note(sequence))
    for time, sequence in received:
        receiver.mark("Irecv", time, note(sequence, size=2 * SIZE))
        receiver.mark("RecvTest", time + 20, note(sequence))
    return sender, receiver


def paired(folder: Path, *ranks: Rank) -> tuple[list[tuple[int, int]], tuple[dict[str, int], dict[str, int]]]:
    """When each message was posted and found complete, and the ends without another one."""
    messages = Messages(folder / "messages")
    for row, rank in enumerate(ranks):
        report = open_report(rank.report.write(folder / f"{row}.sqlite"))
        for ends in read_message_ends(report, {}, folder / f"ends{row}", kinds_of_messages(report, (NCCL_NETWORK,))):
            messages.add(ends.with_columns(row=pl.lit(row, pl.Int64)))
    found = [(sent, received) for pairs in messages.matched_ends() for sent, received in pairs.select("time", "to_time").rows()]
    return sorted(found), (dict(messages.unmatched[matching.SENDS]), dict(messages.unmatched[matching.RECEIVES]))


def test_a_message_is_from_the_last_post_to_the_last_test(tmp_path: Path) -> None:
    sender, receiver = Rank(0), Rank(1)
    for start in (100, 110, 120):
        sender.send(start, note(0))
    sender.mark("SendTest", 160, note(0))
    receiver.mark("Irecv", 90, note(0, size=2 * SIZE))
    receiver.mark("RecvTest", 130, note(0, size=0))
    receiver.mark("RecvTest", 150, note(0))

    summary = translate_unaligned(tmp_path, sender.report, receiver.report)
    assert rank_messages(summary) == [RankMessage(0, 120, 1, 90, 150, SIZE, TAG)]
    assert unmatched_messages(summary) == NONE


def test_the_notes_are_still_marks_and_ranges(tmp_path: Path) -> None:
    sender, receiver = exchange([(100, 0)], [(90, 0)])
    summary = translate_unaligned(tmp_path, sender.report, receiver.report)
    for report, rows in ((0, 4), (1, 5)):
        entry = table_summary(summary, "NVTX_EVENTS", report)
        assert (entry["rows"], entry["left_out"]) == (rows, {})
        assert sum(source["written"] for source in entry["sources"]) == rows


ALL_PAIRED = [(100, 110), (200, 210), (300, 310), (400, 410)]


@pytest.mark.parametrize(
    ("sent", "received", "found", "unmatched"),
    [
        ([(100, 0), (200, 2), (300, 4), (400, 6)], [(90, 0), (190, 2), (290, 0), (390, 2)], ALL_PAIRED, NONE),
        ([(100, 0), (200, 0), (300, 0)], [(90, 0), (190, 0), (290, 0)], ALL_PAIRED[:3], NONE),
        ([(100, 0), (300, 2)], [(90, 0), (190, 1), (290, 2)], ALL_PAIRED[0:3:2], ({}, {matching.OTHER_SEQUENCE: 1})),
        ([(100, None), (200, None)], [(90, None), (190, None)], ALL_PAIRED[:2], NONE),
        ([(100, 0), (200, 1)], [(190, 0)], [], ({matching.OTHER_COUNT: 2}, {matching.OTHER_COUNT: 1})),
        ([(100, None), (200, None)], [(190, None)], [], ({matching.OTHER_COUNT: 2}, {matching.OTHER_COUNT: 1})),
        (
            [(100, 5), (200, 6), (400, 8)],
            [(90, 0), (290, 2), (390, 3)],
            [],
            ({matching.OTHER_SEQUENCE: 3}, {matching.OTHER_SEQUENCE: 3}),
        ),
    ],
    ids=[
        "starts again on one side only", "the same again and again", "a lost note costs its own message", "only counted",
        "the first operation was not recorded", "as many on both sides", "each side lost another note",
    ],
)  # fmt: skip
def test_messages_are_paired_by_their_sequences(
    tmp_path: Path,
    sent: list[tuple[int, int | None]],
    received: list[tuple[int, int | None]],
    found: list[tuple[int, int]],
    unmatched: tuple[dict[str, int], dict[str, int]],
) -> None:
    assert paired(tmp_path, *exchange(sent, received)) == (found, unmatched)


def test_both_ends_have_the_same_size(tmp_path: Path) -> None:
    sender, receiver = exchange([(100, 0)], [])
    receiver.mark("Irecv", 90, note(0))
    receiver.mark("RecvTest", 130, note(0, size=SIZE - 1))
    assert paired(tmp_path, sender, receiver) == ([], ({matching.OTHER_SEQUENCE: 1}, {matching.OTHER_SEQUENCE: 1}))


@pytest.mark.parametrize(
    "text",
    [
        "Data_Size: 8, Sender_Rank: 0, Receiver_Rank: ",
        "Data_Size: 8, Sender_Rank: -1, Receiver_Rank: 1, Channel_ID: 0, Sequence: 0",
        "Data_Size: 8, Sender_Rank: 0, Receiver_Rank: 1, Channel_ID: 0, Sequence: x",
        "Data_Size: 8, Sender_Rank: 99999999999999999999999, Receiver_Rank: 1, Channel_ID: 0, Sequence: 0",
        "Data_Size: 8, Sender_Rank: 0x1, Receiver_Rank: 1, Channel_ID: 0, Sequence: 0",
        "%s%s%n\0 \u2028 Sender_Rank",
    ],
)
def test_texts_that_are_not_complete_are_counted(tmp_path: Path, text: str) -> None:
    sender, receiver = exchange([(100, 0)], [(90, 0)])
    sender.send(300, text)
    receiver.mark("Irecv", 300, text)
    receiver.mark("RecvTest", 310, text)
    found, unmatched = paired(tmp_path, sender, receiver)
    assert [sent for sent, _ in found] == [100]
    assert unmatched == ({matching.BROKEN: 1}, {matching.BROKEN: 1})


def test_a_message_without_its_other_end_or_its_completion_is_counted(tmp_path: Path) -> None:
    sender, receiver = exchange([(100, 0)], [])
    sender.send(200, note(0, destination=5))
    receiver.mark("Irecv", 90, note(0))
    summary = translate_unaligned(tmp_path, sender.report, receiver.report)
    assert rank_messages(summary) == []
    assert unmatched_messages(summary) == ({matching.NO_PARTNER: 1}, {})
    assert summary.content["messages"]["left_out"] == {matching.NO_END: 1}


def test_channels_and_communicators_are_told_apart(tmp_path: Path) -> None:
    sender, receiver = Rank(0), Rank(1)
    texts = [note(0, channel=1), note(0), note(0, more=", commHash: 0xab"), note(0, more=", commHash: 0xcd")]
    for place, text in enumerate(texts):
        sender.send(100 + 10 * place, text)
        receiver.mark("Irecv", 90 - 10 * place, text)
        receiver.mark("RecvTest", 200 - 10 * place, text)
    found, unmatched = paired(tmp_path, sender, receiver)
    assert found == [(100 + 10 * at, 200 - 10 * at) for at in range(4)]
    assert unmatched == NONE


def test_addresses_of_communicators_differ_between_ranks_and_are_not_used(tmp_path: Path) -> None:
    sender, receiver = Rank(0), Rank(1)
    sender.send(100, note(0, more=", comm: 0x7f001"))
    receiver.mark("Irecv", 90, note(0, more=", comm: 0x7f777"))
    receiver.mark("RecvTest", 110, note(0, more=", comm: 0x7f777"))
    assert paired(tmp_path, sender, receiver) == ([(100, 110)], NONE)


def test_the_same_ranks_of_two_communicators_without_names_are_not_mixed_up(tmp_path: Path) -> None:
    sender, receiver = exchange([(100, 0)], [(90, 0)])
    other = Rank(2)
    other.send(100, note(0))
    found, unmatched = paired(tmp_path, sender, receiver, other)
    assert found == []
    assert unmatched == ({matching.SEVERAL_THREADS: 2}, {matching.SEVERAL_THREADS: 1})


def test_texts_can_be_registered_and_rows_in_any_order(tmp_path: Path) -> None:
    sender, receiver = exchange([(300, 2), (100, 0), (200, 1)], [(290, 2), (190, 1), (90, 0)])
    sender.report.nvtx_range(f"ncclNetIsend(): {note(3)}", 400, 402, tid=PROGRESS, registered=True)
    receiver.report.nvtx_mark(f"ncclNetRecvTest(): {note(3)}", 420, tid=PROGRESS, registered=True)
    receiver.report.nvtx_mark(f"ncclNetIrecv(): {note(3)}", 390, tid=PROGRESS, registered=True)
    found, unmatched = paired(tmp_path, sender, receiver)
    assert found == [(100, 110), (200, 210), (300, 310), (400, 420)]
    assert unmatched == NONE
