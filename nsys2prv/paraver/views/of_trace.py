"""Views of a trace that is there: which ones fit it, and their rendering. The trace may be of another tool."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nsys2prv.errors import OutputError, OutputExists
from nsys2prv.execution.output_files import VIEWS, publish_folder, staging_folder, without_suffix
from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.paraver.views.render import LAUNCHES, WORKSPACE, Rendered, ViewRenderer, choose, write_views
from nsys2prv.paraver.views.trace_content import TraceContent
from nsys2prv.paraver.views.view_table import View, read_view_table


def render_views(
    trace: Path, out: Path | None = None, only: Iterable[str] = (), *, force: bool = False
) -> tuple[Path, list[Rendered]]:
    """Render the views of a trace into a folder, in the place of views that were there.

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

    Raises
    ------
    TraceError
        There is no such trace, or it can't be read.
    UsageError
        `only` names no view.
    OutputExists, OutputError
        The folder holds something else, or can't be written.
    """
    choose(read_view_table(), only)
    base = without_suffix(trace)
    final = out if out is not None else base.with_name(base.name + VIEWS)
    if final.exists():
        if not final.is_dir():
            raise OutputError.not_writable(final, "there is a file of this name")
        if any(final.iterdir()) and not (final / WORKSPACE).is_file() and not force:
            raise OutputExists(final)
    content = content_of(trace)
    with staging_folder(final) as staging:
        rendered = write_views(staging / "views", content, trace, final, only)
        publish_folder(staging / "views", final)
    return final, rendered


def listed(trace: Path | None, only: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The table of views as JSON; with a trace, those that fit it.

    Raises
    ------
    TraceError, UsageError
        As `render_views`.
    """
    views: list[View] = ViewRenderer(content_of(trace)).fitting(only) if trace else choose(read_view_table(), only)
    return [
        {
            "name": view.path,
            "title": view.title.replace("{}", "*"),
            "kind": view.kind,
            "needs": [list(need) for need in view.needs],
            "question": view.question,
            "reading": view.reading,
        }
        for view in views
    ]


def as_text(found: list[dict[str, Any]]) -> str:
    """The table of views, a line each."""
    if not found:
        return "no view fits"
    width = max(len(one["name"]) for one in found)
    return "\n".join(f"{one['name']:{width}}  {one['kind']:8}  {one['question']}" for one in found)


def content_of(trace: Path) -> TraceContent:
    """What views must know of a trace; reads all of its records, for the event types that occur and for messages.

    Raises
    ------
    TraceError
        There is no such trace, or it can't be read.
    """
    found = open_trace(trace, _lenient)
    used: set[int] = set()
    has_messages = False
    with _reading(found) as blocks:
        for block in blocks:
            used.update(block.events["type"].unique().to_list())
            has_messages = has_messages or not block.messages["tag"].is_in(LAUNCHES).all()
    return TraceContent.of(found, used, has_messages=has_messages)


def _lenient(line: int | None, why: str) -> None:
    """Lines that are malformed are left out: whether a trace is well made is for `check`."""


@contextlib.contextmanager
def _reading(trace: Trace) -> Iterator[Any]:
    with tqdm(
        trace.blocks(_lenient), desc="reading", unit="block", disable=None, file=sys.stderr, leave=False, delay=0.5
    ) as bar:
        yield bar
