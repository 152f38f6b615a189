"""How numbers and names are worded for people: shares, times, sizes, rates, ranges of ranks, long and mistyped names."""

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from nsys2prv.vocabulary.printable import on_one_line, printable

LONGEST_SHOWN = 60
_COMPARED = 2_000
"""Names that are compared by their letters."""

TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_RATES = ((10**12, "TB/s"), (10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s"), (1, "B/s"))
"""Units of times, sizes and rates, the largest first: ns or bytes, and the name."""


def percent(value: float | None) -> str:
    """A share of 1 as percent, with one digit behind the point.

    >>> percent(0.4375), percent(None)
    ('43.8 %', '-')
    """
    return "-" if value is None else f"{value * 100:.1f} %"


def time(value: float) -> str:
    """A time in ns, in the largest unit of which it is at least one.

    >>> time(1_500_000), time(12)
    ('1.500 ms', '12 ns')
    """
    return _scaled(value, TIMES)


def signed_time(nanoseconds: float) -> str:
    """A difference, with its sign.

    >>> signed_time(-2e6), signed_time(5)
    ('−2.000 ms', '+5 ns')
    """
    return f"{'−' if nanoseconds < 0 else '+'}{time(abs(nanoseconds))}"


def size(value: float) -> str:
    """A number of bytes, in the largest unit of which it is at least one."""
    return _scaled(value, SIZES)


def rate(value: float) -> str:
    """A rate in bytes per second."""
    return _scaled(value, _RATES)


def quantity(value: float, unit: str) -> str | None:
    """A value of a column with a unit: ns, bytes, bytes/s or 0 to 1; None for other units."""
    forms = {"ns": time, "bytes": size, "bytes/s": rate, "0 to 1": percent}
    return forms[unit](value) if unit in forms else None


def short(text: str, longest: int = LONGEST_SHOWN) -> str:
    """A text without its middle when it is long, and without characters that control a terminal.

    >>> short("a\\x1b[2J\\nb"), short("0123456789", 7)
    ('a [2J b', '01...89')
    """
    return printable(on_one_line(text), longest)


def did_you_mean(name: str, names: Iterable[str], command: str = "") -> str:
    """The end of a sentence about an unknown name, or a pattern that fits none of those that there are: what is near, and the
    command that lists all names ("": they are few).

    >>> did_you_mean("kernles", ["kernels", "nvtx"]), did_you_mean("?", ["kernels", "nvtx"])
    ('; did you mean kernels?', '; the names are kernels, nvtx')
    >>> did_you_mean("stpe", ["step", "load"], "inspect --nvtx")
    '; did you mean step? (`nsys2prv inspect --nvtx` lists all names)'
    """
    names = list(names)
    near = listed(map(short, nearest(name.strip("*?"), names)), "or")
    lists = f"`nsys2prv {command}` lists all names" if command else f"the names are {', '.join(names)}"
    return f"; did you mean {near}?{f' ({lists})' if command else ''}" if near else f"; {lists}"


def listed(names: Iterable[str], link: str = "and") -> str:
    """Names as a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    several = list(names)
    return f" {link} ".join((", ".join(several[:-1]), several[-1])) if len(several) > 1 else "".join(several)


def known_to(widths: Iterable[float | None]) -> str:
    """How well several clocks are known, from the half widths of their intervals, ns; None: not known.

    >>> known_to([1_500.0, 2_000.0]), known_to([500.0, None, None]), known_to([None, None])
    ('known to within 2.000 µs', 'known to within 500 ns, 2 of 3 not known', 'not known')
    """
    several = list(widths)
    finite = [width for width in several if width is not None]
    if not finite:
        return "not known"
    unknown = len(several) - len(finite)
    return f"known to within {time(max(finite))}" + (f", {unknown:,} of {len(several):,} not known" if unknown else "")


def unit(largest: float, units: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """The unit in which values up to a largest one are written: what they are divided by, and its name.

    >>> unit(2_500_000, TIMES)
    (1000000, 'ms')
    """
    return next((entry for entry in units if largest >= entry[0]), units[-1])


def _scaled(value: float, units: Sequence[tuple[int, str]]) -> str:
    factor, name = unit(abs(value), units)
    return f"{value / factor:.{3 if factor > 1 else 0}f} {name}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, neighbours as a range.

    >>> ranges([0, 1, 2, 7, 9, 8])
    '0-2,7-9'
    """
    pieces: list[list[int]] = []
    for number in sorted(set(numbers)):
        if pieces and pieces[-1][-1] == number - 1:
            pieces[-1][1:] = [number]
        else:
            pieces.append([number])
    return ",".join("-".join(map(str, piece)) for piece in pieces)


def ranks_of_run(ranks: Iterable[int], size: int | None) -> str:
    """Ranks that are known, and of how many (None: not known).

    >>> ranks_of_run([0, 1, 2, 5], 8)
    '0-2,5 of 8'
    """
    return f"{ranges(ranks)} of {size:,}" if size else f"{ranges(ranks)}, of how many is not known"


_OF_NSYS = "nsys said: "
_GRAVE = re.compile("left out|not among|contradict|do not fit|not decidable|allow at least|not read")
_REPORT = re.compile(r"(?<![\w:/])((?:[^\s:/(]*/)+([^\s:/(]+(?:\.(?:sqlite|(nsys|qd)-?rep|json|prv(\.gz)?)|_(pqt|arw)dir)))\b")


def ranked_warnings(warnings: Iterable[str]) -> list[str]:
    """Warnings for people: each once, those first that make numbers wrong or unknown, then how much was recorded, and what nsys
    said in one, by its first sentences, and of those that differ in numbers how many. Reports have names for paths where
    no two have the same.

    >>> ranked_warnings(["nsys said: Lost a 1. So.", "nsys said: Lost a 2.", "/x/a.sqlite: odd", "1 (/x/a.sqlite) is left out"])
    ['1 (a.sqlite) is left out', 'a.sqlite: odd', 'nsys said: Lost a # (2 of these)']
    """
    unique, said = dict.fromkeys(warnings), dict[str, dict[str, dict[str, None]]]()
    for before, _, text in (warning.partition(_OF_NSYS) for warning in unique if _OF_NSYS in warning):
        sentence = text.partition(". ")[0].rstrip(".")
        said.setdefault(before, {}).setdefault(re.sub("[0-9]+", "#", sentence), {})[sentence] = None
    lines = [warning for warning in unique if _OF_NSYS not in warning]
    lines.sort(key=lambda line: 0 if _GRAVE.search(line) else 2 if "the trace lasts" in line else 1)
    for before, alike in said.items():
        texts = (f"{text} ({len(like)} of these)" if len(like) > 1 else next(iter(like)) for text, like in alike.items())
        lines.append(f"{before}{_OF_NSYS}{'; '.join(texts)}")
    names = {path: name for path, name, *_ in _REPORT.findall("\n".join(lines))}
    return [_REPORT.sub(r"\2", line) for line in lines] if len(set(names.values())) == len(names) else lines


def nearest(word: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Known names that someone may have meant: those that contain the word, or are in it, before those that are spelled alike.

    >>> nearest("kernles", ["kernels", "copies", "nvtx"]), nearest("batch", ["next_batch", "Batch", "epoch"])
    (['kernels'], ['Batch', 'next_batch'])
    """
    folded, texts = word.casefold().strip(), {name.casefold(): name for name in names}
    near = [text for text in texts if min(len(folded), len(text)) >= 3 and (folded in text or text in folded)]
    near.sort(key=lambda text: abs(len(text) - len(folded)))
    alike = get_close_matches(folded, list(texts)[:_COMPARED], most)
    return [texts[text] for text in dict.fromkeys([*near, *alike])][:most]


def worded(value: float | None, unit: str) -> str:
    """A number of a run for people.

    >>> worded(0.5, "0 to 1"), worded(2e6, "ns"), worded(1.25, ""), worded(None, "ns")
    ('50.0 %', '2.000 ms', '1.25', 'not known')
    """
    if value is None or math.isinf(value):
        return "not known"
    return quantity(value, unit) or f"{value:,.6g} {unit}".rstrip()
