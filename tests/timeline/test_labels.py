"""Labels of a trace: what is different in a report stays different."""

from __future__ import annotations

from pathlib import Path

from support.report_builder import ReportBuilder

from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions


def test_names_that_are_cleaned_into_one_stay_apart(tmp_path: Path) -> None:
    report = ReportBuilder()
    for place, name in enumerate(["gemm(float[4])", "gemm(float(4))", "copy"]):
        report.kernel(name, 10 * place, 10 * place + 5)
    for place, name in enumerate(["a\tb", "a\nb", "a b"]):
        report.nvtx_range(name, 10 * place, 10 * place + 5)

    trace = translate([report.write(tmp_path / "a.sqlite")], tmp_path / "out", TranslateOptions())

    lines = trace.prv.with_suffix(".pcf").read_text().splitlines()
    for label in ("gemm(float(4))", "a b"):
        alike = [line.split(maxsplit=1)[1] for line in lines if label in line]
        assert label in alike
        assert len(set(alike)) == len(alike) == (2 if label.startswith("gemm") else 3)
    assert [line.split(maxsplit=1)[1] for line in lines if "copy" in line] == ["copy"]
