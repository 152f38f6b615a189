"""Made reports, full of equal times and contradictions, give the same trace and numbers in any order of rows."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.made_reports import drawn_events, made_report
from support.shuffled import differences, shuffled, trace_files

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import NothingToMeasure
from nsys2prv.execution import external_sort
from nsys2prv.execution.row_order import drop_duplicates, in_content_order, order_ties
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions


def _outcome(reports: list[Path], folder: Path) -> tuple[dict[str, str], object]:
    files = trace_files(translate(reports, folder / "trace", TranslateOptions(align="utc")).prv, reports[0].parent)
    try:
        measured = json.dumps(measure(reports, EfficiencyOptions(align="utc", regions=("*",), bins=5)).as_json())
    except NothingToMeasure:
        measured = "{}"
    return files, json.loads(measured.replace(str(reports[0].parent), "REPORTS"))


_OVERLAPPING = (
    [
        (0, 0, 0, 0), (31, 11, 0, 0), (28, 0, 0, 0), (31, 0, 0, 0), (0, 0, 0, 0), (26, 0, 0, 0), (38, 0, 0, 0),
        (11, 0, 0, 0), (0, 0, 0, 0), (23, 0, 0, 0), (24, 0, 0, 0),
    ],
    [
        (30, 0, 0, 0), (26, 0, 0, 0), (24, 11, 0, 0), (0, 0, 0, 0), (16, 0, 0, 0), (16, 0, 0, 0), (32, 0, 0, 0),
        (0, 10, 4, 1), (5, 5, 2, 0), (14, 10, 0, 1), (21, 7, 4, 1), (37, 2, 3, 0), (16, 2, 3, 1), (12, 3, 4, 0),
        (19, 1, 3, 2), (27, 6, 2, 0), (22, 2, 4, 2), (8, 2, 1, 2), (24, 6, 1, 2),
    ],
)  # fmt: skip


@pytest.mark.thorough
def test_any_order_of_rows_gives_the_same_trace_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=300, suppress_health_check=list(HealthCheck))
    @given(
        ranks=st.tuples(drawn_events, drawn_events),
        seed=st.integers(0, 2**32),
        sizes=st.sampled_from([(40_000, 90_000, 8_192), (20, 15, 4), (7, 30, 7)]),
    )
    # A call that starts when a kernel without length does, in another place among others of this time.
    @example(ranks=([(0, 0, 0, 0)] * 10, [(3, 0, 1, 0), *[(0, 0, 0, 0)] * 9]), seed=0, sizes=(40_000, 90_000, 8_192))
    # Calls of a thread that overlap, of which some have ended in the window before.
    @example(ranks=_OVERLAPPING, seed=373705, sizes=(20, 15, 4))
    def check(ranks: tuple[list[tuple[int, int, int, int]], ...], seed: int, sizes: tuple[int, int, int]) -> None:
        folder = tmp_path / "example"
        # One that an example before left when it failed would hide why.
        shutil.rmtree(folder, ignore_errors=True)
        # What is read has the same name, as it is in titles.
        for name in ("written/run", "copies/run"):
            (folder / name).mkdir(parents=True)
        written = [
            made_report(rank, events).write(folder / "written/run" / f"r{rank}.sqlite") for rank, events in enumerate(ranks)
        ]
        copies = [shuffled(report, folder / "copies/run", seed) for report in written]
        files, measured = _outcome(written, folder / "written")
        with monkeypatch.context() as patch:
            # Rows in another order also fall into other pieces.
            for name, size in zip(("RUN_ROWS", "WINDOW_ROWS", "_BATCH_ROWS"), sizes, strict=True):
                patch.setattr(external_sort, name, size)
            files_of_copies, measured_of_copies = _outcome(copies, folder / "copies")
        assert files_of_copies == files
        assert list(differences(measured, measured_of_copies)) == []

    check()


_ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.sampled_from("abc")), max_size=30)


@given(rows=_ROWS, seed=st.integers(0, 2**32))
def test_rows_are_ordered_and_chosen_by_what_is_in_them(rows: list[tuple[int, int, str | None]], seed: int) -> None:
    schema = {"key": pl.Int64, "other": pl.Int64, "text": pl.String}
    frame = pl.DataFrame(rows, schema, orient="row")
    mixed = pl.DataFrame(random.Random(seed).sample(rows, len(rows)), schema, orient="row")
    ordered = order_ties(mixed.sort("key", descending=True), ["key"])
    assert ordered.equals(frame.sort("key", "other", "text", descending=[True, False, False]))
    chosen = drop_duplicates(mixed, "key").sort("key")
    assert chosen.rows() == [
        min((row for row in rows if row[0] == key), key=lambda row: (row[1], row[2] is None, row[2] or ""))
        for key in sorted({row[0] for row in rows})
    ]


_NUMBERS = st.lists(st.tuples(*[st.integers(0, 3)] * 2, *[st.none() | st.integers(-3, 3)] * 2), max_size=30)


@given(rows=_NUMBERS)
def test_numbers_are_in_the_order_of_all_columns(rows: list[tuple[int | None, ...]]) -> None:
    frame = pl.DataFrame(rows, dict.fromkeys("abcd", pl.Int64), orient="row")
    assert in_content_order(frame, ["b"]).equals(frame.sort("b", "a", "c", "d"))
    assert in_content_order(frame.sort("a"), ["a"]).equals(frame.sort("a", "b", "c", "d"))
