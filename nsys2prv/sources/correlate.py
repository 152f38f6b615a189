"""Events together with the API calls that caused them, by correlation id, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, plan_windows
from nsys2prv.execution.row_order import one_of_each
from nsys2prv.execution.sizes import HELD_ROWS, PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.global_ids import process_of

CALLS_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
CALL_COLUMNS = {"globalTid": "callTid", "nameId": "callNameId", "start": "callStart", "end": "callEnd"}
"""Columns of the table of calls, and what they are called beside an event."""

_PROCESS, _ID = "process", "correlationId"


def with_calls(
    report: Report,
    frames_of: Callable[[Report], pl.LazyFrame] | Sequence[Callable[[Report], pl.LazyFrame]],
    folder: Path,
    columns: tuple[str, ...] = tuple(CALL_COLUMNS),
) -> Iterator[pl.DataFrame]:
    """Events with columns of the API calls that caused them; null where no call is known.

    Parameters
    ----------
    report
        The report.
    frames_of
        From a report to events of one table (columns `globalPid`, `correlationId` among others), as for `Report.pieces`; or
        several such, all with the same columns.
    folder
        For intermediate files.
    columns
        Requested columns of the calls: keys of `CALL_COLUMNS`.

    Yields
    ------
    The events, in the order of correlation ids, with the values of `CALL_COLUMNS` for `columns`.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    # Ids repeat between processes.
    process = process_of("globalPid").alias(_PROCESS)
    events = ExternalSort([_ID], folder / "events")
    few: list[pl.DataFrame] = []
    for frame_of in frames_of if isinstance(frames_of, Sequence) else [frames_of]:
        for piece in report.pieces(frame_of, PIECE_ROWS):
            known = piece.with_columns(process, pl.col(_ID).fill_null(0))
            events.add(known)
            if events.rows <= HELD_ROWS:
                few.append(known.select(_PROCESS, _ID))
    if not events.rows:
        return
    calls = ExternalSort([_ID], folder / "calls")
    # The outer one of two calls is the one that starts first.
    read = {name: called for name, called in CALL_COLUMNS.items() if name in columns or name == "start"}
    few_ids = pl.concat(few) if events.rows <= HELD_ROWS else None
    for piece in report.pieces(partial(_calls, read), PIECE_ROWS):
        with_id = piece.filter(pl.col(_ID) > 0)
        # All calls of a long report would be sorted on the disk for a few events.
        calls.add(with_id if few_ids is None else with_id.join(few_ids, on=[_PROCESS, _ID], how="semi"))
    requested = [CALL_COLUMNS[name] for name in columns]
    empty = pl.DataFrame(schema=dict.fromkeys((_PROCESS, _ID, *read.values()), pl.Int64))
    for of_events, of_calls in side_by_side(events, calls):
        known = empty if of_calls.is_empty() else of_calls
        if known[_ID].n_unique() < known.height:
            # A call of the driver inside one of the runtime may carry the same id: the outer one, the first, counts.
            known = one_of_each(known.select("callStart", pl.exclude("callStart")), [_PROCESS, _ID])
        key = [_ID] if of_one_process(of_events, known) else [_PROCESS, _ID]
        joined = of_events.join(known.select(*key, *requested), on=key, how="left", maintain_order="left")
        yield joined.drop(_PROCESS)


def of_one_process(*frames: pl.DataFrame) -> bool:
    """Whether all rows of frames have the same `process`: ids are distinct then, and a join on one column is much cheaper."""
    bounds = {bound for rows in frames if rows.height for bound in (rows[_PROCESS].min(), rows[_PROCESS].max())}
    return len(bounds) <= 1 and not any(rows[_PROCESS].null_count() for rows in frames)


def side_by_side(left: ExternalSort, right: ExternalSort) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Rows of two collections with the same first sort column, window by window; windows without rows of `left` are left out.

    Inside a window rows come in any order. A collection without rows gives frames without columns.
    """
    for window in plan_windows([(left, 1), (right, 1)]):
        of_left, of_right = left.load(window), right.load(window)
        if of_left:
            yield pl.concat(of_left), pl.concat(of_right) if of_right else pl.DataFrame()
        left.drop_before(window.end)
        right.drop_before(window.end)


def _calls(columns: Mapping[str, str], report: Report) -> pl.LazyFrame:
    calls = report.scan_events(CALLS_TABLE, tuple(dict.fromkeys(("globalTid", *columns))), (_ID,), None)
    return calls.select(process_of("globalTid").alias(_PROCESS), _ID, *(pl.col(a).alias(b) for a, b in columns.items()))
