"""Collections that are read only to find out what waits for what."""

from pathlib import Path

import polars as pl
from support.measured import events_of
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.run_events import RECORDS, WAITS, Collection, RunEvents
from nsys2prv.run.options import ReadOptions, TimeRange

NO_ID = 4294967295


def rows(events: RunEvents, collection: Collection) -> pl.DataFrame:
    """All rows of a collection."""
    return pl.concat(list(events.collections[collection.name].windows()), how="diagonal").select(list(collection.schema))


def report_with_events() -> ReportBuilder:
    """An event is recorded on stream 7 and awaited by stream 13 of device 1, and by the host."""
    report = ReportBuilder(schema="3.25.0").gpu(0, cuda=0).gpu(1, cuda=1)
    report.kernel("k", 100, 500, stream=7, launch=(50, 60))
    report.kernel("l", 520, 600, stream=13, device=1, context=2, launch=(300, 310))
    call = report.api_call("cudaEventRecord_v3020", 150, 160)
    report.event_record(5, time=505, correlation=call, sync=71)
    call = report.api_call("cudaStreamWaitEvent_v3020", 200, 210)
    report.synchronization(202, 208, kind=2, correlation=call, stream=13, device=1, context=2, event=5, sync=71)
    call = report.api_call("cudaEventSynchronize_v3020", 400, 520)
    report.synchronization(405, 510, kind=1, correlation=call, stream=NO_ID, event=5, sync=71)
    call = report.api_call("cudaStreamSynchronize_v3020", 530, 610)
    report.synchronization(540, 605, correlation=call, stream=13, device=1, context=2)
    call = report.api_call("cudaEventRecord_v3020", 620, 630)
    report.event_record(6, time=0, correlation=call)
    report.api_call("cudaFree_v3020", 700, 800)
    report.event_record(7, time=640, correlation=call + 1000)
    return report


def test_waits_have_their_ids(tmp_path: Path) -> None:
    events = events_of(tmp_path, report_with_events())
    found = rows(events, WAITS)
    assert {events.rows.kind[row] for row in found["row"]} == {"host"}
    assert events.named(found["number"], found["value"]).to_list() == [
        "Stream waits for event",
        "Event synchronize",
        "Stream synchronize",
    ]
    # Time 0 is that of the first event.
    assert found.select("start", "end", "stream", "context", "event", "sync", "device").rows() == [
        (152, 158, 13, 2, 5, 71, 2),
        (355, 460, None, 1, 5, 71, 1),
        (490, 555, 13, 2, None, None, 2),
    ]


def test_records_are_on_their_streams_and_say_when_the_host_called(tmp_path: Path) -> None:
    events = events_of(tmp_path, report_with_events())
    found = rows(events, RECORDS)
    assert {events.rows.names[row] for row in found["row"]} == {"CUDA-D0.S7-node01"}
    # The second has no time of the device, and of the third the call is not known.
    assert found.select("start", "value", "sync", "since_call").rows() == [
        (455, 5, 71, 355),
        (570, 6, None, 0),
        (590, 7, None, None),
    ]


def test_what_is_read_is_cut_at_the_selected_time(tmp_path: Path) -> None:
    events = events_of(tmp_path, report_with_events(), options=ReadOptions(time=TimeRange(156, 1000)))
    assert rows(events, WAITS).select("start", "end").rows() == [(0, 2), (199, 304), (334, 399)]
    assert rows(events, RECORDS)["start"].to_list() == [299, 414, 434]


def test_they_are_read_only_when_they_are_requested(tmp_path: Path) -> None:
    path = report_with_events().write(tmp_path / "report.sqlite")
    events = read_events([path], ReadOptions(), tmp_path / "read")
    assert not {WAITS.name, RECORDS.name} & set(events.collections)
    assert events.messages is None


def two_ranks() -> list[ReportBuilder]:
    """Rank 0 sends to rank 1, which takes it with a request; then both reduce."""
    ranks = [ReportBuilder(rank=rank, with_mpi=True, ranks=2, pid=1000 + rank) for rank in range(2)]
    ranks[0].mpi_p2p("MPI_Send", 100, 180, partner=1, size=64, tag=3)
    ranks[1].mpi_p2p("MPI_Irecv", 0, 10, partner=0, size=64, tag=3, request=8)
    ranks[1].mpi_wait("MPI_Wait", 50, 170, requests=(8,))
    ranks[0].mpi_collective("MPI_Reduce", 200, 230, size=8, root=1)
    ranks[1].mpi_collective("MPI_Reduce", 210, 260, size=8, root=1)
    return ranks


def test_messages_of_mpi_are_pairs_of_calls(tmp_path: Path) -> None:
    events = events_of(tmp_path, *two_ranks())
    assert events.messages is not None
    found = pl.concat(list(events.messages.windows()))
    names = [(events.rows.names[row], events.rows.names[to_row]) for row, to_row in found.select("row", "to_row").rows()]
    assert names == [("python3 tid 1000", "python3 tid 1001")]
    assert found.select("time", "to_begin", "to_time", "size").rows() == [(100, 0, 170, 64)]


def test_messages_are_selected_by_time(tmp_path: Path) -> None:
    events = events_of(tmp_path, *two_ranks(), options=ReadOptions(time=TimeRange(90, 500)))
    assert events.messages is not None
    assert pl.concat(list(events.messages.windows())).select("time", "to_begin", "to_time").rows() == [(10, 0, 80)]
    assert events_of(tmp_path / "late", *two_ranks(), options=ReadOptions(time=TimeRange(110, 500))).messages is None
