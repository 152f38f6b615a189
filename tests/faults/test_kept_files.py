"""What a command reads, and what others wrote, stays as it is: no option of any command writes over it."""

import itertools
import os
import shutil
import stat
from pathlib import Path

import pytest
from support import few_of, rest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

from nsys2prv.demo.run_demo import TRUTH
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import read_efficiency
from nsys2prv.errors import KeptFile
from nsys2prv.trace.translate import translate

NOT_WRITABLE = 5


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for rank in range(2):
        small_report().write(folder / f"rank{rank}.sqlite")
    small_report().write(folder / "rank2_pqtdir")
    small_report().write(folder / "rank3_arwdir")
    (folder / "raw.nsys-rep").write_bytes(b"raw")
    (folder / "rules.csv").write_text("what,value,pattern\nfamily,gemm,gemm\n")
    (folder / "notes").write_text("mine")
    translate([folder / "rank0.sqlite"], folder / "OUT")
    measure([folder / "rank0.sqlite"]).to_json(folder / "eff.json")
    return folder


@pytest.fixture
def folder(prepared: Path, command_line: CommandLine) -> Path:
    """Two reports, tables of a third, a trace with its views, an efficiency as JSON, rules, and a file of somebody else."""
    shutil.copytree(prepared, command_line.folder, dirs_exist_ok=True)
    return command_line.folder


def unchanged(command_line: CommandLine, folder: Path, code: int, *arguments: str | Path) -> str:
    """Run a command that must fail with one sentence and change nothing; the sentence."""
    before = contents(folder)
    done = command_line.run(*arguments)
    assert contents(folder) == before
    return sentence(done, code)


WHATIF = ("whatif", "rank0.sqlite", "--no-launch-cost")
KEPT = ["rank0.sqlite", "rank1.sqlite", "rank2_pqtdir/StringIds.parquet", "rank3_arwdir/StringIds.arrow", "raw.nsys-rep"]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("option", ["--json-file", "--talp", "-o"])
@pytest.mark.parametrize("kept", [KEPT[1], *rest(KEPT[0], *KEPT[2:])])
def test_no_option_of_efficiency_replaces_a_report(
    kept: str, option: str, force: tuple[str, ...], command_line: CommandLine, folder: Path
) -> None:
    said = unchanged(command_line, folder, NOT_WRITABLE, "efficiency", option, kept, "rank0.sqlite", *force)
    assert f"{kept}: never replaced" in said


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (("efficiency", "rank0.sqlite", "--kernel-families", "rules.csv", "--json-file", "rules.csv"), "rules.csv"),
        (("compare", "rank0.sqlite", "rank1.sqlite", "--json-file", "rank1.sqlite"), "rank1.sqlite"),
        (("compare", "eff.json", "rank1.sqlite", "--json-file", "eff.json"), "eff.json"),
        ((*WHATIF, "--json-file", "rank0.sqlite"), "rank0.sqlite"),
        (("translate", "rank0.sqlite", "--kernel-families", "rules.csv", "-o", "linked"), "linked.json"),
        (("translate", "rank0.sqlite", "-o", "database"), "database.json"),
        (("translate", "inside.cfgs/rank0.sqlite", "-o", "inside"), "inside.cfgs"),
        (("translate", "rank0.sqlite", "-o", "inside"), "inside.cfgs"),
        (("views", "OUT.prv", "-o", "."), "."),
        (("views", "inside.cfgs/OUT.prv", "-o", "inside.cfgs"), "inside.cfgs"),
        (("views", "OUT.prv", "-o", "inside.cfgs"), "inside.cfgs"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_force_replaces_no_input_and_no_report(
    arguments: tuple[str, ...], kept: str, command_line: CommandLine, folder: Path
) -> None:
    (folder / "linked.json").symlink_to("rules.csv")
    (folder / "database.json").write_bytes((folder / "rank1.sqlite").read_bytes())
    (folder / "inside.cfgs").mkdir()
    os.link(folder / "rank0.sqlite", folder / "inside.cfgs" / "rank0.sqlite")
    for suffix in ("prv", "pcf", "row"):
        os.link(folder / f"OUT.{suffix}", folder / "inside.cfgs" / f"OUT.{suffix}")
    assert f"{kept}: never replaced" in unchanged(command_line, folder, NOT_WRITABLE, *arguments, "--force")


COMMANDS = {"efficiency": ("efficiency", "rank0.sqlite"), "compare": ("compare", "eff.json", "eff.json"), "whatif": WHATIF}
MINE = ("--json-file notes", "--json-file OUT.json", "--csv tables")
DIFFERING = [("efficiency", MINE[0]), ("compare", MINE[1]), ("compare", MINE[2])]


@pytest.mark.parametrize(("command", "option"), few_of(itertools.product(COMMANDS, MINE), DIFFERING))
def test_a_file_of_somebody_else_is_replaced_only_by_force(
    command: str, option: str, command_line: CommandLine, folder: Path
) -> None:
    (folder / "tables").mkdir()
    for table in ("regions", "runs", "what_if"):
        (folder / "tables" / f"{table}.csv").write_text("mine")
    arguments = (*COMMANDS[command], *option.split())
    assert "use --force" in unchanged(command_line, folder, NOT_WRITABLE, *arguments)
    assert command_line.run(*arguments, "--force").returncode == 0


def test_an_earlier_result_is_replaced(command_line: CommandLine, folder: Path) -> None:
    files = ("--json-file", "e.json", "--talp", "talp.json", "-o", "page.html", "--csv", "tables")
    for _ in range(2):
        assert command_line.run("efficiency", "rank0.sqlite", *files).returncode == 0


def test_a_table_of_somebody_else_stays_where_the_own_one_is_empty(folder: Path) -> None:
    (folder / "tables").mkdir()
    (folder / "tables" / "regions.csv").write_text("mine")
    read_efficiency(folder / "eff.json").to_csv(folder / "tables")
    assert (folder / "tables" / "regions.csv").read_text() == "mine"


@pytest.mark.parametrize("target", ["link", "not/yet"])
def test_a_link_that_leads_nowhere_is_replaced_only_by_force(target: str, command_line: CommandLine) -> None:
    link = command_line.folder / "link"
    link.symlink_to(target)
    small_report().write(command_line.folder / "rank0.sqlite")
    done = command_line.run("efficiency", "rank0.sqlite", "--json-file", "link")
    assert "--force" in sentence(done, NOT_WRITABLE)
    assert os.readlink(link) == target


def test_python_replaces_no_report_either(folder: Path) -> None:
    before = contents(folder)
    result = read_efficiency(folder / "eff.json")
    for write in (result.to_json, result.to_html, result.to_talp):
        with pytest.raises(KeptFile):
            write(folder / "rank1.sqlite")
    assert contents(folder) == before


def test_a_device_stays_a_device(command_line: CommandLine, folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    sentence(command_line.run("efficiency", "rank0.sqlite", "--json-file", pipe, "--force"), NOT_WRITABLE, "ordinary file")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_demo_removes_only_what_an_earlier_demo_made(command_line: CommandLine, folder: Path) -> None:
    (folder / "reports").mkdir()
    small_report().write(folder / "reports" / "rank0000.sqlite")
    assert "something else than an earlier demo" in unchanged(command_line, folder, NOT_WRITABLE, "demo", ".")
    (folder / "reports" / TRUTH).write_text('{"ranks": [{"rank": "../../rank1"}]}')
    assert "something else than an earlier demo" in unchanged(command_line, folder, NOT_WRITABLE, "demo", ".")


def test_a_report_behind_json_is_read_like_the_others(command_line: CommandLine, folder: Path) -> None:
    before = contents(folder)
    done = command_line.run("efficiency", "--json", "rank0.sqlite")
    assert done.returncode == 0
    assert done.stdout.startswith('{"format": "nsys2prv-efficiency"')
    assert contents(folder) == before
