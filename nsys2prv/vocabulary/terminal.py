"""Text for a terminal: colors, lines that fit, tables."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import takewhile

from nsys2prv.vocabulary.printable import on_one_line, printable
from nsys2prv.vocabulary.wording import LONGEST_SHOWN, short

STRONG, GOOD, FAIR, POOR, FAINT = "1", "32", "33", "31", "2"
ERROR, WARNING = "1;31", "1;33"
"""Styles, as numbers of ANSI escape sequences."""

_BEFORE_UNIT, _KEPT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|[kKMGT]i?B)(?!\w))"), "\0"
"""A blank between a number and its unit, where no line ends; and what it is meanwhile."""
_MOST_INDENT = 0.7
"""Share of the width of a terminal by which lines that follow are indented at most."""

Piece = tuple[str, str]
"""A text and its style ("": none)."""
Line = str | Sequence[Piece]
"""A line of a screen: a text, or pieces with styles."""


def styled(text: str, style: str) -> str:
    r"""A text in a style; the text must be safe for a terminal.

    >>> styled("error", POOR), styled("error", "")
    ('\x1b[31merror\x1b[0m', 'error')
    """
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def wrapped(line: Line, width: int | None) -> list[Line]:
    """A line as several that fit into a terminal of this width, broken at blanks; None: as it is.

    The lines that follow are indented: those of a text by two more than the first, those of pieces to where the last piece
    begins.

    >>> wrapped("  one two three", 12), wrapped([("name  ", STRONG), ("  a note", FAINT)], 12), wrapped("one two", None)
    (['  one two', '    three'], [[('name  ', '1'), ('  a', '2')], [('        note', '2')]], ['one two'])
    """
    pieces = [(line, "")] if isinstance(line, str) else list(line)
    plain = "".join(text for text, _ in pieces)
    if width is None or len(plain) <= width:
        return [line]
    last, style = pieces[-1]
    blanks = len(last) - len(last.lstrip())
    indent = blanks + 2 if len(pieces) == 1 else len(plain) - len(last) + blanks
    if indent > width * _MOST_INDENT:
        indent = len(plain) - len(plain.lstrip()) + 2
    before = "x" * (len(plain) - len(last))
    text = before + _BEFORE_UNIT.sub(_KEPT, last)
    lines = textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    lines = [wrapped_line.replace(_KEPT, " ") for wrapped_line in lines]
    if len(lines[0]) < len(before):
        return [line]
    first = lines[0][len(before) :]
    if isinstance(line, str):
        return [first, *lines[1:]]
    return [[*pieces[:-1], (first, style)], *([(text, style)] for text in lines[1:])]


def wrapped_lines(lines: Iterable[Line], width: int | None) -> list[Line]:
    """Lines that fit into a terminal of this width; None: as they are."""
    return [part for line in lines for part in wrapped(line, width)]


def styled_lines(lines: Iterable[Line], *, colors: bool) -> str:
    r"""Lines of a screen, whatever is in their texts.

    >>> styled_lines(["a\nb", [("good", GOOD), (" end", "")]], colors=True)
    'a b\n\x1b[32mgood\x1b[0m end'
    """
    return "\n".join(
        printable(line)
        if isinstance(line, str)
        else "".join(styled(printable(text), style if colors else "") for text, style in line)
        for line in lines
    )


_BETWEEN = "  "
_LEAST_TEXT = 30
"""Characters of texts to which a narrow terminal shortens them before it leaves out columns."""
_SHORTEST_TEXT = 12
"""The same where nothing else helps."""
_MOST_LINES = 2
"""Lines of a heading."""


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: frozenset[int], width: int | None = None) -> list[str]:
    """Cells (`rows`) in columns of equal width under headings (`columns`); `texts` are places of columns with texts, which are
    aligned to the left. On a terminal of a smaller `width` (characters; None: any) headings have several lines, and texts are
    shortened. Numbers never are, so that the table can still be wider.

    >>> grid(["name", "count"], [["a", "7"], ["long", "12"]], frozenset({0}))
    ['  name  count', '  a         7', '  long     12']
    >>> grid(["kernel", "of the run"], [["a kernel with a long name", "12 %"]], frozenset({0}), 24)
    ['                  of the', '  kernel             run', '  a kerne...name    12 %']
    """
    if width is not None and _needed(_widths(columns, rows)) > width:
        return _fitted(columns, rows, texts, width)
    widths = _widths(columns, rows)
    return [_line(cells, widths, texts) for cells in (columns, *rows)]


def is_too_wide(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: frozenset[int], width: int | None) -> bool:
    """Whether a table does not fit into a terminal of this width even with shortened texts, unless less of them remains than
    says something; never where the width is None."""
    widths = _broken_widths(columns, rows)
    least = [min(widest, _LEAST_TEXT) if place in texts else widest for place, widest in enumerate(widths)]
    return width is not None and _needed(least) > width


def _fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: frozenset[int], width: int) -> list[str]:
    widths = _broken_widths(columns, rows)
    longest = max(widths)
    while _needed(widths) > width and longest > _SHORTEST_TEXT:
        longest -= 1
        widths = [min(size, longest) if place in texts else size for place, size in enumerate(widths)]
    for place, heading in enumerate(columns):
        # Headings stay on one line where there is room.
        if len(heading) > widths[place] and _needed(widths) + len(heading) - widths[place] <= width:
            widths[place] = len(heading)
    headings = [_broken(heading, size) for heading, size in zip(columns, widths, strict=True)]
    height = max(map(len, headings))
    # The last line of each is just above the cells.
    above = zip(*([""] * (height - len(heading)) + heading for heading in headings), strict=True)
    cells = enumerate(zip(*above, *rows, strict=True))
    shown = (short_names(column, widths[place]) if place in texts else column for place, column in cells)
    return [_line(row, widths, texts) for row in zip(*shown, strict=True)]


def short_names(names: Sequence[str], longest: int = LONGEST_SHOWN) -> list[str]:
    """Names of a column without the middle of long ones; where these would look alike, the part in which they differ stays.

    >>> short_names(["kernel<of one kind, float>(arguments)", "kernel<of one kind, half>(arguments)"], 30)
    ['kernel<of ...float>...rguments)', 'kernel<of ...half>...rguments)']
    """
    cut = [short(name, longest) for name in names]
    for alike in {text for text in cut if cut.count(text) > 1}:
        whole = {place: on_one_line(names[place]) for place, text in enumerate(cut) if text == alike}
        differs = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*whole.values(), strict=False))))
        for place, name in whole.items() if len(set(whole.values())) > 1 else ():
            cut[place] = short(f"{name[: longest // 3]}...{name[differs:]}", longest)
    return cut


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]


def _broken_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The same where headings have two lines."""
    broken = ((_broken(heading, size) for size in range(1, len(heading) + 2)) for heading in columns)
    headings = [next(lines for lines in of_sizes if len(lines) <= _MOST_LINES) for of_sizes in broken]
    return _widths([max(lines, key=len) for lines in headings], rows)


def _broken(heading: str, width: int) -> list[str]:
    return textwrap.wrap(heading, width, break_long_words=False, break_on_hyphens=False) or [""]


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + len(_BETWEEN) * len(widths)


def _line(cells: Sequence[str], widths: Sequence[int], texts: frozenset[int]) -> str:
    aligned = (
        f"{cell:<{width}}" if place in texts else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return _BETWEEN + _BETWEEN.join(aligned).rstrip()
