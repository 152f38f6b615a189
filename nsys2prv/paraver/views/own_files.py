"""Files of a user in a folder of views: they stay when the views are written anew."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from nsys2prv.paraver.views.render import INDEX, WORKSPACE

_LISTED = re.compile(r'<a href="([^"]+\.cfg)">')
"""A view in the page that lists them."""


def keep_own_files(former: Path, new: Path) -> None:
    """Take what a user put into a folder of views over into its successor: what is neither a view nor what belongs to them.

    A view that the user changed under its name is a view. The successor is made when it is missing and there is something.

    Raises
    ------
    OSError
        When a file can't be taken over.
    """
    try:
        listed = set(_LISTED.findall((former / INDEX).read_text(encoding="utf-8", errors="replace")))
    except FileNotFoundError:
        listed = set()
    written = {INDEX, WORKSPACE, *(f"{view.partition('/')[0]}.ws" for view in listed), *listed}
    for folder, folders, files in os.walk(former):
        for name in (*files, *(one for one in folders if Path(folder, one).is_symlink())):
            path = Path(folder, name)
            place = path.relative_to(former)
            if place.as_posix() not in written and not os.path.lexists(new / place):
                (new / place.parent).mkdir(parents=True, exist_ok=True)
                _take_over(path, new / place)


def _take_over(path: Path, place: Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        # Not on each file system.
        shutil.copy2(path, place, follow_symlinks=False)
