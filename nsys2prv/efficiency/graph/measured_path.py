"""The critical path of a run as it was measured, for the trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.efficiency.graph.build import built_graph
from nsys2prv.efficiency.graph.path_segments import HOST_CAUSES, KINDS, PathReader
from nsys2prv.efficiency.graph.replay import as_measured
from nsys2prv.efficiency.run_events import COLLECTIONS, OFF_CPU_TIMES, PAGE_FAULTS, RANGES, Collection, RunEvents
from nsys2prv.vocabulary.event_types import CRITICAL_PATH_PARTS

_NOT_IN_GRAPH = (RANGES, OFF_CPU_TIMES, PAGE_FAULTS)
NEEDED: tuple[Collection, ...] = tuple(one for one in COLLECTIONS if one not in _NOT_IN_GRAPH and not one.samples)
"""Collections that the graph is made of."""

_OF_KIND = {
    "collective": "collective whose members are not known",
    "transfer": "transfer of a collective",
    "wake-up": "wake-up of a thread",
    "launch queue": "full launch queue",
    "unknown wait": "host: OS",
    # Where the cause is not known; each cause has its own part.
    "host": "host: in no call",
}
_OF_CAUSE = {
    "launch": "host: launching",
    "synchronization": "host: synchronizing",
    "memory": "host: copying",
    "allocation": "host: allocating",
    "other_cuda": "host: other CUDA calls",
    "mpi": "host: MPI",
    "os": "host: OS",
    "host": "host: in no call",
}
_PART_OF_KIND = [CRITICAL_PATH_PARTS.index(_OF_KIND.get(kind, kind)) for kind in KINDS]
_PART_OF_CAUSE = [CRITICAL_PATH_PARTS.index(_OF_CAUSE[cause]) for cause in HOST_CAUSES]


def measured_path(events: RunEvents, folder: Path) -> Iterator[pl.DataFrame]:
    """Segments of the critical path, in pieces from the last to the first; the collections of the run are used up.

    Parameters
    ----------
    events
        With the collections NEEDED.
    folder
        For the files of the graph.

    Yields
    ------
    Columns `row`, `start`, `end` (ns), `part` (place in CRITICAL_PATH_PARTS). They follow each other without a hole from the
    start of the run to its end.
    """
    built = built_graph(events, folder)
    of_kind, of_cause = pl.Series(_PART_OF_KIND), pl.Series(_PART_OF_CAUSE)
    for segments in PathReader(built, as_measured(built.graph)).segments():
        cause = pl.when(pl.col("cause") >= 0).then("cause")
        part = pl.coalesce(pl.lit(of_cause).gather(cause), pl.lit(of_kind).gather("kind"))
        yield segments.select("row", "end", start="begin", part=part.cast(pl.Int64))
