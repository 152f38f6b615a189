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


def test_every_type_of_a_source_is_known_by_a_constant_or_with_others() -> None:
    assert all(TYPES[one.number] is one for source in SOURCES for one in source.types)
    assert registry.CONSTANTS["KERNEL"].label == "CUDA kernel"
    assert registry.type_of(9700) is registry.CONSTANTS["NVTX_PUSHPOP"]
    assert registry.type_of(1) is None


def test_every_type_belongs_to_a_source() -> None:
    assert {one for source in SOURCES for one in source.types} == set(EVENT_TYPES)


def test_columns_have_the_types_that_exports_have() -> None:
    for source in SOURCES:
        columns = {name: dtype_of(name) for name in (*source.required, *source.optional)}
        # Tests of a source may bring their own table.
        assert columns.items() <= COLUMNS.get(source.table, columns).items(), source.title


def test_title_and_table_identify_a_source() -> None:
    assert len({(source.title, source.table) for source in SOURCES}) == len(SOURCES)
