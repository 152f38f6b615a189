"""What campaigns do with reports, and the report of a rank."""

from __future__ import annotations

from support.report_builder import ReportBuilder

_CHANGES = ("--ideal-network", "--no-late-ranks", "--no-launch-cost", "--data-loading", "0.5")
REPORT_COMMANDS: tuple[tuple[str, ...], ...] = (
    *[("inspect",), ("translate", "-o", "OUT"), ("efficiency",)] * 2,
    ("translate", "-o", "OUT", "--keep-going"),
    ("translate", "-o", "OUT", "--workers", "2"),
    ("translate", "-o", "OUT", "--fold-streams"),
    ("translate", "-o", "OUT", "--critical-path"),
    ("efficiency", "--keep-going"),
    ("efficiency", "--per-iteration", "step", "--regions", "*", "--window", "500ns:", "--talp", "OUT.talp.json"),
    ("efficiency", "-o", "OUT.html", "--json-file", "OUT.json", "--csv", "OUT.csv"),
    ("whatif", *_CHANGES),
    ("whatif", *_CHANGES, "--scale", "*=1e6", "--json-file", "OUT.json"),
)
"""Commands whose last argument is a report; what they write begins with `OUT.`."""


def ranked_report(rank: int) -> ReportBuilder:
    """A report of one of two ranks, with kernels and steps."""
    report = ReportBuilder(host=f"node{rank}", rank=rank, ranks=2)
    for index in range(300):
        report.kernel(f"kernel{index % 3}", 100 * index + 20, 100 * index + 80, launch=(100 * index, 100 * index + 10))
        if index % 30 == 0:
            report.nvtx_range("step", 100 * index, 100 * index + 3000)
    return report
