"""How tables of results are declared: a `Table` with its columns, beside the code that fills it.

`table_registry` lists all tables in their order; JSON, CSV, documentation and tests follow from that list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl


def _column_of(dtype: type[pl.DataType], unit: str = "", *, is_moment: bool = False) -> staticmethod[[str, str], Column]:
    """Makes columns of one type and unit from their names and meanings."""
    return staticmethod(lambda name, meaning: Column(name, dtype, unit, meaning, is_moment))


@dataclass(frozen=True)
class Column:
    """One column: name, type, unit ("" for texts and plain numbers) and meaning. A value is null where the meaning says so.

    With `is_moment` its values are times: what fills the table counts them from the start of the window, and results have them
    from the start of the trace.
    """

    name: str
    dtype: type[pl.DataType]
    unit: str
    meaning: str
    is_moment: bool = False

    text = _column_of(pl.String)
    count = _column_of(pl.Int64)
    ns = _column_of(pl.Int64, "ns")
    moment = _column_of(pl.Int64, "ns", is_moment=True)
    mean_ns = _column_of(pl.Float64, "ns")
    bytes = _column_of(pl.Int64, "bytes")
    rate = _column_of(pl.Float64, "bytes/s")
    share = _column_of(pl.Float64, "0 to 1")
    number = _column_of(pl.Float64)


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes
    ----------
    name, title
        For programs and for people.
    rows
        What a row is.
    columns
        Its columns, in order.
    when
        Input or option without which it has no rows; "" for none.
    by_nccl_policy
        Whether the numbers depend on what NCCL kernels count as; its column `nccl` says as what.
    """

    name: str
    title: str
    rows: str
    columns: tuple[Column, ...]
    when: str = ""
    by_nccl_policy: bool = False

    @property
    def schema(self) -> dict[str, type[pl.DataType]]:
        """Names and types of the columns."""
        return {column.name: column.dtype for column in self.columns}

    @property
    def empty(self) -> pl.DataFrame:
        """The table without rows."""
        return pl.DataFrame(schema=self.schema)

    def frame(self, rows: TableRows) -> pl.DataFrame:
        """Rows as a frame with the columns in order and in their types; further columns of a frame are left out."""
        if isinstance(rows, pl.DataFrame):
            return rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())
        return pl.DataFrame(list(rows), schema=self.schema, orient="row") if rows else self.empty


TableRows = pl.DataFrame | Sequence[Mapping[str, Any]]
"""Rows of a table before their columns are ordered and their types checked."""
Filled = Mapping[Table, TableRows]
"""Tables with their rows."""

NCCL_POLICY = Column.text("nccl", "`communication` (BSC) or `useful` (TALP): what NCCL kernels count as here")
DEVICE = Column.text("device", "physical GPU: its node and its number there, `node01:D0`")
SPREAD = (
    Column.number("average", "mean over tasks"),
    Column.number("maximum", "largest"),
    Column.number("minimum", "smallest"),
    Column.number("deviation", "standard deviation of the population"),
    Column.share("avg_max", "average / maximum; 1 is balanced"),
)
"""Columns that several tables share."""


def at_moments(table: Table, frame: pl.DataFrame, offset: int) -> pl.DataFrame:
    """A frame with its moments from the start of the trace, when the window starts at `offset`, ns."""
    moments = [column.name for column in table.columns if column.is_moment]
    return frame.with_columns(pl.col(moments) + offset) if moments and offset else frame


def frames_by_name(filled: Filled, tables: Iterable[Table]) -> dict[str, pl.DataFrame]:
    """Frames of tables by name, in the order of `tables`; one without rows is empty.

    Raises
    ------
    KeyError
        When a filled table is none of `tables`: the registry lacks it.
    """
    known = tuple(tables)
    if unknown := [table.name for table in filled if table not in known]:
        raise KeyError(f"tables that are not registered: {', '.join(unknown)}")
    return {table.name: table.frame(filled.get(table, ())) for table in known}
