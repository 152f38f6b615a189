"""The page: one HTML file, made from the head and the tables of an `EfficiencyResult` alone.

`content` arranges it, its first screen, and what notebooks show. `charts` and `time_charts` have the
drawings, made of what `plot` has: shapes, axes, bars, colours. `template` fills the templates, and packs tables for `page.js`,
which sorts them. `*.html.j2` and `*.css` are the layout. `comparison_content` arranges the page of a `ComparisonResult` from
the same parts."""

from nsys2prv.efficiency.outputs.page.comparison_content import comparison_first_html, comparison_page
from nsys2prv.efficiency.outputs.page.content import Drawing, drawing, first_screen_html, page

__all__ = ["Drawing", "comparison_first_html", "comparison_page", "drawing", "first_screen_html", "page"]
