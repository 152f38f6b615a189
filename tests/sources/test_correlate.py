"""Events find the API calls that caused them, in whatever order tables are and however much is held at once."""

import random
from pathlib import Path

import polars as pl
import pytest
from support.nsys_columns import COLUMNS
from support.report_builder import ReportBuilder

from nsys2prv.exports import Report, open_report
from nsys2prv.exports.columns import dtype_of
from nsys2prv.sources import correlate, registry
from nsys2prv.sources.communication.message_ends import MPI, NCCL, NCCL_NETWORK
from nsys2prv.sources.correlate import with_calls
from nsys2prv.sources.registry import EVENT_TYPES, SOURCES, TYPES
from nsys2prv.vocabulary.event_types import EventType

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COUNT = 300


def kernels(report: Report) -> pl.LazyFrame:
    return report.scan_events(KERNELS, ("globalPid", "start"), ("correlationId",), None)


def made(tmp_path: Path, processes: int, *, in_order: bool) -> tuple[Report, dict[tuple[int, int], tuple[int, int] | None]]:
    """A report, and of each kernel (its process and start) the thread and start of its call."""
    chance = random.Random(processes)
    report = ReportBuilder()
    calls: dict[tuple[int, int], tuple[int, int] | None] = {}
    wanted = [(1000 + process, number) for number in range(1, COUNT + 1) for process in range(processes)]
    if not in_order:
        chance.shuffle(wanted)
    for place, (pid, number) in enumerate(wanted):
        begin, kernel = 100 * number + pid, 1_000_000 + 10 * place
        has_call = number % 7 != 0
        if number % 5 == 0 and has_call:
            # The call of the driver is inside that of the runtime, and may come first in the table.
            report.api_call("cuLaunchKernel", begin + 1, begin + 9, pid=pid, correlation=number, driver=True)
        if has_call:
            report.api_call("cudaLaunchKernel", begin, begin + 10, pid=pid, correlation=number)
        report.kernel("k", kernel, kernel + 5, pid=pid, correlation=number if number % 11 else None)
        calls[report.global_pid(pid), kernel] = (report.global_tid(pid=pid), begin) if has_call and number % 11 else None
    return open_report(report.write(tmp_path / "report.sqlite")), calls


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("held", [0, 10_000])
@pytest.mark.parametrize("most_calls", [0, 60, 10_000])
def test_each_event_gets_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, in_order: bool, held: int, most_calls: int
) -> None:
    report, calls = made(tmp_path, processes, in_order=in_order)
    monkeypatch.setattr(correlate, "PIECE_ROWS", 20)
    monkeypatch.setattr(correlate, "_HELD_ROWS", held)
    monkeypatch.setattr(correlate, "_MOST_CALLS", most_calls)

    found = pl.concat(with_calls(report, kernels, tmp_path / "scratch", ("globalTid", "start")))

    assert found.columns == ["globalPid", "start", "correlationId", "callTid", "callStart"]
    assert {
        (pid, start): None if call is None else (call, at)
        for pid, start, _, call, at in found.iter_rows()
    } == calls  # fmt: skip
    assert found.height == len(calls)


def _numbers(one: EventType) -> set[int]:
    """Numbers of a type; of a series, of all members before the overflow."""
    return {one.member(index) for index in range(one.members)} if one.is_series else {one.number}


def test_no_number_is_declared_twice() -> None:
    declared = {id(one): one for _, one in registry._declared()}
    assert len(declared) == len(TYPES) == len(EVENT_TYPES)
    numbers = [number for one in EVENT_TYPES for number in _numbers(one)]
    assert len(numbers) == len(set(numbers))


def test_numbers_of_extrae_are_not_used_for_other_events() -> None:
    """Numbers of Extrae 5.1.2 (events.h) that are near ours and mean something else; those that agree are left out here."""
    of_extrae = {
        *range(63000003, 63000006),  # untracked calls, dynamic memory
        *range(63000009, 63000016),  # kernel instantiation and its line, sizes of kernels, events, streams
        63100000,  # calls on the GPU
        *range(40000040, 40000051),  # dynamic memory
        *range(40000051, 40000059),  # I/O calls
        *range(40000060, 40000073),
        40000133,
        *range(52000000, 52000132),  # OpenSHMEM
        *range(65000000, 65000010),  # statistics of OpenMP
        54000000,
        54000100,
    }
    assert not {int(one) for one in EVENT_TYPES} & of_extrae
    assert not {number for number in of_extrae if registry.type_of(number)}


def test_numbers_of_earlier_versions_are_known_by_their_labels() -> None:
    family, calls = registry.CONSTANTS["KERNEL_FAMILY"], registry.CONSTANTS["OS_CALL"]
    earlier = {63000010: "CUDA kernel family", 65000000: "OS runtime call", 63000009: "CUDA kernel instantiation", 9600: "x"}
    assert registry.renumbered(earlier) == {63000010: family, 65000000: calls}
    former = [one.former for one in EVENT_TYPES if one.former]
    assert len(former) == len(set(former))
    assert not set(former) & set(TYPES)


def test_every_type_of_a_source_is_known_by_a_constant_or_with_others() -> None:
    assert all(TYPES[one.number] is one for source in SOURCES for one in source.types)
    assert registry.CONSTANTS["KERNEL"].label == "CUDA kernel"
    assert registry.type_of(9700) is registry.CONSTANTS["NVTX_PUSHPOP"]
    assert registry.type_of(1) is None


def test_every_type_belongs_to_a_source() -> None:
    # The critical path is made of the events of several.
    of_run = {registry.CONSTANTS["CRITICAL_PATH"]}
    assert {one for source in SOURCES for one in source.types} | of_run == set(EVENT_TYPES)


@pytest.mark.parametrize(
    ("only", "skip", "kinds"),
    [
        ((), (), {MPI, NCCL, NCCL_NETWORK}),
        ((), ("messages",), set()),
        ((), ("mpi",), {NCCL, NCCL_NETWORK}),
        ((), ("nccl", "nvtx"), {MPI, NCCL_NETWORK}),
        ((), ("nvtx-marks",), {MPI, NCCL}),
        (("nvtx",), (), set()),
        (("mpi", "cuda-api"), (), {MPI}),
        (("mpi", "nvtx"), ("messages",), set()),
        (("nccl",), (), {NCCL}),
        (("messages",), (), {MPI, NCCL, NCCL_NETWORK}),
    ],
)
def test_messages_follow_their_calls_and_have_their_own_name(
    only: tuple[str, ...], skip: tuple[str, ...], kinds: set[str]
) -> None:
    assert set(registry.kinds_with_messages(registry.select_sources(only, skip), skip)) == kinds


def test_columns_have_the_types_that_exports_have() -> None:
    for source in SOURCES:
        columns = {name: dtype_of(name) for name in (*source.required, *source.optional)}
        # Tests of a source may bring their own table.
        assert columns.items() <= COLUMNS.get(source.table, columns).items(), source.title


def test_title_and_table_identify_a_source() -> None:
    assert len({(source.title, source.table) for source in SOURCES}) == len(SOURCES)


def test_each_member_of_a_series_belongs_to_it_and_has_its_place() -> None:
    for series in (one for one in EVENT_TYPES if one.is_series):
        for index in (0, 1, series.members - 1, series.members, series.members + 40):
            assert registry.type_of(series.member(index)) is series, (series.number, index)
            assert series.index(series.member(index)) == index
