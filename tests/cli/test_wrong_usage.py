"""Wrong usages of the command line: each gets one sentence that says what is wrong and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

USAGE, BAD_REPORT, NOT_WRITABLE, NOTHING_LEFT, NOT_A_TRACE, NO_EFFICIENCY = 2, 3, 5, 7, 8, 13

WRONG: dict[str, tuple[int, tuple[str, ...]]] = {
    # Commands and options.
    "translat good.sqlite": (USAGE, ("no such command 'translat'. Did you mean 'translate'?",)),
    "effiency good.sqlite": (USAGE, ("Did you mean 'efficiency'?",)),
    "explain": (USAGE, ("no such command 'explain'; `nsys2prv -h`",)),
    "translate": (USAGE, ("missing argument 'REPORT...'", "`nsys2prv translate -h`")),
    "translate good.sqlite": (USAGE, ("missing option '--out' / '-o'",)),
    "inspect": (USAGE, ("missing argument",)),
    "check": (USAGE, ("missing argument",)),
    "views": (USAGE, ("no trace given", "--list")),
    "--quite inspect good.sqlite": (USAGE, ("no such option: --quite", "--quiet")),
    "efficiency good.sqlite --regoins step": (USAGE, ("no such option: --regoins", "--regions")),
    "efficiency good.sqlite --fold-streams": (USAGE, ("no such option: --fold-streams", "`nsys2prv efficiency -h`")),
    "inspect good.sqlite -x": (USAGE, ("no such option: -x",)),
    "efficiency good.sqlite --bins": (USAGE, ("ption '--bins' requires an argument",)),
    "efficiency good.sqlite --json out.json": (USAGE, ("--json-file FILE",)),
    # Values.
    "efficiency good.sqlite --bins many": (USAGE, ("--bins", "valid integer")),
    "efficiency good.sqlite --bins 0": (USAGE, ("bins=0", "1 to 10000")),
    "translate good.sqlite -o OUT --align magic": (USAGE, ("--align", "'monotonic'")),
    "translate good.sqlite -o OUT --only kernel": (USAGE, ("there is no source kernel", "did you mean kernels")),
    "translate good.sqlite -o OUT --skip osrt": (USAGE, ("there is no source osrt", "did you mean os-runtime?")),
    "translate good.sqlite -o OUT --skip cuda": (USAGE, ("kernels, copies, memsets or cuda-api?",)),
    "translate good.sqlite -o OUT --only zzz": (USAGE, ("the sources are nvtx, nvtx-ranges",)),
    "translate good.sqlite -o OUT --time 5s": (USAGE, ("--time 5s", "START:END")),
    "translate good.sqlite -o OUT --time 2s:1s": (USAGE, ("the end is not after the start",)),
    "translate good.sqlite -o OUT --ranks one": (USAGE, ("--ranks one", "0-7,12")),
    "translate good.sqlite -o OUT --min-duration 10": (USAGE, ("--min-duration 10", "unit")),
    "translate good.sqlite -o OUT --nvtx @NCCL": (USAGE, ("--nvtx @NCCL", "NAME")),
    "efficiency good.sqlite --window warm": (USAGE, ("--window warm", "steady")),
    "efficiency good.sqlite --nccl both": (USAGE, ("--nccl", "communication", "useful")),
    "efficiency good.sqlite --memory lots": (USAGE, ("--memory lots", "2GB")),
    "efficiency good.sqlite --window steady": (USAGE, ("no iterations are found",)),
    "views --list --only gap": (USAGE, ("no such view or group of views", "gaps")),
    "views --list --only comunication": (USAGE, ("did you mean communication",)),
    "demo --gpus 0": (USAGE, ("--gpus",)),
    # Files.
    "inspect missing.sqlite": (BAD_REPORT, ("missing.sqlite: there is no such file",)),
    "inspect rank*.sqlite": (BAD_REPORT, ("no file matches",)),
    "translate good.sqlite good.sqlite -o OUT": (BAD_REPORT, ("the same report as",)),
    "translate notes.txt -o OUT": (BAD_REPORT, ("notes.txt",)),
    "translate good.sqlite -o no/such/OUT": (NOT_WRITABLE, ("no/such/OUT",)),
    "efficiency good.sqlite -o no/such/page.html": (NOT_WRITABLE, ("no/such/page.html",)),
    "translate good.sqlite -o OUT --nvtx stpe": (NOTHING_LEFT, ("no NVTX range is called 'stpe'", "did you mean step?")),
    "efficiency good.sqlite --regions stpe": (USAGE, ("no NVTX range is called stpe; did you mean step?",)),
    "efficiency good.sqlite --per-iteration stp*": (USAGE, ("no NVTX range is called stp*", "`nsys2prv inspect --nvtx`")),
    "whatif good.sqlite --scale kernle*=0.5": (USAGE, ("--scale kernle*", "did you mean kernel_")),
    "translate good.sqlite -o OUT --only mpi": (NOTHING_LEFT, ("no event is left",)),
    "efficiency good.sqlite --window 5s:6s": (NOTHING_LEFT, ("outside of the run",)),
    "check missing.prv": (NOT_A_TRACE, ("missing.prv",)),
    "check good.sqlite": (NOT_A_TRACE, ("good.sqlite",)),
    "compare good.sqlite": (USAGE, ("two runs",)),
    "compare good.sqlite notes.json": (NO_EFFICIENCY, ("notes.json", "efficiency --json-file")),
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_usage_is_one_sentence_and_writes_nothing(words: str, command_line: CommandLine, tmp_path: Path) -> None:
    small_report().nvtx_range("step", 0, 400).write(tmp_path / "good.sqlite")
    for name in ("notes.txt", "notes.json"):
        (tmp_path / name).write_text("These are notes.\n")
    before = contents(tmp_path)
    code, said = WRONG[words]

    done = command_line.run(*words.split())

    sentence(done, code, *said)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("words", ["-h", "--help", "translate -h", "views -h", "demo --help"])
def test_help_is_printed_where_it_is_asked_for(words: str, command_line: CommandLine) -> None:
    done = command_line.run(*words.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: nsys2prv ")
    assert "-h, --help" in done.stdout


def test_the_program_alone_prints_its_help_as_lines(command_line: CommandLine) -> None:
    done = command_line.run()

    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith("Usage: nsys2prv ")
    assert "\n  translate   Translate reports" in done.stderr


@pytest.mark.parametrize("command", ["translate", "inspect", "check", "efficiency", "compare", "whatif", "views", "demo"])
def test_help_of_a_command_fits_on_two_screens_and_is_plain(command: str, command_line: CommandLine) -> None:
    lines = command_line.run(command, "-h").stdout.splitlines()

    assert len(lines) <= 80
    assert not any(sign in line for line in lines for sign in ("<list", "<=x", "}..."))
