"""nsys2prv as it is installed from its wheel: `make wheel-test`. Skipped where it runs from the checkout."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.checkout import CHECKOUT

import nsys2prv
from nsys2prv.efficiency.outputs.page.content import DEFINITIONS

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
