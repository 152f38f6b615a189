"""Wrong usages of the command line: each gets one sentence that says what is wrong and what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

from nsys2prv.cli import former_options

USAGE, BAD_REPORT, NOT_WRITABLE, NOTHING_LEFT, NOT_A_TRACE, NO_EFFICIENCY = 2, 3, 5, 7, 8, 13
WRITE = "write `nsys2prv translate"

WRONG: dict[str, tuple[int, tuple[str, ...]]] = {
    # Commands and options.
    "translat good.sqlite": (USAGE, ("there is no command translat", "did you mean translate?")),
    "effiency good.sqlite": (USAGE, ("did you mean efficiency?",)),
    "explain": (USAGE, ("there is no command explain", "translate, inspect")),
    "translate": (USAGE, ("missing argument 'REPORT...'", "`nsys2prv translate -h`")),
    "translate good.sqlite": (USAGE, ("missing option '--out' / '-o'",)),
    "inspect": (USAGE, ("missing argument",)),
    "check": (USAGE, ("missing argument",)),
    "views": (USAGE, ("no trace given", "--list")),
    "--quite inspect good.sqlite": (USAGE, ("did you mean --quiet?",)),
    "efficiency good.sqlite --regoins step": (USAGE, ("has no option --regoins", "did you mean --regions?")),
    "efficiency good.sqlite --fold-streams": (USAGE, ("no option --fold-streams", "`nsys2prv translate` has it")),
    "views --list --strict": (USAGE, ("`nsys2prv translate`, `nsys2prv efficiency` and `nsys2prv whatif` have it",)),
    "inspect good.sqlite -x": (USAGE, ("has no option -x",)),
    "efficiency good.sqlite --bins": (USAGE, ("'--bins' requires an argument",)),
    "efficiency good.sqlite --json out.json": (USAGE, ("--json-file FILE",)),
    # Values.
    "efficiency good.sqlite --bins many": (USAGE, ("--bins", "not a whole number")),
    "efficiency good.sqlite --bins 0": (USAGE, ("--bins", "1")),
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
    # As the other program of this name takes them.
    "run.nsys-rep out": (USAGE, ("run.nsys-rep is no command", "`nsys2prv translate run.nsys-rep -o out`")),
    "good.sqlite more.sqlite out.prv": (USAGE, ("`nsys2prv translate good.sqlite more.sqlite -o out`",)),
    "-t cuda_api_trace,nvtx_pushpop_trace,osrt good.sqlite out": (
        USAGE, (f"{WRITE} REPORT... -o OUT`", "--only kernels,copies,memsets,cuda-api,nvtx,os-runtime"),
    ),
    "translate good.sqlite -o OUT --trace=mpi_event_trace": (USAGE, ("-t or --trace", "--only kernels,copies,memsets,mpi)")),
    "-m a.nsys-rep b.nsys-rep out": (USAGE, ("-m or --multi-report", "several reports need no option")),
    "translate good.sqlite -o OUT -m": (USAGE, ("several reports need no option",)),
    "-f step good.sqlite out": (USAGE, ("-f or --filter-nvtx", "--nvtx NAME`")),
    "--force-sqlite good.sqlite out": (USAGE, ("--force-sqlite", "exports are made where they are missing")),
    "translate good.sqlite -o OUT --sort": (USAGE, ("-s or --sort", "traces are always sorted")),
    "-z good.sqlite out": (USAGE, ("-o OUT -z`",)),
    "translate good.sqlite -o OUT --compress": (USAGE, ("-o OUT -z`",)),
    "-v": (USAGE, ("`nsys2prv --version`",)),
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


def test_every_former_option_is_among_them() -> None:
    """Those of the argument parser of nsys2prv 0.5.8."""
    former = "-v -f --filter-nvtx -t --trace -m --multi-report --force-sqlite -s --sort -z --compress"

    assert set(former.split()) == set(former_options.OPTIONS)


@pytest.mark.parametrize("spelling", former_options.OPTIONS)
def test_what_to_write_instead_of_a_former_option_exists(spelling: str, command_line: CommandLine, tmp_path: Path) -> None:
    said = former_options.instead_of_option(spelling)
    assert said is not None
    program, *words = re.findall(r"`([^`]+)`", said)[0].split()
    assert program == "nsys2prv"
    small_report().nvtx_range("NAME", 0, 400).write(tmp_path / "good.sqlite")

    done = command_line.run(*(word.replace("REPORT...", "good.sqlite") for word in words))

    assert done.returncode == 0, done.stderr


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
