"""What tests of stored columns share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from nsys2prv.exports.sqlite_tables import SqliteTables


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few hundred rows are stored in parts and batches."""
    monkeypatch.setattr("nsys2prv.exports.stored_columns.ROWS_OF_PART", 200)
    monkeypatch.setattr("nsys2prv.exports.stored_columns.STORED_ROWS", 64)


@pytest.fixture
def rows_queried(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rows that were read of each table out of databases."""
    counted: Counter[str] = Counter()
    query = SqliteTables.query

    def counting(self: SqliteTables, table: str, *arguments: Any, **named: Any) -> Iterator[Any]:
        for batch in query(self, table, *arguments, **named):
            counted[table] += batch.height
            yield batch

    monkeypatch.setattr(SqliteTables, "query", counting)
    return counted
