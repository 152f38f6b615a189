"""A finding: what a rule found, on which devices, with which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsys2prv.efficiency.findings.device_stats import DeviceStats, cost, lost_together

NANOSECONDS, BYTES, SHARE, PLAIN, HERTZ = "ns", "bytes", "0 to 1", "", "Hz"
"""Units of numbers."""


@dataclass(frozen=True)
class Number:
    """A number that a finding is based on: what it is, its value and unit."""

    what: str
    value: float
    unit: str = PLAIN


@dataclass(frozen=True)
class Finding:
    """What a rule found: a text for people (the column `seen`), at least one device that shows it, and the numbers.

    Attributes
    ----------
    wall
        Time by which the run is shorter without it at most, ns; None: `saved` estimates it from the costs of devices.
    follows
        Kind of another finding that causes this one: it vanishes with that.
    is_bound
        Whether no more time can be saved than device time says; else what others wait for it was not recorded.
    """

    text: str
    devices: Sequence[DeviceStats]
    numbers: Sequence[Number] = ()
    wall: int | None = None
    follows: str | None = None
    is_bound: bool = True

    @property
    def cost(self) -> int:
        """Device time at most, over all devices, ns."""
        return cost(self.devices)

    @property
    def saved(self) -> int:
        """Time by which the run is shorter without it at most, ns, from the time of devices alone.

        Devices that lose time in the same part of the run lose it together: of each part the device counts that loses most.
        """
        return self.wall if self.wall is not None else min(lost_together(self.devices), self.cost)

    @property
    def worst(self) -> DeviceStats:
        """The device with the highest cost."""
        return max(self.devices, key=lambda one: (one.cost, -one.device))
