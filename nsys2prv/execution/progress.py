"""Progress of long work, on stderr."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress_bar(what: str, unit: str, total: float | None = None, *, shown: bool | None = None) -> tqdm[Any]:
    """A progress bar for work that takes longer than a moment; `shown` is None for: when stderr is a terminal."""
    disable = None if shown is None else not shown
    return tqdm(desc=what, total=total, unit=unit, unit_scale=True, disable=disable, file=sys.stderr, leave=False, delay=0.5)


def no_progress(_done: int) -> None:
    """Progress that is not shown."""
