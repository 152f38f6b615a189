"""Paths are taken as they are: characters that mean something to a library mean nothing here."""

import itertools
import json
import os
from pathlib import Path

import pytest
from support import rest
from support.command_line import CommandLine
from support.failed_runs import sentence
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
LIKE_OTHERS = {"a?", "run[!2]", "**", "~root", "rank=0", "a#b", "{a,b}"}
EACH = [pytest.param(name, marks=[pytest.mark.thorough] if name in LIKE_OTHERS else []) for name in NAMES]


def report_of(kernel: str) -> ReportBuilder:
    report = ReportBuilder(host="node01", rank=0)
    report.kernel(kernel, 10, 20, launch=(0, 5))
    return report


@pytest.mark.parametrize("ending", ["_pqtdir", *rest("_arwdir", ".sqlite")])
@pytest.mark.parametrize("name", EACH)
def test_a_report_is_read_without_its_neighbour(name: str, ending: str, command_line: CommandLine) -> None:
    folder = command_line.folder
    for neighbour, kernel in ((NAMES[name], "decoy"), (name, "wanted")):
        report_of(kernel).write(folder / f"{neighbour}{ending}")
    # Relative, as users give them.
    done = command_line.run("translate", f"{name}{ending}", "-o", "OUT", "--no-views")
    assert done.returncode == 0, done.stderr
    labels = (folder / "OUT.pcf").read_text()
    assert "wanted" in labels
    assert "decoy" not in labels


@pytest.mark.parametrize("name", EACH)
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


USAGE, BAD_REPORT, NOT_WRITABLE, TRACE = 2, 3, 5, 8
NO_PATHS = ["x" * 300, "x" * 5000, "x/" * 2500, "loop", "loop/x", "rank0.sqlite/x", "nothing/x"]


@pytest.fixture
def surrounded(command_line: CommandLine) -> Path:
    report_of("wanted").write(command_line.folder / "rank0.sqlite")
    (command_line.folder / "loop").symlink_to("loop")
    return command_line.folder


WITH_PATHS = [
    (("inspect", "PATH"), BAD_REPORT),
    (("translate", "PATH", "-o", "OUT"), BAD_REPORT),
    (("translate", "rank0.sqlite", "-o", "PATH"), NOT_WRITABLE),
    (("translate", "rank0.sqlite", "-o", "OUT", "--scratch", "PATH"), NOT_WRITABLE),
    (("efficiency", "rank0.sqlite", "-o", "PATH/page.html"), NOT_WRITABLE),
    (("efficiency", "rank0.sqlite", "--csv", "PATH/csv"), NOT_WRITABLE),
    (("translate", "rank0.sqlite", "-o", "OUT", "--labels", "PATH"), TRACE),
    (("translate", "rank0.sqlite", "-o", "OUT", "--kernel-families", "PATH"), USAGE),
    (("check", "PATH"), TRACE),
    (("views", "PATH"), TRACE),
]
POSSIBLE = {("nothing/x", "--csv"), ("loop", "-o")}
"""A folder that is made; OUT.prv beside the loop."""


@pytest.mark.parametrize(
    ("path", "command", "code"),
    [
        # Each path is given to a third of the commands, and each command gets a third of the paths.
        pytest.param(path, command, code, marks=[] if (number + number // 10) % 3 == 0 else [pytest.mark.thorough])
        for number, (path, (command, code)) in enumerate(itertools.product(NO_PATHS, WITH_PATHS))
        if (path, command[-2]) not in POSSIBLE or command[-1] == "PATH/page.html"
    ],
    ids=lambda part: str(part)[:60],
)
def test_a_path_that_no_file_has_is_one_sentence(
    path: str, command: tuple[str, ...], code: int, command_line: CommandLine, surrounded: Path
) -> None:
    done = command_line.run(*(one.replace("PATH", path) for one in command))
    sentence(done, code, path[:100])
    assert {one.name for one in surrounded.iterdir()} == {"rank0.sqlite", "loop"}


@pytest.mark.parametrize("out", ["", ".", "..", "./", "/dev/null", "/dev/full", "pipe"])
def test_an_output_that_can_be_no_file_is_refused(out: str, command_line: CommandLine, surrounded: Path) -> None:
    os.mkfifo(surrounded / "pipe")
    sentence(command_line.run("translate", "rank0.sqlite", "-o", out, "--force"), NOT_WRITABLE, "give a name for the files")
    assert {one.name for one in surrounded.iterdir()} == {"rank0.sqlite", "loop", "pipe"}
    assert not Path("/dev/null.prv").exists()


@pytest.mark.parametrize("name", ["caf\udce9", *rest("日本²", "a\tb")], ids=ascii)
def test_names_may_be_no_text(name: str, command_line: CommandLine, surrounded: Path) -> None:
    (surrounded / "rank0.sqlite").rename(surrounded / f"{name}.sqlite")
    for command in (
        ("inspect", f"{name}.sqlite", "--json"),
        ("translate", f"{name}.sqlite", "-o", name),
        ("check", f"{name}.prv"),
        ("efficiency", f"{name}.sqlite", "--json-file", f"{name}.results.json", "-o", f"{name}.html", "--csv", "csv"),
    ):
        done = command_line.run(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert json.loads((surrounded / f"{name}.json").read_text())


@pytest.mark.parametrize(
    "place", [("folder_pqtdir",), ("rank0.sqlite", "-o", "folder/OUT"), ("rank0.sqlite", "--scratch", "folder")]
)
def test_folders_whose_names_are_no_utf8_are_named(place: tuple[str, ...], command_line: CommandLine, surrounded: Path) -> None:
    report_of("wanted").write(surrounded / "folder_pqtdir")
    (surrounded / "folder").mkdir()
    for name in ("folder_pqtdir", "folder"):
        (surrounded / name).rename(surrounded / f"caf\udce9{name}")
    out = () if "-o" in place else ("-o", "OUT")
    done = command_line.run("translate", *(one.replace("folder", "caf\udce9folder") for one in place), *out)
    sentence(done, BAD_REPORT if len(place) == 1 else NOT_WRITABLE, "its path is not UTF-8")


def test_a_folder_that_can_not_be_read_hides_no_reports(
    command_line: CommandLine, surrounded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (surrounded / "run" / "closed").mkdir(parents=True)
    report_of("wanted").write(surrounded / "run" / "rank0.sqlite")
    scandir = os.scandir

    def closed(path: str) -> object:
        # For root, no folder is.
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)

    sentence(command_line.run("inspect", "run"), BAD_REPORT, "run/closed", "Permission denied")
