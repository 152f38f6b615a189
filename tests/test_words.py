"""Messages, help and documentation are in plain English, without phrases that readers stumble over."""

import re
from collections.abc import Iterator
from pathlib import Path

import typer

from nsys2prv.cli.app import app

CHECKOUT = Path(__file__).resolve().parents[1]

PHRASES = {
    "tells": "reports, shows, contains",
    "told": "known, reported",
    "stand in": "be in",
    "stands in": "is in",
    "stand on": "be on",
    "stands on": "is on",
    "stands beside": "is beside",
    "who is who": "ranks and hosts",
    "way of the data": "data flow",
    "the begin": "the start",
    "its begin": "its start",
    "keeps every promise": "is valid",
    "breaks a promise": "is not valid",
    "is wanted": "is requested",
    "of its own": "separate",
    "of their own": "separate",
    "becomes of": "happens to",
    "tied together": "aligned",
    "ping-pong": "synchronization stalls",
    "uncovered": "exposed",
    "clock drop": "clock throttling",
    "tell nobody": "no progress",
}
BANNED = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def help_texts() -> Iterator[tuple[str, str]]:
    """Help of commands, arguments and options."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        yield name, command.help
        yield from ((f"{name} {parameter.name}", parameter.help or "") for parameter in command.params)


def lines() -> Iterator[tuple[str, str]]:
    """Lines of the documentation, the table of views, templates, and code with its messages, docstrings and comments."""
    of_checkout = [
        *CHECKOUT.glob("*.md"),
        *(path for name in ("docs", "cfgs", "nsys2prv") for path in CHECKOUT.glob(f"{name}/**/*")),
    ]
    for path in (path for path in sorted(of_checkout) if path.suffix in {".md", ".ini", ".j2", ".py", ".csv"}):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(CHECKOUT)}:{number}", line


def unclear(texts: Iterator[tuple[str, str]]) -> list[str]:
    """Places of unclear phrases, with their replacements."""
    return [f"{place}: {found[0]!r} ({PHRASES[found[0].lower()]})" for place, text in texts for found in BANNED.finditer(text)]


def test_help_is_plain() -> None:
    assert unclear(help_texts()) == []


def test_documentation_and_code_are_plain() -> None:
    assert unclear(lines()) == []
