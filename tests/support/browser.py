"""Pages as a parser of HTML and a real browser see them."""

import base64
import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chromium-headless-shell")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
         "--disable-default-apps", "--no-default-browser-check", "--disable-features=OptimizationHints")  # fmt: skip


@dataclass
class Element:
    """An element of a page with its text."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


class PageReader(HTMLParser):
    """All elements of a page, as a parser of HTML sees them."""

    _VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in self._VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            one
            for one in self.elements
            if one.tag == tag and all(one.attributes.get(name) == value for name, value in attributes.items())
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def island(self) -> dict[str, Any]:
        """The JSON in the page."""
        found: dict[str, Any] = json.loads(self.one("script", id="data").text)
        return found


class Browser(NamedTuple):
    """Chromium without a window."""

    program: str
    folder: Path

    def run(self, html: str, *options: str) -> tuple[str, str]:
        """Open a page and wait until its scripts are done: what the browser printed, and what it complained of."""
        path = self.folder / "page.html"
        path.write_text(html, encoding="utf-8")
        done = subprocess.run(
            [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *QUIET,
             "--enable-logging=stderr",
             f"--user-data-dir={self.folder / 'profile'}", "--virtual-time-budget=20000", *options, path.as_uri()],
            capture_output=True, encoding="utf-8", timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "document idle" not in line]
        return done.stdout, "\n".join(complaints)

    def shown(self, html: str) -> tuple[str, str, list[str]]:
        """The page after its scripts, what the browser complained of, and addresses that it asked for."""
        log = self.folder / "net.json"
        dom, complaints = self.run(html, f"--log-net-log={log}", "--dump-dom")
        events = json.loads(log.read_text(encoding="utf-8"))["events"]
        asked = [event["params"] for event in events if {"url", "initiator"} <= event.get("params", {}).keys()]
        # What no page began is the browser's own.
        return dom, complaints, sorted({params["url"] for params in asked if params["initiator"] != "not an origin"})

    def answer(
        self, html: str, function: str = "answer", script: str = "", *, dark: bool = False, width: int | None = None
    ) -> Any:
        """What a function of page_scripts.js, or of a script, returns in the complete page."""
        asking = f"""
        {script or Path(__file__).with_name("page_scripts.js").read_text(encoding="utf-8")}
        addEventListener("load", async () => {{
          const made = document.createElement("pre"); made.id = "answer";
          made.textContent = JSON.stringify(await {function}());
          document.body.append(made);
        }});
        """
        dom, complaints = self.in_colours(with_script(html, asking), dark=dark, width=width)
        assert complaints == ""
        return json.loads(PageReader(dom).one("pre", id="answer").text)

    def in_colours(self, html: str, *, dark: bool, width: int | None = None) -> tuple[str, str]:
        """The page after its scripts, and what the browser complained of, where the system has dark or light colours, in a
        window of this width, pixels."""
        size = [] if width is None else [f"--window-size={width},900"]
        return self.run(html, _scheme(dark=dark), *size, "--dump-dom")

    def picture(self, html: str, *, dark: bool) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Rows x columns x colours."""
        path = self.folder / "picture.png"
        _, complaints = self.run(html, _scheme(dark=dark), "--window-size=1200,6000", f"--screenshot={path}")
        assert complaints == ""
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))


def _scheme(*, dark: bool) -> str:
    return f"--blink-settings=preferredColorScheme={0 if dark else 1}"


def found_browser() -> str | None:
    """The first of BROWSERS that is on PATH."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def browser_or_skip(folder: Path) -> Browser:
    """A browser that keeps its files in a folder; the test is skipped where none is installed."""
    program = found_browser()
    if program is None:
        pytest.skip(
            f"no browser is on PATH, none of {', '.join(BROWSERS)}; when one is: make test-all PYTEST_OPTIONS='-k browser'"
        )
    return Browser(program, folder)


def with_script(html: str, script: str) -> str:
    """A page that does something more when it is drawn; its policy must let it."""
    checked = hashlib.sha256(script.encode()).digest()
    allowed = html.replace("script-src ", f"script-src 'sha256-{base64.b64encode(checked).decode()}' ", 1)
    return allowed.replace("</body>", f"<script>{script}</script></body>")
