"""Help of commands: arguments by their names, options in groups."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_GENERAL = ("quiet", "no_color", "help")
"""Options that all commands have."""


class Command(TyperCommand):
    """A command; `rich_help_panel` of an option is its group."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the name of the command."""
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(one.metavar) if one.required else f"[{one.metavar}]" for one in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write all groups, those first that come first among the parameters. Where some options have a group, the others are
        about what is printed and written."""
        panels = {parameter.name: getattr(parameter, "rich_help_panel", None) for parameter in self.params}
        others = "Output" if any(panels.values()) else "Options"
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                groups.setdefault("Arguments", []).append((str(parameter.metavar), getattr(parameter, "help", None) or ""))
            else:
                group = "General" if parameter.name in _GENERAL else panels[parameter.name] or others
                groups.setdefault(group, []).append(_option(parameter))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _option(parameter: Any) -> tuple[str, str]:
    value = "" if parameter.is_flag or parameter.count else f" {parameter.metavar or parameter.name.upper()}"
    has_default = parameter.show_default and parameter.default not in (None, False)
    default = f" [default: {getattr(parameter.default, 'value', parameter.default)}]" if has_default else ""
    return ", ".join(sorted(parameter.opts, key=len)) + value, f"{parameter.help or ''}{default}"
