"""Writes the manual page from the command line itself: `python tools/manual.py`, or `python tools/tables.py` with all else.

The wheel installs the page as `share/man/man1/nsys2prv.1`. A test checks that it is current.
"""

import re
import textwrap
from pathlib import Path
from typing import Any

# `python tools/manual.py` finds it beside this file; tests load it before.
import tables

from nsys2prv.vocabulary import __version__

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "packaging" / "nsys2prv.1"

_DESCRIPTION = """\
nsys2prv reads reports of NVIDIA Nsight Systems, one or thousands of them, and writes one trace for Paraver: ranks, threads,
CUDA streams and GPU metrics are rows on a common time axis. It also measures where the time of the run went: a tree of
efficiencies, findings, tables, and a page for the browser.

A REPORT is a file (.nsys-rep, .qdrep, .sqlite), a folder of Parquet or Arrow tables, a folder that contains reports, or a glob.
Lists are separated by commas. Durations and times have a unit: ns, us, ms, s or m.
"""
_FILES = {
    "OUT.prv, OUT.pcf, OUT.row": "the trace: records, names of types and values, names of rows",
    "OUT.json": "what is in the trace, and what of the reports is not, with the reason",
    "OUT.cfgs/": "views of the trace for Paraver; index.html lists them",
}
_ENVIRONMENT = {
    "NSYS_HOME": "Folder of the nsys that exports .nsys-rep files, where --nsys names none.",
    "TMPDIR": "Folder for intermediate files, where --scratch names none and no trace is written.",
    "NSYS2PRV_TRACEBACK": "If it is set, an error in nsys2prv itself (exit status 14) is shown with its traceback.",
}
_EXAMPLES = {
    "A trace of all ranks, with its views:": "nsys2prv translate run/*.nsys-rep -o OUT",
    "Where the time went, in the terminal and as a page:": "nsys2prv efficiency run/ -o PAGE.html",
    "What changed between two runs:": "nsys2prv compare before/ after/",
    "A run to try all of it with:": "nsys2prv demo demo/",
}
_SEE_ALSO = "Paraver, which shows the traces: https://tools.bsc.es/paraver"
_WIDTH = 78


def manual() -> str:
    """The manual page."""
    lines = [
        '.\\" Written by tools/manual.py.',
        f'.TH NSYS2PRV 1 "{_date()}" "nsys2prv {__version__}" "User Commands"',
        ".SH NAME",
        "nsys2prv \\- Nsight Systems reports as one Paraver trace, and where the time of the run went",
        ".SH SYNOPSIS",
    ]
    for name, found in tables.COMMANDS.items():
        lines += [f".B nsys2prv {name}", _roff(f"[OPTIONS] {_arguments(found)}"), ".br"]
    lines[-1:] = [".SH DESCRIPTION", *_paragraphs(_DESCRIPTION), ".SH COMMANDS"]
    for name, found in tables.COMMANDS.items():
        lines += [f".SS nsys2prv {name} {_roff(_arguments(found))}", *_paragraphs(found.help)]
        for part in found.params:
            lines += [".TP", _spelling(part), _roff(part.help + tables.default(part))]
    lines += [".SH EXIT STATUS"]
    for code, meaning in re.findall(r"^\| (\d+) \| (.*) \|$", tables.exit_codes(), re.MULTILINE):
        lines += [".TP", f".B {code}", _roff(meaning)]
    lines += [".SH FILES", *_terms(_FILES), ".SH ENVIRONMENT", *_terms(_ENVIRONMENT), ".SH EXAMPLES"]
    for what, line in _EXAMPLES.items():
        lines += [_roff(what), ".PP", ".RS 4", f".B {_roff(line)}", ".RE", ".PP"]
    lines[-1:] = [".SH SEE ALSO", _roff(_SEE_ALSO)]
    return "\n".join(lines) + "\n"


def _date() -> str:
    """The day of this version, as the change log has it."""
    found = re.search(rf"^## {re.escape(__version__)} \((.*)\)$", (CHECKOUT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no heading '## {__version__} (DATE)'")
    return found[1]


def _arguments(found: Any) -> str:
    arguments = [part for part in found.params if part.param_type_name == "argument"]
    return " ".join(part.metavar if part.required else f"[{part.metavar}]" for part in arguments)


def _spelling(part: Any) -> str:
    if part.param_type_name == "argument":
        return f".I {_roff(part.metavar)}"
    options = ", ".join(rf"\fB{_roff(option)}\fR" for option in part.opts)
    return options if part.is_flag else rf"{options} \fI{_roff(part.metavar or part.name.upper())}\fR"


def _terms(terms: dict[str, str]) -> list[str]:
    return [line for term, meaning in terms.items() for line in (".TP", f".B {_roff(term)}", _roff(meaning))]


def _paragraphs(text: str) -> list[str]:
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return [line for paragraph in paragraphs for line in (".PP", _roff(paragraph))][1:]


def _roff(text: str) -> str:
    """A text in short lines; what is between backquotes is bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    # A line that begins with one of these would be a request.
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


if __name__ == "__main__":
    PAGE.write_text(manual(), encoding="utf-8")
