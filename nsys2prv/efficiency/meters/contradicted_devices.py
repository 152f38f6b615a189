"""Tables without what is not known of devices whose times contradict those of their hosts (`device_clocks`).

What runs on such a device, and for how long, is known. What comparing it with its host would say is not: why it waits, what the
host did meanwhile, and where the critical path runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from nsys2prv.efficiency.meters.absent_tables import (
    ABSENT_CALLS,
    ABSENT_FUNCTIONS,
    ABSENT_ITERATIONS,
    ABSENT_PARTS,
    ABSENT_RANGES,
    ABSENT_REGIONS,
    ABSENT_STRETCHES,
    ABSENT_TIME,
    CONTRADICTED,
    PART_COLUMNS,
    PART_UNDECIDED,
    PARTS,
    REASONS,
)
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, GAPS, LONGEST_GAPS, UNKNOWN_COLUMN


def not_compared(tables: Mapping[str, pl.DataFrame], devices: Sequence[str], tasks: Sequence[str]) -> dict[str, pl.DataFrame]:
    """All tables, where those of compute-absent time and of gaps have no causes of some devices.

    Parameters
    ----------
    tables
        By name, with the columns of the registry.
    devices, tasks
        Names of the devices, and of the tasks that use them.

    Returns
    -------
    Sums are the same. The whole compute-absent time of these devices is not decidable, what the host did in their gaps is not
    known, and nothing is said of what their launching threads did.
    """
    if not devices:
        return dict(tables)
    found = dict(tables)
    chosen = pl.col("device").is_in(list(devices))
    for table, whole in (
        (ABSENT_TIME, "absent_ns"),
        (ABSENT_REGIONS, "absent_ns"),
        (ABSENT_ITERATIONS, "absent_ns"),
        (ABSENT_STRETCHES, "length_ns"),
    ):
        found[table.name] = _moved(found[table.name], chosen, PART_COLUMNS, PART_COLUMNS[PART_UNDECIDED], whole)
    unscheduled = pl.when(~chosen).then("off_cpu_ns").alias("off_cpu_ns")
    found[ABSENT_TIME.name] = found[ABSENT_TIME.name].with_columns(unscheduled)
    for table, whole in ((GAPS, "total_ns"), (LONGEST_GAPS, "length_ns")):
        found[table.name] = _moved(found[table.name], chosen, CAUSE_COLUMNS, UNKNOWN_COLUMN, whole)
    for table in (ABSENT_CALLS, ABSENT_RANGES, ABSENT_FUNCTIONS):
        found[table.name] = found[table.name].filter(~pl.col("task").is_in(list(tasks)))
    found[ABSENT_PARTS.name] = _one_part(found[ABSENT_PARTS.name], chosen)
    return found


def _moved(table: pl.DataFrame, chosen: pl.Expr, columns: Sequence[str], to: str, whole: str) -> pl.DataFrame:
    """A table where in some rows the whole is in one of several columns."""
    return table.with_columns(
        pl.when(chosen).then(pl.col(whole) if name == to else 0).otherwise(name).alias(name) for name in columns
    )


def _one_part(of_parts: pl.DataFrame, chosen: pl.Expr) -> pl.DataFrame:
    """The table `absent_parts` with one row for each of these devices."""
    reason = tuple(REASONS)[CONTRADICTED]
    texts = {"part": pl.lit(PARTS[PART_UNDECIDED].title), "detail": pl.lit(reason)}
    sums = (pl.col("count", "total_ns").sum(), pl.col("longest_ns").max())
    rows = of_parts.filter(chosen).group_by("device", maintain_order=True).agg(*sums).with_columns(**texts)
    both = pl.concat([of_parts.filter(~chosen), rows.select(of_parts.columns)])
    return both.sort("total_ns", descending=True, maintain_order=True)
