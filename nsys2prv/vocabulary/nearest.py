"""Names that are near to one that was mistyped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_LEAST_SIMILARITY = 0.6
_OFFERED = 3
_AS_NEAR = 0.2
"""How much less similar than the nearest name others are that are offered too."""
_COMPARED = 2_000
"""Names that are compared by their letters; of more, those with a word in common come first."""


def nearest(word: str, known: Iterable[str], most: int = _OFFERED) -> list[str]:
    """Known names that someone may have meant, the nearest first, by the similarity of `difflib`.

    Names that contain the word, or whose words contain those of it, come before those that are spelled alike.

    >>> nearest("kernles", ["kernels", "copies", "nvtx"]), nearest("batch", ["next_batch", "Batch", "epoch"])
    (['kernels'], ['Batch', 'next_batch'])
    """
    wanted = word.casefold().strip()
    if not wanted:
        return []
    parts = set(_words(wanted))
    ranked = []
    names = list(dict.fromkeys(known))
    if len(names) > _COMPARED:
        names.sort(key=lambda name: parts.isdisjoint(_words(name.casefold())))
    for place, name in enumerate(names[:_COMPARED]):
        text = name.casefold()
        matcher = SequenceMatcher(None, wanted, text, autojunk=False)
        contains = len(wanted) >= 3 and (wanted in text or (len(text) >= 3 and text in wanted))
        enough = contains or (matcher.real_quick_ratio() >= _LEAST_SIMILARITY and matcher.quick_ratio() >= _LEAST_SIMILARITY)
        likeness = matcher.ratio() if enough else 0.0
        if contains or likeness >= _LEAST_SIMILARITY:
            ranked.append((-likeness - contains, place, name, contains))
    ranked.sort()
    return [name for rank, _, name, is_within in ranked[:most] if is_within or rank <= ranked[0][0] + _AS_NEAR]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+?(?=_|\b)", text)
