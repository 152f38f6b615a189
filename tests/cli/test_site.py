"""The documentation site has everything that the program has, builds without warnings, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.checkout import CHECKOUT, tool

import nsys2prv as np
from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.comparison_tables import TABLES as COMPARISON_TABLES
from nsys2prv.efficiency.findings import HOST_RULES, RULES
from nsys2prv.efficiency.metrics import TREES
from nsys2prv.paraver.views.view_table import read_view_table
from nsys2prv.sources.registry import EVENT_TYPES, SOURCES

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


def rules() -> Iterable[str]:
    yield from (f"`{rule.kind}`" for rule in (*RULES, *HOST_RULES))


def efficiencies() -> Iterable[str]:
    yield from (one.title for tree in TREES for one in tree.efficiencies)


def views() -> Iterable[str]:
    yield from (f"`{view.name}`" for view in read_view_table().views)


def sources() -> Iterable[str]:
    yield from (f"`{source.name}`" for source in SOURCES)


def result_tables() -> Iterable[str]:
    yield from (f"### `{table.name}`" for table in table_registry.TABLES)


def comparison_tables() -> Iterable[str]:
    yield from (f"### `{table.name}`" for table in COMPARISON_TABLES)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("reference/findings.md", rules),
        ("efficiency.md", efficiencies),
        ("reference/views.md", views),
        ("reference/sources.md", sources),
        ("reference/efficiency-tables.md", result_tables),
        ("reference/compare-tables.md", comparison_tables),
    ],
    ids=["rules", "efficiencies", "views", "sources", "result-tables", "comparison-tables"],
)
def test_the_site_names_everything_that_the_program_has(page: str, names: Callable[[], Iterable[str]]) -> None:
    wanted = set(names())

    assert wanted
    assert {name for name in wanted if name not in PAGES[page]} == set()


def test_the_site_has_every_event_type() -> None:
    numbers: set[int] = set()
    for first, last in re.findall(r"^\| (\d{4,})(?: to (\d+))?", PAGES["reference/events.md"], re.MULTILINE):
        numbers.update(range(int(first), int(last or first) + 1))

    assert {one.number for one in EVENT_TYPES if one.number not in numbers} == set()


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
