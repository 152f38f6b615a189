"""What sources declare: names, columns, event types."""

from __future__ import annotations

from support.nsys_columns import COLUMNS

from nsys2prv.exports.columns import dtype_of
from nsys2prv.sources import registry
from nsys2prv.sources.registry import EVENT_TYPES, SOURCES, TYPES
from nsys2prv.vocabulary.event_types import EventType


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
