"""Files of results: texts that appear together, each under its name, when all are complete."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import OutputError, OutputExists
from nsys2prv.execution.output_files import uninterrupted
from nsys2prv.execution.scratch import temporary_path

GENERATOR = b'<meta name="generator" content="nsys2prv '
"""Marks a page of this program, in its first lines."""
_FIRST_LINES = 4096
_PLACE = "another place"


def check_page_path(path: Path, *, force: bool) -> None:
    """Check before long work that a page can be written: the path is free, or holds an earlier page.

    Raises
    ------
    OutputExists
        When another file is there, unless `force`.
    OutputError
        When it can't be read.
    """
    if force or not path.exists():
        return
    try:
        with path.open("rb") as file:
            is_ours = GENERATOR in file.read(_FIRST_LINES)
    except OSError as error:
        raise OutputError.not_writable(path, error.strerror or str(error), _PLACE) from error
    if not is_ours:
        raise OutputExists(path)


def json_text(content: Mapping[str, Any]) -> str:
    """An object as JSON."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def csv_files(folder: Path, tables: Mapping[str, pl.DataFrame]) -> dict[Path, str | None]:
    """Each table that has rows as `TABLE.csv` of a folder; None for the others, so that tables of earlier runs are removed."""
    return {folder / f"{name}.csv": table.write_csv() if table.height else None for name, table in tables.items()}


def check_places(files: Iterable[Path], folder: Path | None = None) -> None:
    """Check before long work that its results can be written.

    Parameters
    ----------
    files, folder
        Files, and a folder that is made when it is missing.

    Raises
    ------
    OutputError
        When one of them can't be written, or two are the same.
    """
    known: set[Path] = set()
    for path in files:
        if not path.name or path.is_dir():
            raise OutputError.not_writable(path, "this is the name of a folder", _PLACE)
        if not path.parent.is_dir():
            raise OutputError.not_writable(path, f"there is no folder {path.parent}", "another place, or make the folder")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise OutputError.not_writable(path, f"there is no permission to write in {path.parent}", _PLACE)
        if path.absolute() in known:
            raise OutputError.not_writable(path, "two results would have this name", _PLACE)
        known.add(path.absolute())
    if folder is not None:
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not there.is_dir():
            raise OutputError.not_writable(folder, f"{there} is a file", _PLACE)
        if not os.access(there, os.W_OK | os.X_OK):
            raise OutputError.not_writable(folder, f"there is no permission to write in {there}", _PLACE)


def write_files(files: Mapping[Path, str | None]) -> None:
    """Write texts; with None a file is removed.

    All of them are complete before the first appears. When one can't be written, existing files stay as they are.

    Raises
    ------
    OutputError
        When one can't be written.
    """
    with contextlib.ExitStack() as stack:
        staged: dict[Path, Path] = {}
        for path, text in files.items():
            if text is None:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                staged[path] = stack.enter_context(temporary_path(path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")))
                staged[path].write_text(text, encoding="utf-8", newline="\n")
            except OSError as error:
                raise OutputError.not_writable(path, error.strerror or str(error), _PLACE) from error
        with uninterrupted():
            for path in files:
                try:
                    if path in staged:
                        staged[path].replace(path)
                    else:
                        path.unlink(missing_ok=True)
                except OSError as error:
                    raise OutputError.not_writable(path, error.strerror or str(error), _PLACE) from error
