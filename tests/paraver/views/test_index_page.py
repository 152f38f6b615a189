"""The page that lists the views: a search, and commands that a shell reads as they are meant."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from support.browser import PageReader, browser_or_skip, with_script
from support.view_contents import ONE_GPU, TYPES, content

from nsys2prv.paraver.views.folder import write_views
from nsys2prv.paraver.views.render import RenderedView
from nsys2prv.paraver.views.view_table import GROUPS


def page_of(folder: Path, prv: Path, final: Path) -> tuple[str, list[RenderedView]]:
    written = write_views(folder, content(TYPES, ONE_GPU), prv, final)
    return (folder / "index.html").read_text(encoding="utf-8"), written


@pytest.mark.parametrize(
    ("prv", "final", "trace", "views"),
    [
        ("run/OUT.prv", "run/OUT.cfgs", "OUT.prv", "OUT.cfgs"),
        ("OUT.prv.gz", "elsewhere", "OUT.prv.gz", "elsewhere"),
        ("run/OUT.prv", "views", "OUT.prv", "../views"),
        ("my 'run' $HOME.prv", "my 'run' $HOME.cfgs", "my 'run' $HOME.prv", "my 'run' $HOME.cfgs"),
        ("-rf.prv", "-rf.cfgs", "./-rf.prv", "./-rf.cfgs"),
    ],
    ids=["beside the trace", "compressed", "elsewhere", "odd characters", "like an option"],
)
def test_each_view_has_a_command_that_opens_it_in_the_folder_of_the_trace(
    prv: str, final: str, trace: str, views: str, tmp_path: Path
) -> None:
    page, written = page_of(tmp_path, Path(prv), Path(final))
    commands = [one.text for one in PageReader(page).all("code", **{"class": "command"})]

    assert [shlex.split(command) for command in commands] == [["wxparaver", trace, f"{views}/{one.path}"] for one in written]


def test_groups_with_views_are_listed_by_their_titles(tmp_path: Path) -> None:
    page, written = page_of(tmp_path, Path("OUT.prv"), Path("OUT.cfgs"))
    reader = PageReader(page)
    groups = list(dict.fromkeys(one.view.group for one in written))

    assert [one.text for one in reader.all("h2")] == [GROUPS[group] for group in groups]
    assert [one.attributes["href"] for one in reader.all("a") if one.attributes["href"].startswith("#")] == [
        f"#{group}" for group in groups
    ]
    assert "4-mpi" not in groups


SEARCH = """
const shown = {};
for (const words of ["", "gemm TENSOR", "communication", "<b>", "nothing at all", "OUT.prv"]) {
  const box = document.getElementById("search");
  box.value = words;
  box.dispatchEvent(new Event("input"));
  const rows = [...document.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility());
  shown[words] = [rows.map((row) => row.querySelector("a").getAttribute("href")), document.getElementById("found").textContent];
}
document.body.textContent = JSON.stringify(shown);
"""


@pytest.mark.thorough
def test_the_search_shows_the_views_that_have_all_words(tmp_path: Path) -> None:
    page, written = page_of(tmp_path, Path("OUT.prv"), Path("OUT.cfgs"))
    dumped, complaints = browser_or_skip(tmp_path).run(with_script(page, SEARCH), "--dump-dom")
    shown = json.loads(PageReader(dumped).one("body").text)
    of_communication = [one.path for one in written if "communication" in f"{one.path} {one.title} {one.view.text}".lower()]

    assert complaints == ""
    assert shown[""] == [[one.path for one in written], ""]
    assert shown["gemm TENSOR"] == [["2-gpu-metrics/tensor_per_gemm.cfg"], "1 view"]
    assert "3-communication/nccl_time.cfg" in of_communication
    assert shown["communication"] == [of_communication, f"{len(of_communication)} views"]
    for nothing in ("<b>", "nothing at all", "OUT.prv"):
        assert shown[nothing] == [[], "0 views"]
