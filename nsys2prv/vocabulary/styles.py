"""Colors and weight of text on a terminal; without them the text is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv.vocabulary.printable import printable

STRONG, GOOD, FAIR, POOR, FAINT = "1", "32", "33", "31", "2"
ERROR, WARNING = "1;31", "1;33"
"""Styles, as numbers of ANSI escape sequences."""

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
