"""Views of a trace: templates and table of `cfgs/` and the content of the trace come in, files of views leave.

Paraver's views have no variables: numbers of metrics and kernels, rows and levels are written into each file, for one trace."""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nsys2prv.paraver.views.templates import template_environment
from nsys2prv.paraver.views.trace_content import Devices, Rows, Selection, TraceContent, TypeInTrace, Value
from nsys2prv.paraver.views.view_table import MESSAGES, ROWS, View, ViewTable, cfgs_folder, event_type, read_view_table
from nsys2prv.timeline.labels import LONGEST_LABEL
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.printable import on_one_line

LAUNCHES = (event_types.TAG_KERNEL_LAUNCH, event_types.TAG_MEMORY_LAUNCH)
"""Tags of messages from a call to what it launches."""
BETWEEN_NO_RANKS = (*LAUNCHES, event_types.TAG_CRITICAL_PATH)
"""Tags of lines that are no messages between ranks."""
_TAGS = {
    "kernel_launches": [event_types.TAG_KERNEL_LAUNCH],
    "launches": list(LAUNCHES),
    "between_no_ranks": list(BETWEEN_NO_RANKS),
    "critical_path": [event_types.TAG_CRITICAL_PATH],
}

_MOST_VALUES = 60_000
"""Values in one filter: Paraver counts them in 16 bits."""
_LONGEST_NAME = 60


@dataclass(frozen=True)
class RenderedView:
    """One file: its view in the table, its path inside the folder of views, and its title."""

    view: View
    path: str
    title: str

    @property
    def menu_text(self) -> str:
        """Its entry in a menu."""
        return f"{self.title}: {self.view.description}"


@dataclass(frozen=True)
class _SelectedValues:
    """Event types and values that an alias in [values] stands for."""

    types: list[TypeInTrace]
    values: list[Value]


class _Types:
    """Event types of the trace by their constant: `types.KERNEL` in a template."""

    def __init__(self, content: TraceContent) -> None:
        self._content = content

    def __getattr__(self, constant: str) -> list[TypeInTrace]:
        return self._content.members(event_type(constant))


class ViewRenderer:
    """Renders the views of a table, from templates in a folder, for one trace."""

    def __init__(self, content: TraceContent, table: ViewTable | None = None, templates: Path | None = None) -> None:
        self._content = content
        self._table = table or read_view_table()
        metrics = content.members(event_types.GPU_METRIC)
        self._metrics = {
            alias: [metric for metric in metrics if pattern.match(metric.label[:LONGEST_LABEL])]
            for alias, pattern in self._table.metrics.items()
        }
        self._values = {
            alias: self._matching_values(event_type(constant), pattern)
            for alias, (constant, pattern) in self._table.values.items()
        }
        self._environment = template_environment(templates or cfgs_folder())

    def fitting(self, only: Iterable[str] = ()) -> list[View]:
        """Views whose needs the trace meets, of those that `only` names (views or groups; empty: all)."""
        selected = self._table.select(only)
        return [
            view for view in selected if all(any(self._has(name) for name in need) for need in view.needs) and self._shows(view)
        ]

    def render(self, folder: Path, only: Iterable[str] = ()) -> list[RenderedView]:
        """Write all fitting views into a folder, one folder for each group; UsageError when `only` names no view."""
        written: list[RenderedView] = []
        paths: set[str] = set()
        in_group: Counter[str] = Counter()
        for view in self.fitting(only):
            for member in self._content.members(event_type(view.split_by)) if view.split_by else [None]:
                if not self._shows(view, member):
                    continue
                for devices in self._content.devices if view.devices else [None]:
                    path = _file_name(view, member, devices, paths)
                    title = on_one_line(view.title.replace("{}", member.label if member else ""))
                    if devices is not None and devices.title:
                        title = f"{title} ({devices.title})"
                    text = self.text(view, title, member, devices, in_group[view.group])
                    in_group[view.group] += 1
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
                    written.append(RenderedView(view, path, title))
        return written

    def text(
        self, view: View, title: str, member: TypeInTrace | None = None, devices: Devices | None = None, place: int = 0
    ) -> str:
        """Text of one file, the one at this place of its group."""
        subject = [member] if member else [shown for need in view.needs for name in need for shown in self._types_of(name)]
        rows = {kind: self._selection(view, kind, member) for kind in ROWS}
        shown = None if view.devices else self._selection(view, view.rows, member)
        body = self._environment.get_template(view.template).render(
            title=title,
            subject=subject,
            types=_Types(self._content),
            metrics=self._metrics,
            values=self._values,
            rows=rows,
            shown=shown,
            device=devices,
            states=event_types,
            tags=_TAGS,
        )
        head = self._environment.get_template("macros/head.cfg.j2").render(
            windows=len(re.findall(r"^window_name ", body, re.MULTILINE)), title=title, view=view
        )
        height = self._height(view, member, devices)
        placed = _placed(body.replace(_HEIGHT.format(_LOWEST), _HEIGHT.format(height)), place, height)
        return re.sub(r"\n{3,}", "\n\n", f"{head}\n{_numbered(placed)}".strip("\n")) + "\n"

    def _shows(self, view: View, member: TypeInTrace | None = None) -> bool:
        """Whether there is a row for a view to show."""
        return view.devices or bool(self._rows(view, view.rows, member).any())

    def _selection(self, view: View, kind: str | None, member: TypeInTrace | None) -> Selection | None:
        rows = self._rows(view, kind, member)
        return self._content.selection(rows) if rows.any() else None

    def _rows(self, view: View, kind: str | None, member: TypeInTrace | None) -> Rows:
        """Rows of a kind that have an event of each need of a view."""
        rows = self._content.rows_of_kind(kind)
        for need in view.rows_of or view.needs:
            types = [member] if member and view.split_by in need else [shown for name in need for shown in self._types_of(name)]
            rows = rows & self._content.rows_with(types, messages=MESSAGES in need)
        return rows

    def _height(self, view: View, member: TypeInTrace | None, devices: Devices | None) -> int:
        """Pixels of a timeline in which its rows have room for their names."""
        rows = int(self._rows(view, view.rows, member).sum())
        if devices is not None:
            of_tasks = sum(devices.tasks.tasks) if devices.tasks else len(self._content.header.tasks)
            rows = 1 if devices.level == "appl" else of_tasks
        return min(max(_PER_ROW * rows + _BESIDE_ROWS, _LOWEST), _TALLEST)

    def _has(self, name: str) -> bool:
        return self._content.has_messages if name == MESSAGES else bool(self._types_of(name))

    def _types_of(self, name: str) -> list[TypeInTrace]:
        if name == MESSAGES:
            return []
        if name in self._metrics:
            return self._metrics[name]
        if name in self._values:
            return self._values[name].types
        return self._content.members(event_type(name))

    def _matching_values(self, kind: event_types.EventType, pattern: re.Pattern[str]) -> _SelectedValues:
        """Values of the first member with labels that match: a value may have another label in another member."""
        for member in self._content.members(kind):
            # Labels of other tools may be longer, and patterns take time with the square of their length.
            matching = {
                value: label
                for value, label in (member.values or {}).items()
                if value and pattern.search(label[:LONGEST_LABEL])
            }
            if matching and len(matching) <= _MOST_VALUES:
                return _SelectedValues([member], [self._content.value(*labelled) for labelled in sorted(matching.items())])
        return _SelectedValues([], [])


_HEIGHT = "window_height {}"
_LOWEST, _TALLEST = 300, 800
_PER_ROW, _BESIDE_ROWS = 18, 40
"""Heights of timelines on a screen, in pixels; `_LOWEST` is that of macros/windows.cfg.j2."""

_POSITION = re.compile(r"^(window_position_x|Analyzer2D\.X:) \d+\n(window_position_y|Analyzer2D\.Y:) \d+$", re.MULTILINE)
_COLUMN, _ROW, _STEP, _SCREEN = 940, 330, 30, 1040
"""Distances of views beside and below each other, and of windows of one view; and the height of a screen, pixels."""


def _placed(body: str, place: int, height: int) -> str:
    """A view of this place in its group with its windows where they hide no other: views are beside each other, in two columns
    and three rows; further windows of a view are behind its last one, which is the one that opens.

    >>> _placed("window_position_x 1\\nwindow_position_y 1\\nAnalyzer2D.X: 1\\nAnalyzer2D.Y: 1", 1, 300)
    'window_position_x 990\\nwindow_position_y 50\\nAnalyzer2D.X: 960\\nAnalyzer2D.Y: 20'
    """
    steps = itertools.count(len(_POSITION.findall(body)) - 1 + place // 6, -1)
    x, y = 20 + place % 2 * _COLUMN, 20 + place // 2 % 3 * _ROW

    def position(match: re.Match[str]) -> str:
        step = _STEP * next(steps)
        return f"{match[1]} {x + step}\n{match[2]} {max(min(y + step, _SCREEN - height), 0)}"

    return _POSITION.sub(position, body)


_IDS = re.compile(
    r"^(?P<key>window_id|window_identifiers|Analyzer2D\.(?:Control|Data|3D_Control)Window:)(?P<ids>(?: \S+)+)$", re.MULTILINE
)


def _numbered(body: str) -> str:
    """A view with its windows numbered 1, 2, ... in their order: Paraver finds windows by this order, whatever their ids are.

    >>> _numbered("window_id a\\nwindow_id 1\\nwindow_identifiers a 1\\nAnalyzer2D.ControlWindow: 1")
    'window_id 1\\nwindow_id 2\\nwindow_identifiers 1 2\\nAnalyzer2D.ControlWindow: 2'
    """
    numbers = {name: number for number, name in enumerate(re.findall(r"^window_id (\S+)$", body, re.MULTILINE), start=1)}
    return _IDS.sub(lambda line: " ".join([line["key"], *(str(numbers.get(name, name)) for name in line["ids"].split())]), body)


def _file_name(view: View, member: TypeInTrace | None, devices: Devices | None, paths: set[str]) -> str:
    parts = [view.name]
    if member is not None:
        member_slug = slug(_member_name(event_type(view.split_by or ""), member))
        parts += [f"-{member_slug}"] if member_slug else []
    if devices is not None and devices.name:
        parts.append(f"_{slug(devices.name)}")
    path = f"{view.group}/{''.join(parts)}.cfg"
    if path in paths and member is not None:
        path = f"{view.group}/{''.join(parts)}-{member.number}.cfg"
    paths.add(path)
    return path


def _member_name(kind: event_types.EventType, member: TypeInTrace) -> str:
    """The part of a label that is specific to a member of a series, or to a lane of a type.

    >>> _member_name(event_types.NVTX_PUSHPOP, TypeInTrace(9600, "NVTX pushpop ranges default domain", {}, ""))
    'default'
    >>> _member_name(event_types.NVTX_RANGE, TypeInTrace(90040001, "NVTX startend ranges (overlap 1)", {}, ""))
    'overlap 1'
    """
    before, _, after = kind.label.partition("{}")
    if not member.label.startswith(before):
        return member.label
    specific = re.fullmatch(rf"(.*?){re.escape(after)}(?: \((overlap \d+)\))?", member.label[len(before) :], re.DOTALL)
    return " ".join(filter(None, specific.groups())) if specific else member.label


def slug(text: str) -> str:
    """A text as part of the name of a file.

    >>> slug("SM Active (Throughput %)"), slug("Schrödinger/../x"), slug("日本")
    ('sm_active_throughput', 'schrodinger_x', '')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")[:_LONGEST_NAME].rstrip("_")
