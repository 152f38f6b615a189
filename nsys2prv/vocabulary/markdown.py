"""Texts from outside in Markdown, as merge requests of GitHub and GitLab show it: they are read as they are, and do nothing."""

import re
from collections.abc import Collection, Sequence

from nsys2prv.vocabulary.wording import short

_LONGEST = 2_000  # characters of a text


def as_code(text: str) -> str:
    """A text from outside, on one line, as code: neither Markdown nor HTML in it, nor a name of a user or an issue, is read.

    >>> as_code("gemm<float>"), as_code("a `b`"), as_code(" ")
    ('`gemm<float>`', '`` a `b` ``', '')
    """
    text = short(text, _LONGEST)
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    blank = " " if "`" in text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int]) -> list[str]:
    """Lines of a table; columns of words are in these places. Cells are Markdown.

    >>> markdown_table(["", "A"], [[as_code("a|b"), "1"]], words=[0])
    ['|  | A |', '| --- | ---: |', '| `a\\\\|b` | 1 |']
    """
    rule = ["---" if place in words else "---:" for place in range(len(columns))]
    # A table ends a cell at each bar without a backslash, also in code, and takes two backslashes for one.
    escaped = ([re.sub(r"(\\*)\|", r"\1\1\|", cell) for cell in cells] for cells in (columns, rule, *rows))
    return [f"| {' | '.join(cells)} |" for cells in escaped]
