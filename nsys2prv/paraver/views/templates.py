"""The Jinja environment of the templates in `cfgs/`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import jinja2

from nsys2prv.paraver.views.trace_content import TypeInTrace
from nsys2prv.vocabulary.printable import on_one_line


@lru_cache
def template_environment(folder: Path) -> jinja2.Environment:
    """Templates of a folder, each compiled once."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=jinja2.select_autoescape(("html.j2",)),
        cache_size=-1,
    )
    environment.filters.update(
        one_line=lambda text: on_one_line(str(text)),
        number=lambda number: f"{number:.12g}",
        span=_span,
        selected=_selected,
        per_nanosecond=lambda clock: 1e-3 if "MHz" in clock.label else 1e-9,
    )
    return environment


def _span(types: Sequence[TypeInTrace]) -> tuple[int, int]:
    """Lowest and highest value that has a label, without 0; (0, 1) of plain numbers."""
    values = [value for one in types for value in one.values or () if value]
    return (min(values), max(values)) if values else (0, 1)


def _selected(shown: Sequence[bool], own_level: bool) -> str:
    """Rows as Paraver reads them: numbers at the level of the window, words above it."""
    yes, no = ("1", "0") if own_level else ("All", "None")
    return ", ".join(yes if one else no for one in shown)
