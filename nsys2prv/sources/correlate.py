"""Events together with the API calls that caused them, by correlation id, in bounded memory."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.execution.row_order import drop_duplicates, rows_in_order
from nsys2prv.exports import Report
from nsys2prv.exports.columns import process_of

CALLS_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
CALL_COLUMNS = {"globalTid": "callTid", "nameId": "callNameId", "start": "callStart", "end": "callEnd"}
"""Columns of the table of calls, and what they are called beside an event."""

IS_CALL = pl.col("eventClass").fill_null(0) != 67
"""A row of CALLS_TABLE is a call. 67 repeats one, around it, with its call chain (--cudabacktrace of older versions)."""

_PROCESS, _ID = "process", "correlationId"
_HELD_ROWS = 30_000
"""Rows few enough to stay in memory while a table is read a second time."""
_MOST_CALLS = 4 * PIECE_ROWS
"""Calls that are held for one piece of events."""


def with_calls(
    report: Report,
    frames_of: Callable[[Report], pl.LazyFrame] | Sequence[Callable[[Report], pl.LazyFrame]],
    folder: Path,
    columns: tuple[str, ...] = tuple(CALL_COLUMNS),
) -> Iterator[pl.DataFrame]:
    """Events with columns of the API calls that caused them; null where no call is known.

    Parameters
    ----------
    frames_of
        From a report to events of one table (columns `globalPid`, `correlationId` among others), as for `Report.pieces`; or
        several such, all with the same columns.
    columns
        Requested columns of the calls: keys of `CALL_COLUMNS`.

    Yields
    ------
    The events, in any order, with the values of `CALL_COLUMNS` for `columns`.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    # Ids repeat between processes.
    columns_of_event = process_of(pl.col("globalPid")).alias(_PROCESS), pl.col(_ID).fill_null(0)
    tables = frames_of if isinstance(frames_of, Sequence) else [frames_of]
    pieces = (piece.with_columns(columns_of_event) for frame_of in tables for piece in report.pieces(frame_of, PIECE_ROWS))
    first: list[pl.DataFrame] = []
    while sum(map(len, first)) <= _HELD_ROWS and (piece := next(pieces, None)) is not None:
        first.append(piece)
    if not any(map(len, first)):
        return
    read = {name: called for name, called in CALL_COLUMNS.items() if name in columns or name == "start"}
    few = pl.concat(first).select(_PROCESS, _ID) if sum(map(len, first)) <= _HELD_ROWS else None
    calls = ExternalSort([_ID], folder / "calls")
    for piece in report.pieces(partial(_calls, read), PIECE_ROWS):
        with_id = piece.filter(pl.col(_ID) > 0)
        # All calls of a long report would be sorted on the disk for a few events.
        calls.add(with_id if few is None else with_id.join(few, on=[_PROCESS, _ID], how="semi"))
    calls.finish()
    join = partial(_joined, [CALL_COLUMNS[name] for name in columns])
    # Most tables are in the order of ids, or nearly: few calls are between the first and the last id of a piece.
    scattered = ExternalSort([_ID], folder / "events")
    for piece in itertools.chain(first, pieces):
        # An id of 0 is none.
        ids = piece[_ID].filter(piece[_ID] > 0)
        window = Window(int(ids.min()), int(ids.max()) + 1) if len(ids) else Window(0, 0)
        if calls.most_rows(window) <= _MOST_CALLS:
            yield join(piece, calls.load(window))
        else:
            scattered.add(piece)
    for window in plan_windows([(scattered, 1), (calls, 1)]):
        if of_events := scattered.load(window):
            yield join(pl.concat(of_events), calls.load(window))
        scattered.drop_before(window.end)
        calls.drop_before(window.end)


def _joined(columns: Sequence[str], events: pl.DataFrame, loaded: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Events with columns of the calls that are among some."""
    without_process = events.drop(_PROCESS)
    if not loaded:
        return without_process.with_columns(pl.lit(None, pl.Int64).alias(name) for name in columns)
    calls, place = places_of_calls(events, pl.concat(loaded), "callStart")
    return without_process.with_columns(calls[name].gather(place) for name in columns)


def places_of_calls(events: pl.DataFrame, calls: pl.DataFrame, start: str) -> tuple[pl.DataFrame, pl.Series]:
    """Which call caused each event, by columns `process` and `correlationId`.

    Parameters
    ----------
    events, calls
        In any order; fast where both are nearly in the order of ids.
    start
        Column with the start of a call: of calls with the same id the first one counts.

    Returns
    -------
    The calls in some order, and the place of that of each event among them; null where there is none.
    """
    calls = rows_in_order(calls, _ID)
    ids = calls[_ID].to_numpy()
    if (ids[1:] == ids[:-1]).any():
        # A call of the driver inside one of the runtime may carry the same id: the outer one counts, which starts first.
        calls = rows_in_order(drop_duplicates(calls.select(start, pl.exclude(start)), [_PROCESS, _ID]), _ID)
        ids = calls[_ID].to_numpy()
    if not len(ids) or not _of_one_process(events, calls):
        places = calls.select(_PROCESS, _ID).with_row_index("place")
        ranges = events.select(_PROCESS, _ID).join(places, on=[_PROCESS, _ID], how="left", maintain_order="left")
        return calls, ranges["place"]
    # A join takes five times as long.
    event_ids = events[_ID].to_numpy()
    place = np.minimum(np.searchsorted(ids, event_ids), len(ids) - 1)
    return calls, pl.Series(place).set(pl.Series(ids[place] != event_ids), None)


def _of_one_process(*frames: pl.DataFrame) -> bool:
    """Whether all rows of frames have the same `process`: ids are distinct then."""
    bounds = {bound for rows in frames if rows.height for bound in (rows[_PROCESS].min(), rows[_PROCESS].max())}
    return len(bounds) <= 1 and not any(rows[_PROCESS].null_count() for rows in frames)


def side_by_side(first: ExternalSort, second: ExternalSort) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Rows of two collections with the same first sort column, window by window, but those without rows of the first.

    Inside a window rows come in any order. A collection without rows gives frames without columns."""
    for window in plan_windows([(first, 1), (second, 1)]):
        of_first, of_second = first.load(window), second.load(window)
        if of_first:
            yield pl.concat(of_first), pl.concat(of_second) if of_second else pl.DataFrame()
        first.drop_before(window.end)
        second.drop_before(window.end)


def _calls(columns: Mapping[str, str], report: Report) -> pl.LazyFrame:
    calls = report.scan_events(CALLS_TABLE, tuple(dict.fromkeys(("globalTid", *columns))), (_ID, "eventClass"), None)
    return calls.filter(IS_CALL).select(
        process_of(pl.col("globalTid")).alias(_PROCESS), _ID, *(pl.col(a).alias(b) for a, b in columns.items())
    )
