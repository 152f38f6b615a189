"""Reports, traces and programs that tests make and read; and cases of tests that `make test` leaves out."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

QUICK: dict[str, bool] = {}
"""Options of measurements in `make test`, which go without the critical path where it is not the subject."""


def rest(*cases: Any) -> list[Any]:
    """Cases that only `make test-all` has; a tuple has a value for each argument."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough) for case in cases]


def few_of(cases: Iterable[Any], few: Collection[Any]) -> list[Any]:
    """All cases, of which `make test` has a few."""
    return [case if case in few else rest(case)[0] for case in cases]
