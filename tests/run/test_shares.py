"""A long report is read in shares by several workers: all of them together give what one process reads at once."""

import contextlib
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support import QUICK

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency import event_input
from nsys2prv.efficiency import measure as measuring
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.errors import DamagedReport
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Report
from nsys2prv.run import session
from nsys2prv.timeline import coverage, reader
from nsys2prv.timeline.reader import EventReader, Share
from nsys2prv.trace import translate as translation
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

_FEW = ("kernels", "cuda-api")

S = TypeVar("S")
T = TypeVar("T")


class OtherProcesses(Workers):
    """Does what other processes do, in this one: what is sent to them and back is pickled."""

    count = 2
    is_here = False

    def submit(self, function: Callable[[S], T], argument: S) -> bytes:
        return pickle.dumps((function, argument))

    def gather(self, future: bytes) -> Any:
        function, argument = pickle.loads(future)
        return pickle.loads(pickle.dumps(function(argument)))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    cluster = Cluster(nodes=1, gpus_per_node=2, iterations=1, layers=1, with_os_calls=False, gpu_metrics_hz=100)
    write_reports(folder, cluster)
    return folder


@pytest.fixture
def shared_out(monkeypatch: pytest.MonkeyPatch) -> list[Share]:
    """Workers that divide even small reports; the shares that were read."""
    read: list[Share] = []
    whole_read = EventReader.read

    @contextlib.contextmanager
    def workers(*_: object) -> Iterator[Workers]:
        yield OtherProcesses()

    def noted(*arguments: Any) -> Any:
        read.append(arguments[-1])
        return whole_read(*arguments)

    for module in (translation, event_input):
        monkeypatch.setattr(module, "workers", workers)
    for module in (session, reader):
        monkeypatch.setattr(module, "ROWS_OF_PART", 150)
    monkeypatch.setattr(EventReader, "read", noted)
    return read


def trace_in(folder: Path, reports: Path, **options: Any) -> dict[str, Any]:
    folder.mkdir()
    # Rows say what the trace is called.
    summary = translate([reports], folder / "trace", TranslateOptions(no_views=True, **options))
    account = {key: value for key, value in summary.content.items() if key not in ("seconds", "options")}
    return {"account": account, **{kind: summary.prv.with_suffix(kind).read_bytes() for kind in (".prv", ".pcf", ".row")}}


def test_a_trace_is_the_same_when_its_reports_are_read_in_shares(
    reports: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole = trace_in(tmp_path / "whole", reports)
    shares: list[Share] = request.getfixturevalue("shared_out")
    assert trace_in(tmp_path / "shares", reports) == whole
    assert {share.of for share in shares} != {1}


def test_efficiencies_are_the_same_when_reports_are_read_in_shares(
    reports: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole = measuring.measure([reports], EfficiencyOptions(**QUICK))
    shares: list[Share] = request.getfixturevalue("shared_out")
    found = measuring.measure([reports], EfficiencyOptions(**QUICK))
    assert json.dumps(found.as_json(), sort_keys=True) == json.dumps(whole.as_json(), sort_keys=True)
    assert {share.of for share in shares} != {1}


def test_a_report_of_which_shares_break_off_is_left_out_once(
    reports: Path, tmp_path: Path, shared_out: list[Share], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted(reports.glob("*.sqlite"))
    others = trace_in(tmp_path / "others", second, only=_FEW)
    reading = EventReader.read

    def breaking(self: EventReader, index: int, opened: Any, requests: Any, share: Share) -> Any:
        if opened.report.path == first and share.number in (0, 2):
            raise DamagedReport(first, f"share {share.number}")
        return reading(self, index, opened, requests, share)

    monkeypatch.setattr(EventReader, "read", breaking)
    check_left_out(trace_in(tmp_path / "rest", reports, keep_going=True, only=_FEW), others, "share 0")
    with pytest.raises(DamagedReport, match="share 0"):
        translate([reports], tmp_path / "none", TranslateOptions(only=_FEW))


def test_a_report_that_breaks_off_when_its_shares_were_read_is_left_out(
    reports: Path, tmp_path: Path, shared_out: list[Share], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted(reports.glob("*.sqlite"))
    others = trace_in(tmp_path / "others", second, only=_FEW)
    account = coverage.account

    def breaking(report: Report, *arguments: Any) -> Any:
        if report.path == first:
            raise DamagedReport(first, "the end")
        return account(report, *arguments)

    monkeypatch.setattr(coverage, "account", breaking)
    check_left_out(trace_in(tmp_path / "rest", reports, keep_going=True, only=_FEW), others, "the end")


def check_left_out(rest: dict[str, Any], others: dict[str, Any], why: str) -> None:
    """`rest` is the trace of the reports without the one that was left out, `others` that of the others alone."""
    (left_out,) = rest["account"]["left_out"]
    assert why in left_out["error"]
    assert (rest[".prv"], rest[".pcf"], rest[".row"]) == (others[".prv"], others[".pcf"], others[".row"])
