"""Told intervals of clocks against the true clocks of simulated clusters, as JSON: `simulated_clusters.py SEEDS`."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.simulated_clocks import KINDS
from support.told_intervals import try_kind

from nsys2prv.vocabulary.version import __version__


def _result(seeds: int, kind: str) -> dict[str, Any]:
    result = try_kind(kind, range(seeds))
    return {**asdict(result), "text": KINDS[kind].text, "reached": result.is_honest and result.is_useful}


def main() -> None:
    # Each worker is a process of one thread: reports are too small for several.
    os.environ["POLARS_MAX_THREADS"] = "1"
    seeds = int(sys.argv[1])
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as workers:
        print(json.dumps({"version": __version__, "kinds": list(workers.map(partial(_result, seeds), KINDS))}))


if __name__ == "__main__":
    main()
