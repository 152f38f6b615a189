"""Any value in any column: other types, extremes, texts that are none. SQLite holds any of them in any column."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from .commands import Commands
from .oracle import Surroundings, fault_of_reading
from .report_commands import REPORT_COMMANDS
from .whole_report import whole_tables, write_whole_report

_NUMBERS = [sign * number for number in (1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62) for sign in (1, -1)]
VALUES: tuple[object, ...] = (
    *(None, 0, *_NUMBERS, 2**63 - 1, -(2**63)),
    *(0.5, -1.5, 1e300, float("inf"), float("-inf"), float("nan")),
    *("", " ", "text", "-1", "1e5", "²", "٣", "9" * 18, "9" * 19, "9" * 5000, "0x10", "NaN", "x" * 65_536),
    *("\0", "a\0b", "a\nb", "\x1b[31m", "\x9b", "\u202e", "{", "[" * 5000, '{"a": 1e999}', '{"a": ' * 900, "(" * 5000),
    *(b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", bytes(range(256)), b"\0" * 65_536),
)

_KEPT = ("StringIds", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "PROCESSES", "CUPTI_ACTIVITY_KIND_KERNEL")


class ColumnValues:
    name = "column-values"
    description = "values of other types, extremes and texts that are none in columns of all tables"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        report = folder / "report.sqlite"
        write_whole_report(report)
        changes = _change(report, chance)
        (folder / "changes.txt").write_text("\n".join(changes))
        before = Surroundings(folder)
        command = chance.choice(REPORT_COMMANDS)
        run = commands.run(*command, "report.sqlite", folder=folder)
        return fault_of_reading(run, before, names="report")


def _change(report: Path, chance: random.Random) -> list[str]:
    """Put values into columns of one row or of all, and leave most other tables out, which takes less time; what was done."""
    tables = whole_tables()
    changed = [chance.choice(list(tables)) for _ in range(chance.choice((1, 1, 2, 5)))]
    done = []
    with closing(sqlite3.connect(report, isolation_level=None)) as database:
        database.execute("pragma synchronous = off")
        for table in tables:
            if table not in (*changed, *_KEPT) and chance.random() < 0.93:
                database.execute(f'drop table "{table}"')
        for table in changed:
            column, value = chance.choice(tables[table].columns), chance.choice(VALUES)
            as_text = isinstance(value, bytes) and chance.random() < 0.5
            where = chance.choice(("", "where rowid = 1", "where rowid = 2", "where rowid > 1"))
            sql = f'update "{table}" set "{column}" = {"cast(? as text)" if as_text else "?"} {where}'
            database.execute(sql, (value,))
            done.append(f"{sql} {value!r:.100}")
    return done
