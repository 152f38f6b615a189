"""What all meters have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.sweep import TimeChunk


class Meter(Protocol):
    """Measures something of a run, one chunk of time after the other."""

    @abstractmethod
    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk; chunks come in the order of time."""


class TableMeter(Meter):
    """A meter that fills result tables."""

    @abstractmethod
    def tables(self) -> Filled:
        """Its tables, after all chunks; those without rows may be absent."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is missing or inexact in its tables, in one phrase each."""
        return ()
