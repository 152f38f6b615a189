"""What can happen to files of a cache, and to the files that they were made of."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

LONG_AGO = 1_700_000_000_000_000_000
"""A time of change, ns: what was written just now is not kept."""


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def open_to_others(path: Path) -> None:
    path.chmod(0o644)


def moved(path: Path) -> None:
    """Another file with the same content, size and time at the same place."""
    shutil.copy2(path, path.with_name("other"))
    path.with_name("other").replace(path)


DAMAGES: Sequence[Callable[[Path], object]] = (cut, flip, link, Path.unlink, open_to_others)
EACH_DAMAGE = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
"""A test asks for `damage`: after each, a file of a cache must not be used."""


def files_in(cache: Path) -> list[Path]:
    """All files of a cache."""
    return sorted(path for path in cache.rglob("*") if path.is_file())
