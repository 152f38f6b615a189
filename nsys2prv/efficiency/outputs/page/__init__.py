"""The page: one HTML file for people, made from the head and the tables of `efficiency` and nothing else.

`content` says what stands where, `charts` draws, `tables` packs tables for `page.js`, which sorts them; `page.html.j2` and
`page.css` are the form.
"""

from nsys2prv.efficiency.outputs.page.content import page

__all__ = ["page"]
