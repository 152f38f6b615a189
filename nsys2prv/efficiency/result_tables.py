"""How tables of results are declared: a `Table` with its columns, beside the code that fills it.

`table_registry` collects them; JSON, CSV, API, documentation and tests have all of them. The page and the console have those
that say where, as `OnPage` and `OnConsole`."""

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
    from the start of the trace."""

    name: str
    dtype: type[pl.DataType]
    unit: str
    meaning: str
    is_moment: bool = False

    @property
    def heading(self) -> str:
        """Its name for people, without the unit.

        >>> Column.mean_ns("mean_wait_ns", "").heading
        'mean wait'
        """
        return self.name.removesuffix(f"_{self.unit}").replace("_", " ")

    text = _column_of(pl.String)
    count = _column_of(pl.Int64)
    ns = _column_of(pl.Int64, "ns")
    moment = _column_of(pl.Int64, "ns", is_moment=True)
    mean_ns = _column_of(pl.Float64, "ns")
    bytes = _column_of(pl.Int64, "bytes")
    rate = _column_of(pl.Float64, "bytes/s")
    share = _column_of(pl.Float64, "0 to 1")
    number = _column_of(pl.Float64)


EFFICIENCY_COLUMNS = "efficiencies"
"""Among the columns that the page or the console shows: the efficiencies of devices, without GPUs those of hosts."""


@dataclass(frozen=True)
class OnPage:
    """Where the page has a table, and what it shows of it at first.

    It is in a `section`, one of `outputs.page.content.SECTIONS`. `columns` are shown at first, since all are too many; (): all.
    Rows are sorted by `worst_first`, downwards unless `lowest_first`; "": as in the JSON. The page has at most so many `cells`
    where only the first rows are of interest; 0: as many as fit."""

    section: str
    columns: tuple[str, ...] = ()
    worst_first: str = ""
    lowest_first: bool = False
    cells: int = 0


@dataclass(frozen=True)
class OnConsole:
    """Where the console has a table, and which columns of it, by name, with a heading where the name does not say it.

    Narrow terminals leave out the `spare` columns, those first that are missed least. A table is shown from `least_rows` rows
    on; with `of_hosts` of a run without GPUs alone; with `longer_than` only where it has more rows than the table of this name.
    """

    columns: tuple[str | tuple[str, str], ...]
    spare: tuple[str, ...] = ()
    of_hosts: bool = False
    least_rows: int = 1
    longer_than: str = ""


@dataclass(frozen=True)
class Table:
    """One table: its name for programs and its title for people, what a row is, and its columns in order; the input or option
    `when` it has rows ("": always); and where `page` and `console` have it (None: nowhere, or only as a drawing)."""

    name: str
    title: str
    rows: str
    columns: tuple[Column, ...]
    when: str = ""
    page: OnPage | None = None
    console: OnConsole | None = None

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
Frames = Mapping[str, pl.DataFrame]
"""Tables of a result by name."""
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
SPAN = (
    Column.moment("begin_ns", "from the start of the trace"),
    Column.moment("end_ns", "from the start of the trace"),
    Column.ns("length_ns", "its length"),
)
"""Columns that several tables share."""


def at_moments(table: Table, frame: pl.DataFrame, offset: int) -> pl.DataFrame:
    """A frame with its moments from the start of the trace, when the window starts at `offset`, ns."""
    moments = [column.name for column in table.columns if column.is_moment]
    return frame.with_columns(pl.col(moments) + offset) if moments and offset else frame


def frames_by_name(filled: Filled, tables: Iterable[Table]) -> dict[str, pl.DataFrame]:
    """Frames of tables by name, in the order of `tables`; one without rows is empty. A KeyError when a filled table is none of
    `tables`: the registry lacks it."""
    registered = tuple(tables)
    if unknown := [table.name for table in filled if table not in registered]:
        raise KeyError(f"tables that are not registered: {', '.join(unknown)}")
    return {table.name: table.frame(filled.get(table, ())) for table in registered}
