"""What every failed run of nsys2prv must be: one sentence, a documented exit code, and nothing changed around."""

import subprocess
from pathlib import Path

from support.report_builder import ReportBuilder


def small_report(kernels: int = 3, *, pid: int = 1000, **columns: int) -> ReportBuilder:
    builder = ReportBuilder(host="node01", pid=pid)
    for index in range(kernels):
        builder.kernel(
            f"kernel_{index % 5}", 100 * index + 30, 100 * index + 90, launch=(100 * index, 100 * index + 10), **columns
        )
    return builder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def sentence(done: subprocess.CompletedProcess[str], code: int, *names: object) -> str:
    """The one sentence that a failed run says; `names` must be in it."""
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("nsys2prv: ")
    assert done.stdout == ""
    assert done.returncode == code, done.stderr
    for name in names:
        assert str(name) in done.stderr
    return done.stderr
