"""What names say: regular expressions of users, families of kernels, units of metrics."""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import polars as pl

from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.limits import read_ordinary
from nsys2prv.vocabulary.wording import short

_WILDCARDS = re.compile(r"(\*+|\?)")
_MOST_WILDCARDS = 2_000
"""An expression that is made of them needs some hundred bytes for each."""


def first_match(text: pl.Expr, rules: Iterable[tuple[str, int | str]], default: int | str | None) -> pl.Expr:
    """Value of the first rule that a text matches.

    `rules` are regular expressions, looked for anywhere in a `text`, and their values: all numbers or all texts. `default` is
    the value where none matches, and of null.

    >>> names = pl.Series(["sgemm_nn", "gelu", None])
    >>> pl.select(first_match(pl.lit(names), (("gemm", 1), ("nn", 2)), 0)).to_series().to_list()
    [1, 0, 0]
    """
    # Side by side: nested, a hundred rules would be a hundred levels.
    dtype = pl.Int64 if isinstance(default, int) else None
    matches = [pl.when(text.str.contains(pattern)).then(pl.lit(value, dtype)) for pattern, value in rules]
    return pl.coalesce(*matches, pl.lit(default, dtype))


def fits(text: pl.Expr, pattern: str) -> pl.Expr:
    """Whether a text is equal to a pattern, or its wildcards match it: * any text, ? one character.

    Raises
    ------
    UsageError
        When the pattern has too many wildcards.

    Examples
    --------
    >>> names = pl.Series(["step 1", "step [2]", "step *", None])
    >>> pl.select(fits(pl.lit(names), "step [?]")).to_series().to_list()
    [False, True, False, None]
    """
    pieces = _WILDCARDS.split(pattern)
    if len(pieces) == 1:
        return text == pattern
    if len(pieces) > 2 * _MOST_WILDCARDS:
        raise UsageError(f"{short(pattern)}: a name has at most {_MOST_WILDCARDS:,} wildcards * and ?")
    # Every second piece is a wildcard.
    pieces[::2] = map(pl.escape_regex, pieces[::2])
    pieces[1::2] = [".*" if piece.startswith("*") else "." for piece in pieces[1::2]]
    return (text == pattern) | text.str.contains(f"(?s)^{''.join(pieces)}$")


def count_groups(pattern: str) -> int:
    r"""Number of groups of a regular expression; ValueError with the reason when it is none.

    >>> count_groups(r"rank(\d+)")
    1
    """
    try:
        return len(pl.Series([""]).str.extract_groups(pattern).struct.fields)
    except pl.exceptions.PolarsError as error:
        # Before the reason there is a picture of the pattern.
        _, _, why = str(error).rpartition("error: ")
        raise ValueError(f"no regular expression of Rust ({why})") from error


def first_group(texts: Sequence[str], pattern: str) -> list[str | None]:
    r"""What the first group of a regular expression matches in each text, None where nothing does.

    >>> first_group(["run/rank3", "run"], r"rank(\d+)")
    ['3', None]
    """
    return pl.Series(texts, dtype=pl.String).str.extract(pattern, 1).to_list()


PERCENTAGE = r"(?i)%|^[^\[]*\b(?:active|issue|throughput|bandwidth|utilization|in flight)$"
"""Names without a unit are those of older exports, where all but clocks are percentages; "[Throughput %]" is a newer one."""
_BRACKETS = re.compile(r"\[[^\[\]]*?([^\[\] ]+)\]\s*$")
_CLOCK = re.compile(r"clock|frequency", re.IGNORECASE)
_LONGEST = 16


def unit_of_metric(name: str) -> str:
    """The unit of a metric: what its name has in brackets, `%`, `Hz`, or "" where it is not known.

    >>> [unit_of_metric(name) for name in ("SM Active", "GPC Clock Frequency [MHz]", "SMs Active [Throughput %]", "SYS Clock")]
    ['%', 'MHz', '%', 'Hz']
    >>> unit_of_metric("Unallocated Warps in Active SMs")
    ''
    """
    if match := _BRACKETS.search(name):
        return match[1][:_LONGEST]
    return "%" if re.search(PERCENTAGE, name) else "Hz" if _CLOCK.search(name) else ""


def metric_value(metric: str, value: float) -> str:
    """A value of a sampled metric with its unit.

    >>> metric_value("SM Active", 12.34), metric_value("GPC Clock Frequency [MHz]", 1395.019), metric_value("Warps", 3.0)
    ('12.3 %', '1,395 MHz', '3')
    """
    unit = unit_of_metric(metric)
    if unit == "%":
        return f"{value:.1f} %"
    if unit == "Hz":
        return f"{value / 1e6:,.0f} MHz"
    return f"{value:{',.0f' if abs(value) >= 100 or value == int(value) else '.3g'}} {unit}".rstrip()


def metric_unit(metric: str) -> tuple[float, str]:
    """The unit in which people read a sampled metric: what values are divided by, and its name. Clocks are in GHz."""
    unit = unit_of_metric(metric)
    return {"Hz": (1e9, "GHz"), "MHz": (1e3, "GHz")}.get(unit, (1.0, unit))


FAMILY = "family"
"""What a rule says that names a family; all other words are details."""
COLUMNS = ("what", "value", "pattern")
_SHIPPED = "kernel_families.csv"
_MOST_BYTES = 16 << 20

_PIECE = re.compile(r"\{([a-z_][a-z0-9_]*|[0-9]+)\}")
_DETAIL = re.compile(r"[a-z_][a-z0-9_]*")

# Parts of names that patterns for the name of the function must not see.
_ANONYMOUS = r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::"
_RETURNED = r"^(?:(?:void|static|auto|__global__|std::enable_if<.*?>::type) +)+"
_FUNCTION = r"^([^<(\[{]+)"
"""A kernel of no family is called by this part of its demangled name: its function, without arguments."""
_LONGEST_FUNCTION = 120
_UNREADABLE = r"[\s\x00-\x1f\x7f-\x9f]+"
UNNAMED = "(unnamed)"
_TEXT = "bare name"


@dataclass(frozen=True)
class Rule:
    """One line of a file of rules."""

    what: str  # `family`, or the name of a detail
    value: str  # the name of the family, or the detail: text with ``{detail}`` and ``{1}``, the first group of the pattern
    pattern: str  # regular expression of Rust, looked for in the name of a kernel

    @property
    def pieces(self) -> list[str]:
        """The value in pieces: texts at even places, what is in braces at odd ones."""
        return _PIECE.split(self.value)

    @property
    def kind(self) -> str:
        """The value without what differs from kernel to kernel."""
        return " ".join("".join(self.pieces[::2]).split())


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """The rules that come with the program."""
    with resources.as_file(resources.files("nsys2prv.vocabulary") / _SHIPPED) as path:
        return _read(path, check=False)


def read_rules(path: Path | None = None) -> tuple[Rule, ...]:
    """Rules of a user's own file, if there is one, and behind them those that come with the program.

    Raises
    ------
    UsageError
        When the file is not there, or a line of it is no rule.
    """
    return shipped_rules() if path is None else (*_read(path), *shipped_rules())


def families(names: pl.Series, rules: Iterable[Rule] | None = None) -> pl.DataFrame:
    """Families of kernels.

    Parameters
    ----------
    names
        Names of kernels, best demangled; a name may occur many times, or be null.
    rules
        Of those of a kind the first that matches counts; None for `shipped_rules`.

    Returns
    -------
    pl.DataFrame
        One row per distinct name (not null), in the order of `names`, with the columns

        - ``name``
        - ``family``: such as "GEMM bf16 tn 128x256x64", "Flash attention backward", "NCCL AllReduce"; the function's own name
          where no rule knows it. Never null nor empty
        - ``kind``: the family without details, such as "GEMM", "Flash attention"; null where no rule knows the name, and
          where the whole family comes out of the name
        - one per detail, here ``precision``, ``layout``, ``tile``, ``direction``: null where it is not known or not used

    Examples
    --------
    >>> families(pl.Series(["volta_sgemm_128x64_nn", "void mine::step<(int)4>(float *)"])).rows()
    [('volta_sgemm_128x64_nn', 'GEMM fp32 nn 128x64', 'GEMM', 'fp32', 'nn', '128x64', None), \
('void mine::step<(int)4>(float *)', 'mine::step', None, None, None, None, None)]
    """
    rules = shipped_rules() if rules is None else tuple(rules)
    distinct = names.cast(pl.String).drop_nulls().unique(maintain_order=True).alias("name")
    text = pl.col("name").str.replace_all(_ANONYMOUS, "").str.replace(_RETURNED, "").alias(_TEXT)
    described: pl.DataFrame = distinct.to_frame().with_columns(text)
    of_family = [rule for rule in rules if rule.what == FAMILY]
    rule_of_family = _first_rule(described[_TEXT], of_family)
    for detail in dict.fromkeys(rule.what for rule in rules if rule.what != FAMILY):
        of_detail = [rule for rule in rules if rule.what == detail]
        asking = [index for index, rule in enumerate(of_family) if detail in rule.pieces[1::2]]
        values = _values(described, _first_rule(described[_TEXT], of_detail), of_detail)
        described = described.with_columns(pl.when(rule_of_family.is_in(asking)).then(values.str.to_lowercase()).alias(detail))
    kinds = dict(enumerate(rule.kind or None for rule in of_family))
    family = described.select(_one_line(pl.lit(_values(described, rule_of_family, of_family)))).to_series()
    is_known = family.str.len_bytes() > 0
    function = pl.col(_TEXT).str.extract(_FUNCTION).fill_null(pl.col(_TEXT))
    return described.select(
        "name",
        pl.when(is_known).then(family).otherwise(_one_line(function)).replace("", UNNAMED).alias(FAMILY),
        pl.when(is_known).then(rule_of_family.replace_strict(kinds, default=None, return_dtype=pl.String)).alias("kind"),
        pl.exclude("name", _TEXT),
    )


def _first_rule(texts: pl.Series, rules: list[Rule]) -> pl.Series:
    """Index of the first rule that each text matches; null for none."""
    numbered = [(rule.pattern, index) for index, rule in enumerate(rules)]
    return texts.to_frame().select(first_match(pl.col(texts.name), numbered, None).cast(pl.Int64)).to_series()


def _values(texts: pl.DataFrame, rule_of_text: pl.Series, rules: list[Rule]) -> pl.Series:
    """Values of the rules that were chosen for each text; null for none."""
    value = pl.lit(None, pl.String)
    for index in rule_of_text.drop_nulls().unique().sort():
        value = pl.when(rule_of_text == index).then(_filled(rules[index], texts.columns)).otherwise(value)
    return texts.with_columns(value.alias(_TEXT))[_TEXT]


def _filled(rule: Rule, columns: list[str]) -> pl.Expr:
    """The value of a rule for texts that match it, with details from other columns."""
    pieces: list[pl.Expr] = []
    for place, piece in enumerate(rule.pieces):
        if place % 2 == 0:
            pieces.append(pl.lit(piece))
        elif piece.isdigit():
            pieces.append(pl.col(_TEXT).str.extract(rule.pattern, int(piece)))
        elif piece in columns:
            pieces.append(pl.col(piece))
    return pl.concat_str(pieces, ignore_nulls=True)


def _one_line(text: pl.Expr) -> pl.Expr:
    readable = text.str.slice(0, 4 * _LONGEST_FUNCTION).str.replace_all(_UNREADABLE, " ")
    return readable.str.strip_chars().str.slice(0, _LONGEST_FUNCTION)


def _read(path: Path, *, check: bool = True) -> tuple[Rule, ...]:
    """Rules of a file; to check the patterns takes as long as to use them."""
    try:
        text = read_ordinary(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UsageError(f"{path}: can't be read ({why}); give a CSV file with the columns {', '.join(COLUMNS)}") from error
    lines = {number: line for number, line in enumerate(text.splitlines(), start=1) if line.strip()[:1] not in ("", "#")}
    rules = []
    for place, (number, line) in enumerate((lines or {1: ""}).items()):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], strict=True), [])]
            if place == 0 and cells != list(COLUMNS):
                raise _NoRule("not the names of the columns", f"start with the line {','.join(COLUMNS)}")
            rules += [_rule(cells, check=check)] if place else []
        except csv.Error as error:
            quotes = 'put " around a pattern with commas, and write "" for a quote in it'
            raise UsageError(f"{path}: line {number}: the quotes don't match; {quotes}") from error
        except _NoRule as error:
            raise UsageError(f"{path}: line {number}: {'; '.join(error.args)}") from error
    return tuple(rules)


class _NoRule(Exception):
    """Why a line is no rule, and what to do."""


def _rule(cells: list[str], *, check: bool) -> Rule:
    if len(cells) != len(COLUMNS):
        raise _NoRule(f"{len(cells)} cells and not the three {', '.join(COLUMNS)}", 'put " around a pattern with commas')
    rule = Rule(*cells)
    if not _DETAIL.fullmatch(rule.what) or rule.what in ("name", "kind"):
        words = "use family, precision, layout, tile, direction, or a word in small letters"
        raise _NoRule(f"{rule.what!r} is neither family nor the name of a detail", words)
    if not rule.value:
        raise _NoRule("no value", "give a name for kernels that match the pattern")
    try:
        groups = count_groups(rule.pattern) if check else math.inf
    except ValueError as error:
        raise _NoRule(f"{rule.pattern!r} is {error}", "mend it (there is no look-around and no back-reference)") from error
    highest = max((int(piece) for piece in rule.pieces[1::2] if piece.isdigit()), default=0)
    if highest > groups:
        why = f"{{{highest}}} is used and the pattern has {groups} groups"
        raise _NoRule(why, "put ( ) around the part to use")
    return rule


def kind_of(family: pl.Expr) -> pl.Expr:
    """Families without details: the longest kind of kernel that each begins with, else the family itself.

    >>> pl.select(kind_of(pl.Series(["GEMM bf16 nt 128x128x64", "mine::step"]))).to_series().to_list()
    ['GEMM', 'mine::step']
    """
    kinds = sorted({rule.kind for rule in shipped_rules() if rule.what == FAMILY and rule.kind}, key=len, reverse=True)
    return family.str.extract(f"^({'|'.join(map(pl.escape_regex, kinds))})(?: |$)").fill_null(family)
