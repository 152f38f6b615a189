"""The notebook of the documentation runs, is kept with its outputs, and needs the public API alone."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from support.checkout import tool

import nsys2prv as np
from nsys2prv.demo import write_reports
from nsys2prv.demo.run_demo import cluster_of_demo
from nsys2prv.efficiency.meters.memory_in_use import MEMORY_BINS, MEMORY_IN_USE
from nsys2prv.efficiency.outputs.page.content import NAMES
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.errors import UsageError

notebook = tool("notebook")
site = tool("site_pages")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reports of the demo, of as few events as will do."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "reports").mkdir()
    small = replace(cluster_of_demo(gpus_per_node=2), iterations=6, layers=1, pause_ns=50_000_000, gpu_metrics_hz=0)
    write_reports(folder / "reports", small)
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> EfficiencyResult:
    with np.open_run(folder / "reports") as run:
        return run.efficiency()


def with_memory(result: EfficiencyResult) -> EfficiencyResult:
    """The same with memory in use, of which the demo records nothing."""
    bins = result.tables["bins"].select("bin", device=pl.lit("gpu001:D0"), memory=pl.lit("device"), peak_bytes="bin")
    use = MEMORY_IN_USE.frame(
        [{"device": "gpu001:D0", "memory": "device", "peak_bytes": 99, "peak_at_ns": 5, "before_bytes": 0}]
    )
    of_bins = MEMORY_BINS.frame(bins.with_columns(end_bytes="bin"))
    return EfficiencyResult(result.head, {**result.tables, "memory_in_use": use, "memory_bins": of_bins})


@pytest.mark.thorough
def test_every_cell_of_the_notebook_runs_and_shows_something(folder: Path) -> None:
    kept = notebook.read_notebook()
    done = notebook.execute(kept, folder)

    for before, after in zip(kept["cells"], done["cells"], strict=True):
        if before["cell_type"] == "code":
            # On another run, but of the same kind.
            kinds = [[sorted(output["data"]) for output in cell["outputs"]] for cell in (before, after)]
            assert kinds[0] == kinds[1] != []
    assert (folder / "trace.prv").exists()


def test_the_notebook_uses_the_public_api_alone() -> None:
    code = "\n".join("".join(cell["source"]) for cell in notebook.read_notebook()["cells"] if cell["cell_type"] == "code")

    assert re.findall(r"^ *(?:import|from) (nsys2prv\S*)", code, re.MULTILINE) == ["nsys2prv"]


def test_the_notebook_is_kept_as_jupyter_writes_it() -> None:
    assert notebook.NOTEBOOK.read_text(encoding="utf-8") == notebook.as_text(notebook.read_notebook())


def test_the_page_of_the_site_has_every_cell_and_output() -> None:
    markdown = site.notebook_as_markdown()
    cells = notebook.read_notebook()["cells"]

    assert markdown.count("```python") == sum(cell["cell_type"] == "code" for cell in cells)
    assert markdown.startswith("# A run in a notebook")
    of_notebook = SimpleNamespace(file=SimpleNamespace(src_uri=site.NOTEBOOK_PAGE))
    html = site.on_page_content(markdown, of_notebook, None, None)
    assert 'id="output-' not in html
    for cell in cells:
        for output in cell.get("outputs", []):
            data = output["data"]
            assert "".join(data.get("text/html", [])) in html
            assert "text/html" in data or escape("".join(data["text/plain"])) in html


@pytest.mark.parametrize("name", NAMES)
def test_drawings_are_shown_without_scripts(result: EfficiencyResult, name: str) -> None:
    result = with_memory(result) if name == "memory" else result
    drawn = result.plot(name)

    assert repr(drawn).startswith(f"<Drawing {name}: ")
    assert drawn._repr_html_() == str(drawn) == drawn.html
    assert "<script" not in drawn.html
    assert "<svg" in drawn.html or 'class="leaf-row"' in drawn.html


def test_a_drawing_that_does_not_exist_names_what_is_near(result: EfficiencyResult) -> None:
    with pytest.raises(UsageError, match="did you mean iterations"):
        result.plot("iteration")
    nothing = {name: table.clear() for name, table in result.tables.items()}
    for name in NAMES:
        with pytest.raises(UsageError, match="this run has nothing to show"):
            EfficiencyResult(result.head, nothing).plot(name)
