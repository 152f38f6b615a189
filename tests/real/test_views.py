"""Every view of every real report loads in Paraver; and views of other tools work on these traces."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from support.paramedir import Paramedir, read_tables, read_timeline
from support.view_parser import parse_views
from support.whole_trace import WholeTrace, events_of

from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.views.of_trace import content_of
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary.event_types import Role

from .conftest import Translated

FOREIGN_VIEWS = "NSYS2PRV_FOREIGN_VIEWS"
"""Environment variable: a folder with views of other tools, `nsys2prv-0.5.8/` and `basicanalysis/`."""

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


@pytest.mark.every_report
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


def foreign(folder: str) -> Path:
    root = os.environ.get(FOREIGN_VIEWS)
    if root is None or not (Path(root) / folder).is_dir():
        pytest.skip(f"no folder has {folder}/; with one: make test {FOREIGN_VIEWS}=/path/to/folder")
    return Path(root) / folder


def types_of(path: Path, trace: WholeTrace) -> set[int]:
    """Event types that a view selects, as Paraver resolves them: by label, else by number."""
    by_label = {found.label: number for number, found in trace.labels.types.items()}
    types: set[int] = set()
    for window in path.read_text(encoding="utf-8").split("\nwindow_name ")[1:]:
        numbers = re.search(r"^window_filter_module evt_type \d+ ([\d ]+)$", window, re.MULTILINE)
        labels = re.search(r"^window_filter_module evt_type_label \d+ (.*)$", window, re.MULTILINE)
        if numbers is None:
            continue
        names = re.findall(r'"([^"]*)"', labels[1]) if labels else []
        for place, number in enumerate(numbers[1].split()):
            types.add(by_label.get(names[place], int(number)) if names else int(number))
    return types


@pytest.mark.parametrize("report", ["gpu-metrics-a100", "pytorch-nccl-2gpu", "cuda-graphs", "openacc-mpas"])
def test_views_of_nsys2prv_058_load_if_their_events_occur(
    report: str, translation: Callable[[str], Translated], paramedir: Paramedir
) -> None:
    folder, trace = foreign("nsys2prv-0.5.8"), translation(report).trace
    occurring = set(content_of(trace.path).types)
    types_per_view = {str(path.relative_to(folder).with_suffix("")): types_of(path, trace) for path in folder.rglob("*.cfg")}
    written, messages = paramedir.load(trace.path, folder)

    assert len(types_per_view) == 57
    # Paraver prints a message about missing types, and shows the others.
    assert set(written) == {name for name, types in types_per_view.items() if types & occurring}
    assert set(messages) == {name for name, types in types_per_view.items() if not types <= occurring}
    assert len(written) >= 15


def test_views_of_basicanalysis_work_unchanged(translation: Callable[[str], Translated], paramedir: Paramedir) -> None:
    folder, translated = foreign("basicanalysis"), translation("pytorch-nccl-2gpu")
    shown = paramedir.show(translated.trace.path, folder)
    busy = {
        name: sum(duration for steps in read_timeline(path).values() for _, duration, value in steps if value)
        for name, path in shown.items()
        if path.suffix == ".csv"
    }
    kernels = "select sum(end - start) from CUPTI_ACTIVITY_KIND_KERNEL kernel join StringIds name on name.id = kernel.shortName"
    ((of_kernels,),) = translated.query(f"{kernels} where name.value not like '%nccl%'")
    ((of_nccl,),) = translated.query(f"{kernels} where name.value like '%nccl%'")
    ((of_memory,),) = translated.query(
        """select sum(end - start) from (select start, end from CUPTI_ACTIVITY_KIND_MEMCPY
        union all select start, end from CUPTI_ACTIVITY_KIND_MEMSET)"""
    )

    assert set(shown) == {"cuda_calls_host", "kernels_streams", "memcpy_streams", "nccl_streams"}
    assert busy == pytest.approx({"kernels_streams": of_kernels, "nccl_streams": of_nccl, "memcpy_streams": of_memory})
    (calls,) = read_tables(shown["cuda_calls_host"]).values()
    assert len(calls.rows) == translated.trace.header.rows
    assert sum(calls.column("1")) > 0
