"""nsys2prv reads NVIDIA Nsight Systems reports of one or thousands of ranks: Paraver traces, efficiency, events as frames.

    import nsys2prv

    run = nsys2prv.open_run("run/")               # reports, ranks, hosts, clocks; lazy
    run.ranks, run.devices, run.clocks      # DataFrames
    kernels = run.events("kernels")         # LazyFrame on the common time axis
    result = run.efficiency()               # result.tree, result.devices, result.findings, ...: DataFrames
    result.to_html("page.html")
    run.translate("OUT")                    # a Paraver trace
    nsys2prv.compare(["before/", "after/"])

Options have the names that they have on the command line. Errors are `Nsys2prvError`. docs/api.md describes everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsys2prv.vocabulary import __version__

if TYPE_CHECKING:
    from nsys2prv.api.runs import NsysRun, compare, open_run
    from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult
    from nsys2prv.efficiency.what_if import WhatIfResult
    from nsys2prv.errors import Nsys2prvError

__all__ = [
    "ComparisonResult",
    "EfficiencyResult",
    "Nsys2prvError",
    "NsysRun",
    "WhatIfResult",
    "__version__",
    "compare",
    "open_run",
]

_MODULES = {
    "ComparisonResult": "nsys2prv.efficiency.results",
    "EfficiencyResult": "nsys2prv.efficiency.results",
    "Nsys2prvError": "nsys2prv.errors",
    "NsysRun": "nsys2prv.api.runs",
    "WhatIfResult": "nsys2prv.efficiency.what_if",
    "compare": "nsys2prv.api.runs",
    "open_run": "nsys2prv.api.runs",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # The program itself starts with this package: nothing is imported before it is used.
        if name not in _MODULES:
            raise AttributeError(f"module 'nsys2prv' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
