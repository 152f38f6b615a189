"""Events that ranks of several clocks took part in: what clocks are estimated from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SharedEvents:
    """Ends of events by the clocks of their ranks, which are roughly right, ns; one entry per event and rank.

    Events and clocks have numbers.
    """

    event: Ints
    clock: Ints
    time: Ints

    @classmethod
    def joined(cls, *parts: SharedEvents) -> SharedEvents:
        """The entries of several, one after the other."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in ("event", "clock", "time")))
