"""The table of views is complete and consistent."""

import base64
import configparser
import re
import shlex
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.browser import PageReader, browser_or_skip
from support.view_contents import ONE_GPU, TYPES, content

from nsys2prv.paraver.views.folder import write_views
from nsys2prv.paraver.views.render import RenderedView
from nsys2prv.paraver.views.view_table import GROUPS, KINDS, MESSAGES, ROWS, cfgs_folder, read_view_table
from nsys2prv.sources.host import call_chains
from nsys2prv.sources.registry import CONSTANTS, EVENT_TYPES

TABLE = read_view_table()


def test_every_view_has_a_template_and_every_template_is_of_a_view() -> None:
    templates = {str(path.relative_to(cfgs_folder())) for path in cfgs_folder().glob("*/*.cfg.j2")}
    assert {view.template for view in TABLE.views} | {
        str(path.relative_to(cfgs_folder())) for path in (cfgs_folder() / "macros").iterdir()
    } >= templates
    assert {view.template for view in TABLE.views} <= templates
    assert list(dict.fromkeys(view.group for view in TABLE.views)) == list(GROUPS) == sorted(GROUPS)
    assert len({view.path for view in TABLE.views}) == len(TABLE.views)


def test_there_are_ten_views_to_start_with_and_they_need_only_work_on_a_gpu() -> None:
    start = [view for view in TABLE.views if view.group == "0-start-here"]
    assert len(start) == 10
    of_any_run = {"KERNEL", "KERNEL_FAMILY", "CUDA_CALL"}
    assert all(of_any_run & set(need) for view in start for need in view.needs)


def test_a_view_is_selected_by_its_name_path_and_group_with_or_without_number() -> None:
    def paths(*names: str) -> list[str]:
        return [view.path for view in TABLE.select(names)]

    memory = [view.path for view in TABLE.views if view.group == "7-memory"]
    assert paths("7-memory") == paths("memory") == memory
    assert paths("gaps") == paths("0-start-here/gaps") == ["0-start-here/gaps"]
    assert paths("copies", "gaps") == ["0-start-here/gaps", "7-memory/copies"]
    assert len(paths()) == len(TABLE.views)


def test_titles_of_lists_name_no_member() -> None:
    titles = {view.name: view.general_title for view in TABLE.views}
    assert (titles["metric"], titles["metric_per_kernel"]) == ("GPU metric", "GPU metric per kernel")
    assert titles["gaps"] == "GPU gaps"
    assert not [title for title in titles.values() if "{" in title or title != title[:1].upper() + title[1:]]


def test_the_page_of_views_names_a_view_for_each_of_the_57_of_nsys2prv_058() -> None:
    page = (cfgs_folder().parent / "docs" / "former-nsys2prv.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z]+/[\w-]+)`(?: \\\*)? \| ([^|]+) \|", page, re.MULTILINE)
    successors = [re.findall(r"`([^`]+)`", here) for _, here in rows]
    assert len({former for former, _ in rows}) == len(rows) == 57
    assert all(successors)
    assert {path for paths in successors for path in paths} <= {view.path for view in TABLE.views}


# Deeper levels of call chains are written for search and tools; there is a view of the innermost one only.
CALL_CHAINS = {
    pattern.format(depth)
    for pattern in ("Sampled functions (depth {})", "Sampled modules (depth {})", "Caller at level {}")
    for depth in range(1, call_chains.MOST_FRAMES)
}


def test_every_event_type_has_a_view() -> None:
    needed = {name for view in TABLE.views for need in view.needs for name in need}
    shown = {CONSTANTS[name] for name in needed if name in CONSTANTS}
    assert {one.label for one in EVENT_TYPES if one not in shown} - CALL_CHAINS == set()


KEYS = {"title", "needs", "each", "rows", "rows_of", "devices", "kind", "template", "description", "reading"}


def test_the_table_is_consistent() -> None:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.read_string((cfgs_folder() / "views.ini").read_text(encoding="utf-8"))
    words = {name.upper() for name in parser["series"]}
    aliases = {MESSAGES, *TABLE.metrics, *TABLE.values}

    assert {key for view in TABLE.views for key in parser[view.path]} <= KEYS
    assert {parser[view.path].get("devices", "yes") for view in TABLE.views} == {"yes"}
    # A view keeps its name when it moves to another group.
    assert len({view.name for view in TABLE.views}) == len(TABLE.views)
    assert {constant for constant, _ in TABLE.values.values()} <= CONSTANTS.keys()
    for view in TABLE.views:
        assert re.fullmatch(r"[a-z0-9_]+", view.name)
        assert view.title, view.path
        assert view.description, view.path
        assert view.group in GROUPS, view.path
        assert view.kind in KINDS, view.path
        assert view.rows in {None, *ROWS}, view.path
        assert {name for need in (*view.needs, *view.rows_of) for name in need} <= aliases | CONSTANTS.keys(), view.path
        assert view.split_by is None or (view.split_by,) in view.needs, view.path
        assert "{}" not in view.title or (view.split_by or "").upper() in words, view.path


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


@pytest.mark.thorough
def test_the_search_shows_the_views_that_have_all_words(tmp_path: Path) -> None:
    page, written = page_of(tmp_path, Path("OUT.prv"), Path("OUT.cfgs"))
    shown = browser_or_skip(tmp_path).answer(page, "search")
    of_communication = [one.path for one in written if "communication" in f"{one.path} {one.title} {one.view.text}".lower()]
    assert shown[""] == [[one.path for one in written], ""]
    assert shown["gemm TENSOR"] == [["2-gpu-metrics/tensor_per_gemm.cfg"], "1 view"]
    assert "3-communication/nccl_time.cfg" in of_communication
    assert shown["communication"] == [of_communication, f"{len(of_communication)} views"]
    for nothing in ("<b>", "nothing at all", "OUT.prv"):
        assert shown[nothing] == [[], "0 views"]


def test_the_workspace_file_has_the_form_that_paraver_reads(tmp_path: Path) -> None:
    found = content(TYPES, ONE_GPU)
    written = write_views(tmp_path / "staged", found, Path("run/trace.prv"), tmp_path / "trace.cfgs")
    text = (tmp_path / "staged/workspace.xml").read_text()
    root = ElementTree.fromstring(text.replace("<!DOCTYPE boost_serialization>", ""))
    (manager,) = root

    assert root.attrib == {"signature": "serialization::archive", "version": "17"}
    assert [child.tag for child in manager] == ["workspaces", "workspacesOrder"]
    # boost numbers classes in the order in which they come, and describes each once.
    described = [one.attrib for one in root.iter() if "class_id" in one.attrib]
    assert [one["class_id"] for one in described] == [str(number) for number in range(len(described))]
    assert [(one["tracking_level"], one["version"]) for one in described] == [
        *[("0", "0")] * 3, ("0", "2"), ("0", "0"), ("0", "1"), *[("0", "0")] * 3,
    ]  # fmt: skip
    workspaces = manager[0].findall("item")
    assert int(manager[0].find("count").text) == len(workspaces) == len({one.view.group for one in written})  # type: ignore[arg-type, union-attr]
    hints = []
    for item in workspaces:
        workspace = item.find("second")
        assert workspace is not None
        assert [child.tag for child in workspace] == ["name", "type", "autoTypes", "hintCFGs"]
        values = [one.text or "" for one in workspace.iter("WorkspaceValue")]
        assert [struct.unpack("<iI", base64.b64decode(value)) for value in values] == [(2, number) for number in found.types]
        of_workspace = workspace.findall("hintCFGs/item")
        assert int(workspace.find("hintCFGs/count").text) == len(of_workspace)  # type: ignore[arg-type, union-attr]
        hints += [(one.find("first").text, one.find("second").text) for one in of_workspace]  # type: ignore[union-attr]
    assert hints == [(str(tmp_path / "trace.cfgs" / one.path), one.menu_text) for one in written]


def test_a_ws_file_holds_a_workspace_and_its_views(tmp_path: Path) -> None:
    written = write_views(tmp_path, content(TYPES, ONE_GPU), Path("my run.prv"), tmp_path)
    text = (tmp_path / "1-gpu-kernels.ws").read_text()
    archive, *files = re.split(r"^=============(.*)\n", text, flags=re.MULTILINE)
    workspace = ElementTree.fromstring(archive.replace("<!DOCTYPE boost_serialization>", ""))[0]
    kernels = [one for one in written if one.view.group == "1-gpu-kernels"]

    assert workspace.findtext("name") == "my_run_1-gpu-kernels"
    assert [one.text for one in workspace.iter("first")] == [Path(one.path).name for one in kernels]
    assert dict(zip(files[::2], files[1::2], strict=True)) == {
        Path(one.path).name: (tmp_path / one.path).read_text() for one in kernels
    }
