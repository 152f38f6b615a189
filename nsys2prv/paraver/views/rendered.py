"""A view that was rendered for a trace."""

from __future__ import annotations

from dataclasses import dataclass

from nsys2prv.paraver.views.view_table import View


@dataclass(frozen=True)
class RenderedView:
    """One file: its view in the table, its path inside the folder of views, and its title."""

    view: View
    path: str
    title: str

    @property
    def menu_text(self) -> str:
        """Its entry in a menu."""
        return f"{self.title}: {self.view.description}"
