"""Files for others: of CI services, recipes of package managers, the change log, the manual page."""

import re
import shutil
import subprocess

import pytest
from support.checkout import CHECKOUT, tool

import nsys2prv

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
