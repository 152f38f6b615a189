"""The documentation says what the program does: every command, option, number and exit code has its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from support.checkout import CHECKOUT, tool

import nsys2prv
from nsys2prv import errors
from nsys2prv.cli.app import app

PAGES = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PARAMETERS = [(name, parameter) for name, command in COMMANDS.items() for parameter in command.params]


tables = tool("tables")


def test_the_program_has_the_commands_that_the_readme_shows() -> None:
    assert set(COMMANDS) == {"translate", "inspect", "check", "efficiency", "compare", "whatif", "views", "demo"}
    assert {"translate", "efficiency"} <= set(re.findall(r"[` ]nsys2prv (\w+) [\w./]+(?=[ `]).*[`#]", README)) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does(name: str) -> None:
    assert COMMANDS[name].help


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS, ids=lambda part: getattr(part, "name", part))
def test_every_argument_and_option_has_help_and_a_place_in_the_documentation(command: str, parameter: object) -> None:
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
    pending, codes = (
        [errors.Nsys2prvError],
        {
            0,
            errors.LEFT_OUT_EXIT_CODE,
            errors.INTERRUPTED_EXIT_CODE,
            errors.NOT_READ_EXIT_CODE,
            errors.TERMINATED_EXIT_CODE,
        },
    )
    while pending:
        error = pending.pop()
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


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")

    assert f"\nversion: {nsys2prv.__version__}\n" in citation
