"""The demo: reports of a simulated training run, translated, checked and measured."""

import json
from dataclasses import dataclass
from pathlib import Path

from nsys2prv.demo.cluster import TRUTH, report_name, write_reports
from nsys2prv.demo.scenario import Cluster
from nsys2prv.errors import OutputError
from nsys2prv.execution.output_files import publish, temporary_folder
from nsys2prv.execution.progress import progress_bar
from nsys2prv.exports.paths import everything_below
from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.record_checks import CheckResult
from nsys2prv.paraver.trace_files import VIEWS, companion
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.printable import printable_lines

_ITERATION = "iteration"
"""NVTX range around each iteration of the demo."""


@dataclass(frozen=True)
class DemoResult:
    """The reports, the summary of the translation, the check of the trace, and the files of its efficiency."""

    reports: tuple[Path, ...]
    summary: Summary
    check: CheckResult
    page: Path
    json: Path

    def as_text(self) -> str:
        """What was made and what came out, for a terminal, with how to open it."""
        prv, made = self.summary.prv, f"{len(self.reports)} simulated reports: {self.reports[0].parent}"
        efficiency = f"efficiency: {self.page}, as JSON in {self.json}"
        first = companion(prv, VIEWS) / "0-start-here" / "device_activity.cfg"
        to_open = [f"to open: wxparaver {prv} {first}, and {self.page} in a browser"] if self.check.valid else []
        summary, check = self.summary.as_text().split("\n"), self.check.as_text(prv).split("\n")
        return printable_lines([made, *summary, efficiency, *check, *to_open])


def cluster_of_demo(nodes: int = 2, gpus_per_node: int = 4) -> Cluster:
    """The run of the demo, with four problems: a slow GPU, exposed communication, late batches, and copies from pageable
    memory."""
    return Cluster(nodes=nodes, gpus_per_node=gpus_per_node, exposed_communication=True)


def run_demo(directory: Path, nodes: int = 2, gpus_per_node: int = 4) -> DemoResult:
    """Make reports in DIR/reports, translate them to DIR/demo.prv, check that, and measure it: demo.html, demo.efficiency.json.

    Raises
    ------
    OutputError
        When the folder cannot be written, or holds something else than an earlier demo.
    """
    from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
    from nsys2prv.efficiency.measure import measure

    folder = directory / "reports"
    try:
        former = _former_reports(folder)
        if former is None and _has_files(directory):
            raise OutputError.not_writable(directory, "it holds something else than an earlier demo", "a new folder")
        with temporary_folder(folder, folder.name, with_parents=True) as staging, progress_bar("making reports"):
            reports = [folder / path.name for path in write_reports(staging, cluster_of_demo(nodes, gpus_per_node))]
            names = {path.name: None for path in former or ()} | {path.name: path.name for path in (*reports, folder / TRUTH)}
            publish({staging: names})
    except OSError as error:
        raise OutputError.not_writable(directory, error) from error
    summary = translate(reports, directory / "demo", TranslateOptions(force=True, critical_path=True))
    measured = measure(reports, EfficiencyOptions(per_iteration=_ITERATION))
    page_path, json_path = directory / "demo.html", directory / "demo.efficiency.json"
    with progress_bar("writing"):
        measured.write(page_path=page_path, json_path=json_path)
    return DemoResult(tuple(reports), summary, check_trace(summary.prv), page_path, json_path)


def _has_files(directory: Path) -> bool:
    """Whether there is more than what a demo leaves that was interrupted."""
    return directory.exists() and not all(path.is_dir() for path in everything_below(directory))


def _former_reports(folder: Path) -> list[Path] | None:
    """Reports that an earlier demo made; None when there was none."""
    try:
        ranks = json.loads((folder / TRUTH).read_text(encoding="utf-8"))["ranks"]
        return [folder / f"{report_name(int(of_rank['rank']))}.sqlite" for of_rank in ranks]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
