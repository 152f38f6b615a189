"""The documentation site has everything that the program has, builds without warnings, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import CHECKOUT, tool

import nsys2prv as np

tables = tool("tables")
site = tool("site_pages")

PAGES = {
    **{
        path.relative_to(CHECKOUT / "docs").as_posix(): path.read_text(encoding="utf-8")
        for path in (CHECKOUT / "docs").rglob("*.md")
    },
    **{page: (CHECKOUT / name).read_text(encoding="utf-8") for name, page in site.PAGES.items()},
}
"""Sources of the pages, by their names on the site."""
CODES = re.findall(r"^\| (\d+) \|", tables.exit_codes(), re.MULTILINE)


def test_troubleshooting_says_what_to_do_at_every_exit_code() -> None:
    cells = re.findall(r"^\| (\d[\d, ]*) \|", PAGES["troubleshooting.md"], re.MULTILINE)
    assert {code for cell in cells for code in cell.split(", ")} == set(CODES) - {"0", "130", "141"}
    assert set(CODES) <= set(re.findall(r"^\| (\d+) \|", PAGES["reference/commands.md"], re.MULTILINE))


def test_the_navigation_has_every_page_once() -> None:
    navigation = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"^ +- .*: (\S+\.md)$", navigation, re.MULTILINE)) == sorted(
        {*PAGES, "index.md", site.NOTEBOOK_PAGE}
    )


@pytest.mark.thorough
def test_the_tutorial_has_the_numbers_of_its_reports(real_reports: Path) -> None:
    folder = real_reports / "unet-training"
    measured = np.compare([folder / f"{name}.sqlite" for name in ("baseline", "8workers", "dali", "dali_amp")]).runs
    shown = {
        "time": [f"{value / 1e9:.3f} s" for value in measured["elapsed_ns"]],
        "useful time": [f"{value / 1e9:.3f} s" for value in measured["useful_ns"]],
        "speedup": [f"{value:.3f}" for value in measured["speedup"]],
    }
    for name in ("device_parallel", "communication", "orchestration", "host_parallel"):
        shown[f"{name.replace('_', ' ').title()} Efficiency"] = [
            f"{value:.1%}"[:-1] + " %" for value in measured[f"{name}_efficiency"]
        ]

    table = re.search(r"<!-- unet-training -->\n(.*?)<!-- end -->", PAGES["tutorial.md"], re.DOTALL)
    assert table is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()[2:]]
    assert {row[0]: row[1:] for row in rows} == shown


def test_the_site_has_each_page_and_loads_nothing(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed: make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {path.parent.name for path in pages} >= {path.stem for path in (CHECKOUT / "docs").rglob("*.md")}
    for page in pages:
        loaded = re.findall(
            r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="(https?:[^"]*)"', page.read_text(encoding="utf-8")
        )
        assert loaded == [], page
