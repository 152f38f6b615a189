"""A real report gives the same trace and the same numbers whatever the order of the rows of its tables."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.real_reports import RUNS
from support.shuffled import differences, shuffled, trace_files

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import NothingToMeasure
from nsys2prv.trace.translate import translate

_SEED = random.SystemRandom().randrange(10**9)
_SMALL = {"cuda-graphs", "mpi2_one_report", "nvtx-2024.2.3"}

EACH = [pytest.param(name, marks=[] if name in _SMALL else [pytest.mark.thorough]) for name in RUNS]


def _outcome(reports: list[Path], folder: Path) -> tuple[dict[str, str], str]:
    """Texts of the files of the trace, and the efficiency as JSON."""
    files = trace_files(translate(reports, folder / "trace").prv, reports[0].parent)
    try:
        measured = json.dumps(measure(reports, EfficiencyOptions(regions=("*",), bins=20)).as_json())
    except NothingToMeasure:
        measured = json.dumps("no device")
    return files, measured.replace(str(reports[0].parent), "REPORTS")


@pytest.mark.parametrize("run", EACH)
def test_shuffled_tables_give_the_same_trace_and_numbers(run: str, tmp_path: Path) -> None:
    print(f"seed {_SEED}")
    # Under its own name, which is that of the folder for several reports.
    of_shuffled = tmp_path / "copies" / RUNS[run][0].parent.name
    for folder in (tmp_path / "recorded", tmp_path / "shuffled", of_shuffled):
        folder.mkdir(parents=True)
    copies = [shuffled(report, of_shuffled, _SEED) for report in RUNS[run]]
    files, measured = _outcome(list(RUNS[run]), tmp_path / "recorded")
    of_copies, measured_of_copies = _outcome(copies, tmp_path / "shuffled")
    assert of_copies.keys() == files.keys()
    assert [suffix for suffix in files if files[suffix] != of_copies[suffix]] == []
    assert list(differences(json.loads(measured), json.loads(measured_of_copies))) == []
