"""Workspaces of wxParaver: the views of a trace in its Hints menu, each with its description.

Two forms, both archives of boost::serialization as Paraver's kernel reads them (WorkspaceManager::loadXML, and
Workspace::importWSXML with importWSCFGs):

- `workspace.xml` is a list of workspaces with absolute paths, in the form of ~/.paraver/workspaces.xml;
- `GROUP.ws` is one workspace with its views inside, for Preferences > Workspaces > Import, which copies them.
"""

from __future__ import annotations

import base64
import html
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsys2prv.vocabulary.printable import ACTING

_HEAD = """<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>
<!DOCTYPE boost_serialization>
<boost_serialization signature="serialization::archive" version="17">
"""
_TAIL = "</boost_serialization>\n"
_SEPARATOR = "============="
"""Precedes the name of each view in a .ws."""
_EVENT = 2
"""Paraver's WorkspaceType::EVENT."""
_NOT_XML = re.compile(r"[\x00-\x1f\ud800-\udfff\ufffe\uffff]+")
_ACTING = re.compile(f"[{ACTING}]")


@dataclass(frozen=True)
class Hint:
    """An entry of the menu: path of the view, and text."""

    path: str
    text: str


@dataclass(frozen=True)
class Workspace:
    """A menu: Paraver shows it for traces that have any of the event types."""

    name: str
    types: Sequence[int]
    hints: Sequence[Hint]


def workspaces_xml(workspaces: Sequence[Workspace]) -> str:
    """A file of several workspaces, as ~/.paraver/workspaces.xml."""
    once = _Once()
    lines = ['<workspace_manager class_id="0" tracking_level="0" version="0">']
    lines += [f"<workspaces{once('map', 0)}>", f"<count>{len(workspaces)}</count>", "<item_version>0</item_version>"]
    for workspace in workspaces:
        lines += [f"<item{once('pair of map', 0)}>", f"<first>{_text(workspace.name)}</first>"]
        lines += [f"<second{once('workspace', 2)}>", *_content(workspace, once), "</second>", "</item>"]
    lines += ["</workspaces>", f"<workspacesOrder{once('strings', 0)}>", f"<count>{len(workspaces)}</count>"]
    lines += ["<item_version>0</item_version>", *(f"<item>{_text(workspace.name)}</item>" for workspace in workspaces)]
    lines += ["</workspacesOrder>", "</workspace_manager>", ""]
    return _HEAD + "\n".join(lines) + _TAIL


def workspace_ws(workspace: Workspace, views: Iterable[tuple[str, str]]) -> str:
    """A workspace with its views (name and text of each) inside; the paths of its hints are names of files."""
    once = _Once()
    lines = [f"<workspace{once('workspace', 2)}>", *_content(workspace, once), "</workspace>", ""]
    files = "".join(f"{_SEPARATOR}{name}\n{text}" for name, text in views)
    return _HEAD + "\n".join(lines) + _TAIL + files


class _Once:
    """boost describes a class at its first object, and numbers classes in that order."""

    def __init__(self) -> None:
        self._known = {"manager": 0}

    def __call__(self, kind: str, version: int) -> str:
        if kind in self._known:
            return ""
        # The manager is 0 where there is one, else the workspace is.
        number = len(self._known) if kind != "workspace" or len(self._known) > 1 else 0
        if number == 0:
            self._known = {}
        self._known[kind] = number
        return f' class_id="{number}" tracking_level="0" version="{version}"'


def _content(workspace: Workspace, once: _Once) -> list[str]:
    lines = [f"<name>{_text(workspace.name)}</name>", f"<type>{_EVENT}</type>"]
    lines += [f"<autoTypes{once('types', 0)}>", f"<count>{len(workspace.types)}</count>", "<item_version>1</item_version>"]
    for number in workspace.types:
        # The memory of a struct of two 32-bit numbers: kind and event type.
        memory = base64.b64encode(struct.pack("<iI", _EVENT, number)).decode()
        lines += [f"<item{once('type', 1)}>", f"<type>{_EVENT}</type>"]
        lines += ["<WorkspaceValue>", memory, "</WorkspaceValue>", "</item>"]
    lines += ["</autoTypes>", f"<hintCFGs{once('hints', 0)}>", f"<count>{len(workspace.hints)}</count>"]
    lines.append("<item_version>0</item_version>")
    for hint in workspace.hints:
        lines += [f"<item{once('hint', 0)}>", f"<first>{_text(hint.path)}</first>", f"<second>{_text(hint.text)}</second>"]
        lines.append("</item>")
    return [*lines, "</hintCFGs>"]


def _text(text: str) -> str:
    escaped = html.escape(_NOT_XML.sub(" ", text)).replace("&#x27;", "&apos;")
    # A path stays the same path.
    return _ACTING.sub(lambda found: f"&#x{ord(found[0]):x};", escaped)
