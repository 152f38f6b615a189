"""Hook of mkdocs: pages of the site that are beside the code, where readers of a checkout look for them."""

from __future__ import annotations

import json
import posixpath
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = "docs/"
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "cfgs/README.md": "templates.md",
}
"""Pages of the site that are not in `docs/`, by files of the checkout."""
NOTEBOOK, NOTEBOOK_PAGE = CHECKOUT / "docs" / "notebook.ipynb", "notebook.md"
_NAMES = {**PAGES, "docs/notebook.ipynb": NOTEBOOK_PAGE}
_OUTPUT = '<div class="notebook-output" id="output-{}"></div>'
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)|(?<=\]\()docs/(?=[^)]*\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(CHECKOUT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, NOTEBOOK_PAGE, content=notebook_as_markdown()))
    return files


def notebook_as_markdown() -> str:
    """The notebook as a page, with a place for each output: outputs are HTML, and Markdown would read their indentation."""
    parts = []
    for number, cell in enumerate(_cells()):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```\n\n{_OUTPUT.format(number)}")
    return "\n\n".join(parts) + "\n"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Outputs of the notebook in their places."""
    if page.file.src_uri != NOTEBOOK_PAGE:
        return html
    for number, cell in enumerate(_cells()):
        if cell["cell_type"] == "code":
            html = html.replace(_OUTPUT.format(number), "".join(map(_output_as_html, cell["outputs"])))
    return html


def _output_as_html(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"<pre>{escape(''.join(output['text']))}</pre>"
    data = output["data"]
    if "text/html" not in data:
        return f"<pre>{escape(''.join(data['text/plain']))}</pre>"
    # A tree of its kind: neither do the styles of the site reach the output, nor those of the output the site.
    inside = f"<style>:host {{ overflow-x: auto; display: block }}</style>{''.join(data['text/html'])}"
    return f'<div class="notebook-output"><template shadowrootmode="open">{inside}</template></div>'


def _cells() -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return cells


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are on the site; a file that is no page of it is only named."""
    names = {of_site: name for name, of_site in PAGES.items()}
    folder = posixpath.dirname(names.get(page.file.src_uri, FOLDER + page.file.src_uri))

    def link(found: re.Match[str]) -> str:
        if found[2] is None:
            # A picture in a page of the checkout.
            return ""
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        of_site = _NAMES.get(target) or (target.removeprefix(FOLDER) if target.startswith(FOLDER) else None)
        if of_site is None:
            return found[1]
        return f"[{found[1]}]({posixpath.relpath(of_site, posixpath.dirname(page.file.src_uri) or '.')}{found[3] or ''})"

    return _LINK.sub(link, markdown)
