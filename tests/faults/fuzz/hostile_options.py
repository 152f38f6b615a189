"""Random options of every command, from what the commands declare: values as users give them, and some that try something."""

import os
import random
from pathlib import Path
from typing import Any

import typer
from support.failed_runs import small_report

from nsys2prv.cli.app import app

from .commands import run_command
from .oracle import Attempt

_DIGITS = "9" * 5_000
_NUMBERS = (
    *("0", "1", "2", "-1", "1000000000", "2147483648", "9223372036854775808", _DIGITS, "1e9", "\u0663", "\u00b2", "0x10"),
    *("nan", " 3 ", "1_0", "", "1.5", "-0", "+1"),
)
_SIZES = (
    *("2GB", "500MB", "1", "0", "-1GB", "1 GB", "99999999999999999GB", f"{_DIGITS}GB", "GB", "", "\u0663GB", "1e3GB"),
    *("nan", "1.5GB"),
)
_TIMES = (
    *("0ns", "1us", "1.5us", ".5s", "0s", "1ns", f"{_DIGITS}s", f"1.{_DIGITS}s", "9223372036854775807ns", "300000000m"),
    *("1152921504606846976ns", "-1s", "1", "s", "\u0663s", "\u00b2s", "1e3s", "1h", "", "nan", "1 us ", "2\u00b5s"),
)
_RANKS = (
    *("0", "0-3", "0,0", "5", "0-9999999999", "0-999999", "999999999999", _DIGITS, f"0-{_DIGITS}", "3-1", "-1", "\u0663"),
    *("\u00b2", "", ",", "0,", "a", "0-", "0--1", "0x1", " 0 ", ",".join(map(str, range(3000)))),
)
_PATTERNS = (
    *(r"r(\d)", r"(report)", r"((?:a+)+)x", r"((a|a)*)*b", "(" * 5000 + ")" * 5000, "(", "[", "(a)(b)", r"(\w{500}){100}"),
    *("(a{1000}){1000}", r"(?<=r)(\d)", r"(a)\1", "(?P<x>.*)", "", ",", "node01,node02", "(.*)", "(?s)(.)", "\udcff(.)"),
    f"({'a|' * 5000}b)",
)
_TEXTS = (
    *("step", "step@app", "*", "?*", "@", "a@", "@b", "*" * 3000, "a*" * 2000, "[a-", "", "\x1b[2J\n", "\u202e", "\udcff"),
    *("{{7*7}}", "=1+1", "../../x", "x" * 60_000, "kernels", "kernels,nvtx", "messages", "nothing,kernels", ",", "gpu-kernels"),
    *("auto", "mpi", "communication", "useful", "%s{0}", "--help", "-"),
)
_PATHS = (
    *("OUT.other", "OUT.csv/x", "", "/dev/null", "/proc/none", "report.sqlite", "trace.prv", "trace.pcf", "all.json"),
    *("OUT.nowhere/x", "OUT" + "n" * 300, "OUT\udcff", "OUT\x1b[2J\n", "OUT\u202e", "OUT*[a]", "OUT{0}", "rules.csv", "link"),
    *("OUT\u65e5\u672c", "OUT a b", "OUT?mode=rw", "OUT'\"", "OUT;$HOME`id`", "OUT/" * 2000, "link/x", "pipe", "closed/OUT"),
)
_SCHEDULERS = (*("tcp://127.0.0.1:1", "tls://127.0.0.1:1", "x://", "://", "tcp://", "tcp://127.0.0.1:99999999"), *_PATHS)
_WINDOWS = ("steady", "all", "Steady", "steady:", ":", "-5:5")
_FACTORS = ("0", "0.5", "1e6", "1e7", "-0", "-1", "nan", "inf", "1e-320", "0x1", "1_0", "\u0663", _DIGITS, "", " 1 ")
_SCALED = ("kernel*", "kernel0", "*", "?*", "", "[k]ernel*", "[", "*a" * 2000, "*" * 3000, "=", "a=b", "\udcff", "\x1b[2J\n")
# all.json is an earlier result, which a new one replaces.
_OUTPUTS = ("OUT", "trace.cfgs", "all.json", "closed/OUT", *(f"{path}." for path in _PATHS if path))
_REPLACED = ("trace.", "rules.csv", "link")
"""What --force may replace."""
_OF_PATHS = ("FILE", "DIR", "FOLDER", "PROGRAM", ".pcf", ".html")
_BY_METAVAR = {
    "TIME": _TIMES,
    "LIST": _RANKS,
    "REGEX": _PATTERNS,
    "REGEX|NAMES": _PATTERNS,
    "N": _NUMBERS,
    "SIZE": _SIZES,
    "FACTOR": _FACTORS,
    "RANK=median": tuple(f"{rank}=median" for rank in _RANKS) + _RANKS[:3],
}
_INPUTS = (
    *("report.sqlite", "report.sqlite", "report.sqlite", "trace.prv", "all.json", "*.sqlite", ".", "", "none", "\udcff"),
    *("\x1b[2J\n", "[", "**", "{a,b}", "rules.csv", "x" * 5000, "-", "link", "pipe", "closed", "~root", "s3://bucket/x"),
)
_USUAL = {"check": ["trace.prv"], "views": ["trace.prv"], "compare": ["report.sqlite", "all.json"], "demo": []}
_REQUIRED = {"translate": ["-o", "OUT"], "demo": ["OUT.demo", "--nodes", "1", "--gpus", "1"]}
_CHANGES = ("--ideal-network", "--no-late-ranks", "--no-launch-cost")
_FILES: dict[str, bytes] = {}


def hostile_options(chance: random.Random, folder: Path) -> Attempt:
    """A report, its trace and its efficiency, and a command with random options."""
    _prepare(folder)
    name, command = chance.choice(sorted(typer.main.get_command(app).commands.items()))  # type: ignore[attr-defined]
    inputs = _USUAL.get(name, ["report.sqlite"])
    if inputs and chance.random() < 0.2:
        inputs = chance.choices(_INPUTS, k=chance.choice((0, 1, 1, 2, 3)))
    # whatif refuses to change nothing.
    change = [chance.choice(_CHANGES)] if name == "whatif" and chance.random() < 0.7 else []
    arguments = (name, *inputs, *_REQUIRED.get(name, []), *_options(chance, command), *change)
    outputs = (*_OUTPUTS, *(_REPLACED if "--force" in arguments else ()))
    return Attempt(arguments, outputs=outputs, circumstances={"without_rights": chance.random() < 0.5})


def _prepare(folder: Path) -> None:
    if not _FILES:
        small_report(20).nvtx_range("step", 0, 900, domain="app").write(folder / "report.sqlite")
        (folder / "rules.csv").write_text("what,value,pattern\nfamily,mine {1},^(kernel)\n")
        for command in (("translate", "-o", "trace", "--no-views"), ("efficiency", "--json-file", "all.json")):
            assert run_command(*command, "report.sqlite", folder=folder).code == 0
        _FILES.update({path.name: path.read_bytes() for path in folder.iterdir()})
    for name, content in _FILES.items():
        (folder / name).write_bytes(content)
    (folder / "link").symlink_to("link")
    (folder / "closed").mkdir(mode=0)
    os.mkfifo(folder / "pipe")


def _options(chance: random.Random, command: Any) -> list[str]:
    declared = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    chosen: list[str] = []
    for one in chance.sample(declared, min(chance.choice((1, 1, 2, 4)), len(declared))):
        chosen += [chance.choice(one.opts), *([] if one.is_flag else [_value(chance, one)])]
    if chance.random() < 0.05:
        chosen.append(chance.choice(("--", "--nothing", "-\x1b", "--=", "-zz", "--time", "\udcff")))
    return chosen


def _value(chance: random.Random, option: Any) -> str:
    metavar = option.metavar or ""
    if metavar in {"START:END", "WINDOW"}:
        times = (":", "::", "-:", *(f"{chance.choice(_TIMES)}:{chance.choice(_TIMES)}" for _ in range(9)))
        return chance.choice((*times, *_WINDOWS * 2) if metavar == "WINDOW" else times)
    if metavar == "NAME=FACTOR":
        return f"{chance.choice(_SCALED)}={chance.choice(_FACTORS)}"
    if option.name == "workers":
        # Those between really start.
        return chance.choice([one for one in _NUMBERS if len(one) != 10])
    if option.name in {"nodes", "gpus"}:
        # Several take long, many take hours.
        return chance.choice([one for one in _NUMBERS if one not in {"2", " 3 ", "1_0"}])
    is_path = option.name == "out" or any(part in metavar for part in _OF_PATHS)
    if option.name == "csv":
        # An empty name is this folder.
        return chance.choice([path for path in _PATHS if path])
    if option.name == "scheduler":
        return chance.choice(_SCHEDULERS)
    values = _BY_METAVAR.get(metavar) or (_PATHS if is_path else _TEXTS)
    return chance.choice(values if is_path or chance.random() < 0.9 else (*_TEXTS, *_NUMBERS))
