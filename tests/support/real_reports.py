"""The real reports, and which of them are translated together."""

import re
from pathlib import Path

from .checkout import REAL_REPORTS

_ONE_EACH = ("*.sqlite", "v100x8/*.sqlite", "mpi4/*.sqlite", "mpi4_parquet/*_pqtdir")
_MERGED = {"v100x8": "*.sqlite", "mpi4": "*.sqlite", "mpi4_parquet": "*_pqtdir"}


def _found_reports() -> dict[str, tuple[Path, ...]]:
    alone = [path for pattern in _ONE_EACH for path in sorted(REAL_REPORTS.glob(pattern))]
    found: dict[str, tuple[Path, ...]] = {str(path.relative_to(REAL_REPORTS).with_suffix("")): (path,) for path in alone}
    for folder, pattern in _MERGED.items():
        if paths := tuple(sorted((REAL_REPORTS / folder).glob(pattern))):
            found[folder] = paths
    return found


REPORTS: dict[str, tuple[Path, ...]] = _found_reports()
"""What is translated together, by name."""


def _found_runs() -> dict[str, tuple[Path, ...]]:
    alone = {path.stem: (path,) for pattern in ("*.sqlite", "unet-training/*.sqlite") for path in REAL_REPORTS.glob(pattern)}
    folders = [*REAL_REPORTS.glob("nccl-*"), *(REAL_REPORTS / name for name in _MERGED)]
    several = {folder.name: tuple(sorted(folder.glob("*"))) for folder in folders if folder.is_dir()}
    return dict(sorted({**alone, **several}.items()))


RUNS: dict[str, tuple[Path, ...]] = _found_runs()
"""All real reports, each once: those of one run together, by name."""


WITHOUT_METADATA = ("no-metadata-2020", "mpi-as-nvtx-2.9", "nvtx-2022.4.2", "tensorrt-3.1")
"""Exports of before there were options of time, or with another table for them."""


def report_of_test(nodeid: str) -> str | None:
    """The one of REPORTS that is a parameter of a test, by the id of the test."""
    parameters = nodeid.partition("[")[2].removesuffix("]")
    longest_first = sorted(REPORTS, key=len, reverse=True)
    return next((name for name in longest_first if re.search(rf"(^|-){re.escape(name)}(-|$)", parameters)), None)
