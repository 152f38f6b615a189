"""Totals of a path by kind, task, kernel and host cause."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.chunk_moments import Mask
from nsys2prv.efficiency.graph.path_segments import HOST_CAUSES, KINDS
from nsys2prv.efficiency.meters.kernel_stats import family_names, with_names
from nsys2prv.efficiency.sweep import KERNEL_TYPES
from nsys2prv.execution.merging import Sums

_KEY = ["row", "kind", "label", "cause"]
_LATENCY = 20_000
"""ns that are usual between two operations of a stream."""


class PathTotals:
    """Adds up the segments of a path."""

    def __init__(self) -> None:
        self._sums = Sums({**dict.fromkeys(_KEY, pl.Int64), "total_ns": pl.Int64, "segments": pl.Int64}, _KEY)

    def add(self, segments: pl.DataFrame) -> None:
        """Add segments (`path_segments.SEGMENT_SCHEMA`)."""
        length = pl.col("end") - pl.col("begin")
        self._sums.add(segments.select(*_KEY, total_ns=length, segments=pl.lit(1, pl.Int64)))

    @property
    def length(self) -> int:
        """Length of the path, ns."""
        return int(self._sums.rows["total_ns"].sum())

    def by(self, *key: str) -> pl.DataFrame:
        """Columns `total_ns` and `segments` by some of `row`, `kind`, `label`, `cause`."""
        return self._sums.rows.group_by(key).agg(pl.col("total_ns", "segments").sum())

    def on_rows(self, rows: Mask) -> int:
        """Time on some rows, ns."""
        by_row = self.by("row")
        return int(by_row["total_ns"].filter(pl.Series(rows[by_row["row"].to_numpy()])).sum())

    def unexplained(self, counted: Mask) -> int:
        """Time in waits of unknown cause, ns: of streams for more than what lies between two operations, and of threads that
        neither launch work nor call MPI (`counted` rows are all others)."""
        rows = self._sums.rows
        is_other = pl.Series(~counted[rows["row"].to_numpy()])
        waits = (pl.col("total_ns") - _LATENCY * pl.col("segments")).clip(lower_bound=0)
        of_streams = rows.filter(pl.col("kind") == KINDS.index("stream order")).select(waits.sum()).item()
        on_threads = pl.col("kind").is_in([KINDS.index(kind) for kind in ("host", "unknown wait")])
        return int(of_streams + rows.filter(on_threads & is_other)["total_ns"].sum())

    def rows(self, built: BuiltGraph) -> pl.DataFrame:
        """Columns of the table `critical_path_totals`."""
        rows = built.context.events.rows
        of_kind = self.by("kind").select(_from(KINDS, "kind"), "total_ns", "segments", by=pl.lit("kind"))
        of_row = self.by("row")
        task = built.context.task_names(pl.lit(pl.Series(rows.task[of_row["row"].to_numpy()])))
        of_task = of_row.select("total_ns", "segments", name=task, by=pl.lit("task"))
        of_host = self.by("cause", "kind").filter((pl.col("cause") >= 0) & (pl.col("kind") == KINDS.index("host")))
        of_cause = of_host.select(_from(HOST_CAUSES, "cause"), "total_ns", "segments", by=pl.lit("host cause"))
        kernels = self._kernels(built)
        of_kernel = kernels.select("total_ns", "segments", name="kernel", by=pl.lit("kernel"))
        of_family = kernels.select("total_ns", "segments", name="family", by=pl.lit("family"))
        order = pl.Enum(["kind", "task", "family", "kernel", "host cause"])
        return (
            pl.concat(
                [
                    part.select("by", "name", "total_ns", "segments")
                    for part in (of_kind, of_task, of_family, of_kernel, of_cause)
                ]
            )
            .group_by("by", "name")
            .agg(pl.col("total_ns", "segments").sum())
            .sort(pl.col("by").cast(order), "total_ns", "name", descending=[False, True, False], nulls_last=True)
            .with_columns(share=pl.col("total_ns") / max(self.length, 1))
        )

    def _kernels(self, built: BuiltGraph) -> pl.DataFrame:
        """Kernels of the path, also those that move data: `kernel`, `family`, `total_ns`, `segments`."""
        labels = built.labels
        of_label = self.by("label", "kind").filter(pl.col("label") >= 0, pl.col("kind").is_in(WORK_KINDS))
        label = of_label["label"].to_numpy()
        named = with_names(
            of_label.with_columns(
                number=pl.Series(np.array(labels.number, dtype=np.int64)[label]),
                value=pl.Series(np.array(labels.value, dtype=np.int64)[label]),
                family=pl.Series(np.array(labels.family, dtype=np.int64)[label]),
            ).filter(pl.col("number").is_in(KERNEL_TYPES)),
            built.context.events,
        )
        return named.with_columns(family_names(named, built.context.events))


WORK_KINDS = tuple(KINDS.index(kind) for kind in ("kernel", "graph", "collective", "transfer"))
"""Kinds of segments that are kernels."""


def _from(names: Sequence[str], column: str) -> pl.Expr:
    return pl.lit(pl.Series(names)).gather(pl.col(column)).alias("name")
