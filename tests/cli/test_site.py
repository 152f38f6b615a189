"""The documentation site builds without warnings, and loads nothing from elsewhere; needs mkdocs (`make docs` installs it)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import CHECKOUT

pytest.importorskip("material", reason="mkdocs-material is not installed: make docs")


def test_the_site_has_each_page_and_loads_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {path.parent.name for path in pages} >= {path.stem for path in (CHECKOUT / "docs").glob("*.md")}
    for page in pages:
        loaded = re.findall(
            r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="(https?:[^"]*)"', page.read_text(encoding="utf-8")
        )
        assert loaded == [], page
