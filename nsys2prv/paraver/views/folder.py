"""The folder of views of a trace, OUT.cfgs: the views, a page that lists them, and workspaces for the Hints menu of wxParaver.

Workspaces have two forms, both archives of boost::serialization as Paraver's kernel reads them (WorkspaceManager::loadXML, and
Workspace::importWSXML with importWSCFGs):

- `workspace.xml` is a list of workspaces with absolute paths, in the form of ~/.paraver/workspaces.xml;
- `GROUP.ws` is one workspace with its views inside, for Preferences > Workspaces > Import, which copies them."""

import base64
import hashlib
import html
import os
import re
import shlex
import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from nsys2prv.paraver.trace_files import without_suffix
from nsys2prv.paraver.views.render import RenderedView, ViewRenderer, slug
from nsys2prv.paraver.views.templates import template_environment
from nsys2prv.paraver.views.trace_content import TraceContent
from nsys2prv.paraver.views.view_table import GROUPS, cfgs_folder
from nsys2prv.vocabulary.printable import ACTING, printable

INDEX, WORKSPACE = "index.html", "workspace.xml"
"""Files beside the folders of views: a page that lists them, and a workspace for the Hints menu of wxParaver."""

_LISTED = re.compile(r'<a href="([^"]+\.cfg)">')
"""A view in the page that lists them."""
_MOST_TYPES_IN_MENU = 1_000
"""Event types that switch a menu on; any one of them is enough."""
_SEPARATOR = "============="
"""Precedes the name of each view in a .ws."""
_EVENT = 2
"""Paraver's WorkspaceType::EVENT."""
_NOT_XML = re.compile(r"[\x00-\x1f\ud800-\udfff\ufffe\uffff]+")
_ACTING = re.compile(f"[{ACTING}]")


def write_views(folder: Path, content: TraceContent, prv: Path, final: Path, only: Iterable[str] = ()) -> list[RenderedView]:
    """Render views of a trace into a folder, with a page that lists them and workspaces for wxParaver.

    Parameters
    ----------
    folder
        Where to write; made where it does not exist.
    prv
        The path of the trace in the end.
    final
        The path of the folder in the end: the workspace has absolute paths of views.
    only
        Views or groups to render; empty: all whose events are in the trace.

    Raises
    ------
    UsageError
        `only` names no view.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rendered = ViewRenderer(content).render(folder, only)
    by_group = {group: [view for view in rendered if view.view.group == group] for group in GROUPS}
    by_group = {group: views for group, views in by_group.items() if views}
    name, environment = without_suffix(prv).name, template_environment(cfgs_folder())
    environment.filters["xml"] = _text
    template = environment.get_template("macros/workspace.xml.j2", globals={"event": _EVENT})
    # The memory of a struct of two 32-bit numbers: kind and event type.
    types = [
        base64.b64encode(struct.pack("<iI", _EVENT, number)).decode() for number in list(content.types)[:_MOST_TYPES_IN_MENU]
    ]
    files, menus = {INDEX: _index_page(by_group, prv, final)}, []
    for group, views in by_group.items():
        hints = [(str(final.absolute() / view.path), view.menu_text) for view in views]
        menus.append({"name": f"{name}: {GROUPS[group]}", "types": types, "hints": hints})
        inside = [(Path(view.path).name, view.menu_text) for view in views]
        workspace = {"name": f"{slug(name)}_{group}", "types": types, "hints": inside}
        texts = ((folder / view.path).read_text(encoding="utf-8") for view in views)
        views_inside = [f"{_SEPARATOR}{file}\n{text}" for (file, _), text in zip(inside, texts, strict=True)]
        files[f"{group}.ws"] = template.render(workspace=workspace) + "".join(views_inside)
    files[WORKSPACE] = template.render(workspaces=menus)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return rendered


def keep_user_files(former: Path, new: Path) -> None:
    """Take what a user put into a folder of views over into its successor: what is neither a view nor what belongs to them.

    A view that the user changed under its name is a view. The successor is made when it is missing and there is something.

    Raises
    ------
    OSError
        When a file can't be taken over.
    """
    try:
        listed = set(_LISTED.findall((former / INDEX).read_text(encoding="utf-8", errors="replace")))
    except FileNotFoundError:
        listed = set()
    written = {INDEX, WORKSPACE, *(f"{view.partition('/')[0]}.ws" for view in listed), *listed}
    for folder, folders, files in os.walk(former):
        for name in (*files, *(name for name in folders if Path(folder, name).is_symlink())):
            path = Path(folder, name)
            place = path.relative_to(former)
            if place.as_posix() in written or os.path.lexists(new / place):
                continue
            (new / place.parent).mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, new / place, follow_symlinks=False)
            except OSError:
                # Not on each file system.
                shutil.copy2(path, new / place, follow_symlinks=False)


def _index_page(by_group: Mapping[str, Sequence[RenderedView]], prv: Path, final: Path) -> str:
    """Text of the page with a list of views, a search, and commands that open each view.

    Commands are for the folder of the trace: they still work when the trace and its views are copied to another machine."""
    script = (cfgs_folder() / "macros" / "index.js").read_text(encoding="utf-8")
    folder = Path(os.path.relpath(final, prv.parent))
    template = template_environment(cfgs_folder()).get_template("macros/index.html.j2")
    return template.render(
        trace=printable(prv.name),
        program_and_trace=f"wxparaver {_argument(prv.name)}",
        groups=[
            (group, GROUPS[group], [(view, _argument(str(folder / view.path))) for view in views])
            for group, views in by_group.items()
        ],
        script=Markup(script),
        # The policy of the page lets this script run, and no other.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _argument(path: str) -> str:
    """A path as an argument that a shell passes on unchanged, on one line.

    >>> _argument("my run.prv"), _argument("-x.prv"), _argument("run.prv")
    ("'my run.prv'", './-x.prv', 'run.prv')
    """
    return printable(shlex.quote(f"./{path}" if path.startswith("-") else path))


def _text(text: str) -> str:
    escaped = html.escape(_NOT_XML.sub(" ", text)).replace("&#x27;", "&apos;")
    # A path stays the same path.
    return _ACTING.sub(lambda character: f"&#x{ord(character[0]):x};", escaped)
