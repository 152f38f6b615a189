"""What happens to reports that can't be read: left out, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv.errors import DamagedReport
from nsys2prv.run.open import BrokenReports

FIRST, SECOND = (DamagedReport(Path(name), "cut off") for name in ("a.sqlite", "b.sqlite"))


def test_without_keep_going_the_error_of_a_report_is_raised() -> None:
    broken = BrokenReports(keep_going=False)

    with pytest.raises(DamagedReport) as raised:
        broken.leave_out(FIRST.path, FIRST)

    assert raised.value is FIRST
    assert broken.left_out == []


def test_with_keep_going_reports_are_left_out_in_their_order() -> None:
    broken = BrokenReports(keep_going=True)
    for error in (FIRST, SECOND):
        broken.leave_out(error.path, error)

    assert [(one.path, one.error) for one in broken.left_out] == [(FIRST.path, FIRST), (SECOND.path, SECOND)]


def test_when_no_report_is_left_the_first_error_is_raised() -> None:
    broken = BrokenReports(keep_going=True)
    broken.check_rest([])
    for error in (FIRST, SECOND):
        broken.leave_out(error.path, error)

    with pytest.raises(DamagedReport) as raised:
        broken.check_rest([])
    assert raised.value is FIRST


def test_an_error_about_none_of_the_reports_is_raised() -> None:
    with pytest.raises(DamagedReport) as raised:
        BrokenReports(keep_going=True).without([], FIRST)
    assert raised.value is FIRST
