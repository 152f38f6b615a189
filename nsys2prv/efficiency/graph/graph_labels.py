"""What rows of the graph do, as small numbers: the event types and values of the trace that name it."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph.wakeups import WAITING_CALLS
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.sweep import MPI, NO_CALL, OS, call_categories
from nsys2prv.vocabulary import event_types

NOTHING = -1
"""Label of a row that does nothing that has a name."""

NO_WAIT, DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT, COPY = range(5)
"""What a call waits for: nothing, all work of devices, that of a stream, an event, or the copy that it makes."""

_WAITS = (
    (re.compile(r"(?i)EventSynchronize"), EVENT_WAIT),
    (re.compile(r"(?i)StreamSynchronize"), STREAM_WAIT),
    (re.compile(r"(?i)(Device|Ctx|Context|Thread)Synchronize"), DEVICE_WAIT),
    # Memory is freed when all work of the device is done; freed in the order of a stream, it is not waited for.
    (re.compile(r"(?i)^cu(da)?(Mem)?Free(_v\d)?$"), DEVICE_WAIT),
    (re.compile(r"(?i)memcpy"), COPY),
)
_KEY_VALUES = 1 << 40


class GraphLabels:
    """GraphLabels of a run: 0, 1, ... in the order in which they are found.

    Attributes
    ----------
    number, value
        Event type and value of each label.
    family
        Value of its kernel family; -1: none.
    """

    def __init__(self, events: RunEvents) -> None:
        self._events = events
        self._known: dict[int, int] = {}
        self.number: list[int] = []
        self.value: list[int] = []
        self.family: list[int] = []
        self._waits: list[int] = []
        self._causes: list[int] = []

    def __len__(self) -> int:
        return len(self.number)

    def of(self, found: pl.DataFrame) -> Numbers:
        """GraphLabels of intervals: columns `number`, `value`, and `family` where there is one."""
        if found.is_empty():
            return np.zeros(0, dtype=np.int64)
        number, value = (found[name].to_numpy().astype(np.int64) for name in ("number", "value"))
        keys, first, place = np.unique(number * _KEY_VALUES + value % _KEY_VALUES, return_index=True, return_inverse=True)
        new = [index for index, key in enumerate(keys.tolist()) if key not in self._known]
        if new:
            at = first[new]
            families = found["family"].fill_null(-1).to_numpy()[at] if "family" in found.columns else np.full(len(at), -1)
            self._add(keys[new], number[at], value[at], families)
        of_keys: Numbers = np.array([self._known[key] for key in keys.tolist()], dtype=np.int64)
        return of_keys[place.reshape(-1)]

    def _add(self, keys: Numbers, number: Numbers, value: Numbers, family: Numbers) -> None:
        names = self._events.named(pl.Series(number), pl.Series(value)).fill_null("")
        for key in keys.tolist():
            self._known[key] = len(self._known)
        self.number += number.tolist()
        self.value += value.tolist()
        self.family += family.tolist()
        is_call = number == event_types.CUDA_CALL
        of_mpi = np.isin(number, list(event_types.MPI_TYPES.values()))
        self._causes += np.where(is_call, call_categories(names), np.where(of_mpi, MPI, OS)).tolist()
        self._waits += [
            next((kind for pattern, kind in _WAITS if pattern.search(name)), NO_WAIT) if of_cuda else NO_WAIT
            for name, of_cuda in zip(names.to_list(), is_call.tolist(), strict=True)
        ]

    @property
    def waits(self) -> Numbers:
        """What a call with each label waits for: NO_WAIT, DEVICE_WAIT, ..."""
        return np.array(self._waits, dtype=np.int64)

    @property
    def causes(self) -> Numbers:
        """What a host thread does with each label: a place in `sweep.CAUSES`; of the last one, for NOTHING, one behind them."""
        return np.array([*self._causes, NO_CALL], dtype=np.int64)

    @property
    def in_waits(self) -> npt.NDArray[np.bool_]:
        """Whether a thread waits in the call of each label, for what may not be known; of the last one, for NOTHING, not."""
        is_os = self.is_of(event_types.OS_CALL, event_types.PTHREAD_CALL)
        waits = self.names().str.contains(WAITING_CALLS).fill_null(False).to_numpy() if len(self) else is_os
        return np.append(is_os & waits, False)

    @property
    def creates(self) -> npt.NDArray[np.bool_]:
        """Whether the call of each label starts a thread; of the last one, for NOTHING, not."""
        is_os = self.is_of(event_types.PTHREAD_CALL)
        return np.append(is_os & (self.names() == "pthread_create").to_numpy(), False)

    def is_of(self, *numbers: int) -> npt.NDArray[np.bool_]:
        """Whether each label is of some event types."""
        return np.isin(np.array(self.number, dtype=np.int64), numbers)

    def names(self) -> pl.Series:
        """Names of all labels; "value N" where the trace has none."""
        return self._events.named(pl.Series(self.number, dtype=pl.Int64), pl.Series(self.value, dtype=pl.Int64))
