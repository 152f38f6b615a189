"""What drawings of the page consist of: plots with axes, rows of bars, and their colours.

A plot is shapes as SVG that fill a box of any width, and axes as text of the page around it. The box has the coordinates 0 to
SIDE in both directions, whatever is drawn, and is stretched to the width of the page: texts keep their size on a phone and on
paper, and colours are those of the page's style. `page.js` zooms drawings over time."""

import itertools
import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup, escape
from numpy.typing import NDArray

from nsys2prv.efficiency.intervals import Floats
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.gaps import CAUSE_TITLES
from nsys2prv.efficiency.outputs.page.template import environment
from nsys2prv.vocabulary.printable import printable
from nsys2prv.vocabulary.wording import TIMES, unit

SIDE = 1000
"""Side of the box."""
QUARTERS = tuple((quarter / 4, f"{25 * quarter} %") for quarter in range(5))
"""Ticks of an axis of shares."""


@dataclass(frozen=True)
class PlotAxis:
    """An axis: its range, what it is called, whether it is logarithmic, by what values are divided where they are written, and
    its ticks if they are not round numbers."""

    low: float
    high: float
    title: str = ""
    is_log: bool = False
    divisor: float = 1
    named: tuple[tuple[float, str], ...] | None = None

    def at(self, values: Iterable[float]) -> Floats:
        """Places of values, 0 to SIDE."""
        numbers = np.array([self.low, self.high, *values], dtype=np.float64)
        if self.is_log:
            numbers = np.log10(np.maximum(numbers, 1e-300))
        places: Floats = (numbers[2:] - numbers[0]) / ((numbers[1] - numbers[0]) or 1) * SIDE
        return places

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Places, 0 to 1, and texts."""
        named = self.named
        if named is None:
            low, high = self.low / self.divisor, self.high / self.divisor
            numbers = _powers(low, high) if self.is_log else round_numbers(low, high, count)
            named = tuple((number * self.divisor, f"{number:,.6g}") for number in numbers)
        places = self.at(value for value, _ in named) / SIDE
        return [(float(place), text) for place, (_, text) in zip(places, named, strict=True) if -1e-9 <= place <= 1 + 1e-9]


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """Round numbers in a range, about so many.

    >>> round_numbers(0, 1, 4), round_numbers(3, 3, 4)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [3])
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [round(number * step, 12) for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis: powers of 10, and 2 and 5 times them where these are few.

    >>> _powers(3, 40), _powers(1, 10_000)
    ([5.0, 10.0, 20.0], [1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    numbers = [step * 10.0**power for power in range(first, last + 1, max(1, (last - first) // 5)) for step in steps]
    return [number for number in numbers if low <= number <= high] or [low, high]


def time_axis(low: float, high: float, title: str, *, is_log: bool = False) -> PlotAxis:
    """An axis of times in ns, written in the unit that fits the largest."""
    divisor, name = unit(high, TIMES)
    return PlotAxis(low, high, f"{title} [{name}]", is_log, divisor)


@dataclass
class Plot:
    """A drawing: shapes are added, and `html` is what the page contains.

    It has a title for those who do not see it, axes, and a height in pixels. Its horizontal axis may be the one that drawings
    over time share. Its role is `group` where shapes are links. `colours` are those of its lines and points by their names, for
    the legend."""

    title: str
    x: PlotAxis
    y: PlotAxis
    height: int = 180
    is_over_time: bool = False
    role: str = "img"
    shapes: list[str] = field(default_factory=list)
    colours: dict[str, str] = field(default_factory=dict)

    def bars(
        self, begin: Iterable[float], end: Iterable[float], low: Iterable[float], high: Iterable[float],
        colour: str | Sequence[str], titles: Sequence[str]
    ) -> None:  # fmt: skip
        """Rectangles, with a text each that is shown under the pointer."""
        colours = itertools.repeat(colour) if isinstance(colour, str) else colour
        edges = (self.x.at(begin), self.x.at(end), SIDE - self.y.at(high), SIDE - self.y.at(low))
        for x0, x1, y0, y1, title, fill in zip(*edges, titles, colours, strict=False):
            box = f'x="{_n(x0)}" y="{_n(y0)}" width="{_n(x1 - x0)}" height="{_n(y1 - y0)}"'
            self.shapes.append(f'<rect {box} fill="{fill}"><title>{text(title)}</title></rect>')

    def steps(self, edges: Iterable[float], low: Floats, high: Floats, colour: str, opacity: float = 1) -> None:
        """A filled area between two lines of steps; `edges` has one value more than the others."""
        self.band(np.repeat(list(edges), 2)[1:-1], low.repeat(2), high.repeat(2), colour, opacity)

    def band(self, x: Iterable[float], low: Iterable[float], high: Iterable[float], colour: str, opacity: float = 0.3) -> None:
        """A pale area between two lines."""
        places, top, bottom = self.x.at(x), SIDE - self.y.at(high), SIDE - self.y.at(low)
        if len(places):
            path = _path(np.concatenate([places, places[::-1]]), np.concatenate([top, bottom[::-1]]))
            self.shapes.append(f'<path d="{path}Z" fill="{colour}" fill-opacity="{opacity}"/>')

    def line(
        self, x: Iterable[float], y: Iterable[float], colour: str, width: float = 1.5, title: str = "", opacity: float = 1
    ) -> None:
        """A line, interrupted where a value is None or NaN; one that is not pale is in the legend."""
        stroke = f'stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"'
        self._add(_path(self.x.at(x), SIDE - self.y.at(y)), stroke, title)
        if title and opacity == 1:
            self.colours[title] = colour

    def points(self, x: Iterable[float], y: Iterable[float], colour: str, titles: Sequence[str] = (), width: float = 8) -> None:
        """Round points: lines without a length keep their form in a stretched box. Without texts they are one shape."""
        stroke = f'stroke="{colour}" stroke-width="{width}" stroke-linecap="round"'
        places = [f"M{_n(x0)} {_n(y0)}h0" for x0, y0 in zip(self.x.at(x), SIDE - self.y.at(y), strict=True)]
        for place, title in zip(places, titles, strict=True) if titles else [("".join(places), "")]:
            self._add(place, stroke, title)

    def _add(self, path: str, stroke: str, title: str) -> None:
        inner = f"<title>{text(title)}</title>" if title else ""
        self.shapes.append(f'<path class="line" d="{path}" {stroke}>{inner}</path>')

    def link(self, x: float, y: float, target: str, title: str) -> None:
        """A round point that leads to the place of the page with an id."""
        self.role = "group"
        place = f"M{_n(self.x.at([x])[0])} {_n(SIDE - self.y.at([y])[0])}h0"
        point = f'<path class="line link" d="{place}"><title>{text(title)}</title></path>'
        self.shapes.append(f'<a href="#{escape(target)}" aria-label="{text(title)}">{point}</a>')

    def rules(self, x: Iterable[float]) -> None:
        """Vertical lines through the box, where iterations begin."""
        if path := "".join(f"M{_n(place)} 0V{SIDE}" for place in self.x.at(x)):
            self.shapes.append(f'<path class="line iteration" d="{path}"/>')

    def picture(self, pixels: NDArray[np.uint8]) -> None:
        """A picture that fills the box: rows x columns x RGBA, the first row at the top."""
        source = b64encode(png(pixels)).decode()
        box = f'x="0" y="0" width="{SIDE}" height="{SIDE}" preserveAspectRatio="none"'
        self.shapes.append(f'<image {box} href="data:image/png;base64,{source}"/>')

    def html(self) -> Markup:
        """The drawing with its axes."""
        ticks = {"x_ticks": self.x.ticks(6), "y_ticks": self.y.ticks(max(2, min(5, self.height // 40)))}
        shapes = Markup("".join(self.shapes))
        return Markup(environment().get_template("plot.html.j2").render(plot=self, **ticks, side=SIDE, shapes=shapes))


def text(plain: str) -> Markup:
    """Text of a run inside of a drawing."""
    return escape(printable(plain))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Rows x columns x RGBA as a PNG file."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _n(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")


def _path(x: Floats, y: Floats) -> str:
    is_number = np.isfinite(x) & np.isfinite(y)
    is_joined = np.append(False, is_number)[: len(x)]
    places = zip(x[is_number], y[is_number], is_joined[is_number], strict=True)
    return "".join(f"{'L' if joined else 'M'}{_n(x0)} {_n(y0)}" for x0, y0, joined in places)


class Piece(NamedTuple):
    """A piece of a bar: how much of the widest bar it takes (0 to 1), its colour, and the text under the pointer."""

    width: float
    colour: str
    title: str


class BarRow(NamedTuple):
    """A row: its name, its bar, and its number as text; `below`: what it consists of."""

    name: str
    pieces: tuple[Piece, ...]
    number: str
    note: str = ""
    below: tuple["BarRow", ...] = ()


Kinds = Iterable[tuple[str, str, str]]
"""Kinds of time such as ACTIVITIES, CAUSES or WALL_PARTS: column, name, colour."""


@dataclass(frozen=True)
class Figure:
    """A drawing as the page and notebooks show it: a plot or rows of bars; what its colours mean beside those of the plot; what
    it is called, what it shows, and what is worth to be said about it."""

    plot: Plot | None = None
    rows: Sequence[BarRow] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    reading: str = ""
    notes: Sequence[str] = ()

    @cached_property
    def drawn(self) -> Markup | None:
        """The plot for the page."""
        return None if self.plot is None else self.plot.html()

    @property
    def legend(self) -> dict[str, str]:
        """Colours by what they mean."""
        return {**self.colours, **(self.plot.colours if self.plot else {})}


# Colours: like things have like colours, which differ for any kind of sight, dark and light.

ACTIVITIES: tuple[tuple[str, str, str], ...] = (
    ("kernels_ns", "kernels", "#2f74d0"),
    ("nccl_ns", "NCCL", "#e8830c"),
    ("memory_ns", "copies and memsets", "#12a37f"),
)
"""Activities of a device: column of `device_bins`, name, colour."""

LINES = ("#2f74d0", "#e8830c", "#12a37f", "#b05cc6", "#d1495b", "#7f8c2b", "#0f8ea8", "#8d6e63")
"""Colours of lines; of more lines than colours all have the first one."""

GREY = "#8c8c8c"
"""The colour of what is left."""

_OF_GROUPS: Mapping[str, tuple[str, ...]] = {
    "compute": (ACTIVITIES[0][2],),
    parts.START_UP: ("#b9bec6", "#d4b106", "#7a5c00"),
    parts.STARVED: ("#b05cc6", "#d1495b", "#e0838f", "#7d5ba6", "#c98bb9", "#8d6e63", "#b79a8e", "#a3213a", "#f0b6c8",
                    "#6b2737", "#d8cba8", "#efb8ff", "#274e13", "#ff8fb1", "#c2185b", "#ffb4a2", "#4a148c", "#bc8f4f"),
    parts.COMMUNICATION: ("#e8830c", "#f2b25f", "#b06000"),
    parts.COPIES: ("#12a37f", "#7cc9b3"),
    parts.OTHER_KERNELS: ("#0f8ea8",),
    parts.QUEUED: ("#7f8c2b",),
    parts.UNDECIDED: ("#5f6670", "#8a8fd0", "#3f4a8c", "#464c55", "#262b33", "#6f7fa8"),
    parts.SHUT_DOWN: ("#9aa1ab",),
    "other": ("#e3e6ea",),
}  # fmt: skip
"""Colours of the parts of the wall time, by group."""
_GROUPS = {"compute": "compute", **{part.name: part.group for part in parts.PARTS}}
# Parts that divide one of them, as `verdict` names them.
_GROUPS |= {f"undecided_{place}": parts.UNDECIDED for place in range(len(parts.REASONS))}


def _shades(colours: Sequence[str]) -> Iterator[str]:
    """Colours, then the same mixed with ever more white."""
    for step in itertools.count():
        for colour in colours:
            channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            yield "#" + "".join(f"{255 - round((255 - channel) * 0.8**step):02x}" for channel in channels)


def colours_of_parts(shown: Iterable[tuple[str, str]]) -> list[str]:
    """A colour for each part of the wall time, from its name and its group: the same wherever it is shown, and no two alike."""
    parts_shown = list(shown)
    shades = {group: _shades(colours) for group, colours in _OF_GROUPS.items()}
    colours = {name: next(shades[group]) for name, group in {**_GROUPS, **dict(parts_shown)}.items()}
    return [colours[name] for name, _ in parts_shown]


_TITLES = (("compute_ns", "computing"), *((part.column, part.title) for part in parts.PARTS))
WALL_PARTS = tuple((*titled, colour) for titled, colour in zip(_TITLES, colours_of_parts(_GROUPS.items()), strict=False))
"""Parts of the wall time of a device: column of `absent_time`, name, colour."""
_OF_CAUSES = colours_of_parts((f"starved_{column.removesuffix('_ns')}", parts.STARVED) for column in CAUSE_TITLES)
CAUSES = tuple((*titled, colour) for titled, colour in zip(CAUSE_TITLES.items(), _OF_CAUSES, strict=True))
"""Activities of the launching thread while a device is idle: column of `gaps`, name, colour."""


def coloured(frame: pl.DataFrame, *columns: str) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """The rows of a frame by the names in some columns: name, colour, rows."""
    for (key, part), colour in zip(frame.group_by(columns, maintain_order=True), itertools.cycle(LINES), strict=False):
        yield ", ".join(map(str, key)), colour, part


def present(kinds: Kinds, times: pl.DataFrame) -> dict[str, str]:
    """Colours by names, of the kinds of time that some row of a frame has."""
    return {name: colour for column, name, colour in kinds if (times[column] > 0).any()}
