"""How well the length of a run is known: its first and its last event may be of hosts whose clocks do not agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys2prv.efficiency.clock_tables import clock_errors
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import time

_TELLING = 0.01
"""Least part of the length that matters."""


@dataclass(frozen=True)
class LengthInterval:
    """What E can be, ns: at least, and at most (None: not known). Both are E where one clock decides, or the user did."""

    least: int
    most: int | None

    def of_part(self, length: int, whole: int) -> LengthInterval:
        """The interval of a part of the run that is as uncertain as the whole; their lengths, ns."""
        return LengthInterval(max(length - (whole - self.least), 0), None if self.most is None else length + self.most - whole)


def length_interval(events: RunEvents) -> LengthInterval:
    """What the length of a run can be if its clocks are wrong by as much as they can be.

    The time inside a clock does not depend on others, so that the run takes at least as long as its events on one clock.
    """
    begin, end = events.begin, events.begin + events.length
    reports = [report for report in events.report_clocks if report.get("first_ns") is not None]
    errors = [error for error in clock_errors(events.clocks, reports, 0) if error is not None]
    if len(errors) != len(reports) or not errors:
        return LengthInterval(events.length, events.length)
    clock = np.array([error.clock for error in errors])
    first, last = (np.array([report[name] for report in reports], dtype=np.float64) for name in ("first_ns", "last_ns"))
    of_report = np.array([error.of_report for error in errors])
    widths = np.zeros((2, len(errors)))
    if len({error.group for error in errors}) > 1:
        widths[:] = np.inf
    elif len(set(clock.tolist())) > 1:
        for place, times in enumerate((first, last)):
            at = [float(error.at(np.array([at], dtype=np.int64))[0]) for error, at in zip(errors, times, strict=True)]
            widths[place] = np.nan_to_num(at, nan=np.inf, posinf=np.inf)
    widths += of_report
    # An edge that the user chose is where it is.
    earliest = float((first - widths[0]).min()) if begin == first.min() else begin
    begins_by = float((first + widths[0]).min()) if begin == first.min() else begin
    latest = float((last + widths[1]).max()) if end == last.max() else end
    ends_after = float((last - widths[1]).max()) if end == last.max() else end
    inside = [
        float(np.minimum(last[own], end).max() - np.maximum(first[own], begin).min())
        for own in (clock == one for one in np.unique(clock))
    ]
    alone = [float(min(b, end) - max(a, begin)) for a, b in zip(first, last, strict=True)]
    known = alone if of_report.any() else inside
    least = max(ends_after - begins_by, *known)
    most = latest - earliest
    return LengthInterval(min(round(least), events.length), round(most) if np.isfinite(most) else None)


def clock_warnings(events: RunEvents, bins: int, interval: LengthInterval) -> list[str]:
    """Where clocks are not known well enough for times of the run as a whole: a sentence each."""
    warnings = []
    if interval.most is None or interval.most - interval.least > _TELLING * events.length:
        at_most = "nothing is known of the longest" if interval.most is None else f"at most {time(interval.most)}"
        warnings.append(
            f"the run takes {time(events.length)} as clocks are placed; they allow at least {time(interval.least)}, and "
            f"{at_most}: efficiencies that divide by its length are as uncertain"
        )
    widths = [width for clock in events.clocks if (width := clock.get("interval_ns", {}).get("worst")) is not None]
    if len(events.clocks) > 1 and widths and bins and max(widths) > events.length / bins:
        warnings.append(
            f"clocks are known to {time(max(widths))} and each of the {counted(bins, 'bin')} over time has "
            f"{time(events.length / bins)}: activity of a host can be in a bin beside its own"
        )
    return warnings
