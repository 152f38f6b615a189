"""Messages of NCCL: from ncclSend to the kernel that ends what ncclRecv asked for."""

from pathlib import Path

import pytest
from support import rest
from support.nccl_regions import COMMUNICATOR, Nccl
from support.report_builder import ReportBuilder
from support.traces import NONE, RankMessage, rank_messages, translate_unaligned, unmatched_messages

from nsys2prv.timeline import messages as matching
from nsys2prv.trace.translate import Summary
from nsys2prv.vocabulary import event_types

OTHER = COMMUNICATOR + 1
KERNEL = "ncclDevKernel_SendRecv(x)"
TAG = event_types.TAG_NCCL_MESSAGE


def rank_report(rank: int, ranks: int, *, binary: bool = False, with_init: bool = True) -> tuple[ReportBuilder, Nccl]:
    report = ReportBuilder(host=f"node{rank}", pid=1000 + rank, rank=rank, ranks=ranks)
    report.gpu(0, uuid=f"{rank}")
    nccl = Nccl(report, binary=binary)
    nccl.call("ncclGroupStart", 0, 1)
    nccl.call("ncclGroupEnd", 2, 3)
    if with_init:
        nccl.call("ncclCommInitRank", 10, 50, COMMUNICATOR, ranks, rank, 0)
        # In another communicator, the ranks stand the other way round.
        nccl.call("ncclCommInitRank", 60, 90, OTHER, ranks, ranks - 1 - rank, 0)
    return report, nccl


def of_nccl(summary: Summary) -> list[RankMessage]:
    """Messages without the lines from calls to kernels."""
    return [message for message in rank_messages(summary) if message.tag == TAG]


@pytest.mark.parametrize("binary", [*rest(False), True], ids=["json", "binary"])
def test_a_message_ends_with_the_kernel_of_the_receive(tmp_path: Path, binary: bool) -> None:
    sender, of_sender = rank_report(0, 2, binary=binary)
    receiver, of_receiver = rank_report(1, 2, binary=binary)
    of_sender.call("ncclSend", 100, 120, COMMUNICATOR, 4096, 1)
    sender.kernel(KERNEL, 200, 400, launch=(110, 115))
    of_receiver.call("ncclRecv", 80, 99, COMMUNICATOR, 4096, 0)
    receiver.kernel(KERNEL, 150, 410, launch=(90, 95))
    # A collective, and a kernel of another call.
    of_receiver.call("ncclAllReduce", 500, 520, COMMUNICATOR, 8, 0)
    receiver.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 600, 700, launch=(505, 510))
    summary = translate_unaligned(tmp_path, sender, receiver)
    assert of_nccl(summary) == [RankMessage(0, 100, 1, 80, 410, 4096, TAG)]
    assert unmatched_messages(summary) == NONE


@pytest.mark.thorough
def test_calls_of_a_group_end_with_the_kernel_of_the_group(tmp_path: Path) -> None:
    reports = [rank_report(rank, 3) for rank in range(3)]
    for rank, (report, nccl) in enumerate(reports):
        for at in (1000, 2000):
            nccl.call("ncclGroupStart", at, at + 5)
            nccl.call("ncclSend", at + 10, at + 12, COMMUNICATOR, at + rank, (rank + 1) % 3)
            nccl.call("ncclRecv", at + 20, at + 22, COMMUNICATOR, at, (rank - 1) % 3)
            nccl.call("ncclGroupEnd", at + 30, at + 50)
            report.kernel(KERNEL, at + 100, at + 300 + rank, launch=(at + 40, at + 45))
    summary = translate_unaligned(tmp_path, *(report for report, _ in reports))
    assert of_nccl(summary) == sorted(
        RankMessage(rank, at + 10, (rank + 1) % 3, at + 20, at + 300 + (rank + 1) % 3, at + rank, TAG)
        for rank in range(3)
        for at in (1000, 2000)
    )
    assert unmatched_messages(summary) == NONE


def test_peers_are_ranks_of_the_communicator(tmp_path: Path) -> None:
    reports = [rank_report(rank, 3) for rank in range(3)]
    # Rank 0 of the program is rank 2 of the other communicator.
    reports[0][1].call("ncclSend", 100, 110, OTHER, 8, 1)
    reports[1][1].call("ncclRecv", 120, 150, OTHER, 8, 2)
    summary = translate_unaligned(tmp_path, *(report for report, _ in reports))
    # No kernel is known: the message ends with the call.
    assert of_nccl(summary) == [RankMessage(0, 100, 1, 120, 150, 8, TAG)]


def test_calls_without_a_payload_are_counted(tmp_path: Path) -> None:
    report, nccl = rank_report(0, 2)
    nccl.call("ncclSend", 100, 110)
    nccl.call("ncclRecv", 200, 210)
    nccl.call("ncclRecv", 300, 310, COMMUNICATOR, 8, 1)
    summary = translate_unaligned(tmp_path, report)
    assert of_nccl(summary) == []
    assert unmatched_messages(summary) == ({matching.NO_COMMUNICATOR: 1}, {matching.NO_COMMUNICATOR: 1, matching.NO_PARTNER: 1})


def test_groups_that_reach_over_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys2prv.sources.communication.nccl_messages.PIECE_ROWS", 3)
    for name, rows in (("RUN_ROWS", 4), ("WINDOW_ROWS", 5), ("_KEPT_ROWS", 2), ("_BATCH_ROWS", 2)):
        monkeypatch.setattr(f"nsys2prv.execution.external_sort.{name}", rows)
    test_calls_of_a_group_end_with_the_kernel_of_the_group(tmp_path)
