"""What a measurement or a comparison gives: frames by name, and the files that they are written to."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.outputs import page
from nsys2prv.efficiency.outputs.comparison_text import comparison_as_markdown, comparison_as_text
from nsys2prv.efficiency.outputs.export import as_talp, csv_files, json_text, write_files
from nsys2prv.efficiency.outputs.text import efficiency_as_text
from nsys2prv.efficiency.result_tables import Frames, Table
from nsys2prv.efficiency.verdict import WINDOW_TITLES
from nsys2prv.errors import NotEfficiency, counted
from nsys2prv.exports.paths import check_kept
from nsys2prv.vocabulary.limits import read_ordinary
from nsys2prv.vocabulary.wording import did_you_mean


@dataclass(frozen=True, repr=False)
class Results:
    """Numbers: `tables` by name, as frames, each of them an attribute too (`results.kernels`); and `head`, what the numbers are
    of: the keys of the JSON but `tables`."""

    head: Mapping[str, Any]
    tables: Frames

    def __getattr__(self, name: str) -> pl.DataFrame:
        tables: Frames = self.__dict__.get("tables", {})
        if name in tables:
            return tables[name]
        raise AttributeError(f"no table {name!r}{did_you_mean(name, tables)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]

    def as_json(self) -> dict[str, Any]:
        """The object that `to_json` writes."""
        return {**self.head, "tables": {name: table.to_dict(as_series=False) for name, table in self.tables.items()}}

    @property
    def inputs(self) -> list[str]:
        """What the numbers are of, as it was given."""
        return list(self.head["inputs"])

    def to_json(self, path: str | Path) -> None:
        """Write everything into one JSON file, which `read_efficiency` and `compare` take. It replaces any file but an input or
        a report.

        Raises OutputError when it can't be written; so do the other `to_` methods."""
        self.write(json_path=Path(path))

    def to_csv(self, folder: str | Path) -> None:
        """Write each table that has rows as `TABLE.csv` into a folder."""
        self.write(csv_folder=Path(folder))

    def write(self, *, json_path: Path | None = None, csv_folder: Path | None = None) -> None:
        """Write several files, which appear together when all are complete."""
        self._write(json_path, csv_folder, {})

    def _write(self, json_path: Path | None, csv_folder: Path | None, texts: Mapping[Path | None, Callable[[], str]]) -> None:
        """Write what there is a path for, `texts` among it."""
        files: dict[Path, str | None] = {} if csv_folder is None else csv_files(csv_folder, self.tables)
        texts = {**texts, json_path: lambda: json_text(self.as_json())}
        files |= {path: text() for path, text in texts.items() if path is not None}
        check_kept(files, self.inputs)
        write_files(files)


class EfficiencyResult(Results):
    """The efficiency numbers of a run: `result.tree`, `result.devices`, `result.findings`, ...
    docs/reference/efficiency-tables.md describes every table."""

    def __repr__(self) -> str:
        run = self.tables["run"].row(0, named=True)
        return f"<EfficiencyResult of {self.head['title']}: {counted(run['devices'], 'GPU')}, {len(self.tables)} tables>"

    @property
    def left_out(self) -> int:
        """Number of reports that could not be read."""
        return len(self.head["left_out"])

    def as_text(self, rows: int = 10, *, verbose: bool = False, colors: bool = False, width: int | None = None) -> str:
        """A summary for a terminal, with so many rows of each table; `verbose` with evidence and advice of the findings, fit
        into lines of `width` characters where that is not None."""
        return efficiency_as_text(self.head, self.tables, rows, verbose=verbose, colors=colors, width=width)

    def to_html(self, path: str | Path) -> None:
        """Write one HTML page with charts, tables and definitions."""
        self.write(page_path=Path(path))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first screen of the page, without scripts."""
        return page.first_screen_html(self.head, self.tables)

    def plot(self, name: str) -> page.Drawing:
        """A drawing that a notebook shows: `activity` (of devices, over time), `efficiencies` (over time), `wall_time` (by
        cause), `iterations` (per rank), `devices` (useful time), `families` (of kernels), `bandwidth` (of NCCL over message
        size), `memory` (of GPUs, in use over time).

        Raises UsageError when there is no such drawing, or the run has nothing to show in it."""
        return page.drawing(name, self.tables)

    def to_talp(self, path: str | Path) -> None:
        """Write a file as DLB's TALP does."""
        self.write(talp_path=Path(path))

    def write(
        self,
        *,
        json_path: Path | None = None,
        csv_folder: Path | None = None,
        talp_path: Path | None = None,
        page_path: Path | None = None,
    ) -> None:
        """Write several files, which appear together when all are complete."""
        texts = {
            talp_path: lambda: json_text(as_talp(self.head, self.tables)),
            page_path: lambda: page.page(self.head, self.tables),
        }
        self._write(json_path, csv_folder, texts)


class ComparisonResult(Results):
    """Several runs side by side: `result.runs`, `result.metrics`, `result.matched`, `result.changes`, `result.gate`."""

    @property
    def inputs(self) -> list[str]:
        """What the runs are, as they were given."""
        return [run["input"] for run in self.head["runs"]]

    def __repr__(self) -> str:
        return f"<ComparisonResult of {', '.join(str(run['title']) for run in self.head['runs'])}>"

    def to_html(self, path: str | Path) -> None:
        """Write one HTML page with drawings and tables."""
        self.write(page_path=Path(path))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first screen of the page, without scripts."""
        return page.comparison_first_html(self.head, self.tables)

    def write(self, *, json_path: Path | None = None, csv_folder: Path | None = None, page_path: Path | None = None) -> None:
        """Write several files, which appear together when all are complete."""
        self._write(json_path, csv_folder, {page_path: lambda: page.comparison_page(self.head, self.tables)})

    def as_text(self, rows: int = 10, *, width: int | None = None) -> str:
        """A summary for a terminal, with so many rows of each table, in lines of `width` characters (None: as they are)."""
        return comparison_as_text(self.head, self.tables, rows, width)

    def as_markdown(self, rows: int = 10) -> str:
        """The same in Markdown, for a merge request on GitHub or GitLab, with the gate first."""
        return comparison_as_markdown(self.head, self.tables, rows)


def read_efficiency(path: Path) -> EfficiencyResult:
    """Efficiency numbers that `EfficiencyResult.to_json` wrote, of this version of the program or an earlier one: NotEfficiency
    when the file is another one, or of another version of the format.

    Tables and columns that an earlier version did not have are without rows and null; a warning names them."""
    try:
        content = json.loads(read_ordinary(path, most=512 << 20).decode())
    except OSError as error:
        raise NotEfficiency(path, f"it can't be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise NotEfficiency(path, "it is no JSON") from error
    if not isinstance(content, dict) or content.get("format") != table_registry.FORMAT:
        raise NotEfficiency(path, f"its format is not {table_registry.FORMAT}")
    if (version := content.get("version")) != table_registry.VERSION:
        raise NotEfficiency(path, f"it has version {version} of the format, and version {table_registry.VERSION} is read")
    try:
        tables = {table.name: _table_of_file(table, content["tables"]) for table in table_registry.TABLES}
        if tables["run"].height != 1:
            raise ValueError(f"the table run has {tables['run'].height} rows")
        for name, table in tables.items():
            _check_numbers(name, table)
        head = {key: content[key] for key, _, _ in table_registry.HEAD if key != "tables"}
        _check_head(head)
        head["warnings"] = [*head["warnings"], *_later_tables(path, head["nsys2prv"], content["tables"])]
        return EfficiencyResult(head, tables)
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise NotEfficiency(path, f"a table or a key of it is missing or damaged ({error})") from error


def _table_of_file(table: Table, tables: Mapping[str, Any]) -> pl.DataFrame:
    """A table of a file, which may have further columns, and lack those that came later."""
    first = table_registry.FIRST_TABLES.get(table.name)
    if first is None and table.name not in tables:
        return table.empty
    columns = tables[table.name]
    height = len(next(iter(columns.values()), ()))
    values = {name: columns[name] if name in columns or name in (first or ()) else [None] * height for name in table.schema}
    return pl.DataFrame([pl.Series(name, values[name], dtype=dtype) for name, dtype in table.schema.items()])


def _later_tables(path: Path, version: str, tables: Mapping[str, Any]) -> list[str]:
    """A warning about what a file lacks because it came later."""
    missing = [table.name for table in table_registry.TABLES if table.name not in tables]
    for table in table_registry.TABLES:
        columns = tables.get(table.name, table.schema)
        missing += (f"{table.name}.{name}" for name in table.schema if name not in columns)
    lacks = f"{path} was written by nsys2prv {version}, which did not measure {', '.join(missing)}"
    return [f"{lacks}: nothing is known of these here; measure the run again to have them"] if missing else []


_TYPES: Mapping[str, tuple[type, type]] = {
    "text": (str, str),
    "number": (int, object),
    "object": (dict, object),
    "list of texts": (list, str),
    "list of objects": (list, dict),
}
"""Types of keys beside the tables, and of their entries, by what `table_registry.HEAD` calls them."""
_LARGEST, _SMALLEST = 1e19, 1e-120
"""Larger numbers than the first, and numbers nearer to 0 than the second, are in no result: no ratio of two is out of range."""
_WITHOUT_NULLS: Mapping[str, tuple[str, ...]] = {
    "run": (
        *("devices", "elapsed_ns", "useful_ns", "communication_ns", "active_ns", "max_useful_ns", "max_active_ns"),
        *("processes", "threads", "host_useful_ns", "cuda_ns", "mpi_ns", "mean_mpi_ns", "min_mpi_ns"),
    ),
    "kernels": ("kernel", "family", "count", "total_ns", "mean_ns", "share"),
    "families": ("family", "count", "total_ns", "mean_ns", "share"),
    "memory_operations": ("operation", "total_ns"),
    "cuda_calls": ("call", "total_ns"),
    "mpi_calls": ("call", "total_ns"),
}
"""Columns without nulls that a comparison needs."""


def _check_head(head: Mapping[str, Any]) -> None:
    """Raise a ValueError where a key beside the tables has not its type."""
    for key, what, meaning in table_registry.HEAD:
        if key == "tables" or (head[key] is None and "null" in meaning):
            continue
        of_key, of_entries = _TYPES[what]
        entries = head[key] if isinstance(head[key], list) else ()
        if not isinstance(head[key], of_key) or not all(isinstance(entry, of_entries) for entry in entries):
            raise ValueError(f"{key} is no {what}")
    least, most = (head["length_interval"][name] for name in ("least_ns", "most_ns"))
    if not all(isinstance(length, int) and 0 <= length <= _LARGEST for length in (least, most or 0)):
        raise ValueError("length_interval has no lengths")
    if head["window"]["name"] not in WINDOW_TITLES:
        raise ValueError("window has another name than windows have")


def _check_numbers(name: str, table: pl.DataFrame) -> None:
    """Raise a ValueError where a table has numbers that no measurement gives, or none where there must be some."""
    for column in table.select(cs.numeric()):
        sizes = column.drop_nulls().abs()
        in_range = sizes.is_finite() & (sizes <= _LARGEST) & ((sizes == 0) | (sizes >= _SMALLEST))
        if not in_range.all() or (column.dtype.is_integer() and (column == -(2**63)).any()):
            raise ValueError(f"the column {column.name} of the table {name} has a number that is out of range")
    for column_name in _WITHOUT_NULLS.get(name, ()):
        if table[column_name].null_count():
            raise ValueError(f"the column {column_name} of the table {name} has a null")
