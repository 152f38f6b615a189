"""Pictures (SVG) of views of a trace: timelines in the colours of the .pcf, tables as heat maps."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from support.view_parser import Cfg, Window
from support.view_semantics import NotDrawn, Semantics, Table
from support.whole_trace import WholeTrace

Colour = tuple[int, int, int]

_WIDTH, _MARGIN = 960, 10
_PIXEL = 2
"""Width of one pixel of a timeline."""
_TEXT, _CHARACTER = 11, 6.7
"""Height of the text, and width of a wide character of it."""
_LINE = 16
_LONGEST_ROW_NAME = 34
_ROW, _SMALLEST_ROW, _ROWS_HEIGHT = 15, 4, 720
_CURVE = 34
"""Height of a row of a window that is drawn as a line."""
_MOST_IN_LEGEND = 14
_LARGEST_CELL, _SMALLEST_CELL, _CELL_WITH_NUMBER = 96, 20, 44
_GRADIENT: tuple[Colour, Colour] = (0, 255, 2), (2, 0, 255)
"""Paraver's, from the lowest to the highest value."""
_NO_COLOUR: Colour = (128, 128, 128)
_EVENT_FUNCTIONS = ("Last Evt Val", "Next Evt Val")

_STYLE = (
    "text{font:11px Verdana,'DejaVu Sans',sans-serif;fill:#1f2328}.h{font-weight:bold}.q{fill:#59636e}"
    ".g{fill:#fff}.a{fill:#fff;stroke:#d1d9e0}.k{stroke:#d1d9e0}.l{fill:none;stroke:#0969da}.d{fill:#000}.b{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.q{fill:#9198a1}.g{fill:#0d1117}.a{fill:#0d1117;stroke:#3d444d}"
    ".k{stroke:#3d444d}.l{stroke:#4493f8}.d{fill:#000}.b{fill:#fff}}"
)


@dataclass(frozen=True)
class Legend:
    """Properties of values that are not in a view."""

    unit: str = ""
    names: Mapping[int, str] = field(default_factory=dict)


def draw(trace: WholeTrace, cfg: Cfg, time: tuple[int, int] | None = None, legend: Legend | None = None) -> str:
    """A picture of a view."""
    semantics, legend = Semantics(trace, cfg), legend or Legend()
    if cfg.kind == "timeline":
        return _Timeline(trace, cfg, semantics, time or (0, trace.header.end), legend).svg()
    return _table(trace, cfg, semantics.table(), legend)


class _Timeline:
    def __init__(self, trace: WholeTrace, cfg: Cfg, semantics: Semantics, time: tuple[int, int], legend: Legend) -> None:
        self._trace = trace
        self._unit = legend.unit
        self._begin, self._end = time
        self._window = cfg.windows[-1]
        self._title = self._window.name
        number = len(cfg.windows)
        self._rows = semantics.rows(number)
        self._names = _row_names(trace, semantics.level(number), self._rows)
        self._left = _MARGIN + math.ceil(_CHARACTER * max(map(len, self._names), default=0)) + 6
        self._pixels = (_WIDTH - self._left - _MARGIN) // _PIXEL
        steps = semantics.steps(number)
        # The scale of a gradient covers the time shown.
        self._steps = steps.filter(pl.col("begin") < self._end, pl.col("end") > self._begin)
        self._labels = _value_labels(trace, self._window)
        if not self._is_state:
            self._labels[0] = "nothing"
        self._labels.update(legend.names)

    def svg(self) -> str:
        is_line = self._window.values.get("window_noncolor_mode") == "false"
        height = _CURVE if is_line else max(min(_ROW, _ROWS_HEIGHT // max(len(self._rows), 1)), _SMALLEST_ROW)
        top = _MARGIN + 2 * _LINE + 6
        bottom = top + height * len(self._rows)
        parts = [
            _text(_MARGIN, _MARGIN + _TEXT, self._title, "h"),
            _text(_MARGIN, _MARGIN + _TEXT + _LINE, self._extent(), "q"),
        ]
        parts.append(_box(self._left, top, self._pixels * _PIXEL, bottom - top))
        every = math.ceil((_TEXT + 1) / height)
        for place, name in enumerate(self._names[::every]):
            middle = top + (place * every + 0.5) * height + _TEXT / 2 - 1.5
            parts.append(_text(self._left - 6, middle, name, anchor="end"))
        drawn, legend = self._curves(top, height) if is_line else self._colours(top, height)
        parts += drawn
        parts += self._ticks(bottom)
        end = bottom + 2 * _LINE
        for place, entry in enumerate(legend):
            parts += [one.replace("{y}", _number(end + place * _LINE)) for one in entry]
        return _document(parts, end + len(legend) * _LINE + _MARGIN)

    def _extent(self) -> str:
        part = "" if (self._begin, self._end) == (0, self._trace.header.end) else f" of {_seconds(self._trace.header.end)}"
        return f"{len(self._rows)} rows; {_seconds(self._begin)} to {_seconds(self._end)}{part}"

    def _ticks(self, bottom: float) -> list[str]:
        step = 10 ** math.floor(math.log10((self._end - self._begin) / 4))
        step = next(step * times for times in (1, 2, 5, 10) if (self._end - self._begin) / (step * times) <= 8)
        parts = []
        for tick in range(math.ceil(self._begin / step) * step, self._end + 1, step):
            x = self._left + (tick - self._begin) / (self._end - self._begin) * self._pixels * _PIXEL
            parts.append(f'<path class="k" d="M{_number(x)} {_number(bottom)}v4"/>')
            parts.append(_text(x, bottom + 4 + _TEXT, f"{tick / 1e6:g} ms", "q", anchor="middle"))
        return parts

    def _pixel_values(self) -> pl.DataFrame:
        """Value of each pixel that has one: `place` of the row, `pixel`, `value`."""
        per_ns = self._pixels / (self._end - self._begin)
        first = ((pl.col("begin").clip(self._begin) - self._begin) * per_ns).floor().cast(pl.Int64)
        last = ((pl.col("end").clip(None, self._end) - self._begin) * per_ns).ceil().cast(pl.Int64) - 1
        mode = self._window.values.get("window_drawmode", "draw_maximum")
        not_zero = pl.col("value").filter(pl.col("value") != 0)
        modes = {
            "draw_maximum": pl.col("value").max(),
            "draw_averagenotzero": not_zero.mean(),
            # As if at random, and the same each time.
            "draw_randnotzero": not_zero.get(
                (pl.col("pixel").first() * 7919 + pl.col("place").first() * 104_729) % not_zero.len()
            ),
        }
        if mode not in modes:
            raise NotDrawn(f"the draw mode {mode}")
        places = {row: place for place, row in enumerate(self._rows)}
        return (
            self._steps.select(
                "value", place=pl.col("row").replace_strict(places, return_dtype=pl.Int64), first=first, last=last
            )
            .with_columns(last=pl.max_horizontal("first", "last").clip(None, self._pixels - 1))
            .filter(pl.col("first") < self._pixels)
            .with_columns(pixel=pl.int_ranges("first", pl.col("last") + 1))
            .explode("pixel")
            .group_by("place", "pixel", maintain_order=True)
            .agg(value=modes[mode].fill_null(0.0))
            .sort("place", "pixel")
        )

    def _colours(self, top: float, height: float) -> tuple[list[str], list[list[str]]]:
        pixels = self._pixel_values()
        mode = self._window.values.get("window_color_mode", "window_in_code_mode")
        if mode == "window_in_code_mode":
            return self._codes(pixels, top, height)
        if mode not in ("window_in_gradient_mode", "window_in_null_gradient_mode"):
            raise NotDrawn(f"the colours {mode}")
        pixels = pixels.filter(pl.col("value") != 0) if "null" in mode else pixels
        if pixels.is_empty():
            return [], [[_text(self._left, "{y}", "nothing in this time", "q")]]
        low, high = _limits(pixels["value"])
        shades = 32
        share = ((pl.col("value") - low) / ((high - low) or 1)).clip(0, 1)
        pixels = pixels.with_columns(shade=(share * (shades - 1)).round().cast(pl.Int64))
        palette = {shade: _between(*_GRADIENT, shade / (shades - 1)) for shade in range(shades)}
        bar = []
        for shade in range(shades):
            bar.append(f'<path fill="{_hex(palette[shade])}" d="M{self._left + 90 + 6 * shade} {{y}}m0 -10h6v11h-6z"/>')
        scale = [_text(self._left + 84, "{y}", _with_unit(low, self._unit), anchor="end"), *bar]
        scale.append(_text(self._left + 90 + 6 * shades + 6, "{y}", _with_unit(high, self._unit)))
        return self._runs(pixels.rename({"shade": "colour"}), palette, top, height), [scale]

    def _codes(self, pixels: pl.DataFrame, top: float, height: float) -> tuple[list[str], list[list[str]]]:
        coloured = pixels.with_columns(colour=pl.col("value").round().cast(pl.Int64))
        counts = coloured.group_by("colour").agg(pl.len()).sort(["len", "colour"], descending=[True, False])
        found = [int(value) for value in counts["colour"]]
        palette = {value: self._trace.labels.colours.get(value, _NO_COLOUR) for value in found}
        shown = [value for value in found if value != 0 or self._is_state][:_MOST_IN_LEGEND]
        legend = []
        for value in shown:
            label = self._labels.get(value)
            legend.append(self._entry(palette[value], f"{value}  {label}" if label else str(value)))
        left_out = len([value for value in found if value != 0 or self._is_state]) - len(shown)
        if left_out > 0:
            legend.append([_text(_MARGIN + 18, "{y}", f"and {left_out} more values", "q")])
        if 0 in palette and not self._is_state:
            legend.append(self._entry(palette[0], f"0  {self._labels[0]}"))
        return self._runs(coloured, palette, top, height), legend

    def _entry(self, colour: Colour, text: str) -> list[str]:
        swatch = f'<path fill="{_hex(colour)}" class="k" d="M{_MARGIN} {{y}}m0 -10h11v11h-11z"/>'
        return [swatch, _text(_MARGIN + 18, "{y}", _cut(text, _fitting(_WIDTH - 2 * _MARGIN - 18)))]

    @property
    def _is_state(self) -> bool:
        return self._window.functions.get("thread") == "State As Is"

    def _runs(self, pixels: pl.DataFrame, palette: dict[int, Colour], top: float, height: float) -> list[str]:
        """Neighbours of one colour as one rectangle, rectangles of one colour as one path."""
        new = (
            (pl.col("colour") != pl.col("colour").shift(1))
            | (pl.col("place") != pl.col("place").shift(1))
            | (pl.col("pixel") != pl.col("pixel").shift(1) + 1)
        )
        runs = (
            pixels.with_columns(run=new.fill_null(True).cum_sum())
            .group_by("run", maintain_order=True)
            .agg(pl.col("colour", "place", "pixel").first(), pl.len())
        )
        thick = height - 1 if height > _SMALLEST_ROW else height
        paths: dict[Colour, list[str]] = {}
        for colour, place, pixel, length in runs.select("colour", "place", "pixel", "len").iter_rows():
            x, y, wide = self._left + pixel * _PIXEL, top + place * height, length * _PIXEL
            paths.setdefault(palette[colour], []).append(f"M{_number(x)} {_number(y)}h{wide}v{_number(thick)}h-{wide}z")
        return [f'<path fill="{_hex(colour)}" d="{"".join(path)}"/>' for colour, path in sorted(paths.items())]

    def _curves(self, top: float, height: float) -> tuple[list[str], list[list[str]]]:
        pixels = self._pixel_values()
        _, high = _limits(pixels["value"])
        parts = []
        for (place,), of_row in pixels.group_by("place", maintain_order=True):
            base = top + (int(str(place)) + 1) * height - 2
            changed = of_row.filter((pl.col("value") != pl.col("value").shift(1)).fill_null(True))
            path = ""
            for pixel, value in changed.select("pixel", "value").iter_rows():
                y = _number(round(base - value / (high or 1) * (height - 5), 1))
                path += f"M{self._left + pixel * _PIXEL} {y}" if not path else f"H{self._left + pixel * _PIXEL}V{y}"
            parts.append(f'<path class="l" d="{path}H{self._left + self._pixels * _PIXEL}"/>')
        return parts, [[_text(self._left, "{y}", f"each row from 0 to {_with_unit(high, self._unit)}", "q")]]


def _table(trace: WholeTrace, cfg: Cfg, table: Table, legend: Legend) -> str:
    window = cfg.windows[int(cfg.histogram["Analyzer2D.ControlWindow:"]) - 1]
    labels = {**_value_labels(trace, window), **legend.names}
    names = _row_names(trace, table.level, table.rows)
    left = _MARGIN + math.ceil(_CHARACTER * max(map(len, names))) + 6
    cell = (_WIDTH - left - _MARGIN) / max(len(table.columns), 1)
    cell = max(min(math.floor(cell), _LARGEST_CELL), _SMALLEST_CELL)
    width = max(_WIDTH, left + cell * len(table.columns) + _MARGIN)
    top = _MARGIN + 3 * _LINE + 4
    with_numbers = cell >= _CELL_WITH_NUMBER
    totals = table.totals()
    names += list(totals) if with_numbers else []
    title = cfg.histogram["Analyzer2D.Name:"]
    parts = [_text(_MARGIN, _MARGIN + _TEXT, title, "h"), _text(_MARGIN, _MARGIN + _TEXT + _LINE, _what(table), "q")]
    for place, column in enumerate(table.columns):
        parts.append(_text(left + (place + 0.5) * cell, top - 5, str(column), "q", anchor="middle"))
    cells = np.nan_to_num(table.cells)
    low, high = (float(cells.min()), float(cells.max())) if cells.size else (0.0, 0.0)
    rows = [*cells, *totals.values()]
    for place, (name, values) in enumerate(zip(names, rows, strict=False)):
        is_total = place >= len(table.rows)
        y = top + place * _LINE + (6 if is_total else 0)
        parts.append(_text(left - 6, y + _TEXT, name, "q" if is_total else "", anchor="end"))
        for column, value in enumerate(values):
            x = left + column * cell
            is_number = place <= len(table.rows)
            text = _cell_text(float(value), table.statistic, legend.unit) if is_number else f"{value:.2f}"
            colour = ""
            if not is_total and value != 0:
                shade = _between(*_GRADIENT, (float(value) - low) / ((high - low) or 1))
                parts.append(f'<path fill="{_hex(shade)}" d="M{_number(x)} {_number(y)}h{cell - 1}v{_LINE - 1}h-{cell - 1}z"/>')
                colour = "d" if _is_light(shade) else "b"
            if with_numbers and (value != 0 or is_total):
                parts.append(_text(x + cell / 2, y + _TEXT + 0.5, text, colour, anchor="middle"))
    end = top + len(names) * _LINE + 6 + _LINE
    longest = _fitting(width - 2 * _MARGIN)
    if not with_numbers:
        limits = [_cell_text(limit, table.statistic, legend.unit) for limit in (low, high)]
        parts.append(_text(_MARGIN, end, "from {} (green) to {} (blue)".format(*limits), "q"))
        end += _LINE
    named = [column for column in table.columns if column in labels]
    for place, column in enumerate(named):
        parts.append(_text(_MARGIN, end + place * _LINE, _cut(f"{column}  {labels[column]}", longest), "q"))
    return _document(parts, end + len(named) * _LINE + _MARGIN, width)


def _what(table: Table) -> str:
    level = "application" if table.level == "appl" else table.level
    units = {"Time": "time", "Average Burst Time": "average duration", "Integral": "integral over time"}
    return f"{units.get(table.statistic, table.statistic)}; a row for each {level}"


def _cell_text(value: float, statistic: str, unit: str) -> str:
    if statistic in ("Time", "Average Burst Time") or unit == "ns":
        return _duration(value)
    if statistic.startswith("%"):
        return f"{value:.1f} %"
    if statistic == "# Bursts":
        return f"{value:g}"
    return f"{value:.2f} {unit}".rstrip() if abs(value) < 1000 else _with_unit(value, unit)


def _row_names(trace: WholeTrace, level: str, rows: Sequence[int]) -> list[str]:
    names = trace.names.get({"thread": "THREAD", "task": "TASK"}.get(level, "APPL"), ())
    if level == "thread":
        ranks = [f"{index + 1}.{thread + 1}" for index, task in enumerate(trace.header.tasks) for thread in range(task.threads)]
        return [_cut(f"{ranks[row]} {names[row]}" if row < len(names) else ranks[row], _LONGEST_ROW_NAME) for row in rows]
    return [_cut(names[row] if row < len(names) else str(row + 1), _LONGEST_ROW_NAME) for row in rows]


def _value_labels(trace: WholeTrace, window: Window) -> dict[int, str]:
    """Labels of the values that a window shows; none where its values are computed numbers."""
    tops = {window.functions[top] for top in ("topcompose1", "topcompose2")}
    thread, compose = window.functions.get("thread"), window.functions["compose_thread"]
    if window.is_derived or not tops <= {"As Is", "Join Bursts"} or compose not in ("As Is", "Stacked Val"):
        return {}
    if window.level == "task" and window.functions["task"] not in ("Adding", "Maximum", "Minimum"):
        return {}
    if thread == "State As Is":
        return dict(trace.labels.states)
    labels: dict[int, str] = {}
    if thread in _EVENT_FUNCTIONS:
        # The lowest type that knows a value names it, as in Paraver.
        for number in sorted(map(int, window.filters["evt_type"])):
            known = trace.labels.types.get(number)
            labels = {**((known.values if known else None) or {}), **labels}
    return labels


def _limits(values: pl.Series) -> tuple[float, float]:
    found = values.to_numpy()
    return (float(found.min()), float(found.max())) if len(found) else (0.0, 0.0)


def _between(low: Colour, high: Colour, share: float) -> Colour:
    first, second, third = (round(one + (other - one) * share) for one, other in zip(low, high, strict=True))
    return first, second, third


def _is_light(colour: Colour) -> bool:
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue > 110


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _fitting(width: float) -> int:
    """Characters that fit in a width."""
    return int(width / _CHARACTER)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _number(value: float) -> str:
    return f"{round(value, 1):g}"


def _short(value: float) -> str:
    """A number in few characters.

    >>> _short(12.5), _short(1234567), _short(3.2e9)
    ('12.5', '1.23 M', '3.2 G')
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:.4g}"


def _with_unit(value: float, unit: str) -> str:
    return _duration(value) if unit == "ns" else f"{_short(value)} {unit}".rstrip()


def _duration(value: float) -> str:
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} ns"


def _seconds(value: int) -> str:
    return f"{value / 1e9:.3f} s"


def _text(x: float, y: float | str, text: str, kind: str = "", anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    place = y if isinstance(y, str) else _number(y)
    return f'<text x="{_number(x)}" y="{place}"{attributes}>{html.escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="a" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"/>'


def _document(parts: Iterable[str], height: float, width: float = _WIDTH) -> str:
    size = f'width="{_number(width)}" height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}"'
    body = "\n".join(parts)
    # The page around the picture may have another scheme than the system.
    ground = f'<path class="g" d="M0 0h{_number(width)}v{_number(height)}h-{_number(width)}z"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{_STYLE}</style>\n{ground}\n{body}\n</svg>\n'
