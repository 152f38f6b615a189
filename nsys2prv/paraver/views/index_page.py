"""The page beside the views of a trace: a list with descriptions, a search, and commands that open each view."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from nsys2prv.paraver.views.rendered import RenderedView
from nsys2prv.paraver.views.templates import template_environment
from nsys2prv.paraver.views.view_table import GROUPS, cfgs_folder
from nsys2prv.vocabulary.printable import printable


def index_page(groups: Sequence[tuple[str, Sequence[RenderedView]]], prv: Path, final: Path) -> str:
    """Text of the page.

    Parameters
    ----------
    groups
        Groups with their views, in order.
    prv
        The path of the trace in the end.
    final
        The path of the folder of the views in the end. Commands are for the folder of the trace, so that they still work when
        the trace and its views are copied to another machine.
    """
    script = (cfgs_folder() / "macros" / "index.js").read_text(encoding="utf-8")
    folder = Path(os.path.relpath(final, prv.parent))
    return (
        template_environment(cfgs_folder())
        .get_template("macros/index.html.j2")
        .render(
            trace=printable(prv.name),
            program_and_trace=f"wxparaver {_argument(prv.name)}",
            groups=[
                (group, GROUPS[group], [(one, _argument(str(folder / one.path))) for one in rendered])
                for group, rendered in groups
            ],
            script=Markup(script),
            # The policy of the page lets this script run, and no other.
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _argument(path: str) -> str:
    """A path as an argument that a shell passes on unchanged, on one line.

    >>> _argument("my run.prv"), _argument("-x.prv"), _argument("run.prv")
    ("'my run.prv'", './-x.prv', 'run.prv')
    """
    return printable(shlex.quote(f"./{path}" if path.startswith("-") else path))
