"""Records of a timeline, whatever the format that they are written in, and batches of them in the order of time."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import polars as pl

from nsys2prv.timeline.rows import Rows
from nsys2prv.timeline.task_groups import Communicator


class RecordKind(enum.Enum):
    """Kinds of records: their weight in a window of records, the column with their time, those with their place in the trace,
    from the time on, and those that are reckoned with, which are Int64 (others can be narrower integers).

    Columns of each; times are ns from the origin of the selection:

    - INTERVALS: `row`, `start`, `end`, `number` (event type), `value`, attributes (numbers in columns named by their event
      type, null where an event has none), and perhaps `cpu` (counted over all hosts from 1, 0 for none)
    - POINTS, marks and samples: the same without `end`
    - STATES: `row`, `start`, `end`, `state`, and perhaps `cpu`
    - MESSAGES, also from calls to what they launch: `row`, `time` of the sender, `to_row`, `to_time` of the receiver, `size`
      (bytes), `tag`, and perhaps `to_begin`, when the receiver began to wait
    """

    INTERVALS = ("intervals", 2, "start", ("start", "row", "end"))
    POINTS = ("points", 1, "start", ("start", "row"))
    STATES = ("states", 1, "start", ("start", "row"), ("end",))
    MESSAGES = ("messages", 1, "time", ("time", "row"), ("to_row", "to_time", "to_begin", "size", "tag"))

    def __init__(self, _: str, weight: int, time: str, place: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
        self.weight = weight
        self.time = time
        self.place = place
        self.wide = (*place, *others)


@dataclass(frozen=True)
class RecordBatch:
    """Records of one collection that start in a window of the time axis, sorted by time. Of intervals, `ended` has all that end
    in the window, in any order of time, and perhaps some that end later: those that end before `behind` count (None: all).
    Points are also sorted by row. Those that are equal in time and row come as they are here.
    """

    kind: RecordKind
    started: pl.DataFrame
    ended: pl.DataFrame | None = None
    behind: int | None = None


@dataclass(frozen=True)
class EncodedRecords:
    """Records of a window as they are written, and their number in the trace."""

    content: bytes | memoryview
    records: int


@dataclass(frozen=True)
class TimelineHead:
    """What an output format must know before the first record: rows, length (ns), UTC of the start (ns since 1970), and
    communicators."""

    rows: Rows
    length: int
    start_utc: int | None
    communicators: tuple[Communicator, ...] = ()
