"""What packages the program and checks it elsewhere: files of CI services, the change log, the manual page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from support.checkout import CHECKOUT, tool

import nsys2prv

tool("tables")
manual = tool("manual")

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

MAKEFILE = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
METADATA = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
PYTHONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', METADATA)


def test_the_manual_page_is_that_of_the_program() -> None:
    assert manual.PAGE.read_text(encoding="utf-8") == manual.manual(), "run `python tools/tables.py`"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_the_manual_page_is_shown_without_warnings() -> None:
    command = ["man", "--warnings", "--local-file", str(manual.PAGE)]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    assert done.stderr == ""
    assert "--rank-pattern REGEX" in done.stdout
    assert r"'rank(\d+)'" in done.stdout


def test_the_change_log_begins_with_this_version() -> None:
    log = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert re.findall(r"^## (\d\S*)", log, re.MULTILINE)[0] == nsys2prv.__version__


def scripts(jobs: dict[str, object]) -> list[str]:
    """Lines that a job of GitLab or GitHub runs."""
    return [line for job in jobs.values() if isinstance(job, dict) for line in _lines(job)]


def _lines(job: dict[str, object]) -> list[str]:
    steps = job.get("steps", [])
    assert isinstance(steps, list)
    of_steps = [step["run"] for step in steps if "run" in step]
    script = job.get("script", [])
    assert isinstance(script, list)
    return [*script, *of_steps]


@pytest.mark.parametrize("name", [".gitlab-ci.yml", ".github/workflows/ci.yml"])
def test_ci_runs_targets_of_the_makefile_with_each_version_of_python(name: str) -> None:
    text = (CHECKOUT / name).read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    jobs = content.get("jobs", content)

    commands = scripts(jobs)
    made = [re.fullmatch(r"make ([a-z-]+)( .*)?", command) for command in commands]
    assert all(made), commands
    assert {found[1] for found in made if found} == {"test", "floors", "lint", "docs", "wheel-test"}
    assert {found[1] for found in made if found} <= TARGETS
    test = jobs["test"]
    matrix = test["strategy"]["matrix"]["python"] if "strategy" in test else test["parallel"]["matrix"][0]["PYTHON_VERSION"]
    assert matrix == PYTHONS
