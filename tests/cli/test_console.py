"""What commands print: quiet where that is requested, colors on terminals only, signs that the encoding has."""

import re
from pathlib import Path

import pytest
from support import rest
from support.command_line import CommandLine
from support.failed_runs import contents, small_report

COLOR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    # 30 µs of kernels.
    return small_report(300).write(tmp_path / "good.sqlite")


@pytest.mark.parametrize(
    "command",
    ["translate good.sqlite -o OUT", *rest("efficiency good.sqlite -o page.html"), *rest("demo DEMO --nodes 1 --gpus 1")],
)
def test_a_quiet_command_prints_nothing_and_writes_the_same(
    command: str, command_line: CommandLine, report: Path, tmp_path: Path
) -> None:
    done = command_line.run(*command.split(), "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(contents(tmp_path)) > 1


def test_a_quiet_command_still_prints_errors_and_what_is_asked_for(command_line: CommandLine, report: Path) -> None:
    failed = command_line.run("-q", "inspect", "missing.sqlite")
    as_json = command_line.run("inspect", report, "--json", "-q")
    assert failed.returncode == 3
    assert failed.stderr.startswith("nsys2prv: missing.sqlite")
    assert as_json.stdout == command_line.run("inspect", report, "--json").stdout != ""


def test_colors_are_for_terminals_and_change_no_text(command_line: CommandLine) -> None:
    piped = command_line.run("inspect", "missing.sqlite")
    shown = command_line.on_terminal("inspect", "missing.sqlite")
    assert COLOR.search(shown)
    assert COLOR.sub("", shown) == piped.stdout + piped.stderr


@pytest.mark.parametrize(
    ("option", "environment"),
    [
        ((), {"NO_COLOR": "1"}),
        pytest.param((), {"TERM": "dumb"}, marks=pytest.mark.thorough),
        pytest.param(("--no-color",), {}, marks=pytest.mark.thorough),
    ],
)
def test_nobody_gets_colors_who_wants_none(
    option: tuple[str, ...], environment: dict[str, str], command_line: CommandLine
) -> None:
    shown = command_line.on_terminal("inspect", "missing.sqlite", *option, **environment)
    assert "missing.sqlite: there is no such file" in shown
    assert not COLOR.search(shown)


def test_signs_that_the_encoding_lacks_are_replaced(
    command_line: CommandLine, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not escaped, as names of reports are."""
    text = command_line.run("inspect", report).stdout
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    plain = command_line.start("inspect", report).communicate()[0]
    assert " µs" in text
    assert " us" in plain
    assert "\\u" not in plain
    assert text.count("\n") == plain.count("\n")


@pytest.mark.thorough
def test_the_summary_has_colors_on_a_terminal_and_the_same_text(command_line: CommandLine, report: Path) -> None:
    piped = command_line.run("efficiency", report, "-v")
    shown = command_line.on_terminal("efficiency", report, "-v", COLUMNS="1000")
    assert len(COLOR.findall(shown)) > 10
    # A progress bar on the terminal is wiped out.
    assert re.sub(r"[^\n]*\r", "", COLOR.sub("", shown)) == piped.stdout + piped.stderr


def test_the_summary_begins_as_the_page_does(command_line: CommandLine, report: Path) -> None:
    """Verdict with the window, wall time by cause, numbers, findings, trees; tables with -v; no view without a trace."""
    short, long = (command_line.run("efficiency", report, *options).stdout for options in ((), ("-v",)))

    order = (
        "GPU computed ", "Wall time by cause", "GPU busy ", "causes that are looked for", "Device Parallel", "With -v also "
    )  # fmt: skip
    places = [short.index(text) for text in order]
    assert places == sorted(places)
    assert "\nKernel families" in long
    assert "\nKernel families" not in short
    assert "(the whole run)" in short.splitlines()[1]
    assert "Not decidable: " in long
    assert "Not decidable: " not in short
    assert ".cfgs" not in long


def test_results_fit_into_the_terminal_and_are_whole_in_a_pipe(command_line: CommandLine, report: Path) -> None:
    colored = command_line.on_terminal("efficiency", report, COLUMNS="70")
    assert len(COLOR.findall(colored)) > 10
    narrow = COLOR.sub("", colored)
    piped = command_line.run("efficiency", report)
    assert max(map(len, piped.stdout.splitlines())) > 70
    results = narrow.partition("warning: ")[0]
    assert max(map(len, results.splitlines())) <= 70
