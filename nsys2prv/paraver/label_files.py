"""Labels of a trace, .pcf, and names of its rows, .row: writers and strict readers."""

import colorsys
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nsys2prv.errors import TraceError
from nsys2prv.paraver.trace_files import MOST_DIGITS, OnMalformed, companion, is_there, raising, shown, text_lines
from nsys2prv.sources.registry import renumbered
from nsys2prv.timeline.labels import EarlierLabels, UsedType, readable
from nsys2prv.timeline.rows import Rows
from nsys2prv.vocabulary import event_types

_HEAD = """DEFAULT_OPTIONS

LEVEL               THREAD
UNITS               NANOSEC
LOOK_BACK           100
SPEED               1
FLAG_ICONS          ENABLED
NUM_OF_STATE_COLORS {colours}
YMAX_SCALE          37


DEFAULT_SEMANTIC

THREAD_FUNC         State As Is
"""

# BSC's basicanalysis takes a trace for one of Extrae where a line is STATES alone; Paraver skips the blanks before it. `check`
# knows by it that nsys2prv wrote a trace.
_STATES_LINE = "  STATES"
# It knows a trace of nsys2prv by these labels, which not every trace of GPUs has; Paraver skips comments.
_RECOGNISED_BY = {"CUDA memcpy kernel", "NCCL kernel"}
_OF_GPUS = {event_types.KERNEL, event_types.GRAPH_EXECUTION}

# Hues (0..1) of values that a timeline of CUDA shows together: kernels blue to violet, NCCL orange, calls green, graphs cyan.
# Values of memory operations (event_types.COPY_KINDS) are numbers of states, and have the red and yellow of these.
_HUES: dict[int, tuple[float, float]] = {
    event_types.CUDA_CALL: (0.25, 0.42),
    event_types.KERNEL: (0.55, 0.80),
    event_types.NCCL_KERNEL: (0.04, 0.12),
    event_types.GRAPH_EXECUTION: (0.46, 0.52),
}
# Hues of kernel families by what they do; the first pattern that matches counts.
_FAMILY_HUES = (
    (r"^(NCCL|NVSHMEM|Custom All|Custom Reduce|Expert parallel|Userbuffers)", (0.04, 0.12)),
    (r"GEM[MV]|Split-K", (0.57, 0.66)),
    (r"[Aa]ttention|Rotary", (0.72, 0.82)),
    (r"^Convolution", (0.49, 0.54)),
    (r"norm|^Softmax|^Loss", (0.86, 0.95)),
    (r"^(Copy|Fill|Cast|Concatenation|Gather|Transpose|Select|Embedding|MoE)", (0.13, 0.17)),
    (r"^(Element-wise|Reduction|Scan|Dropout|Random|Fused)", (0.27, 0.40)),
    (r"^Optimizer", (0.0, 0.01)),
)
_OTHER_FAMILIES = (0.42, 0.50)
_MOST_COLOURS = 10_000
"""Paraver draws names for at most as many values."""
_GOLDEN_RATIO = 0.618033988749895


def write_pcf(path: Path, used: Sequence[UsedType]) -> None:
    """Write the labels of all event types in use, in the order of their numbers, and of all states; numbers that Paraver
    can't label are left out."""
    colours = _colours(used)
    lines = [_HEAD.format(colours=max(colours) + 1)]
    if _OF_GPUS & {used_type.number for used_type in used} and not _RECOGNISED_BY & {used_type.label for used_type in used}:
        lines += ["", f"# There is no {' and no '.join(sorted(_RECOGNISED_BY))}."]
    lines += ["", _STATES_LINE, *(f"{state.number:<4} {state.label}" for state in event_types.STATES)]
    lines += ["", "", "STATES_COLOR", *(f"{number:<4} {{{r},{g},{b}}}" for number, (r, g, b) in sorted(colours.items()))]
    for used_type in used:
        if used_type.number > event_types.LARGEST_LABELLED_NUMBER:
            continue
        lines += ["", "", "EVENT_TYPE", f"{used_type.event_type.gradient}    {used_type.number}    {used_type.label}"]
        if used_type.event_type.precision:
            lines.append(f"PRECISION {used_type.event_type.precision}")
        if used_type.values is not None:
            lines += ["VALUES", *(f"{value:<6} {label}" for value, label in sorted(used_type.values.items()))]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")


def _colours(used: Sequence[UsedType]) -> dict[int, tuple[int, int, int]]:
    """Colour of each number: Paraver has a single palette for states and values of events."""
    colours = {state.number: state.colour for state in event_types.STATES}
    for used_type in used:
        if (used_type.number not in _HUES and used_type.number != event_types.KERNEL_FAMILY) or used_type.values is None:
            continue
        named = [(value, label) for value, label in used_type.values.items() if value < _MOST_COLOURS]
        for place, (value, label) in enumerate(named):
            of_family = (hues for pattern, hues in _FAMILY_HUES if re.search(pattern, label))
            first, last = _HUES.get(used_type.number) or next(of_family, _OTHER_FAMILIES)
            # Values that follow each other in the list get hues and shades far apart.
            hue = first + (last - first) * (place * _GOLDEN_RATIO % 1)
            shade = 0.95 - 0.4 * (place * _GOLDEN_RATIO * _GOLDEN_RATIO % 1)
            red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, shade)
            colours.setdefault(value, (round(red * 255), round(green * 255), round(blue * 255)))
    return colours


@dataclass(frozen=True)
class TypeLabel:
    """An event type in a .pcf: its label, and the gradient number before its own.

    `values` are labels by value (None: plain numbers), which Paraver divides by ten to the power of `precision`."""

    label: str
    gradient: int
    values: Mapping[int, str] | None
    precision: int = 0


@dataclass(frozen=True)
class PcfLabels:
    """Content of a .pcf: label of each state, each event type, the colour (red, green, blue) of each value, and whether
    nsys2prv wrote it."""

    states: Mapping[int, str] = field(default_factory=dict)
    types: Mapping[int, TypeLabel] = field(default_factory=dict)
    colours: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    is_own: bool = False


def read_pcf(path: Path, on_malformed: OnMalformed | None = None) -> PcfLabels:
    """Labels of a .pcf.

    `on_malformed` is called for each malformed line, which is then skipped; without it the first one raises a TraceError. So
    does a file that can't be read."""
    on_malformed = on_malformed or raising(path)
    reader = _PcfReader(on_malformed)
    is_own = False
    for line, padded in text_lines(path, on_malformed):
        is_own = is_own or padded == _STATES_LINE
        text = padded.strip(" \t")
        if text and not text.startswith("#"):
            reader.read(line, text)
    return PcfLabels(reader.states, reader.types, reader.colours, is_own)


_SECTIONS = ("DEFAULT_OPTIONS", "DEFAULT_SEMANTIC", "STATES", "STATES_COLOR", "EVENT_TYPE", "GRADIENT_COLOR", "GRADIENT_NAMES")
_VALUES = "VALUES"
_NUMBER = rf"[0-9]{{1,{MOST_DIGITS}}}"
_PRECISION = re.compile(r"PRECISION\s+([0-9]{1,2})")
_COLOUR = rf"\{{\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\}}"
_LABEL = r"(?:\s+(?P<label>.*))?"
_FORMS = {
    "DEFAULT_OPTIONS": re.compile(r"[A-Z_]+\s+\S.*"),
    "DEFAULT_SEMANTIC": re.compile(r"[A-Z_]+\s+\S.*"),
    "STATES": re.compile(rf"(?P<number>{_NUMBER}){_LABEL}"),
    "STATES_COLOR": re.compile(rf"(?P<value>{_NUMBER})\s+{_COLOUR}"),
    "EVENT_TYPE": re.compile(rf"(?P<gradient>{_NUMBER})\s+(?P<number>{_NUMBER}){_LABEL}"),
    _VALUES: re.compile(rf"(?P<number>-?{_NUMBER}){_LABEL}"),
    "GRADIENT_COLOR": re.compile(rf"{_NUMBER}\s+{_COLOUR}"),
    "GRADIENT_NAMES": re.compile(rf"{_NUMBER}\s+\S.*"),
}


class _PcfReader:
    """Reads the lines of a .pcf one after the other."""

    def __init__(self, on_malformed: OnMalformed) -> None:
        self.states: dict[int, str] = {}
        self.types: dict[int, TypeLabel] = {}
        self.colours: dict[int, tuple[int, int, int]] = {}
        self._on_malformed = on_malformed
        self._section: str | None = None
        # The types of an EVENT_TYPE section share the values below them.
        self._group: list[int] = []
        self._values: dict[int, str] = {}

    def read(self, line: int, text: str) -> None:
        if text in _SECTIONS:
            self._section, self._group = text, []
        elif self._section is None:
            self._on_malformed(line, f"{shown(text)} comes before the first section")
        elif text == _VALUES and self._section == "EVENT_TYPE":
            if not self._group:
                self._on_malformed(line, "VALUES follows no event type")
            self._section, self._values = _VALUES, {}
            self.types.update({number: replace(self.types[number], values=self._values) for number in self._group})
        elif (precision := _PRECISION.fullmatch(text)) and self._group:
            last = self._group[-1]
            self.types[last] = replace(self.types[last], precision=int(precision[1]))
        elif (form := _FORMS[self._section].fullmatch(text)) is None:
            self._on_malformed(line, f"{shown(text)} is not a line of section {self._section}")
        elif "value" in form.re.groupindex:
            red, green, blue = (min(int(part), 255) for part in form.groups()[1:])
            self.colours[int(form["value"])] = (red, green, blue)
        elif "label" in form.re.groupindex:
            self._add_label(line, self._section, form)

    def _add_label(self, line: int, section: str, form: re.Match[str]) -> None:
        number, label = int(form["number"]), form["label"] or ""
        kind, labelled = {
            "STATES": ("state", self.states.keys()),
            "EVENT_TYPE": ("event type", self.types.keys()),
            _VALUES: ("value", self._values.keys()),
        }[section]
        if not label:
            self._on_malformed(line, f"the label of {kind} {number} is empty")
        elif number in labelled:
            self._on_malformed(line, f"{kind} {number} has two labels")
        elif abs(number) > event_types.LARGEST_LABELLED_NUMBER:
            self._on_malformed(line, f"{kind} {number} is above {event_types.LARGEST_LABELLED_NUMBER}: Paraver loses its label")
        elif section == "STATES":
            self.states[number] = label
        elif section == "EVENT_TYPE":
            self.types[number] = TypeLabel(label, int(form["gradient"]), None)
            self._group.append(number)
        else:
            self._values[number] = label


def read_earlier_labels(path: Path) -> EarlierLabels:
    """Numbers of an earlier trace, from its .pcf, which is beside its .prv; TraceError when there is none to read."""
    path = companion(path, ".pcf") if path.name.endswith((".prv", ".prv.gz")) else path
    if not is_there(path):
        raise TraceError(path, "there is no such file to take labels from")
    types = read_pcf(path).types
    moved = renumbered({number: label.label for number, label in types.items()})
    types = {moved.get(number, number): label for number, label in types.items()}
    return EarlierLabels(
        {label.label: number for number, label in types.items()},
        {number: {text: value for value, text in label.values.items()} for number, label in types.items() if label.values},
    )


_LEVEL = re.compile(rf"LEVEL (WORKLOAD|APPL|TASK|THREAD|SYSTEM|NODE|CPU) SIZE ([0-9]{{1,{MOST_DIGITS}}})")


def write_row(path: Path, rows: Rows, title: str) -> None:
    """Write the names of all rows of a trace; `title` is that of the workload."""
    cpus = [f"CPU {cpu + 1}.{node.name}" for node in rows.nodes for cpu in range(node.cpus)]
    levels = {
        "WORKLOAD": [title],
        "APPL": [title],
        "TASK": [task.name for task in rows.tasks],
        "THREAD": [thread.name for task in rows.tasks for thread in task.threads],
        "SYSTEM": [title],
        "NODE": [node.name for node in rows.nodes],
        "CPU": cpus,
    }
    blocks = ["\n".join([f"LEVEL {level} SIZE {len(names)}", *map(readable, names)]) for level, names in levels.items()]
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8", newline="\n")


def read_row(path: Path, on_malformed: OnMalformed | None = None) -> dict[str, tuple[str, ...]]:
    """Names of a .row: level -> names in order.

    `on_malformed` is called for each malformed line, which is then skipped; without it the first one raises a TraceError. So
    does a file that can't be read."""
    on_malformed = on_malformed or raising(path)
    names: dict[str, tuple[str, ...]] = {}
    lines = text_lines(path, on_malformed)
    for line, text in lines:
        if not text or text.startswith("#"):
            continue
        form = _LEVEL.fullmatch(text)
        if form is None:
            on_malformed(
                line, f"{shown(text)} is not `LEVEL <level> SIZE <number>`, or one name too many of the level before it"
            )
            continue
        level, size = form[1], int(form[2])
        if level in names:
            on_malformed(line, f"level {level} appears twice")
        of_level = [name for _, (_, name) in zip(range(size), lines, strict=False)]
        if len(of_level) < size:
            on_malformed(line, f"level {level} announces {size} names and has {len(of_level)}")
        for position, name in enumerate(of_level, start=1):
            if not name:
                on_malformed(line + position, f"name {position} of level {level} is empty")
        names[level] = tuple(of_level)
    return names
