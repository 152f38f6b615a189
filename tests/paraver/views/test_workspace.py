"""Workspaces have the form that Paraver reads."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

from support.view_contents import ONE_GPU, TYPES, content

from nsys2prv.paraver.views.folder import write_views


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
