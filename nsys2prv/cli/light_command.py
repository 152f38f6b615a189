"""Commands whose usual arguments are taken as they are.

Newer versions of Typer have each value checked by pydantic, also defaults, and loading it takes longer than inspecting a small
report. Options with values of other kinds still take that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_type_hints

from typer.core import TyperCommand, TyperGroup

from nsys2prv.cli.usage_errors import clear_errors

_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    kind: convert for what, convert in ((str, str), (list[str], list), (Path, Path)) for kind in (what, what | None)
}
"""What a text becomes, or several, by the type of a parameter."""


class LightCommand(TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_as_they_are(self.get_params(ctx), get_type_hints(self.callback, include_extras=False))
        with clear_errors(ctx, args):
            return super().parse_args(ctx, args)


class LightGroup(TyperGroup):
    """The program, with its own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_as_they_are(self.get_params(ctx), {})
        with clear_errors(ctx, args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with clear_errors(ctx, args):
            return super().resolve_command(ctx, args)


def _take_as_they_are(parameters: Iterable[Any], hints: dict[str, Any]) -> None:
    for one in parameters:
        if "process_value" not in vars(one):
            one.process_value = _processing(one, one.process_value, _CONVERSIONS.get(hints.get(one.name)))


def _processing(parameter: Any, usual: Callable[..., Any], convert: Callable[[Any], Any] | None) -> Callable[..., Any]:
    """How a value of a parameter is processed: `process_value` of click, which has the context and the value."""

    def process(context: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            value = () if parameter.multiple or parameter.nargs == -1 else None
        elif value and convert is not None:
            value = convert(value)
        elif value is None or not (isinstance(value, bool) or value == parameter.default):
            return usual(context, value)
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    return process
