"""A strict parser of Paraver's view files (.cfg)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LEVELS = ("workload", "appl", "task", "thread", "system", "node", "cpu")
"""Object levels, of processes and then of machines, the coarser ones first."""


def _listed(text: str) -> tuple[str, ...]:
    return tuple(re.split(r",\s+", text.strip()))


_THREAD_FUNCTIONS = _listed("""
    State As Is, Useful, State Sign, Given State, In State, Not In State, State Record Dur., Last Evt Type, Last Evt Val,
    Last Evt Val w/o Bursts, Next Evt Type, Next Evt Val, Avg Next Evt Val, Avg Last Evt Val, Given Evt Val, In Evt Val,
    Int. Between Evt, Not In Evt Val, In Evt Range, Event Bytes, Event Sent Bytes, Last Tag, Comm Size, Comm Recv. Partner,
    Comm Partner, Last Send Dur., Next Recv Dur., Last Send Size, Send Bytes in Transit, Send Messages in Transit,
    Send BandWidth, Recv Bytes in Transit, Recv Messages in Transit, Recv BandWidth, Recv Negative Messages,
    Recv Negative Bytes, Number Of Sends, Number Of Send Bytes, Number Of Receives, Number Of Receive Bytes, Application ID,
    TaskID, Thread ID, Node ID, Cpu ID, In Appl ID, In Task ID, In Thread ID, In Node ID, In Cpu ID
""")
_CPU_FUNCTIONS = ("Active Thd", "Active Thd Sign", "Active Thd Val", "Active Thd Val Sign")
_OBJECT_FUNCTIONS = _listed("""
    Adding, AddingSign, Average, Maximum, Minimum, Activity, In Activity, Mode, Thread i, Add Tasks, Changed value
""")
_COMPOSE_FUNCTIONS = {
    0: _listed("""
        As Is, Sign, 1-Sign, Floor, Ceil, Round, Abs, Stacked Val, Nesting level, LRU Depth, Enumerate, Accumulate, Delta,
        Burst Time, Divide by Burst Time, Join Bursts, Timer, Begin Time, End Time, sin, cos, sqrt (abs), arc tan, exp
    """),
    1: _listed("Mod, Mod+1, Div, Prod, Add, Subs, Complement, Inverse Div, Is Equal, Is Equal (Sign), In Stacked Val, log N"),
    2: _listed("Select Range, Select Range [), Is In Range, Is In Range [), Translate"),
}
_COMPOSE_PARAMETERS = {function: count for count, functions in _COMPOSE_FUNCTIONS.items() for function in functions}
"""Compose functions, and how many parameters each has."""
_OPERATIONS = _listed("""
    add, product, substract, divide, maximum, minimum, different, controlled: clear by, controlled: maximum, controlled: add,
    controlled: enumerate, controlled: average
""")
_FILTER_FUNCTIONS = ("All", "!=", ">", "<", "=", "None", "[x,y]")
_FILTERS = ("from_obj", "to_obj", "tag_msg", "size_msg", "bw_msg", "evt_type", "evt_value")
_COMPOSE_LEVELS = _listed("""
    compose_cpu, compose_appl, compose_task, compose_thread, compose_node, compose_system, compose_workload, topcompose1,
    topcompose2
""")
_STATISTICS = _listed("""
    #Sends, #Receives, Bytes sent, Bytes received, Average bytes sent, Average bytes received, Minimum bytes sent,
    Minimum bytes received, Maximum bytes sent, Maximum bytes received, Time, % Time, % Time Not Zero, % Window Time,
    # Bursts, % # Bursts, Integral, Average value, Maximum, Minimum, Average Burst Time, Stdev Burst Time,
    Average per Burst, Average per Burst != 0, Average value != 0, # Bursts != 0, Sum bursts
""")
_DRAW_MODES = _listed("""
    draw_last, draw_maximum, draw_minnotzero, draw_random, draw_randnotzero, draw_average, draw_averagenotzero, draw_mode,
    draw_absolute_maximum, draw_absolute_minimum
""")
_COLOUR_MODES = tuple(
    f"window_in_{mode}_mode"
    for mode in ("code", "gradient", "null_gradient", "alternative_gradient", "punctual", "fused_lines")
)
_UNITS = ("Nanoseconds", "Microseconds", "Milliseconds", "Seconds", "Minutes", "Hours", "Days")
_MOST_IN_A_FILTER = 65_535

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"


class MalformedCfg(ValueError):
    """A view that Paraver would not load as intended; the message has the view, the line, and the problem."""


@dataclass
class Window:
    """A window of a view."""

    name: str
    is_derived: bool = False
    functions: dict[str, str] = field(default_factory=dict)
    parents: tuple[int, ...] = ()
    filters: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[tuple[str, int], list[bool]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    @property
    def level(self) -> str:
        return self.values.get("window_level", "thread")

    @property
    def operation(self) -> str:
        return self.values.get("window_operation", "")


class Cfg(NamedTuple):
    """A view: its description, its windows, and the keys of its table (empty for a timeline)."""

    description: str
    windows: tuple[Window, ...]
    histogram: Mapping[str, str]

    @property
    def kind(self) -> str:
        """`timeline`, `table`, or `tables` (one for each value of a third window)."""
        if not self.histogram:
            return "timeline"
        return "tables" if "Analyzer2D.3D_ControlWindow:" in self.histogram else "table"


def parse_cfg(text: str, name: str) -> Cfg:
    """Read a view strictly."""
    return _Parser(text, name).parse()


def parse_views(folder: Path) -> dict[str, Cfg]:
    """All views below a folder, read strictly, by their path inside it."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.cfg"))
    return {name: parse_cfg((folder / name).read_text(encoding="utf-8"), name) for name in names}


def _one_of(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value in allowed


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda value: re.fullmatch(pattern, value) is not None


_BOOL, _BOOL2 = _one_of("true", "false"), _one_of("True", "False")
_WHOLE, _ANY_NUMBER, _ANYTHING = _matches(r"\d+"), _matches(_NUMBER), _matches(r".+")
_FRACTION = _matches(r"[01]\.\d+")


def _checks(by_names: dict[str, Callable[[str], bool]], form: str) -> dict[str, Callable[[str], bool]]:
    """Checks of values by key, from the names of all keys with the same check."""
    return {form.format(name): check for names, check in by_names.items() for name in names.split()}


_WINDOW_KEYS = _checks(
    {
        "id position_x position_y width height pixel_size labels_to_draw synchronize": _WHOLE,
        (
            "comm_lines_enabled flags_enabled noncolor_mode custom_color_enabled semantic_scale_min_at_zero "
            "logical_filtered physical_filtered comm_fromto comm_tagsize comm_typeval compute_y_max open"
        ): _BOOL,
        "color_mode": _one_of(*_COLOUR_MODES),
        "gradient_function": _one_of(*(f"gradient_function_{name}" for name in ("linear", "steps", "log", "exp"))),
        "units": _one_of(*_UNITS),
        "maximum_y minimum_y": _ANY_NUMBER,
        "scale_relative end_time_relative begin_time_relative": _FRACTION,
        "drawmode drawmode_rows": _one_of(*_DRAW_MODES),
        "level": _one_of(*LEVELS),
        "operation": _one_of(*_OPERATIONS),
        "factors": _matches(rf"{_NUMBER} {_NUMBER}"),
    },
    "window_{}",
)
_OF_DERIVED = ("window_operation", "window_factors")
_HISTOGRAM_KEYS = _checks(
    {
        "Name": _ANYTHING,
        "X Y Width Height ControlWindow DataWindow NumColumns PixelSize 3D_ControlWindow": _WHOLE,
        "Accumulator": _one_of("Semantic"),
        "Statistic": _one_of(*_STATISTICS),
        (
            "CalculateAll HideCols Color SemanticColor SortCols SortReverse ComputeYScale ComputeYScaleZero "
            "UseFixedDelta ComputeGradient ShowOnlyTotals ShortHeaderLabels"
        ): _BOOL2,
        "HorizVert": _one_of("Horizontal", "Vertical"),
        "Zoom": _one_of("Enabled", "Disabled"),
        "SortCriteria": _one_of("Average", "Total", "Maximum", "Minimum", "Stdev", "Avg/Max", "Custom"),
        "AnalysisLimits": _one_of("Alltrace", "Allwindow", "Region"),
        "Minimum Maximum Delta MinimumGradient MaximumGradient 3D_Minimum 3D_Maximum 3D_Delta 3D_FixedValue": _ANY_NUMBER,
        "DrawModeObjects DrawModeColumns": _one_of(*_DRAW_MODES),
        "ColorMode": _one_of(*_COLOUR_MODES[:4]),
    },
    "Analyzer2D.{}:",
)
_HISTOGRAM_KEYS["Analyzer3D.ComputeYScale:"] = _BOOL2
_NEW_HISTOGRAM = "< NEW ANALYZER2D >"


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._lines = text.split("\n")
        self._name = name
        self._line = 0
        self._windows: list[Window] = []
        self._histogram: dict[str, str] = {}
        self._in_histogram = False

    def parse(self) -> Cfg:
        description, announced = self._head()
        for line, text in enumerate(self._lines[self._line :], start=self._line + 1):
            self._line = line
            if not text or text.startswith("#"):
                continue
            self._require(text == text.strip() and "\r" not in text and "\t" not in text, "blanks at an edge, or a tab")
            if text.startswith("<"):
                self._title(text)
            elif self._in_histogram:
                key, _, value = text.partition(" ")
                self._require(key in _HISTOGRAM_KEYS, f"{key} is not a key of a table")
                self._require(key not in self._histogram, f"{key} appears twice")
                self._require(_HISTOGRAM_KEYS[key](value), f"{key} can't be {value!r}")
                self._histogram[key] = value
            else:
                self._window_line(*text.partition(" ")[::2])
        for window in self._windows:
            self._check_window(window)
        self._line = len(self._lines)
        self._require(bool(self._windows), "it has no window")
        self._require(announced == len(self._windows), f"the head announces {announced} windows of {len(self._windows)}")
        if self._in_histogram:
            self._check_histogram()
        return Cfg(description, tuple(self._windows), self._histogram)

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise MalformedCfg(f"{self._name}, line {self._line}: {what}")

    def _match(self, pattern: str, text: str, what: str) -> re.Match[str]:
        """A text that has a form as a whole."""
        form = re.fullmatch(pattern, text)
        self._require(form is not None, what)
        assert form is not None
        return form

    def _head(self) -> tuple[str, int]:
        end = "ConfigFile.EndDescription"
        self._require(end in self._lines, "the description has no end")
        self._line = self._lines.index(end) + 1
        head = self._lines[: self._line]
        self._require(head[:2] == ["#ParaverCFG", "ConfigFile.Version: 3.4"], "the head is not that of a view of version 3.4")
        windows = self._match(r"ConfigFile\.NumWindows: (\d+)", head[2], "the head announces no windows")
        self._require(head[3] == "ConfigFile.BeginDescription", "the description has no begin")
        return "\n".join(head[4:-1]).strip(), int(windows[1])

    def _title(self, text: str) -> None:
        self._require(not self._in_histogram, "something follows the table")
        self._in_histogram = text == _NEW_HISTOGRAM
        self._match(f"{_NEW_HISTOGRAM}|< NEW DISPLAYING WINDOW .* >", text, f"{text!r}")

    def _window_line(self, key: str, value: str) -> None:
        if key == "window_name":
            self._require(bool(value), "a window without a name")
            self._windows.append(Window(value))
            return
        self._require(bool(self._windows), f"{key} comes before the first window")
        window = self._windows[-1]
        if key == "window_type":
            self._require(value in ("single", "composed") and not window.values, f"a window can't be {value!r} here")
            window.is_derived = value == "composed"
            window.values[key] = value
            return
        self._require("window_type" in window.values, f"{key} comes before window_type")
        special: dict[str, Callable[[Window, str], None]] = {
            "window_object": self._object,
            "window_identifiers": self._identifiers,
            "window_selected_functions": self._selected_functions,
            "window_compose_functions": self._compose_functions,
            "window_semantic_module": self._parameters,
            "window_filter_module": self._filter,
        }
        if key in special:
            special[key](window, value)
            return
        self._require(key in _WINDOW_KEYS, f"{key} is not a key of a window")
        self._require(key not in window.values, f"{key} appears twice")
        self._require(window.is_derived or key not in _OF_DERIVED, f"{key} belongs to derived windows")
        self._require(_WINDOW_KEYS[key](value), f"{key} can't be {value!r}")
        window.values[key] = value
        if key == "window_id":
            self._require(int(value) == len(self._windows), f"this is window {len(self._windows)}, not {value}")

    def _object(self, window: Window, value: str) -> None:
        pattern = r"(?:(appl|node) \{|(task|cpu) \{ 0,|(thread) \{ 0, (\d+),) (\d+), \{ (.*) \} \}"
        *levels, place, count, text = self._match(pattern, value, f"window_object can't be {value[:80]!r}").groups()
        level = next(filter(None, levels))
        names = text.split(", ")
        words = {"1": True, "0": False} if level == window.level else {"All": True, "None": False}
        self._require(len(names) == int(count), f"{count} objects of level {level} are announced, and {len(names)} follow")
        self._require(set(names) <= set(words), f"at level {window.level} objects of level {level} are {' or '.join(words)}")
        window.rows[level, int(place or 0)] = [words[one] for one in names]

    def _identifiers(self, window: Window, value: str) -> None:
        self._require(window.is_derived, "only a derived window is made of others")
        form = self._match(r"(\d+) (\d+)", value, f"a derived window is made of two others, not of {value!r}")
        window.parents = (int(form[1]), int(form[2]))
        known = range(1, len(self._windows))
        self._require(all(one in known for one in window.parents), f"windows {value} are not both above this one")
        self._require(window.parents[0] != window.parents[1], "a window can't be combined with itself")

    def _selected_functions(self, window: Window, value: str) -> None:
        functions = self._function_list(value)
        expected = {"appl", "task", "node", "system", "workload"}
        if not window.is_derived:
            expected |= {"cpu", "thread", *_FILTERS}
        self._require(set(functions) == expected, f"functions are given for {', '.join(functions)}")
        for level, function in functions.items():
            allowed = {"thread": _THREAD_FUNCTIONS, "cpu": _CPU_FUNCTIONS} | dict.fromkeys(_FILTERS, _FILTER_FUNCTIONS)
            self._require(function in allowed.get(level, _OBJECT_FUNCTIONS), f"{function!r} is no function of level {level}")
        window.functions.update(functions)

    def _compose_functions(self, window: Window, value: str) -> None:
        functions = self._function_list(value)
        self._require(tuple(functions) == _COMPOSE_LEVELS, f"levels {', '.join(functions)}")
        for function in functions.values():
            self._require(function in _COMPOSE_PARAMETERS, f"{function!r} is no compose function")
        window.functions.update(functions)

    def _function_list(self, value: str) -> dict[str, str]:
        pattern = r"\{ (\d+), \{ (\{[^{}]*\}(?:, \{[^{}]*\})*)(?:, )? ?\} \}"
        form = self._match(pattern, value, f"{value[:80]!r} is no list of functions")
        pairs = re.findall(r"\{(\w+), ([^{}]*)\}", form[2])
        self._require(len(pairs) == int(form[1]) == len(dict(pairs)), f"{form[1]} functions are announced, {len(pairs)} follow")
        return dict(pairs)

    def _parameters(self, window: Window, value: str) -> None:
        pattern = rf"(\w+) ([^{{]+) \{{ (\d+), \{{ ((?:\d+(?: {_NUMBER})+(?:, )?)+) \}} \}}"
        form = self._match(pattern, value, f"{value[:80]!r} are no parameters of a function")
        self._require(window.functions.get(form[1]) == form[2], f"{form[2]!r} is not the function of {form[1]}")
        lists = form[4].split(", ")
        self._require(len(lists) == int(form[3]), f"{form[3]} lists of numbers are announced, and {len(lists)} follow")
        if form[2] in _COMPOSE_PARAMETERS:
            self._require(len(lists) == _COMPOSE_PARAMETERS[form[2]], f"{form[2]!r} does not take {len(lists)} parameters")
        for one in lists:
            count, *numbers = one.split(" ")
            self._require(len(numbers) == int(count), f"{count} numbers are announced, and {len(numbers)} follow")
        window.values[f"parameters of {form[1]}"] = form[4]

    def _filter(self, window: Window, value: str) -> None:
        self._require(not window.is_derived, "a derived window has a filter")
        form = self._match(r"(\w+) (\d+) (.+)", value, f"{value[:80]!r} is no filter")
        what, count, text = form[1], int(form[2]), form[3]
        if what in ("evt_type_label", "evt_value_label"):
            self._match(r'"[^"]*"(?: "[^"]*")*', text, f"labels of {what} are not in quotes")
            found = re.findall(r'"([^"]*)"', text)
        else:
            self._require(what in _FILTERS, f"{what!r} is no filter")
            found = text.split(" ")
            number = _WHOLE if what != "evt_value" else _ANY_NUMBER
            self._require(all(number(one) for one in found), f"{what} lets through what is no number")
        self._require(len(found) == count <= _MOST_IN_A_FILTER, f"{what} announces {count}, and {len(found)} follow")
        self._require(what not in window.filters, f"filter {what} appears twice")
        window.filters[what] = found

    def _check_window(self, window: Window) -> None:
        def require(holds: bool, what: str) -> None:
            if not holds:
                raise MalformedCfg(f"{self._name}, window {window.name!r}: {what}")

        for key in ("window_units", "window_end_time_relative", "window_begin_time_relative"):
            require(key in window.values, f"it has no {key}")
        require("topcompose1" in window.functions and "task" in window.functions, "it has no functions")
        for level, function in window.functions.items():
            needs = level in _COMPOSE_LEVELS and _COMPOSE_PARAMETERS[function] > 0
            require(not needs or f"parameters of {level}" in window.values, f"{function!r} has no parameters")
        if window.is_derived:
            require(bool(window.operation and window.parents), "it is derived from nothing")
            levels = {self._windows[parent - 1].level for parent in window.parents}
            require(all(LEVELS.index(level) >= LEVELS.index(window.level) for level in levels), "it is finer than its parents")
            return
        for what in ("evt_type", "evt_value"):
            labels, numbers = window.filters.get(f"{what}_label"), window.filters.get(what, [])
            require(labels is None or len(labels) == len(numbers), f"{what} has not as many labels as numbers")
        for what in _FILTERS:
            lists = window.functions[what] not in ("All", "None")
            function = window.functions[what]
            require(
                lists == bool(window.filters.get(what)), f"{what} is {function!r}, and {'no' if lists else 'a'} list follows"
            )

    def _check_histogram(self) -> None:
        for key in ("Analyzer2D.Name:", "Analyzer2D.ControlWindow:", "Analyzer2D.DataWindow:", "Analyzer2D.Statistic:"):
            self._require(key in self._histogram, f"the table has no {key}")
        control = self._table_window("Analyzer2D.ControlWindow:")
        for key in ("Analyzer2D.DataWindow:", "Analyzer2D.3D_ControlWindow:"):
            if key not in self._histogram:
                continue
            other = self._table_window(key)
            finer, coarser = (control, other) if key == "Analyzer2D.DataWindow:" else (other, control)
            self._require(
                LEVELS.index(self._windows[coarser - 1].level) <= LEVELS.index(self._windows[finer - 1].level),
                f"window {coarser} is finer than window {finer}",
            )
            for first, second in ((control, other), (other, control)):
                self._require(
                    first == second or first not in self._ancestors(second), f"window {second} is made of window {first}"
                )

    def _table_window(self, key: str) -> int:
        number = int(self._histogram[key])
        self._require(1 <= number <= len(self._windows), f"{key} there is no window {number}")
        return number

    def _ancestors(self, number: int) -> set[int]:
        parents = self._windows[number - 1].parents
        return set(parents).union(*(self._ancestors(parent) for parent in parents))
