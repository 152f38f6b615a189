"""Views of an existing trace, of nsys2prv or another tool: which ones fit it, and their rendering."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from nsys2prv.errors import OutputError, OutputExists, TraceError
from nsys2prv.execution.output_files import VIEWS, output_errors, staging_folder, without_suffix
from nsys2prv.execution.progress import progress_bar
from nsys2prv.execution.publishing import Staged, publish
from nsys2prv.exports.kept_files import check_kept
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.record_checks import LARGEST_TYPE
from nsys2prv.paraver.summary_file import read_summary
from nsys2prv.paraver.trace_files import companion, read_errors
from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.paraver.views.own_files import keep_own_files
from nsys2prv.paraver.views.render import BETWEEN_NO_RANKS, WORKSPACE, ViewRenderer, write_views
from nsys2prv.paraver.views.rendered import RenderedView
from nsys2prv.paraver.views.trace_content import TraceContent
from nsys2prv.paraver.views.view_table import GROUPS, read_view_table
from nsys2prv.vocabulary.input_files import check_ordinary


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
    base = without_suffix(trace)
    final = out if out is not None else base.with_name(base.name + VIEWS)
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
        keep_own_files(final, staging / "views")
        publish(Staged(staging, {final.name: "views"}))
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
    translation; without one of this very trace, all records are read. Raises TraceError when it can't be read.
    """
    opened = open_trace(trace, _skip_malformed)
    used, has_messages = _summarized(trace) or _read(opened)
    # Paraver takes another type for a larger number: no view can show it.
    return TraceContent.of(opened, {number for number in used if 0 <= number <= LARGEST_TYPE}, has_messages=has_messages)


def _summarized(trace: Path) -> tuple[set[int], bool] | None:
    """Event types that occur and whether there are messages between ranks, as OUT.json has it; None: it does not have it, or
    has it of a trace of another size."""
    try:
        summary = read_summary(trace) or {}
    except TraceError:
        # `check` reports it.
        return None
    said, messages = summary.get("trace", {}), summary.get("messages", {})
    with read_errors(trace):
        is_of_trace = said.get("bytes") == trace.stat().st_size
    return (set(said["types"]), messages["written"] > 0) if is_of_trace and "types" in said and "written" in messages else None


def _read(trace: Trace) -> tuple[set[int], bool]:
    """The same out of all records."""
    used: set[int] = set()
    has_messages = False
    with progress_bar("reading", "block") as bar:
        for types, with_messages in trace.read(_types_and_messages, _skip_malformed):
            bar.update()
            used.update(types)
            has_messages = has_messages or with_messages
    return used, has_messages


def _types_and_messages(block: Block) -> tuple[list[int], bool]:
    """Event types that occur, and whether there are messages between ranks."""
    return block.pair_types.numbers.tolist(), not np.isin(block.message_column("tag"), BETWEEN_NO_RANKS).all()


def _skip_malformed(line: int | None, problem: str) -> None:
    """Malformed lines are skipped here: `check` reports them."""
