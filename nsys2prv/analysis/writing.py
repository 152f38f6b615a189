"""Efficiency numbers as files: page, JSON, CSV, TALP. A file appears under its name when it is complete."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import OutputError, OutputExists
from nsys2prv.temporary import temporary_path

GENERATOR = b'<meta name="generator" content="nsys2prv '
"""What tells a page of ours, in its first lines."""
_FIRST_LINES = 4096


def check_page_path(path: Path, *, force: bool) -> None:
    """See that a page can stand there, before hours of work: nothing does, or a former page.

    Raises
    ------
    OutputExists
        When another file stands there, unless `force`.
    OutputError
        When it is a folder, or there is no folder for it.
    """
    if path.is_dir():
        raise OutputError.not_writable(path, "there is a folder of this name")
    if not path.parent.is_dir():
        raise OutputError.not_writable(path, f"there is no folder {path.parent}")
    if not force and path.exists():
        try:
            with path.open("rb") as file:
                is_ours = GENERATOR in file.read(_FIRST_LINES)
        except OSError as error:
            raise _not_writable(path, error) from error
        if not is_ours:
            raise OutputExists(path)


def write_page(path: Path, page: str) -> None:
    """Write a page.

    Raises
    ------
    OutputError
        When the file can't be written.
    """
    _write(path, page)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object as JSON.

    Raises
    ------
    OutputError
        When the file can't be written.
    """
    _write(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(folder: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    """Write each table that has rows as `TABLE.csv` into a folder, which is made when it is not there.

    Raises
    ------
    OutputError
        When a file can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from error
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        if table.height:
            _write(path, table.write_csv())
        else:
            # That of a former run would be taken for one of this.
            path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    try:
        with temporary_path(path.with_name(f".{path.name}.{secrets.token_hex(4)}")) as staged:
            staged.write_text(text, encoding="utf-8", newline="\n")
            staged.replace(path)
    except OSError as error:
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: can't be written ({error.strerror or error}); give another place")
