"""Every view of every real report loads in Paraver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from support.paramedir import read_tables, read_timeline
from support.view_parser import parse_views
from support.whole_trace import WholeTrace, events_of

from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.views.of_trace import content_of
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary.event_types import Role

from .conftest import Translated

ROWS: dict[str, Callable[[WholeTrace], int]] = {
    "thread": lambda trace: trace.header.rows,
    "task": lambda trace: len(trace.header.tasks),
    "appl": lambda trace: 1,
}


def views_of(trace: WholeTrace) -> Path:
    return trace.path.with_suffix(".cfgs")


@pytest.mark.every_report
def test_every_view_is_well_made_and_binds_only_to_what_the_trace_has(translated: Translated) -> None:
    trace = translated.trace
    occurring = content_of(trace.path).types
    views = parse_views(views_of(trace))

    assert views
    for cfg in views.values():
        for window in cfg.windows:
            assert {int(number) for number in window.filters.get("evt_type", ())} <= set(occurring)


def test_rows_of_types_are_those_that_have_them(translated: Translated) -> None:
    trace = translated.trace
    occurring = content_of(trace.path).occurring
    first_rows = [task.first_row for task in trace.header.tasks]
    rows: dict[int, set[int]] = {}
    for number, task, thread in pl.concat(trace.read(shown_rows)).unique().iter_rows():
        rows.setdefault(number, set()).add(first_rows[task - 1] + thread - 1)

    assert occurring is not None
    assert {
        number: {row for first, last in ranges for row in range(first, last + 1)} for number, ranges in occurring.rows.items()
    } == rows


def shown_rows(block: Block) -> pl.DataFrame:
    """Types of the events of a block, but for ends of attributes, with their tasks and threads."""
    events = events_of(block)
    others = [number for number in events["type"].unique() if is_no_attribute(number)]
    shown = events.filter((pl.col("value") != 0) | pl.col("type").is_in(others))
    return shown.select("type", "task", "thread").unique()


def is_no_attribute(number: int) -> bool:
    kind = type_of(number)
    return kind is None or kind.role is not Role.ATTRIBUTE


def test_every_view_loads_in_paraver_is_of_its_kind_and_shows_all_rows(
    name: str, translated: Translated, shown_views: Callable[[str], dict[str, Path]]
) -> None:
    trace = translated.trace
    views = parse_views(views_of(trace))
    assert "0-start-here/states.cfg" in views
    for view, output in shown_views(name).items():
        cfg = views[f"{view}.cfg"]
        window = cfg.windows[-1] if cfg.kind == "timeline" else cfg.windows[int(cfg.histogram["Analyzer2D.ControlWindow:"]) - 1]
        rows = ROWS[window.level](trace)
        chosen = [shown for (level, _), shown in window.rows.items() if level == window.level != "appl"]
        rows -= sum(shown.count(False) for shown in chosen)
        if cfg.kind == "timeline":
            shown = len(read_timeline(output))
            # paramedir prints all threads of a timeline, also those that it does not show.
            assert (shown == rows) if not chosen else (shown >= rows), view
        else:
            tables = read_tables(output)
            assert cfg.kind == "tables" or len(tables) <= 1, view
            for table in tables.values():
                assert len(table.rows) == rows, view
