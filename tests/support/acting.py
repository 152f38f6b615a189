"""Whether a text from outside does anything in an output: on a screen, in a spreadsheet, a page, a trace, a view."""

import base64
import csv
import hashlib
import json
import re
import unicodedata
from pathlib import Path

from .browser import PageReader
from .hostile_report import BROKEN, SECRET

_DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_FORMULA = re.compile(r"[=+\-@\t\r＝＋－＠]")
_NAME = re.compile(r"[A-Za-z0-9_. -]+")
_NUMBER = re.compile(r"-?[0-9.]+(e[-+]?[0-9]+)?")
_NO_LINES = (f"nsys2prv: {BROKEN}", f"warning: {BROKEN}", BROKEN, "window_name " + BROKEN, "=" * 13 + BROKEN)
"""What a text from outside would put at the start of a line."""
_LINES_OF_PRV = re.compile(r"#Paraver \([0-9/: a-z]+\):[0-9_ns:(),]+|[123c](:-?[0-9]+)+")


def acting_characters(text: str) -> list[str]:
    """Characters that a terminal or a reader could take for something else than text."""
    acting = (one for one in set(text) if unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"} or one in _DIRECTIONS)
    return sorted(one for one in acting if one != "\n")


def screen_fault(text: str) -> str | None:
    """What a text of a report does on the screen, or None."""
    if acting := acting_characters(text):
        return f"characters that act reach the screen: {acting!r}"
    return _lines_fault(text)


def outputs_fault(folder: Path) -> str | None:
    """What a text from outside does in the files of a folder, or None. Databases are inputs."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".sqlite":
            continue
        if not _NAME.fullmatch(path.name):
            return f"a text of a report is a path: {path.relative_to(folder)}"
        if path.is_file() and (fault := _file_fault(path)):
            return f"{path.relative_to(folder)}: {fault}"
    return None


def _file_fault(path: Path) -> str | None:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 ({error})"
    checks = {".json": _json_fault, ".csv": _csv_fault, ".html": _page_fault, ".prv": _prv_fault}
    # Not its own code, which its policy names.
    shown = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL) if path.suffix == ".html" else text
    if acting := acting_characters(shown):
        return f"characters that act: {acting!r}"
    return _lines_fault(shown) or checks.get(path.suffix, lambda _: None)(text)


def _lines_fault(text: str) -> str | None:
    if SECRET in text:
        return f"a secret comes out: {text[max(text.index(SECRET) - 80, 0) :][:200]!r}"
    if BROKEN * 7 in text:
        return "a text of a report is evaluated as a template"
    broken = next((line for line in text.splitlines() if line.startswith(_NO_LINES)), None)
    return f"a text of a report ends a line: {broken[:200]!r}" if broken is not None else None


def _json_fault(text: str) -> str | None:
    json.loads(text)
    return None


def _csv_fault(text: str) -> str | None:
    rows = list(csv.reader(text.split("\n")[:-1], strict=True))
    if {len(row) for row in rows} != {len(rows[0])}:
        return "its rows differ in length"
    cell = next((cell for row in rows for cell in row if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)), None)
    return f"a cell that a spreadsheet runs: {cell[:100]!r}" if cell is not None else None


def _prv_fault(text: str) -> str | None:
    wrong = next((line for line in text.splitlines() if not _LINES_OF_PRV.fullmatch(line)), None)
    return f"a line that is no record: {wrong[:100]!r}" if wrong is not None else None


def _page_fault(html: str) -> str | None:
    page = PageReader(html)
    policies = [one.attributes["content"] for one in page.all("meta", **{"http-equiv": "Content-Security-Policy"})]
    if len(policies) != 1 or not policies[0].startswith("default-src 'none'"):
        return f"its policy is {policies!r}"
    for script in page.all("script"):
        digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
        if script.attributes.get("type") != "application/json" and f"'sha256-{digest}'" not in policies[0]:
            return f"a script that its policy does not name: {script.text[:100]!r}"
    for element in page.elements:
        if element.tag in {"img", "iframe", "object", "embed", "form", "base"}:
            return f"an element {element.tag}"
        if any(name.startswith("on") for name in element.attributes):
            return f"an attribute that is a script: {element.attributes!r}"
        if re.match(r"(?i)\s*javascript:", element.attributes.get("href", "")):
            return f"a link that is a script: {element.attributes!r}"
    return None
