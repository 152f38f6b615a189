"""The Jinja environment of the templates in `cfgs/`."""

import contextlib
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from nsys2prv.paraver.views.trace_content import TypeInTrace, Value
from nsys2prv.vocabulary import __version__
from nsys2prv.vocabulary.event_types import END_LABEL
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
        bytecode_cache=None if sys.dont_write_bytecode else _CompiledTemplates(folder),
    )
    environment.filters.update(
        one_line=lambda text: on_one_line(str(text)),
        number=lambda number: f"{number:.12g}",
        span=_span,
        selected=_selected,
        has_long_names=_has_long_names,
        per_nanosecond=lambda clock: 1e-3 if "MHz" in clock.label else 1e-9,
    )
    return environment


class _CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Keeps compiled templates where Python keeps compiled modules: to compile them takes longer than to render them."""

    def __init__(self, folder: Path) -> None:
        compiled = Path(importlib.util.cache_from_source(str(folder / "views.py"))).parent
        super().__init__(str(compiled), f"%s.{__version__}.{sys.implementation.cache_tag}.jinja")

    def load_bytecode(self, bucket: Bucket) -> None:
        # What is damaged is compiled again.
        with contextlib.suppress(Exception):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        # The folder of an installation may be read-only.
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def _span(types: Sequence[TypeInTrace]) -> tuple[int, int]:
    """Lowest and highest value that has a label, without 0; (0, 1) of plain numbers."""
    values = [value for shown in types for value in shown.values or () if value]
    return (min(values), max(values)) if values else (0, 1)


_LONGEST_OF_COLUMN = 36
"""Characters of a name in the head of a table's column: three such columns fill a window."""


def _has_long_names(named: Sequence[TypeInTrace | Value]) -> bool:
    """Whether the values of event types, or some values, do not fit beside each other as heads of a table's columns: there are
    more than two, and one has a long name."""
    labels = [[entry.label] if isinstance(entry, Value) else (entry.values or {}).values() for entry in named]
    lengths = [len(label) for label in set(itertools.chain(*labels)) if label != END_LABEL]
    return len(lengths) > 2 and max(lengths) > _LONGEST_OF_COLUMN


def _selected(shown: Sequence[bool], own_level: bool) -> str:
    """Rows as Paraver reads them: numbers at the level of the window, words above it."""
    yes, no = ("1", "0") if own_level else ("All", "None")
    return ", ".join(yes if is_shown else no for is_shown in shown)
