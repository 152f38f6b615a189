"""Messages between reports: both ends of each, matched once and kept on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.clocks.corrected_times import corrected_times, step_doubt
from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.execution.output_files import make_folder
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.time_axis import ClockCorrection, Placement


@dataclass(frozen=True)
class MatchedMessages:
    """Messages between ranks of different reports.

    Attributes
    ----------
    files
        Columns `report`, `to_report`, `time` (when it was sent), `to_time` (when the call ended that received it); ns of the
        rough placement.
    first, last
        The first and the last of these times; 0 without messages.
    """

    files: tuple[Path, ...] = ()
    first: int = 0
    last: int = 0

    def placed(self, clocks: Sequence[int], corrections: Sequence[ClockCorrection] | None) -> Iterator[pl.DataFrame]:
        """The messages with the columns `clock`, `to_clock`, times after the corrections of these, and `doubt`: by how much
        the latency may be wrong because a clock jumped, ns.

        Parameters
        ----------
        clocks
            Number of the clock of each report.
        corrections
            Of each clock; None: times are those of the rough placement.
        """
        of_report = np.array(clocks, dtype=np.int64)
        for path in self.files:
            piece = pl.read_ipc(path)
            ends = {}
            doubt = np.zeros(piece.height, dtype=np.int64)
            for clock, report, time in (("clock", "report", "time"), ("to_clock", "to_report", "to_time")):
                number = of_report[piece[report].to_numpy()]
                ends[clock] = pl.Series(number)
                if corrections is not None:
                    ends[time] = pl.Series(corrected_times(piece[time].to_numpy(), number, corrections))
                    doubt += step_doubt(piece[time].to_numpy(), number, corrections)
            yield piece.with_columns(**ends, doubt=pl.Series(doubt))


def match_messages(sync_points: Sequence[SyncPoints], rough: Sequence[Placement], folder: Path) -> MatchedMessages:
    """Match sends with receives over all reports.

    Parameters
    ----------
    sync_points, rough
        Of each report: the ends of its messages, and its placement.
    folder
        For files; it need not exist.
    """
    if all(points.ends is None for points in sync_points):
        return MatchedMessages()
    make_folder(folder)
    messages = Messages(folder / "ends")
    for report, (points, placement) in enumerate(zip(sync_points, rough, strict=True)):
        for ends in points.message_ends():
            times = (placement.of(pl.col(name)) for name in ("start", "end"))
            messages.add(ends.with_columns(*times, row=pl.lit(report, pl.Int64)))
    files: list[Path] = []
    bounds: list[int] = []
    for matched in messages.matched_ends():
        between = matched.filter(pl.col("row") != pl.col("to_row")).drop_nulls(["time", "to_time"])
        if between.is_empty():
            continue
        files.append(folder / f"{len(files)}.arrow")
        between.select("time", "to_time", report="row", to_report="to_row").write_ipc(files[-1])
        times_of_piece = between.select(
            low=pl.min_horizontal("time", "to_time").min(), high=pl.max_horizontal("time", "to_time").max()
        )
        bounds += times_of_piece.row(0)
    return MatchedMessages(tuple(files), min(bounds, default=0), max(bounds, default=0))
