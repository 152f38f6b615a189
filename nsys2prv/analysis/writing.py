"""Efficiency numbers as files: JSON, CSV, TALP. A file appears under its name when it is complete."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import OutputError
from nsys2prv.temporary import temporary_path


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
