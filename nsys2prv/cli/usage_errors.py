"""Errors of the command line's parser, as sentences that say what to write."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nsys2prv.cli.former_options import instead_of_command, instead_of_option
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.nearest import nearest
from nsys2prv.vocabulary.wording import did_you_mean, listed, short

_LONGEST = 200
_WORDING = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "not a whole number",
    "Input should be a valid integer": "not a whole number",
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    " (env var: 'None')": "",
}
"""Words of the libraries that read values, and ours."""


@contextlib.contextmanager
def clear_errors(context: Any, arguments: Sequence[str]) -> Iterator[None]:
    """Errors of the parser become UsageErrors that name the command, and what is near to what was written.

    Parameters
    ----------
    context
        Of the parser: the command, and its group.
    arguments
        Those that are parsed.
    """
    given = list(arguments)
    try:
        yield
    except Exception as error:
        # Newer versions of Typer contain their own copy of click: its errors are recognized by their attributes.
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        raise UsageError(_sentence(error, context, given)) from error


def _sentence(error: Any, context: Any, given: Sequence[str]) -> str:
    if hasattr(error, "possibilities"):
        return _unknown_option(error.option_name, context, given)
    group = context.command
    if hasattr(group, "commands") and given and not given[0].startswith("-"):
        return instead_of_command(given[0], given[1:]) or (
            f"there is no command {short(given[0], _LONGEST)}{did_you_mean(given[0], group.commands)}"
        )
    text = " ".join(error.format_message().split()).rstrip(".")
    for theirs, ours in _WORDING.items():
        text = text.replace(theirs, ours)
    of_command = f"{context.command.name}: " if context.parent is not None else ""
    return f"{of_command}{text[:1].lower()}{text[1:]}; `{_program(context)} -h` shows what it takes"


def _unknown_option(name: str, context: Any, given: Sequence[str]) -> str:
    own = _spellings(context.command)
    is_group = context.parent is None
    group = context.command if is_group else context.parent.command
    elsewhere = [command.name for command in group.commands.values() if name in _spellings(command)]
    if (is_group or not elsewhere) and (instead := instead_of_option(name, _value_of(name, given))):
        return instead
    if elsewhere:
        commands = listed(f"`nsys2prv {one}`" for one in elsewhere)
        hint = f"; {commands} {'have' if len(elsewhere) > 1 else 'has'} it"
    else:
        near = nearest(name, own) if name.startswith("--") else []
        hint = f"; did you mean {listed(near, 'or')}?" if near else ""
    return (
        f"`{_program(context)}` has no option {short(name, _LONGEST)}{hint or f'; `{_program(context)} -h` lists its options'}"
    )


def _value_of(name: str, given: Sequence[str]) -> str | None:
    """What was given to an option: behind it, behind `=`, or directly behind its letter."""
    for place, word in enumerate(given):
        if word == name:
            return given[place + 1] if place + 1 < len(given) else None
        found = re.fullmatch(re.escape(name) + ("=(.*)" if name.startswith("--") else "=?(.+)"), word)
        if found:
            return found[1]
    return None


def _spellings(command: Any) -> list[str]:
    return [spelling for parameter in command.params for spelling in parameter.opts if spelling.startswith("-")]


def _program(context: Any) -> str:
    return "nsys2prv" if context.parent is None else f"nsys2prv {context.command.name}"
