"""An option is declared once: its names, values and texts are the same wherever it appears."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from bench.results import END, MARK, PAGE
from bench.run import PARTS
from support.checkout import CHECKOUT, tool
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

import nsys2prv
from nsys2prv import errors
from nsys2prv.cli.app import app
from nsys2prv.cli.main import OTHER_PROGRAM
from nsys2prv.cli.options import completion
from nsys2prv.clocks import AlignMethod
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, EfficiencyOptions
from nsys2prv.run.options import OptionSet, ReadOptions, TimeRange, declared_options
from nsys2prv.sources.registry import NAMES
from nsys2prv.trace.translate_options import TranslateOptions

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def declared(options: type[OptionSet], *names: str) -> dict[str, str]:
    return {one.name: text.help for one, text in declared_options(options) if not names or one.name in names}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("translate", declared(TranslateOptions)),
        ("efficiency", declared(EfficiencyOptions)),
        ("compare", declared(EfficiencyOptions, *COMPARE_OPTIONS)),
        ("inspect", declared(ReadOptions, "nsys")),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_command_has_the_declared_options_with_their_texts(command: str, options: dict[str, str]) -> None:
    of_command = {parameter.name: parameter for parameter in COMMANDS[command].params}
    assert options.items() <= {name: parameter.help for name, parameter in of_command.items()}.items()
    assert all(f"--{name.replace('_', '-')}" in of_command[name].opts for name in options)


def test_every_field_but_progress_is_an_option_of_the_command_line() -> None:
    for options in (ReadOptions, TranslateOptions, EfficiencyOptions):
        assert {one.name for one in fields(options)} - set(declared(options)) == {"progress"}


def test_names_after_a_comma_are_completed() -> None:
    complete = completion(lambda: NAMES)
    assert complete("kern") == ["kernels"]
    assert complete("kernels,cop") == ["kernels,copies"]


def test_values_of_an_enumeration_are_completed() -> None:
    (align,) = (parameter for parameter in COMMANDS["translate"].params if parameter.name == "align")
    items = align.shell_complete(typer.Context(COMMANDS["translate"]), "m")
    assert [item.value for item in items] == ["monotonic", "messages", "mpi"]


def test_options_read_texts_as_the_command_line_does() -> None:
    options = TranslateOptions(time="1us:2us", ranks="0-1", only="nvtx,mpi", min_duration="3us", align="utc")  # type: ignore[arg-type]
    assert options.time == TimeRange(1000, 2000)
    assert options.ranks == {0, 1}
    assert options.only == ("nvtx", "mpi")
    assert options.min_duration == 3000
    assert options.align is AlignMethod.UTC


# -- the documentation says what the program does: every command, option, number and exit code has its place ----
PAGES = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")

PARAMETERS = [(name, parameter) for name, command in COMMANDS.items() for parameter in command.params]


tables = tool("tables")


def test_the_program_has_the_commands_that_the_readme_shows() -> None:
    assert set(COMMANDS) == {"translate", "inspect", "check", "efficiency", "compare", "whatif", "views", "demo"}
    assert {"translate", "efficiency"} <= set(re.findall(r"[` ]nsys2prv (\w+) [\w./]+(?=[ `]).*[`#]", README)) <= set(COMMANDS)


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS, ids=lambda part: getattr(part, "name", part))
def test_every_argument_and_option_has_help_and_a_place_in_the_documentation(command: str, parameter: object) -> None:
    assert COMMANDS[command].help
    assert parameter.help, f"{command}: {parameter.name}"  # type: ignore[attr-defined]
    if parameter.param_type_name == "option":  # type: ignore[attr-defined]
        for spelling in parameter.opts:  # type: ignore[attr-defined]
            shown = tables.command(command) + tables.shared_options()
            assert f"`{spelling}`" in shown or f"`{spelling} " in shown


def test_the_readme_shows_options_that_exist() -> None:
    spellings = {spelling for _, parameter in PARAMETERS for spelling in getattr(parameter, "opts", ())}
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(re.findall(r"`[^`]+`", README)))) <= spellings | {"--help"}


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_tables_of_the_documentation_are_those_of_the_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == tables.rewritten(text), "run `python tools/tables.py`"


def test_every_table_is_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in tables.PAGES)
    assert set(re.findall(r"<!-- table ([0-9a-z -]+) -->", pages)) == set(tables.TABLES)


def test_every_exit_code_is_explained() -> None:
    pending = [errors.Nsys2prvError]
    codes = {0, *(getattr(errors, name) for name in dir(errors) if name.endswith("_EXIT_CODE"))}
    for error in pending:
        codes.add(error.exit_code)
        pending += error.__subclasses__()
    assert set(map(int, re.findall(r"^\| (\d+) \|", tables.exit_codes(), re.MULTILINE))) == codes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_the_documentation_names_exist(page: Path) -> None:
    for path in re.findall(r"`((?:nsys2prv|cfgs|tests|tools|docs)/[\w./-]*)`", page.read_text(encoding="utf-8")):
        assert (CHECKOUT / path).exists(), path


def heading_anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in heading_anchors(linked), f"{target}#{anchor}"


def test_each_part_of_the_benchmark_has_rows() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition(END)[0]
    assert {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[5:]} == set(PARTS)


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {nsys2prv.__version__}\n" in citation


# -- nsys2prv beside the other program of this name, up to 0.5.8 on PyPI, in one environment -------------


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nsys2prv", "check", "--help"],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_files_of_the_other_program_in_the_package_are_warned_of(tmp_path: Path) -> None:
    package = tmp_path / "nsys2prv"
    package.mkdir()
    for path in (CHECKOUT / "nsys2prv").iterdir():
        (package / path.name).symlink_to(path)
    assert run(tmp_path).stderr == ""
    (package / OTHER_PROGRAM).write_text("def main(): ...")
    assert run(tmp_path).stderr == (
        f"warning: {package} also has files of the other program of this name (nsys2prv up to 0.5.8), and either may run in "
        "place of the other; run `pip uninstall nsys2prv` until none is left, and install this one again\n"
    )


# -- commands load what they use: a library that is not used takes as long to load as a small report to translate ----
HEAVY = {
    "asyncio", "markdown_it", "dask", "distributed", "multiprocessing", "pandas", "pyarrow.dataset", "pyarrow.parquet",
    "rich", "tqdm"
}  # fmt: skip
"""Of other pages, forms, workers, and progress that nobody sees."""
LIBRARIES = {"adbc_driver_manager", "jinja2", "numpy", "polars", "pyarrow", "typer"}


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--version"], HEAVY | LIBRARIES),
        (["inspect", "report.sqlite"], HEAVY | {"jinja2"}),
        (["translate", "report.sqlite", "-o", "OUT"], HEAVY),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_a_command_loads_what_it_uses(arguments: list[str], not_needed: set[str], tmp_path: Path) -> None:
    small_report().write(tmp_path / "report.sqlite")

    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nsys2prv", *arguments],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "nsys2prv.cli.main" in loaded
    assert loaded & not_needed == set()


def test_the_version_is_printed_the_same_with_and_without_the_commands(command_line: CommandLine) -> None:
    alone = command_line.run("--version")
    with_more = command_line.run("--version", "inspect")
    assert alone.returncode == with_more.returncode == 0
    assert alone.stdout == with_more.stdout
    assert alone.stdout.startswith("nsys2prv ")


@pytest.mark.parametrize("threads", ["0", "many", "-1"])
def test_a_number_of_threads_that_is_none_is_told(
    threads: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", threads)
    result = command_line.run("inspect", "report.sqlite")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"nsys2prv: POLARS_MAX_THREADS={threads}: no number of threads")


# -- wrong usages of the command line: each gets one sentence that says what is wrong and what to write ----


USAGE, BAD_REPORT, NOT_WRITABLE, NOTHING_LEFT, NOT_A_TRACE, NO_EFFICIENCY = 2, 3, 5, 7, 8, 13

WRONG: dict[str, tuple[int, tuple[str, ...]]] = {
    # Commands and options.
    "translat good.sqlite": (USAGE, ("no such command 'translat'. Did you mean 'translate'? `nsys2prv -h`",)),
    "effiency good.sqlite": (USAGE, ("Did you mean 'efficiency'?",)),
    "explain": (USAGE, ("no such command 'explain'; `nsys2prv -h`",)),
    "translate": (USAGE, ("missing argument 'REPORT...'", "`nsys2prv translate -h`")),
    "translate good.sqlite": (USAGE, ("missing option '--out' / '-o'",)),
    "views": (USAGE, ("no trace given", "--list")),
    "--quite inspect good.sqlite": (USAGE, ("no such option: --quite", "--quiet")),
    "efficiency good.sqlite --regoins step": (USAGE, ("no such option: --regoins", "--regions")),
    "efficiency good.sqlite --fold-streams": (USAGE, ("no such option: --fold-streams", "`nsys2prv efficiency -h`")),
    "inspect good.sqlite -x": (USAGE, ("no such option: -x",)),
    "efficiency good.sqlite --bins": (USAGE, ("ption '--bins' requires an argument",)),
    "efficiency good.sqlite --json out.json": (USAGE, ("--json-file FILE writes a file",)),
    "compare good.sqlite good.sqlite --json new.json": (USAGE, ("--json-file FILE writes a file",)),
    # Values.
    "efficiency good.sqlite --bins many": (USAGE, ("--bins", "valid integer")),
    "efficiency good.sqlite --bins 0": (USAGE, ("bins=0", "1 to 10000")),
    "translate good.sqlite -o OUT --align magic": (USAGE, ("--align magic: not one of auto, none, utc, monotonic",)),
    "translate good.sqlite -o OUT --only kernel": (USAGE, ("there is no source kernel", "did you mean kernels")),
    "translate good.sqlite -o OUT --skip osrt": (USAGE, ("there is no source osrt", "did you mean os-runtime?")),
    "translate good.sqlite -o OUT --skip cuda": (USAGE, ("kernels, copies, memsets or cuda-api?",)),
    "translate good.sqlite -o OUT --only zzz": (USAGE, ("the sources are nvtx, nvtx-ranges",)),
    "translate good.sqlite -o OUT --time 5s": (USAGE, ("--time 5s", "START:END")),
    "translate good.sqlite -o OUT --time 2s:1s": (USAGE, ("the end is not after the start",)),
    "translate good.sqlite -o OUT --time 1:2": (USAGE, ("--time 1:2",)),
    "translate good.sqlite -o OUT --time -1s:2s": (USAGE, ("--time -1s:2s",)),
    "translate good.sqlite -o OUT --ranks 7-0": (USAGE, ("--ranks 7-0",)),
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
    "whatif good.sqlite --scale compute": (USAGE, ("--scale compute: write",)),
    "compare good.sqlite good.sqlite --fail-if speedup": (USAGE, ("--fail-if speedup: ",)),
    # Files.
    "inspect rank*.sqlite": (BAD_REPORT, ("no file matches",)),
    "translate notes.txt -o OUT": (BAD_REPORT, ("notes.txt",)),
    "translate good.sqlite -o no/such/OUT": (NOT_WRITABLE, ("no/such/OUT",)),
    "efficiency good.sqlite -o no/such/page.html": (NOT_WRITABLE, ("no/such/page.html",)),
    "translate good.sqlite -o OUT --nvtx stpe": (NOTHING_LEFT, ("no NVTX range is called 'stpe'", "did you mean step?")),
    "efficiency good.sqlite --regions stpe": (USAGE, ("no NVTX range is called stpe; did you mean step?",)),
    "efficiency good.sqlite --per-iteration stp*": (USAGE, ("no NVTX range is called stp*", "`nsys2prv inspect --nvtx`")),
    "whatif good.sqlite --scale kernle*=0.5": (USAGE, ("--scale kernle*", "did you mean kernel_")),
    "translate good.sqlite -o OUT --only mpi": (NOTHING_LEFT, ("no event is left",)),
    "translate good.sqlite -o OUT --ranks 99": (NOTHING_LEFT, ()),
    "translate good.sqlite -o OUT --time 100s:200s": (NOTHING_LEFT, ()),
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
