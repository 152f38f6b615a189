"""Options as keywords of functions, with the names, texts and defaults that they have on the command line."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from nsys2prv.run.read_options import OptionSet, declared_options

F = TypeVar("F", bound=Callable[..., Any])


def keywords(options: type[OptionSet], names: Collection[str] = ()) -> Callable[[F], F]:
    """Give a function with `**options` the signature of options, and its docstring their texts, in the place of `{options}`."""
    chosen = declared_options(options, names)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        kind = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(one.name, kind, default=one.default, annotation=one.type) for one, _ in chosen]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        texts = [f"{one.name}\n{textwrap.indent(textwrap.fill(text.help, 100), '    ')}" for one, text in chosen]
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("{options}", "\n".join(texts))
        return function

    return decorate
