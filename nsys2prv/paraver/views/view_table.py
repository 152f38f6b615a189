"""The table of views, `cfgs/views.ini`: every view with what it needs and the question that it answers."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import nsys2prv
from nsys2prv.sources.registry import CONSTANTS
from nsys2prv.vocabulary.event_types import EventType

KINDS = ("timeline", "table", "tables")
"""What a view shows: rows over time; a table; a table for each value of a third window."""
GROUPS = ("basics", "views", "analysis", "hwcounters")

MESSAGES = "messages"
"""A need that is no event type: messages between ranks."""

_METRICS, _VALUES = "metrics", "values"
ROWS = ("streams", "hosts", "metrics")
"""Rows that a view may show of those that a trace has: properties of `trace_content.TraceContent`."""

_KEYS = {"title", "needs", "each", "rows", "devices", "kind", "template", "question", "reading"}


@dataclass(frozen=True)
class View:
    """One line of the table.

    Attributes
    ----------
    group, name
        Folder and file without suffix.
    title
        Name of the window in Paraver; `{}` stands for the member where there is a file for each.
    needs
        What must be in the trace: all of these, and of each any one.
    each
        The need whose members have a file each; None: one file.
    rows
        Which rows of the trace it shows, one of ROWS; None: all, or what its template says.
    devices
        Whether its rows are GPUs.
    kind
        One of KINDS.
    template
        Path of the template inside `cfgs/`.
    question, reading
        The question that it answers, and how to read it (may be empty).
    """

    group: str
    name: str
    title: str
    needs: tuple[tuple[str, ...], ...]
    each: str | None
    rows: str | None
    devices: bool
    kind: str
    template: str
    question: str
    reading: str

    @property
    def path(self) -> str:
        """`group/name`, what --only takes."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True)
class ViewTable:
    """All views, and what the small names in their needs stand for.

    Attributes
    ----------
    views
        In the order of the table.
    metrics
        What the names of GPU metrics begin with, by small name.
    values
        Event type (its constant) and pattern of value labels, by small name.
    """

    views: tuple[View, ...]
    metrics: Mapping[str, re.Pattern[str]]
    values: Mapping[str, tuple[str, re.Pattern[str]]]


def cfgs_folder() -> Path:
    """Where templates and table are: beside the code in a checkout, inside the package in a wheel."""
    package = Path(nsys2prv.__file__).resolve().parent
    return next(folder for folder in (package / "cfgs", package.parent / "cfgs") if (folder / "views.ini").is_file())


def event_type(constant: str) -> EventType:
    """The event type with a constant; ValueError when there is none."""
    if constant not in CONSTANTS:
        raise ValueError(f"{constant} is no event type of nsys2prv")
    return CONSTANTS[constant]


@lru_cache
def read_view_table(path: Path | None = None) -> ViewTable:
    """Read `views.ini`.

    Raises
    ------
    ValueError
        The table does not make sense; the sentence names section and key.
    """
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((path or cfgs_folder() / "views.ini").read_text(encoding="utf-8"))
    metrics = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in parser[_METRICS].items()}
    values = {}
    for name, text in parser[_VALUES].items():
        constant, _, pattern = text.partition(" ")
        event_type(constant)
        values[name] = (constant, re.compile(pattern, re.IGNORECASE))
    views = tuple(_view(parser[section]) for section in parser.sections() if section not in (_METRICS, _VALUES))
    for view in views:
        for name in [one for need in view.needs for one in need]:
            if name != MESSAGES and name not in metrics and name not in values:
                event_type(name)
    return ViewTable(views, metrics, values)


def _view(section: configparser.SectionProxy) -> View:
    group, _, name = section.name.partition("/")
    unknown = set(section) - _KEYS
    kind = section.get("kind", "timeline")
    if group not in GROUPS or not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(f"[{section.name}]: a view is called group/name, and the groups are {', '.join(GROUPS)}")
    if unknown or kind not in KINDS or not section.get("title") or not section.get("question"):
        raise ValueError(f"[{section.name}]: it needs a title and a question, a kind of {', '.join(KINDS)}, and no other keys")
    needs = tuple(tuple(need.split("|")) for need in section.get("needs", "").split())
    each = section.get("each")
    if each is not None and (each,) not in needs:
        raise ValueError(f"[{section.name}]: {each} is to have a file for each member, and is not among the needs")
    rows = section.get("rows")
    if rows is not None and rows not in ROWS:
        raise ValueError(f"[{section.name}]: there are no rows {rows}, only {', '.join(ROWS)}")
    return View(
        group,
        name,
        section["title"],
        needs,
        each,
        rows,
        section.getboolean("devices", False),
        kind,
        f"{section.get('template', section.name)}.cfg.j2",
        section["question"],
        section.get("reading", ""),
    )
