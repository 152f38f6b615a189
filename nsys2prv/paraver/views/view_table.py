"""The table of views, `cfgs/views.ini`: each view with what it needs and what it shows."""

import configparser
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nsys2prv.errors import UsageError
from nsys2prv.sources.registry import CONSTANTS
from nsys2prv.vocabulary.event_types import EventType
from nsys2prv.vocabulary.wording import listed, nearest, short

KINDS = ("timeline", "table", "tables")
"""What a view is: rows over time; a table; a table for each value of a third window."""
GROUPS: Mapping[str, str] = {
    "0-start-here": "Start here",
    "1-gpu-kernels": "GPU kernels",
    "2-gpu-metrics": "GPU metrics",
    "3-communication": "Communication",
    "4-mpi": "MPI",
    "5-host-and-cuda-api": "Host and CUDA API",
    "6-nvtx": "NVTX",
    "7-memory": "Memory",
    "8-io-and-os": "I/O and OS",
    "9-raw-attributes": "Raw attributes",
}
"""Groups of views: folder and title. File dialogs sort by name, so the folders begin with their place."""
ROWS = ("streams", "hosts", "hosts_and_streams", "metrics")
"""Kinds of rows that a view can be restricted to: those of `TraceContent.rows_of_kind`."""
MESSAGES = "messages"
"""A need that is not an event type: messages between ranks."""

_METRICS, _VALUES, _SERIES = _NO_VIEWS = "metrics", "values", "series"


@dataclass(frozen=True)
class View:
    """One section of the table.

    Attributes
    ----------
    group, name
        Folder, one of GROUPS, and file without suffix. No two views have the same name.
    title
        Name of the window in Paraver; `{}` stands for the member where there is a file for each.
    general_title
        The same without a member: what lists of views show.
    needs
        What must be in the trace: of each tuple at least one.
    split_by
        The need whose members have a file each; None: one file.
    rows
        The kind of rows that it shows, one of ROWS; None: all kinds. Of these, it shows those that have an event of each need.
    rows_of
        What its rows have instead of its needs, in the same form; empty: its needs. What the trace does not have is no matter.
    devices
        Whether its rows are GPUs.
    kind
        One of KINDS.
    template
        Path of the template inside `cfgs/`.
    description, reading
        What it shows, and how to read it (may be empty).
    """

    group: str
    name: str
    title: str
    general_title: str
    needs: tuple[tuple[str, ...], ...]
    split_by: str | None
    rows: str | None
    rows_of: tuple[tuple[str, ...], ...]
    devices: bool
    kind: str
    template: str
    description: str
    reading: str

    @property
    def path(self) -> str:
        """`group/name`."""
        return f"{self.group}/{self.name}"

    @property
    def selected_by(self) -> set[str]:
        """What `--only` may give for it: its group with or without the number, its path, its name."""
        return {self.group, self.group.partition("-")[2], self.path, self.name}

    @property
    def text(self) -> str:
        """What it shows and how to read it."""
        return f"{self.description} {self.reading}".strip()


@dataclass(frozen=True)
class ViewTable:
    """All views in the order of the table, and the aliases that their needs may name.

    `metrics` has patterns of the start of the names of GPU metrics, `values` has event types (constants) with patterns of the
    labels of their values."""

    views: tuple[View, ...]
    metrics: Mapping[str, re.Pattern[str]]
    values: Mapping[str, tuple[str, re.Pattern[str]]]

    def select(self, names: Iterable[str]) -> list[View]:
        """Views by name (see `View.selected_by`), all without names; UsageError when a name is neither a view nor a group."""
        names = list(names)
        for name in names:
            if not any(name in view.selected_by for view in self.views):
                near = listed(nearest(name, (text for view in self.views for text in sorted(view.selected_by))), "or")
                raise UsageError(
                    f"--only {short(name)}: there is no such view or group of views; "
                    f"{f'did you mean {near}? (' if near else ''}`nsys2prv views --list` lists them{')' if near else ''}"
                )
        return [view for view in self.views if not names or view.selected_by & set(names)]


def cfgs_folder() -> Path:
    """The folder of templates and table: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[2]
    return next(folder for folder in (package / "cfgs", package.parent / "cfgs") if (folder / "views.ini").is_file())


def event_type(constant: str) -> EventType:
    """The event type with a constant; ValueError when there is none."""
    if constant not in CONSTANTS:
        raise ValueError(f"{constant} is not an event type of nsys2prv")
    return CONSTANTS[constant]


@lru_cache
def read_view_table() -> ViewTable:
    """Read `views.ini`."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((cfgs_folder() / "views.ini").read_text(encoding="utf-8"))
    metrics = {alias: re.compile(pattern, re.IGNORECASE) for alias, pattern in parser[_METRICS].items()}
    values = {}
    for alias, text in parser[_VALUES].items():
        constant, _, pattern = text.partition(" ")
        values[alias] = (constant, re.compile(pattern, re.IGNORECASE))
    # As dictionaries: a section of the parser looks for each key in several places.
    sections = {path: dict(parser.items(path)) for path in parser.sections()}
    series = sections[_SERIES]
    return ViewTable(
        tuple(_view(path, section, series) for path, section in sections.items() if path not in _NO_VIEWS), metrics, values
    )


def _view(path: str, section: Mapping[str, str], series: Mapping[str, str]) -> View:
    group, _, name = path.partition("/")
    title, split_by = section["title"], section.get("each")
    general_title = title.replace("{}", series.get(split_by or "", ""))
    needs, rows_of = (tuple(tuple(need.split("|")) for need in section.get(key, "").split()) for key in ("needs", "rows_of"))
    return View(
        group,
        name,
        title,
        general_title[:1].upper() + general_title[1:],
        needs,
        split_by,
        section.get("rows"),
        rows_of,
        "devices" in section,
        section.get("kind", "timeline"),
        f"templates/{section.get('template', name)}.cfg.j2",
        section["description"],
        section.get("reading", ""),
    )
