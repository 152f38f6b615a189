"""What the numbers of event types mean in a trace, which may be of an earlier version, or of another tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from nsys2prv.efficiency.run_events import Collection, TypeNames
from nsys2prv.sources.registry import TYPES, renumbered, type_of
from nsys2prv.vocabulary import event_types

BY_STATE = pl.DataFrame(
    {
        "state": [event_types.RUNNING, event_types.STATE_GROUP, event_types.STATE_MEMORY_TRANSFER],
        "number": [event_types.KERNEL, event_types.NCCL_KERNEL, event_types.MEMORY_OPERATION],
        "value": [1, 2, 3],
    }
)
"""Event type and value of what a stream does in a state."""
_NAMES_BY_STATE: dict[int, TypeNames] = {
    event_types.KERNEL: TypeNames("CUDA kernel", {1: "kernel (by state)"}),
    event_types.NCCL_KERNEL: TypeNames("NCCL kernel", {2: "NCCL kernel (by state)"}),
    event_types.MEMORY_OPERATION: TypeNames("CUDA memcpy kernel", {3: "memory transfer (by state)"}),
}
_KERNEL_TYPES = (event_types.KERNEL, event_types.NCCL_KERNEL, event_types.GRAPH_EXECUTION)
_CUDA_CALL_LABEL = "CUDA library call"
"""Label of calls of the CUDA library; older versions of Extrae have them under a number that means copies here."""


class TraceTypes:
    """Event types of a trace.

    Parameters
    ----------
    names
        Names of the event types, by their numbers in the trace.
    collections
        What is read of it.

    Attributes
    ----------
    by_state
        Whether what streams do is known from their states only.
    aliases
        Numbers that mean calls of the CUDA library in this trace and something else today, with the number of today.
    intervals, samples
        Event types that start and end what is read, and the collection of each that is a sample or a mark.
    """

    def __init__(self, names: Mapping[int, TypeNames], collections: Sequence[Collection]) -> None:
        self._names = names
        # An earlier version wrote some types under other numbers.
        self._moved = renumbered({number: of_type.label for number, of_type in names.items()})
        self.aliases = {
            number: event_types.CUDA_CALL
            for number, of_type in names.items()
            if of_type.label == _CUDA_CALL_LABEL and number != event_types.CUDA_CALL
        }
        self.by_state = not any(number in names for number in _KERNEL_TYPES)
        self._known = {number for one in collections for number in one.types}
        self.intervals = {number for number in self._known if TYPES[number].role is event_types.Role.INTERVAL}
        self.samples = {number: one for one in collections if one.samples for number in one.types}
        self._bases: dict[int, int] = {}

    def today(self, number: int) -> int:
        """The number that an event type of the trace has today."""
        return self._moved.get(number, number)

    def base(self, number: int) -> int:
        """The event type of a collection that a number of today belongs to; -1: it belongs to none."""
        if number not in self._bases:
            kind = type_of(self.aliases.get(number, number))
            self._bases[number] = kind.number if kind is not None and kind.number in self._known else -1
        return self._bases[number]

    def named(self, occurring: Iterable[int]) -> dict[int, TypeNames]:
        """Names of all types by their numbers of today, also of those that occur and have none in the trace."""
        types = {self.today(number): names for number, names in self._names.items()}
        renamed: dict[int, TypeNames] = {alias: types.pop(number) for number, alias in self.aliases.items()}
        named = {**types, **(_NAMES_BY_STATE if self.by_state else {}), **renamed}
        # Traces of others, and damaged ones, have events of types without a label.
        unnamed = {number for number in occurring if self.base(number) >= 0} - named.keys()
        return {**named, **{number: TypeNames(f"event type {number}", None) for number in unnamed}}
