"""The page: one HTML file, made from the head and the tables of an `EfficiencyResult` alone.

`content` arranges it; `first_screen` is what it begins with, and what notebooks show. `plot` draws (shapes and axes) for
`time_charts` and `charts`, `bar_rows` has sums as bars; `page_tables` packs tables for `page.js`, which sorts them. `*.html.j2`
and `*.css` are the layout. `comparison_content` arranges the page of a `ComparisonResult` from the same parts, and
`notebook_plots` has single drawings for notebooks.
"""

from nsys2prv.efficiency.outputs.page.comparison_content import comparison_first_html, comparison_page
from nsys2prv.efficiency.outputs.page.content import page
from nsys2prv.efficiency.outputs.page.first_screen import first_screen_html
from nsys2prv.efficiency.outputs.page.notebook_plots import Drawing, drawing

__all__ = ["Drawing", "comparison_first_html", "comparison_page", "drawing", "first_screen_html", "page"]
