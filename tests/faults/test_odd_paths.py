"""Paths are taken as they are: characters that mean something to a library mean nothing here."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.report_builder import ReportBuilder

import nsys2prv

NAMES = {
    "a*": "ab",
    "a?": "ab",
    "run[1]": "run1",
    "run[!2]": "run1",
    "**": "ab",
    "{a,b}": "a",
    "~": "home",
    "~root": "root",
    "rank=0": "rank=1",
    "50%41": "50A",
    "a#b": "a",
    "x?mode=rw": "x",
    "file:x": "x",
}
"""Names that a library may take for something else, each with the name of a neighbour that it could find then."""


def report_of(kernel: str) -> ReportBuilder:
    report = ReportBuilder(host="node01", rank=0)
    report.kernel(kernel, 10, 20, launch=(0, 5))
    return report


@pytest.mark.parametrize("ending", ["_pqtdir", pytest.param("_arwdir", marks=pytest.mark.thorough), ".sqlite"])
@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_read_without_its_neighbour(name: str, ending: str, command_line: CommandLine) -> None:
    folder = command_line.folder
    for neighbour, kernel in ((NAMES[name], "decoy"), (name, "wanted")):
        report_of(kernel).write(folder / f"{neighbour}{ending}")

    # Relative, as users give them.
    done = command_line.run("translate", f"{name}{ending}", "-o", "OUT")

    assert done.returncode == 0, done.stderr
    labels = (folder / "OUT.pcf").read_text()
    assert "wanted" in labels
    assert "decoy" not in labels


@pytest.mark.parametrize("name", NAMES)
def test_folders_for_intermediate_files_may_have_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    for rank in range(2):
        report = ReportBuilder(host=f"node{rank}", rank=rank, ranks=2)
        report.kernel("wanted", 10, 20, launch=(0, 5))
        report.write(f"rank{rank}.sqlite")

    with nsys2prv.open_run(["rank0.sqlite", "rank1.sqlite"], scratch=name) as run:
        assert run.events("kernels").collect()["name"].to_list() == ["wanted", "wanted"]
        assert run.clocks.height >= 0
