"""The table of views is complete, and an inconsistent table is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv.paraver.views.view_table import GROUPS, cfgs_folder, read_view_table
from nsys2prv.sources.host import call_chains
from nsys2prv.sources.registry import CONSTANTS, EVENT_TYPES

TABLE = read_view_table()


def test_every_view_has_a_template_and_every_template_is_of_a_view() -> None:
    templates = {str(path.relative_to(cfgs_folder())) for path in cfgs_folder().glob("*/*.cfg.j2")}

    assert {view.template for view in TABLE.views} | {
        str(path.relative_to(cfgs_folder())) for path in (cfgs_folder() / "macros").iterdir()
    } >= templates
    assert {view.template for view in TABLE.views} <= templates
    assert {view.group for view in TABLE.views} == set(GROUPS)
    assert len({view.path for view in TABLE.views}) == len(TABLE.views)


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


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("[basics/x]\ntitle = X\nneeds = NOTHING\ndescription = Text.", "NOTHING is not an event type"),
        ("[basics/x]\ntitle = X", "a title and a description"),
        ("[basics/x]\ntitle = X\ndescription = Text.\nkind = picture", "kind"),
        ("[basics/x]\ntitle = X\ndescription = Text.\nneed = KERNEL", "no other keys"),
        ("[basics/x]\ntitle = X\ndescription = Text.\nrows = gpus", "no rows gpus"),
        ("[elsewhere/x]\ntitle = X\ndescription = Text.", "groups"),
        ("[basics/x]\ntitle = X\ndescription = Text.\neach = KERNEL", "not among the needs"),
    ],
)
def test_an_inconsistent_table_is_refused(section: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "views.ini").write_text(f"[metrics]\n[values]\n{section}\n")
    with pytest.raises(ValueError, match=sentence):
        read_view_table(tmp_path / "views.ini")
