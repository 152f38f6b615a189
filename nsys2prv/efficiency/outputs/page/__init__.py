"""The page: one HTML file, made from the head and the tables of an `EfficiencyResult` alone.

`content` arranges it, `charts` draws, `page_tables` packs tables for `page.js`, which sorts them; `page.html.j2` and `page.css`
are the layout.
"""

from nsys2prv.efficiency.outputs.page.content import page

__all__ = ["page"]
