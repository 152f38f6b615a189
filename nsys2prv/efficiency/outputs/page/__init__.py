"""The page: one HTML file, made from the head and the tables of an `EfficiencyResult` alone.

`content` arranges it; `first_screen` is what it begins with, and what notebooks show. `plot` draws (shapes and axes) for
`time_charts` and `charts`, `bar_rows` has sums as bars; `page_tables` packs tables for `page.js`, which sorts them. `*.html.j2`
and `*.css` are the layout.
"""

from nsys2prv.efficiency.outputs.page.content import page
from nsys2prv.efficiency.outputs.page.first_screen import first_screen_html

__all__ = ["first_screen_html", "page"]
