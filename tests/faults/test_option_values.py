"""Values of options that no run can mean: a sentence each, and no pattern takes longer than its text."""

import os
from pathlib import Path

import pytest
from faults.fuzz.campaigns import CAMPAIGNS, try_input
from support.acting import acting_characters
from support.command_line import CommandLine
from support.failed_runs import sentence
from support.report_builder import ReportBuilder

from nsys2prv.errors import UsageError
from nsys2prv.exports import find_reports
from nsys2prv.run.options import ReadOptions, duration, rank_list
from nsys2prv.run.ranks import host_from, rank_from
from nsys2prv.trace.translate_options import TranslateOptions

USAGE = UsageError.exit_code
DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--ranks", "0-9999999999"), "a rank out of range, 0 to 999,999"),
        (("--ranks", DIGITS), "a rank out of range"),
        (("--ranks", "\u00b2"), "not a list of ranks"),
        (("--time", "900000000000000000s:"), "too long a time"),
        (("--time", f":{DIGITS}s"), "not a time"),
        (("--min-duration", f"1.{DIGITS}us"), "not a time"),
        (("--min-duration", "99999999999999m"), "too long a time"),
        (("--workers", "99999999"), "workers"),
        (("--workers", DIGITS), "workers"),
        (("--rank-pattern", "((?:a+)+"), "no regular expression of Rust (unclosed group)"),
        (("--rank-pattern", "(" * 5_000 + ")" * 5_000), "no regular expression of Rust"),
        (("--rank-pattern", r"(?<=rank)(\d)"), "look-around"),
        (("--host-pattern", r"(\w{500}){500}"), "no regular expression of Rust"),
        (("--nvtx", "a\udcff"), "not UTF-8"),
        (("--only", "a\x1b[2J\n\u202ex"), "there is no source"),
        (("--regions", "?" * 60_000), "at most 2,000 wildcards"),
        (("--per-iteration", "a?" * 3_000), "at most 2,000 wildcards"),
        (("--window", f"{DIGITS}s:"), "not a time"),
        (("--window", "Steady"), "not one of all, steady"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_value_that_makes_no_sense_is_told_in_a_sentence(
    options: tuple[str, str], says: str, command_line: CommandLine
) -> None:
    report = ReportBuilder().nvtx_range("step", 0, 9)
    report.kernel("gemm", 5, 9)
    report.write(command_line.folder / "report.sqlite")
    of_efficiency = options[0] in ("--regions", "--per-iteration", "--window")
    command = ("efficiency",) if of_efficiency else ("translate", "-o", "OUT")
    done = command_line.run(*command, "report.sqlite", *options)
    said = sentence(done, USAGE, says)
    assert len(said) < 11_000
    assert acting_characters(said) == []
    assert os.listdir(command_line.folder) == ["report.sqlite"]


@pytest.mark.parametrize("pattern", ["((?:a+)+)x", "((a|a)*)*b", "(.*)(?:.*)*x"])
def test_no_pattern_takes_long(pattern: str) -> None:
    one_group = pattern.replace("((a|a)*)*", "((?:a|a)*)*")
    assert rank_from(one_group)([Path("a" * 5_000)]) == [None]
    assert host_from(one_group)([Path("a" * 5_000)]) == [None]


def test_no_glob_takes_long(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcdefghijkl")
    deep.mkdir(parents=True)
    report = ReportBuilder().nvtx_range("step", 0, 9).write(deep / "report.sqlite")
    assert find_reports([f"{tmp_path}/{'**/' * 30}*.sqlite"]) == [report]


def test_what_python_gives_is_checked_too() -> None:
    for value in (10**30, 10**5_000, -1):
        with pytest.raises(UsageError, match="min_duration="):
            TranslateOptions(min_duration=value)
        with pytest.raises(UsageError, match="ranks="):
            ReadOptions(ranks=value)
    with pytest.raises(UsageError, match="not UTF-8"):
        ReadOptions(host_pattern="\udcff")


def test_what_runs_use_is_read_as_before() -> None:
    assert duration("1.000000001s") == 1_000_000_001
    assert duration(".5us") == 500
    assert rank_list("0-2, 7") == {0, 1, 2, 7}


# -- A few inputs of each campaign of random damage; `make fuzz` tries as many as there is time for ------
_SEED = 14


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_inputs_of_campaigns(campaign: str, number: int, tmp_path: Path) -> None:
    assert try_input(campaign, _SEED, number, tmp_path) is None
