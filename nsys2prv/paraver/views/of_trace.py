"""Views of an existing trace, of nsys2prv or another tool: which ones fit it, and their rendering."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.errors import OutputError, OutputExists, TraceError, TraceNotReadable
from nsys2prv.execution.output_files import output_errors, publish, staging_folder
from nsys2prv.execution.progress import progress_bar
from nsys2prv.exports.paths import check_kept
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.record_checks import LARGEST_TYPE
from nsys2prv.paraver.trace_files import VIEWS, companion, read_errors
from nsys2prv.paraver.trace_reader import Trace, open_trace, read_summary
from nsys2prv.paraver.views.folder import WORKSPACE, keep_user_files, write_views
from nsys2prv.paraver.views.render import BETWEEN_NO_RANKS, RenderedView, ViewRenderer
from nsys2prv.paraver.views.trace_content import Occurring, TraceContent
from nsys2prv.paraver.views.view_table import GROUPS, read_view_table
from nsys2prv.timeline.records import RowsOfTypes, is_attribute, ranges_from_json, ranges_of_types_from_json, row_ranges
from nsys2prv.vocabulary.limits import check_ordinary


def render_views(
    trace: Path, out: Path | None = None, only: Iterable[str] = (), *, force: bool = False
) -> tuple[Path, list[RenderedView]]:
    """Render the views of a trace into a folder; existing views there are replaced.

    Parameters
    ----------
    trace
        A .prv or .prv.gz, with its .pcf and .row beside it.
    out
        The folder; None: OUT.cfgs beside OUT.prv.
    only
        Views or groups to render; empty: all whose events are in the trace.
    force
        Replace a folder that is not one of views.

    Returns
    -------
    tuple[Path, list[RenderedView]]
        The folder and its views.

    Raises
    ------
    TraceError
        There is no such trace, or it can't be read.
    UsageError
        `only` names no view.
    OutputExists, OutputError
        The folder holds something else, or can't be written; a report or trace in it is never removed.
    """
    read_view_table().select(only)
    with read_errors(trace):
        check_ordinary(trace)
    final = out if out is not None else companion(trace, VIEWS)
    with output_errors(final):
        is_there = final.exists()
        is_foreign = is_there and final.is_dir() and any(final.iterdir()) and not (final / WORKSPACE).is_file()
    if is_there:
        if not final.is_dir():
            raise OutputError.not_writable(final, "there is a file of this name")
        if is_foreign and not force:
            raise OutputExists(final)
        check_kept([final], [trace, *(companion(trace, suffix) for suffix in (".pcf", ".row"))])
    content = content_of(trace)
    with staging_folder(final) as staging:
        rendered = write_views(staging / "views", content, trace, final, only)
        keep_user_files(final, staging / "views")
        publish({staging: {final.name: "views"}})
    return final, rendered


def list_views(trace: Path | None, only: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The table of views as JSON; with a trace, those that fit it. Raises TraceError and UsageError as `render_views`."""
    views = ViewRenderer(content_of(trace)).fitting(only) if trace else read_view_table().select(only)
    return [
        {
            "name": view.path,
            "title": view.general_title,
            "group": GROUPS[view.group],
            "kind": view.kind,
            "needs": [list(need) for need in view.needs],
            "description": view.description,
            "reading": view.reading,
        }
        for view in views
    ]


def view_list_text(views: list[dict[str, Any]]) -> str:
    """The views of `list_views`, one per line, under the titles of their groups."""
    if not views:
        return "no view fits the trace"
    paths = [view["name"].partition("/") for view in views]
    width = max(len(name) for _, _, name in paths)
    lines: list[str] = []
    for view, (folder, _, name) in zip(views, paths, strict=True):
        heading = f"{view['group']} ({folder})"
        if heading not in lines:
            lines += ["", heading] if lines else [heading]
        lines.append(f"  {name:{width}}  {view['kind']:8}  {view['title']}: {view['description']}")
    return "\n".join(lines)


def content_of(trace: Path) -> TraceContent:
    """The content of a trace. The event types that occur, and whether there are messages, are in the OUT.json of its
    translation; without one of this very trace, all records are read. Raises TraceError when it can't be read."""
    opened = open_trace(trace, _skip_malformed)
    occurring = _summarized(opened) or _read(opened)
    # Paraver takes another type for a larger number: no view can show it.
    rows = {number: of_type for number, of_type in occurring.rows.items() if 0 <= number <= LARGEST_TYPE}
    return TraceContent.of(opened, Occurring(rows, occurring.senders))


def _summarized(trace: Trace) -> Occurring | None:
    """What occurs as OUT.json has it; None: it does not have it, or has it of a trace of another size."""
    try:
        summary = read_summary(trace.path) or {}
    except TraceNotReadable:
        raise
    except TraceError:
        # `check` reports it.
        return None
    counts = summary.get("trace", {})
    with read_errors(trace.path):
        is_of_trace = counts.get("bytes") == trace.path.stat().st_size
    if not is_of_trace or not {"rows_of_types", "rows_of_messages"} <= counts.keys():
        return None
    rows = ranges_of_types_from_json(counts["rows_of_types"], trace.header.rows)
    senders = ranges_from_json(counts["rows_of_messages"], trace.header.rows)
    return None if rows is None or senders is None else Occurring(rows, senders)


def _read(trace: Trace) -> Occurring:
    """The same out of all records."""
    rows_of_types, senders = RowsOfTypes(), set[int]()
    with progress_bar("reading", "block") as bar:
        for on_rows, sending in trace.read(_rows_of_block, _skip_malformed):
            bar.update()
            rows_of_types.add(on_rows)
            senders.update(sending)
    return Occurring(rows_of_types.ranges(), row_ranges(sorted(senders)))


def _rows_of_block(block: Block) -> tuple[pl.DataFrame, list[int]]:
    """Rows and types of the events of a block, and rows that send messages to other ranks."""
    rows, types = block.row, block.pair_types
    attributes = types.which(is_attribute)
    on_rows = pl.DataFrame({"row": rows[block.pair_record], "type": types.numbers[types.place]})
    shown = ~attributes[types.place] | (block.pair_value != 0)
    between_ranks = ~np.isin(block.message_columns["tag"], BETWEEN_NO_RANKS)
    senders = np.unique(rows[block.of_messages[between_ranks]])
    return on_rows.filter(shown & (on_rows["row"].to_numpy() >= 0)).unique(), senders[senders >= 0].tolist()


def _skip_malformed(line: int | None, problem: str) -> None:
    """Malformed lines are skipped here: `check` reports them."""
