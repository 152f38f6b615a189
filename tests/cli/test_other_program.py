"""nsys2prv beside the other program of this name, up to 0.5.8 on PyPI, in one environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.checkout import CHECKOUT

from nsys2prv.cli.main import OTHER_PROGRAM


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nsys2prv", "check", "--help"],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_files_of_the_other_program_in_the_package_are_warned_of(tmp_path: Path) -> None:
    package = tmp_path / "nsys2prv"
    package.mkdir()
    for path in (CHECKOUT / "nsys2prv").iterdir():
        (package / path.name).symlink_to(path)
    assert run(tmp_path).stderr == ""

    (package / OTHER_PROGRAM).write_text("def main(): ...")

    assert run(tmp_path).stderr == (
        f"warning: {package} also has files of the other program of this name (nsys2prv up to 0.5.8), and either may run in "
        "place of the other; run `pip uninstall nsys2prv` until none is left, and install this one again\n"
    )
