"""Rules of kernel families that users give."""

from __future__ import annotations

import os
import random
from pathlib import Path

from support.report_builder import ReportBuilder

from .commands import Commands
from .oracle import Surroundings, fault_of_reading

_GOOD = (
    "what,value,pattern",
    "family,Halo exchange,^(?:un)?pack_halo",
    'family,My {precision} solver {1},"^solve<([a-z]+), "',
    "precision,fp64,double",
)
_PATTERNS = (
    *(
        "((?:a+)+)x",
        "(a*)*b",
        "(?:(?:(?:a{1,100}){1,100}){1,100})",
        "a{1000000}",
        "(?:a{65535}){65535}",
        "(",
        "[",
        "\\",
        "(?=x)",
        "(a)\\1",
    ),
    *(
        "(" * 500 + ")" * 500,
        "[" * 1000,
        "\\p{Foo}",
        "\\x{110000}",
        "(?P<a>x)(?P<a>y)",
        "(?i)(?x) a # b",
        "^$",
        "",
        ".",
        "\\Q",
        "(?-u)\\xff",
    ),
    *("\u202e", "\x1b[2J", "a|" * 5000, "x" * 100_000, "\\pL{1000}", "(?:\\pL{100}){100}"),
)
_VALUES = (
    "{1}",
    "{0}",
    "{999999999999}",
    "{precision}",
    "{family}",
    "{nothing}",
    "{",
    "}",
    "{{1}}",
    "",
    "x" * 100_000,
    "\x1b[31m",
    "{1}" * 1000,
    "=1+1",
)
_WHATS = ("family", "precision", "tile", "name", "kind", "bare name", "Family", "", "_", "x" * 1000, "family ", "1", "\u0130")


class FamilyRules:
    name = "family-rules"
    description = "files of `--kernel-families` with odd columns, patterns, quotes, encodings and sizes"

    def try_one(self, chance: random.Random, folder: Path, commands: Commands) -> str | None:
        report = ReportBuilder(host="node01", rank=0).gpu(0)
        for index, name in enumerate(
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "void solve<cg, double>(int)", "pack_halo", "\u00e9\u0130")
        ):
            report.kernel(name, 100 * index + 20, 100 * index + 80, launch=(100 * index, 100 * index + 10))
        report.write(folder / "report.sqlite")
        rules = folder / "rules.csv"
        if chance.random() < 0.08:
            chance.choice(
                (
                    lambda: os.mkfifo(rules),
                    rules.mkdir,
                    lambda: rules.symlink_to(rules.name),
                    lambda: rules.symlink_to("/dev/zero"),
                )
            )()
        else:
            rules.write_bytes(_rules(chance))
        before = Surroundings(folder)
        command = chance.choice((("translate", "-o", "OUT"), ("efficiency",)))
        run = commands.run(command[0], "report.sqlite", *command[1:], "--kernel-families", "rules.csv", folder=folder)
        return fault_of_reading(run, before, names="rules.csv")


def _rules(chance: random.Random) -> bytes:
    lines = list(_GOOD)
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(lines)) if lines else 0
        what, value, pattern = "family", "F", "a"
        how = chance.randrange(9)
        if how <= 2:
            pattern = chance.choice(_PATTERNS)
        elif how == 3:
            value = chance.choice(_VALUES)
        elif how == 4:
            what = chance.choice(_WHATS)
        if how <= 4:
            quoted = pattern.replace('"', '""')
            lines[at:at] = [f'{what},{value},"{quoted}"']
        elif how == 5 and lines:
            del lines[at]
        elif how == 6 and lines:
            place = chance.randrange(len(lines[at]) + 1)
            lines[at] = (
                lines[at][:place]
                + chance.choice(('"', ",", "\0", "\r", "\u2028", "#", "\\", "(", "\ufeff", "\x85"))
                + lines[at][place:]
            )
        elif how == 7 and lines:
            lines += [lines[at]] * chance.choice((1, 5000))
        else:
            lines = lines[:at]
    content = chance.choice(("\n", "\r\n")).join(lines).encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        content = chance.choice(
            (
                content.decode().encode("utf-16"),
                b"\xff" + content,
                b"",
                content[: len(content) // 2],
                b"\n" * (30 << 20),
                b"x" * (30 << 20),
            )
        )
    return content
