"""Where this checkout and the real reports are."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).resolve().parents[2]
REAL_REPORTS = CHECKOUT.parent / "shared" / "reports"
"""The real reports; tests that need them are skipped where the folder does not exist."""
NO_REPORTS = f"no real reports in {REAL_REPORTS}; when they are there: make test PYTEST_OPTIONS=tests/real"
"""Why, and how to run them."""


def tool(name: str) -> ModuleType:
    """A module of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module that they are defined in.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
