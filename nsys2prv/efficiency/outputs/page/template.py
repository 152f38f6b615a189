"""How templates of pages are filled: any text of a run is escaped, and only code of the package runs."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from nsys2prv.vocabulary import wording
from nsys2prv.vocabulary.printable import printable, safe_json

FOLDER = Path(__file__).parent
_OWN = ".nsys2prv"
"""What notebooks show is inside of an element of this class."""


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of this folder."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # Of all that is put into the page; what the page itself is made of is `Markup`.
        finalize=lambda value: printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    templates.filters["short"] = wording.short
    return templates


def part(name: str) -> str:
    """A file of this folder."""
    return (FOLDER / name).read_text(encoding="utf-8")


def notebook_style(*names: str) -> Markup:
    """Files of this folder as a style that touches nothing outside of `.nsys2prv`."""
    return Markup("".join(map(_within_own, map(part, names))))


def _within_own(style: str) -> str:
    """A style sheet whose rules are for what is inside of `.nsys2prv`; rules for that itself stay.

    >>> _within_own("@media print { .a, b { c: d; } }/* x, */ .nsys2prv { e: f; }")
    '@media print { .nsys2prv .a, .nsys2prv b { c: d; } } .nsys2prv { e: f; }'
    """

    def scoped(found: re.Match[str]) -> str:
        space, selectors = found["space"], [one.strip() for one in found["selectors"].split(",")]
        return space + ", ".join(one if one.startswith(_OWN) else f"{_OWN} {one}" for one in selectors) + " {"

    plain = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    return re.sub(r"(?P<space>(?:^|(?<=[{}]))\s*)(?P<selectors>[^{}@;\s][^{}@;]*)\{", scoped, plain)


def script_of_page(name: str) -> Markup:
    """A script of the page, unchanged: its hash is in the policy. It must not contain what would end the element."""
    text = part(name)
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError("a script of the page has </script or <!-- in it")
    return Markup(text)


def hashes(scripts: Sequence[str]) -> str:
    """What a content security policy names so that these scripts, and no others, run."""
    found = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{one}'" for one in found)


def json_in_html(content: Any) -> Markup:
    r"""JSON for a script element: no text in it ends the element or starts a comment.

    >>> str(json_in_html({"name": "</script><!-- \u2028"}))
    '{"name":"\\u003c/script\\u003e\\u003c!-- \\u2028"}'
    """
    text = safe_json(content, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
