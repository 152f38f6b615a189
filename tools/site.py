"""Hook of mkdocs: pages of the site that are beside the code, where readers of a checkout look for them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

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
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)|(?<=\]\()docs/(?=[^)]*\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(CHECKOUT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are on the site; a file that is no page of it is only named."""
    names = {of_site: name for name, of_site in PAGES.items()}
    folder = posixpath.dirname(names.get(page.file.src_uri, FOLDER + page.file.src_uri))

    def link(found: re.Match[str]) -> str:
        if found[2] is None:
            # A picture in a page of the checkout.
            return ""
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        of_site = PAGES.get(target) or (target.removeprefix(FOLDER) if target.startswith(FOLDER) else None)
        return f"[{found[1]}]({of_site}{found[3] or ''})" if of_site is not None else found[1]

    return _LINK.sub(link, markdown)
