"""Events that ranks of several clocks took part in: what clocks are estimated from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SharedEvents:
    """Times of events by the clocks of their ranks; one entry per event and rank.

    Attributes
    ----------
    event
        Number of the event.
    clock
        Number of the rank's clock.
    time
        When it ended there, by a clock that is roughly right, ns.
    """

    event: Ints
    clock: Ints
    time: Ints

    @classmethod
    def joined(cls, *parts: SharedEvents) -> SharedEvents:
        """The entries of several, one after the other."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in ("event", "clock", "time")))
