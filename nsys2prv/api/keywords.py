"""Options as keywords of functions, with the names, texts and defaults that they have on the command line."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from nsys2prv.run.read_options import OptionSet, declared_options

F = TypeVar("F", bound=Callable[..., Any])

_PLACE = "{options}"


def keywords(options: type[OptionSet], *names: str, without: type[OptionSet] | None = None) -> Callable[[F], F]:
    """Give a function that takes `**options` the signature and the documentation of options.

    Parameters
    ----------
    options
        The options.
    names
        Names of those that the function takes; by default all.
    without
        Options that it does not take.
    """
    excluded = {one.name for one in fields(without)} if without is not None else set()
    chosen = [
        (one, text) for one, text in declared_options(options) if one.name not in excluded and (not names or one.name in names)
    ]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        added = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
            for one, _ in chosen
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        texts = [f"{one.name}\n{textwrap.indent(textwrap.fill(text.help, 100), '    ')}" for one, text in chosen]
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace(_PLACE, "\n".join(texts))
        return function

    return decorate


def own_names(options: type[OptionSet], base: type[OptionSet]) -> frozenset[str]:
    """Names of the options that a set adds to another one."""
    return frozenset(one.name for one in fields(options)) - {one.name for one in fields(base)}
