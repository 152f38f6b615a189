"""The table of views is complete and consistent."""

from __future__ import annotations

import configparser
import re

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
