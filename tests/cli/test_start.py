"""Commands load what they use: a library that is not used takes as long to load as a small report to translate."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import CHECKOUT
from support.command_line import CommandLine
from support.failed_runs import small_report

HEAVY = {
    "asyncio",
    "markdown_it",
    "dask",
    "distributed",
    "multiprocessing",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "rich",
    "tqdm",
}
"""Of other pages, forms, workers, and progress that nobody sees."""
LIBRARIES = {"adbc_driver_manager", "jinja2", "numpy", "polars", "pyarrow", "typer"}


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--version"], HEAVY | LIBRARIES),
        (["inspect", "report.sqlite"], HEAVY | {"jinja2"}),
        (["translate", "report.sqlite", "-o", "OUT"], HEAVY),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_a_command_loads_what_it_uses(arguments: list[str], not_needed: set[str], tmp_path: Path) -> None:
    small_report().write(tmp_path / "report.sqlite")

    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nsys2prv", *arguments],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "nsys2prv.cli.main" in loaded
    assert loaded & not_needed == set()


def test_the_version_is_printed_the_same_with_and_without_the_commands(command_line: CommandLine) -> None:
    alone = command_line.run("--version")
    with_more = command_line.run("--version", "inspect")

    assert alone.returncode == with_more.returncode == 0
    assert alone.stdout == with_more.stdout
    assert alone.stdout.startswith("nsys2prv ")


@pytest.mark.parametrize("threads", ["0", "many", "-1"])
def test_a_number_of_threads_that_is_none_is_told(
    threads: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", threads)

    result = command_line.run("inspect", "report.sqlite")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"nsys2prv: POLARS_MAX_THREADS={threads}: no number of threads")
