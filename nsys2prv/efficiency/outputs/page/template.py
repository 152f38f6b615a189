"""How content gets into pages: templates, styles and scripts, and tables packed as JSON, from which `page.js` makes rows.

Any text of a run is escaped, and only code of the package runs."""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from markupsafe import Markup

from nsys2prv.efficiency.metrics import EFFICIENCIES, HOST_TREE
from nsys2prv.efficiency.outputs.text import OF_DEVICES, OF_HOSTS
from nsys2prv.efficiency.result_tables import EFFICIENCY_COLUMNS, NCCL_POLICY, OnPage, Table
from nsys2prv.efficiency.verdict import level
from nsys2prv.vocabulary import wording
from nsys2prv.vocabulary.name_rules import metric_unit
from nsys2prv.vocabulary.printable import printable, safe_json

if TYPE_CHECKING:
    import jinja2

_OF_METRIC = frozenset({"mean", "weighted", "average", "maximum", "minimum", "deviation"})
"""Columns in the unit of the metric."""
_HEADINGS = {"avg_max": "average / largest", "peak_at_ns": "peak at"}
_HEADINGS |= {name: efficiency.heading for name, efficiency in EFFICIENCIES.items()}
"""Headings that names of columns do not give."""
FOLDER = Path(__file__).parent


@functools.cache
def environment() -> "jinja2.Environment":
    """The templates of this folder."""
    # Other outputs do not need it.
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # Of all that is put into the page; what the page itself is made of is `Markup`.
        finalize=lambda value: printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    filters = (wording.short, wording.time, wording.percent, wording.ranked_warnings, level, wording.worded)
    templates.filters.update({function.__name__: function for function in filters})
    return templates


def joined(*names: str) -> Markup:
    """Files of this folder, one after the other."""
    return Markup("".join((FOLDER / name).read_text(encoding="utf-8") for name in names))


def notebook_html(template: str, content: Mapping[str, Any], *styles: str) -> str:
    """What notebooks show: no script, no link, and the style of the first screen and others of this folder, which touch nothing
    outside of an element of the class `nsys2prv`."""
    style = Markup(f".nsys2prv {{ {str(joined('first_screen.css', *styles)).replace('.nsys2prv', '&')} }}")
    return environment().get_template(template).render(content, style=style)


def rendered_page(
    template: str, content: Mapping[str, Any], data: Mapping[str, Any], tables: "Mapping[str, PageTable]", *styles: str
) -> str:
    """A page as one HTML file, whose policy is that its own script runs, and no other: a template of this folder, what it
    shows, the data and tables that `page.js` reads, and styles beside those of all pages."""
    script, packed = joined("page.js"), {name: table.packed for name, table in tables.items()}
    return environment().get_template(template).render(
        content,
        island=json_in_html({**data, "title": content["title"], "tables": packed}),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=joined("first_screen.css", "rows.css", "page.css", *styles),
    )  # fmt: skip


def json_in_html(content: Any) -> Markup:
    r"""JSON for a script element: no text in it ends the element or starts a comment.

    >>> str(json_in_html({"name": "</script><!-- \u2028"}))
    '{"name":"\\u003c/script\\u003e\\u003c!-- \\u2028"}'
    """
    text = safe_json(content, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


class PageTable(NamedTuple):
    """One table of the page: its declaration, how many rows are in the page and how many there are, and what `page.js` reads.

    That is `columns`, each with `name`, `heading`, `meaning`, whether it is `main`, whether it `is_moment`, its `form` ("text",
    "count", "ns", "bytes", "bytes/s", "0 to 1" or "number") and its `values`; of texts, `values` are places in `texts`.
    `sorted`: the column by which it is sorted and whether downwards, or null."""

    table: Table
    rows: int
    all_rows: int
    packed: Mapping[str, Any]


def pack(table: Table, frame: pl.DataFrame, cells: int, without: Sequence[str] = ()) -> PageTable:
    """A table of the page without some columns and that of NCCL_POLICY, which the page says once for all tables, of at most so
    many cells: the last rows are left out."""
    columns = [column for column in table.columns if column != NCCL_POLICY and column.name not in without]
    place = table.page or OnPage("")
    by = (place.worst_first, not place.lowest_first) if place.worst_first else None
    if by:
        frame = frame.sort(by[0], descending=by[1], nulls_last=True, maintain_order=True)
    shown = in_units(table, frame.head(max(cells // len(columns), 1)))
    main = _main(place.columns, shown)
    packed = [
        {
            "name": column.name,
            "heading": _HEADINGS.get(column.name, column.heading),
            "meaning": column.meaning.replace("`", ""),
            "main": column.name in main,
            "is_moment": column.is_moment,
            "form": column.unit or {pl.String: "text", pl.Int64: "count"}.get(column.dtype, "number"),
            **_values(shown[column.name]),
        }
        for column in columns
    ]
    return PageTable(table, shown.height, frame.height, {"columns": packed, "sorted": by})


def _main(columns: Sequence[str], shown: pl.DataFrame) -> set[str]:
    """Columns that are shown at first: without GPUs efficiencies of hosts, and nothing that is not known in any row."""
    names = set(columns or shown.columns)
    if EFFICIENCY_COLUMNS in names:
        of_hosts = () if shown[OF_DEVICES[0]].count() else OF_HOSTS
        names |= {*OF_DEVICES, HOST_TREE.efficiencies[0].name, *of_hosts}
    return {name for name in names if name in shown.columns and (shown.is_empty() or shown[name].count())}


def in_units(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of tables of sampled metrics with the unit of each metric behind its name, and clocks in GHz."""
    numbers = [column.name for column in table.columns if column.name in _OF_METRIC]
    if "metric" not in table.schema or rows.is_empty() or not numbers:
        return rows
    units = {name: metric_unit(name) for name in rows["metric"].unique()}
    names = {
        name: f"{name if divisor == 1 else name.partition(' [')[0]} [{unit}]"
        for name, (divisor, unit) in units.items()
        if unit and (divisor != 1 or not name.endswith("]"))
    }
    divisor = pl.col("metric").replace_strict({name: divisor for name, (divisor, _) in units.items()}, return_dtype=pl.Float64)
    return rows.with_columns(pl.col(numbers) / divisor, metric=pl.col("metric").replace(names))


def _values(column: pl.Series) -> dict[str, Any]:
    if column.dtype == pl.String:
        texts = column.drop_nulls().unique(maintain_order=True)
        places = {text: place for place, text in enumerate(texts)}
        return {"texts": texts.to_list(), "values": [None if text is None else places[text] for text in column]}
    if column.dtype.is_float():
        # NaN and infinite numbers are not JSON; nine digits are enough; and 1.0 is longer than 1.
        column = pl.select(pl.when(column.is_finite()).then(column.round_sig_figs(9))).to_series()
        return {"values": [int(value) if value is not None and value.is_integer() else value for value in column]}
    return {"values": column.to_list()}
