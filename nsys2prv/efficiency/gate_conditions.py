"""Conditions of a gate as texts: `device_parallel_efficiency < 0.95*A`. They are parsed, never evaluated as code.

    condition = [RUN "."] METRIC ("<" | "<=" | ">" | ">=") bound
    bound     = quantity
              | [quantity "*"] RUN ["*" quantity] [("+" | "-") quantity]
    quantity  = number ["%" | "ns" | "us" | "µs" | "ms" | "s" | "m"]
    RUN       = the letter of a run or its label, in quotes where it is no plain name

RUN in a bound is the same metric of that run. Options are read at each start of the program, so nothing heavy is loaded here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LONGEST = 500
"""Characters of a condition."""
EXAMPLE = "write METRIC < BOUND, such as 'device_parallel_efficiency < 0.95*A' or 'iteration_ns > A + 2ms'"

_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,2})?)\s*(?P<unit>%|(?:ns|us|µs|μs|ms|s|m)(?!\w))?(?!\w)
  | (?P<name>[^\W\d]\w*)
  | '(?P<single>[^']+)' | "(?P<double>[^"]+)"
  | (?P<sign><=|>=|[<>*+.-])
    )""",
    re.VERBOSE,
)

FACTOR, SHARE, TIME = "", "%", "ns"
"""Units of quantities: none, percent, and a time."""


@dataclass(frozen=True)
class Quantity:
    """A number as it was written: of a percentage a hundredth of it, of a time its ns."""

    value: float
    unit: str


@dataclass(frozen=True)
class Condition:
    """One condition: when it is true, the gate fails.

    Attributes
    ----------
    text
        As it was written.
    metric, sign
        What is compared and how.
    run
        Letter or label of the run that is checked; None: of each that can be.
    other
        Letter or label of the run whose value the bound has; None: the bound is `offset` alone.
    factor
        What the value of the other run is multiplied with.
    offset
        What is added to it.
    """

    text: str
    metric: str
    sign: str
    run: str | None
    other: str | None
    factor: Quantity
    offset: Quantity

    def __str__(self) -> str:
        return self.text


def gate_conditions(given: str | Condition | Iterable[str | Condition]) -> tuple[Condition, ...]:
    """Conditions from their texts.

    >>> gate_conditions("iteration_ns > 105% * before + 2ms")[0].factor
    Quantity(value=1.05, unit='%')
    """
    several = [given] if isinstance(given, str | Condition) else given
    return tuple(one if isinstance(one, Condition) else _Parser(one).condition() for one in several)


class _Parser:
    """Takes one token after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

    def condition(self) -> Condition:
        run, metric = None, self._take("name", "single", "double", what="a metric")
        if self._peek("sign") == ".":
            self._at += 1
            run, metric = metric, self._take("name", what="a metric")
        sign = self._peek("sign")
        if sign not in ("<", "<=", ">", ">="):
            raise ValueError(f"{self._found()} is in the place of <, <=, > or >=; {EXAMPLE}")
        self._at += 1
        other, factor, offset = self._bound()
        if self._at < len(self._tokens):
            raise ValueError(f"{self._found()} is behind the end of the condition; {EXAMPLE}")
        return Condition(" ".join(self._text.split()), metric, sign, run, other, factor, offset)

    def _bound(self) -> tuple[str | None, Quantity, Quantity]:
        one, nothing = Quantity(1.0, FACTOR), Quantity(0.0, FACTOR)
        factor = one
        if self._is("number") or self._peek("sign") in ("-", "+"):
            factor = self._signed()
            if self._at == len(self._tokens):
                return None, one, factor
            self._sign("*")
        other = self._take("name", "single", "double", what="a run")
        if self._peek("sign") == "*":
            if factor is not one:
                raise ValueError(f"two factors; {EXAMPLE}")
            self._at += 1
            factor = self._quantity()
        offset = nothing
        if self._peek("sign") in ("+", "-"):
            offset = self._signed()
        if factor.unit == TIME:
            raise ValueError("a run is multiplied with a time; factors are numbers or percentages, such as 1.05*A or 105%*A")
        return other, factor, offset

    def _signed(self) -> Quantity:
        sign = self._peek("sign")
        if sign in ("+", "-"):
            self._at += 1
        quantity = self._quantity()
        return Quantity(-quantity.value, quantity.unit) if sign == "-" else quantity

    def _quantity(self) -> Quantity:
        if not self._is("number"):
            raise ValueError(f"{self._found()} is in the place of a number; {EXAMPLE}")
        found = self._tokens[self._at]
        self._at += 1
        value, unit = float(found["number"]), found["unit"]
        if unit == "%":
            return Quantity(value / 100, SHARE)
        return Quantity(value * _TIMES[unit], TIME) if unit else Quantity(value, FACTOR)

    def _sign(self, sign: str) -> None:
        if self._peek("sign") != sign:
            raise ValueError(f"{self._found()} is in the place of {sign}; {EXAMPLE}")
        self._at += 1

    def _is(self, kind: str) -> bool:
        return self._peek(kind) is not None

    def _peek(self, kind: str) -> str | None:
        return self._tokens[self._at][kind] if self._at < len(self._tokens) else None

    def _take(self, *kinds: str, what: str) -> str:
        for kind in kinds:
            if (found := self._peek(kind)) is not None:
                self._at += 1
                return found
        raise ValueError(f"{self._found()} is in the place of {what}; {EXAMPLE}")

    def _found(self) -> str:
        return f"'{self._tokens[self._at][0].strip()}'" if self._at < len(self._tokens) else "nothing"


def _tokens(text: str) -> Sequence[re.Match[str]]:
    if len(text) > LONGEST:
        raise ValueError(f"a condition has at most {LONGEST} characters")
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(
                f"'{text[at:].strip()[:20]}' can't be read; {EXAMPLE}; labels of runs that are no plain names are in quotes"
            )
        tokens.append(token)
        at = token.end()
    return tokens
