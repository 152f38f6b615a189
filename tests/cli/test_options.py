"""An option is declared once: its names, values and texts are the same wherever it appears."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer
from support.command_line import CommandLine

from nsys2prv.cli.app import app
from nsys2prv.cli.options import completion
from nsys2prv.clocks import AlignMethod
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, EfficiencyOptions, NcclPolicy
from nsys2prv.errors import UsageError
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
        ("inspect", declared(ReadOptions, "nsys", "cache")),
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


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [("translate", "align", AlignMethod), ("efficiency", "align", AlignMethod), ("compare", "nccl", NcclPolicy)],
)
def test_enumerated_options_list_their_values(
    command: str, option: str, values: type[AlignMethod | NcclPolicy], command_line: CommandLine
) -> None:
    done = command_line.run(command, "a", "b", *(["-o", "OUT"] if command == "translate" else []), f"--{option}", "magic")

    assert done.returncode == 2
    assert f"--{option}" in done.stderr
    assert all(value.value in done.stderr for value in values)


def test_names_after_a_comma_are_completed() -> None:
    complete = completion(lambda: NAMES)

    assert complete("kern") == ["kernels"]
    assert complete("kernels,cop") == ["kernels,copies"]


def test_options_read_texts_as_the_command_line_does() -> None:
    options = TranslateOptions(time="1us:2us", ranks="0-1", only="nvtx,mpi", min_duration="3us", align="utc")  # type: ignore[arg-type]

    assert options.time == TimeRange(1000, 2000)
    assert options.ranks == {0, 1}
    assert options.only == ("nvtx", "mpi")
    assert options.min_duration == 3000
    assert options.align is AlignMethod.UTC


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="bins=0: out of range, 1 to 10000"):
        EfficiencyOptions(bins=0)
