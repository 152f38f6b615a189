"""Texts from outside (reports, traces, names of files, options) as text alone: nothing in them controls what shows them.

What writes for people or other programs uses one of these: a terminal, JSON, CSV, HTML, labels of a trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

LONGEST_LINE = 10_000
"""Characters of one line on the screen; two paths of the greatest length fit in."""

_BLANKS = r"\t-\r\x1c-\x1f\x85\u2028\u2029"
_DIRECTIONS = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
ACTING = rf"\x00-\x1f\x7f-\x9f\u2028\u2029{_DIRECTIONS}"
"""Characters, in a class of a regular expression, that move the cursor, change colours, end a line or turn the direction of
writing."""
_ACTING = re.compile(rf"[{ACTING}\ud800-\udfff]+")
_FORMULA = r"^([=+\-@＝＋－＠])"
"""What makes a spreadsheet run a cell."""
_LINE_ENDS = re.compile(rf"[{_BLANKS}]+")
_ESCAPED = re.compile(rf"[{ACTING}\ud800-\udfff]")
# JSON escapes the first ones itself, and line ends between its lines are its own.
_IN_JSON = re.compile(rf"[\x7f-\x9f\u2028\u2029{_DIRECTIONS}\ud800-\udfff]")


def printable(text: str, longest: int = LONGEST_LINE) -> str:
    r"""A text on one line of a screen: line ends are blanks, other characters that act are written as escapes.

    >>> printable("a\x1b[2J\n  b\u202e"), printable("0123456789", 7)
    ('a\\x1b[2J   b\\u202e', '01...89')
    """
    if not text.isprintable():
        text = _ESCAPED.sub(lambda match: match[0].encode("unicode_escape").decode(), _LINE_ENDS.sub(" ", text))
    if len(text) <= longest:
        return text
    tail = longest // 3
    return f"{text[: longest - tail - 3]}...{text[-tail:]}"


def printable_lines(texts: Iterable[str]) -> str:
    r"""Texts as lines of a screen, one each.

    >>> printable_lines(["host a\nb", "2 GPUs"])
    'host a b\n2 GPUs'
    """
    return "\n".join(map(printable, texts))


def on_one_line(text: str) -> str:
    r"""A text without characters that act, and without repeated blanks: for names and labels.

    >>> on_one_line("data\n  \x1b[1mloader ")
    'data [1mloader'
    """
    return " ".join(_ACTING.sub(" ", text).split())


def spreadsheet_cells(texts: pl.Series) -> pl.Series:
    r"""Texts as cells of a CSV file: what a spreadsheet would take for a formula gets an apostrophe in front.

    >>> import polars as pl
    >>> spreadsheet_cells(pl.Series(["gemm", "=cmd()", "a\x1b"])).to_list()
    ['gemm', "'=cmd()", 'a\\x1b']
    """
    if texts.str.contains(f"[{ACTING}]").any():
        texts = texts.map_elements(printable, return_dtype=texts.dtype)
    cells: pl.Series = texts.str.replace(_FORMULA, "'${1}")
    return cells


def as_utf8(text: str) -> str:
    r"""A text that a frame can hold: names of files need not be UTF-8, and get marks in the place of what is not.

    >>> as_utf8("a\udcffb")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode()


def safe_json(content: Any, **form: Any) -> str:
    r"""An object as JSON, in which a text that acts is escaped; `form` as for `json.dumps`.

    >>> safe_json({"host": "a\x9bb\u202e"})
    '{"host": "a\\u009bb\\u202e"}'
    """
    text = json.dumps(content, ensure_ascii=False, **form)
    # Nearly always, and quickly known.
    if text.isascii() and "\x7f" not in text:
        return text
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
