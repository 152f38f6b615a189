"""Files for others: of CI services, recipes of package managers, the change log, the manual page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.checkout import CHECKOUT, tool

import nsys2prv
from nsys2prv.efficiency.outputs.page.content import DEFINITIONS

tool("tables")
manual = tool("manual")

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: .venv/bin/pip install pyyaml && make test")

MAKEFILE = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
METADATA = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
PYTHONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', METADATA)


def test_the_manual_page_is_that_of_the_program() -> None:
    assert manual.PAGE.read_text(encoding="utf-8") == manual.manual(), "run `python tools/tables.py`"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed; when it is: make test")
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


DEPENDENCIES = dict(re.findall(r'^  "([a-z0-9-]+)>=([\d.]+)",$', METADATA, re.MULTILINE))
PACKAGING = CHECKOUT / "packaging"


def test_recipes_have_the_dependencies_of_the_package_with_their_lowest_versions() -> None:
    conda = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    of_conda = dict(line.split(" >=") for line in conda["requirements"]["run"])
    spack = (PACKAGING / "spack/spack_repo/nsys2prv/packages/py_nsys2prv/package.py").read_text(encoding="utf-8")
    of_spack = dict(re.findall(r'depends_on\("py-([a-z0-9-]+)@([\d.]+):"\)', spack))

    assert {name: floor for name, floor in of_conda.items() if name != "python"} == DEPENDENCIES
    assert conda["context"]["version"] == nsys2prv.__version__
    assert conda["context"]["python_min"] == PYTHONS[0]
    assert of_spack == DEPENDENCIES


def test_files_of_easybuild_and_modules_are_of_this_version() -> None:
    (easyconfig,) = (PACKAGING / "easybuild").iterdir()
    content: dict[str, object] = {}
    constants = {"ARCH": "x86_64", "SOURCE_PY3_WHL": "nsys2prv-1.0.0-py3-none-any.whl"}
    exec(compile(easyconfig.read_text(encoding="utf-8"), easyconfig, "exec"), constants, content)

    toolchain = content["toolchain"]
    assert isinstance(toolchain, dict)
    assert content["version"] == nsys2prv.__version__
    assert easyconfig.name == f"nsys2prv-{nsys2prv.__version__}-{toolchain['name']}-{toolchain['version']}.eb"
    assert (PACKAGING / "modulefiles" / nsys2prv.__version__).is_file()


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


# -- nsys2prv as it is installed from its wheel: `make wheel-test` ---------------------------------------


PACKAGE = Path(nsys2prv.__file__).parent

pytestmark = pytest.mark.skipif(
    PACKAGE == CHECKOUT / "nsys2prv", reason="nsys2prv is that of the checkout, not of a wheel: make wheel-test"
)


def names(folder: Path) -> set[str]:
    """Files below a folder, without what Python and git leave there."""
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and not {"__pycache__"} & set(path.parts)
    }


def test_the_package_has_the_files_of_the_checkout_and_no_others() -> None:
    views = {f"cfgs/{name}" for name in names(CHECKOUT / "cfgs")}
    definitions = {f"efficiency/outputs/page/{Path(page).name}": CHECKOUT / "docs" / page for page in DEFINITIONS}

    assert names(PACKAGE) == names(CHECKOUT / "nsys2prv") | views | set(definitions)
    for name in views:
        assert (PACKAGE / name).read_bytes() == (CHECKOUT / name).read_bytes(), name
    for name, page in definitions.items():
        assert (PACKAGE / name).read_bytes() == page.read_bytes(), name


def test_the_wheel_installs_the_package_and_the_manual_page_alone() -> None:
    files = {str(path) for path in metadata.files("nsys2prv") or ()}
    outside = {name for name in files if not name.startswith(("nsys2prv/", "nsys2prv-"))}

    assert {re.sub(r"^(\.\./)+", "", name) for name in outside} == {"bin/nsys2prv", "share/man/man1/nsys2prv.1"}
    assert (Path(sys.prefix) / "share/man/man1/nsys2prv.1").read_bytes() == (CHECKOUT / "packaging/nsys2prv.1").read_bytes()


def test_the_metadata_are_those_of_this_version() -> None:
    found = metadata.metadata("nsys2prv")

    assert found["Version"] == nsys2prv.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Description"].startswith("# nsys2prv")
    assert any(str(path).endswith("licenses/LICENSE") for path in metadata.files("nsys2prv") or ())


def test_the_program_runs_in_any_folder(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "nsys2prv"

    done = subprocess.run([program, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == f"nsys2prv {nsys2prv.__version__}\n"
