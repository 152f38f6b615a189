"""Exports with other bytes: turned bits, zeros, repeats, parts that are cut off or taken from elsewhere."""

from __future__ import annotations

import random
from pathlib import Path

from support.failed_runs import small_report

from .commands import Commands
from .oracle import Surroundings, fault_of_reading
from .report_commands import REPORT_COMMANDS

_PAGE = 4096
_FORMS = (".sqlite", "_pqtdir", "_arwdir")


class DamagedBytes:
    name = "damaged-bytes"
    description = "SQLite, Parquet and Arrow exports with turned bits, zeros, cuts, repeated and foreign parts and pages"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        name = f"report{chance.choice(_FORMS)}"
        report = folder / name
        small_report(20).write(report)
        file = chance.choice(sorted(report.iterdir())) if report.is_dir() else report
        content = bytearray(file.read_bytes())
        for _ in range(chance.choice((1, 1, 1, 3, 20))):
            _damage(content, chance)
        file.write_bytes(content)
        before = Surroundings(folder)
        run = commands.run(*chance.choice(REPORT_COMMANDS), name, folder=folder)
        return fault_of_reading(run, before, names="report")


def _damage(content: bytearray, chance: random.Random) -> None:
    """Change some bytes in place."""
    if not content:
        return
    at = chance.randrange(len(content))
    length = min(chance.choice((1, 4, 8, 512, 4096)), len(content) - at)
    kind = chance.randrange(7)
    if kind == 0:
        content[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        content[at : at + length] = bytes(length)
    elif kind == 2:
        content[at : at + length] = chance.randbytes(length)
    elif kind == 3:
        del content[at:]
    elif kind == 4:
        content[at:at] = content[at : at + length]
    elif kind == 5 and len(content) >= _PAGE:
        # A page of a database in the place of another: of another table, or inside its own tree.
        at, other = (_PAGE * chance.randrange(len(content) // _PAGE) for _ in range(2))
        content[at : at + _PAGE] = content[other : other + _PAGE]
    else:
        other = chance.randrange(len(content) - length + 1)
        content[at : at + length] = content[other : other + length]
