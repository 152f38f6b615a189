"""Colors and weight of text on a terminal; without them the text is the same."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from nsys2prv.vocabulary.printable import printable

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
    whole = "".join(text for text, _ in pieces)
    if width is None or len(whole) <= width:
        return [line]
    last, style = pieces[-1]
    blanks = len(last) - len(last.lstrip())
    indent = blanks + 2 if len(pieces) == 1 else len(whole) - len(last) + blanks
    if indent > width * _MOST_INDENT:
        indent = len(whole) - len(whole.lstrip()) + 2
    before = "x" * (len(whole) - len(last))
    text = before + _BEFORE_UNIT.sub(_KEPT, last)
    found = textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    found = [one.replace(_KEPT, " ") for one in found]
    if len(found[0]) < len(before):
        return [line]
    first = found[0][len(before) :]
    if isinstance(line, str):
        return [first, *found[1:]]
    return [[*pieces[:-1], (first, style)], *([(text, style)] for text in found[1:])]


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
