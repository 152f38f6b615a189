"""Time of the session: nsys can export times in UTC, or shifted by a constant; what reads a report gets neither.

`nsys export --ts-normalize=true` adds the start of the session in UTC to all times, `--ts-shift=N` adds N ns. The sum of both
is EXPORT_CONFIG_TIME_SHIFT in META_DATA_EXPORT: time in the session = time in the table - this sum. nsys does not normalize
all tables: MPI_COMMUNICATORS gets N alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import polars as pl

BEFORE_START_NS = 1_000_000_000
"""How long before the start of a session its first event can be. It is 0.13 ms in real reports."""
_AFTER_START_NS = 24 * 3600 * 1_000_000_000
"""How long after the start of a session its first event can be: recording can start late."""
_UTC_NS = 10 * 365 * 24 * 3600 * 1_000_000_000
"""Times above this are not counted from the start of a session: they are in UTC, which counts from 1970."""

_SHOWN = 3


@dataclass(frozen=True)
class SessionTime:
    """What was added to the times of a report.

    Attributes
    ----------
    utc
        Start of the session, added to times that are in UTC, ns; 0 when none are.
    shift
        Added to all times besides, ns.
    warning
        How the times contradict what the export reports, for the user; "" when they do not.
    """

    utc: int = 0
    shift: int = 0
    warning: str = ""

    def __bool__(self) -> bool:
        """Whether times differ from those of the session."""
        return bool(self.utc or self.shift)

    def of(self, time: pl.Expr) -> pl.Expr:
        """Times of tables as times of the session, ns.

        In a report in UTC, times that are nearer to 0 than to its start are not in UTC: nsys leaves some tables out."""
        shifted = time - self.shift
        return pl.when(shifted > self.utc // 2).then(shifted - self.utc).otherwise(shifted) if self.utc else shifted

    def at(self, time: int) -> int:
        """One time, as `of`."""
        shifted = time - self.shift
        return shifted - self.utc if self.utc and self.is_in_utc(time) else shifted

    def is_in_utc(self, time: int) -> bool:
        """Whether a time of a table is in UTC, in a report in UTC."""
        return time - self.shift > self.utc // 2

    @property
    def sentence(self) -> str:
        """What it says about times of tables, for the user."""
        if self.utc:
            return f"times in UTC from {datetime.fromtimestamp(self.utc / 1e9, tz=timezone.utc):%Y-%m-%d %H:%M:%S} on"
        return f"times shifted by {self.shift / 1e9:.9f} s" if self.shift else "times from the start of the session"


AS_RECORDED = SessionTime()
"""Times that count from the start of the session."""


def read_session_time(
    export: Mapping[str, str | None],
    start: int | None,
    first_rows: Callable[[], Mapping[str, int]],
    firsts: Callable[[], Mapping[str, int]],
) -> SessionTime:
    """What was added to the times of a report, from its metadata and its times.

    Where times can't be what the metadata say, they decide.

    Parameters
    ----------
    export
        META_DATA_EXPORT.
    start
        Start of the session in UTC, ns; None when not known.
    first_rows, firsts
        Time of the first row of each table of events, and the first time of each: it takes long to find, and is rarely needed.
    """
    reported = _reported(export, start)
    times = first_rows()
    if reported.shift or not all(_is_possible(reported.at(time)) for time in times.values()):
        times = firsts()
    if not times:
        return reported
    begin = min(times.values())
    # `max` gives the first of equal ones: what is reported.
    likeliest = max(_candidates(reported, start, begin), key=lambda candidate: _possible(candidate, times))
    not_in_utc = sorted(table for table, time in times.items() if reported.utc and not reported.is_in_utc(time))
    contradiction = ""
    if likeliest != reported:
        contradiction = f"they begin at {begin:,} ns: they are read as {likeliest.sentence}"
    # A domain of NVTX has the time at which the program made it, which may be before the session.
    elif not _possible(reported, times) and any(reported.at(times[table]) < 0 for table in times.keys() - {"NVTX_EVENTS"}):
        contradiction = f"they begin at {begin:,} ns"
    elif not_in_utc:
        more = f" and {len(not_in_utc) - _SHOWN} more" if len(not_in_utc) > _SHOWN else ""
        tables = f"{', '.join(not_in_utc[:_SHOWN])}{more}"
        contradiction = f"those of {tables} are counted from the start of the session: they are read as such"
    if not contradiction:
        return reported
    return replace(likeliest, warning=f"the table META_DATA_EXPORT reports {reported.sentence}, but {contradiction}")


def _reported(export: Mapping[str, str | None], start: int | None) -> SessionTime:
    shift = _number(export.get("EXPORT_PARAM_TIME_SHIFT"))
    is_normalized = (export.get("EXPORT_PARAM_TIME_NORMALIZE") or "").strip().lower() in ("true", "1", "yes", "on")
    added = _number(export.get("EXPORT_CONFIG_TIME_SHIFT"))
    if added is None:
        return SessionTime((start or 0) if is_normalized else 0, shift or 0)
    if shift is None:
        return SessionTime(added, 0) if is_normalized else SessionTime(0, added)
    return SessionTime(added - shift, shift) if added - shift > _UTC_NS else SessionTime(0, added)


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _candidates(reported: SessionTime, start: int | None, first: int) -> list[SessionTime]:
    """What may have been added, the likeliest first."""
    candidates = [reported, AS_RECORDED]
    if start is not None:
        candidates += [SessionTime(start), SessionTime(start, reported.shift)]
    if first > _UTC_NS:
        # When the session started is not known, or is not when its events were: the first event becomes its start.
        candidates.append(SessionTime(first) if start is None else SessionTime(0, first))
    return candidates


def _possible(candidate: SessionTime, times: Mapping[str, int]) -> int:
    """In how many tables the first time can be one of the session."""
    return sum(_is_possible(candidate.at(time)) for time in times.values())


def _is_possible(time: int) -> bool:
    return -BEFORE_START_NS <= time <= _AFTER_START_NS
