"""What to write instead of the options of the other program of this name: nsys2prv up to 0.5.8 on PyPI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from nsys2prv.vocabulary.wording import short

_FORMER = "an option of nsys2prv up to 0.5.8, which is another program"
_USUAL = "nsys2prv translate REPORT... -o OUT"

_REPORTS = (".nsys-rep", ".qdrep", ".sqlite", "_pqtdir", "_arwdir")

_INSTEAD = {
    ("-t", "--trace"): f"all activities are found and translated: write `{_USUAL}`, with --only NAMES for some of them",
    ("-m", "--multi-report"): f"several reports need no option: write `{_USUAL}`",
    ("-f", "--filter-nvtx"): f"write `{_USUAL} --nvtx NAME`",
    ("--force-sqlite",): f"exports are made where they are missing or older than their report: write `{_USUAL}`",
    ("-s", "--sort"): f"traces are always sorted: write `{_USUAL}`",
    ("--compress",): f"write `{_USUAL} -z`",
    ("-z",): f"write `{_USUAL} -z`",
    ("-v",): "write `nsys2prv --version`",
}
OPTIONS = {spelling: (" or ".join(spellings), instead) for spellings, instead in _INSTEAD.items() for spelling in spellings}
"""Of each former option, in each spelling: all its spellings, and what to write instead."""


def instead_of_option(spelling: str, value: str | None = None) -> str | None:
    """The sentence for a former option, with the value that was given with it; None: it was none.

    >>> instead_of_option("-m")[:40], instead_of_option("--new")
    ('-m or --multi-report is an option of nsy', None)
    """
    if spelling not in OPTIONS:
        return None
    spellings, instead = OPTIONS[spelling]
    if spelling in ("-t", "--trace") and value:
        instead = f"{instead} ({_as_sources(value)})"
    return f"{spellings} is {_FORMER}; here {instead}"


def instead_of_command(word: str, rest: Sequence[str]) -> str | None:
    """The sentence for a command line that begins with a report, as that of the former program; None: it is no report."""
    if not (word.endswith(_REPORTS) or os.path.sep in word or os.path.exists(word)):
        return None
    paths = [one for one in rest if not one.startswith("-")]
    out = short(os.path.basename(paths[-1]).removesuffix(".prv"), 100) if paths else "OUT"
    reports = " ".join(short(one, 100) for one in (word, *paths[:-1]))
    return f"{short(word, 200)} is no command; to translate reports, write `nsys2prv translate {reports} -o {out}`"


def _as_sources(value: str) -> str:
    """What names of the former option mean for --only."""
    # Loaded where it is needed: it has all sources.
    from nsys2prv.sources.registry import near_sources

    names: Iterable[str] = (name for one in value.split(",") for name in near_sources(one.strip()))
    # Kernels and copies were always translated.
    return f"for yours: --only {','.join(dict.fromkeys(('kernels', 'copies', 'memsets', *names)))}"
