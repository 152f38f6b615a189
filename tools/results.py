"""Numbers of two versions of nsys2prv beside each other: what a change of the code changes in any result.

    python tools/results.py record FOLDER [--shared DIR] [--only PATTERN ...]
    python tools/results.py compare BEFORE AFTER

`record` measures with the nsys2prv that Python imports: every real report (each run of DIR/reports once), the demo without and
with each of its faults, and simulated runs of 64 and 1,024 GPUs. Of each it writes JSON, text, page, CSV and TALP, of runs with
a GPU five what-ifs, and of pairs of runs a comparison. `compare` names each value that differs; exit code 1 where there is any.
"""

import argparse
import csv
import fnmatch
import json
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FAULTS: dict[str, dict[str, Any]] = {
    "demo": {},
    "demo-none": {"slow_gpu": None, "data_loading_gap": False, "pageable_copies": False},
    "demo-slow-gpu": {"data_loading_gap": False, "pageable_copies": False},
    "demo-late-batches": {"slow_gpu": None, "pageable_copies": False},
    "demo-pageable": {"slow_gpu": None, "data_loading_gap": False},
    "demo-exposed": {"slow_gpu": None, "data_loading_gap": False, "pageable_copies": False, "exposed_communication": True},
    "demo-allocations": {"slow_gpu": None, "data_loading_gap": False, "pageable_copies": False, "allocations_in_loop": True},
    "demo-64": {"nodes": 8, "gpus_per_node": 8, "iterations": 6},
    "demo-1024": {"nodes": 128, "gpus_per_node": 8, "iterations": 3, "layers": 3, "gpu_metrics_hz": 100},
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "network": {"ideal_network": True},
    "late-ranks": {"no_late_ranks": True},
    "launches": {"no_launch_cost": True},
    "loading": {"data_loading": 0.0},
    "kernels": {"scale": ("*=0.5",)},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "unet-training/baseline": {"window": "steady", "regions": ("*",)},
    "pytorch-nccl-2gpu": {"nccl": "useful"},
    "demo": {"per_iteration": "iteration", "window": "100ms:300ms"},
    "mpi4": {"regions": ("*",)},
}
"""Options with which a run is measured a second time."""
PAIRS = (
    ("unet-training/baseline", "unet-training/dali"),
    ("unet-training/dali", "unet-training/dali_amp"),
    ("demo", "demo-none"),
    ("mpi4", "mpi2_one_report"),
)
SINGLE = ("*.sqlite", "unet-training/*.sqlite", "conclusions/*.sqlite")
OF_SEVERAL = ("nccl-*", "v100x8", "mpi4", "mpi4_parquet", "conclusions/clock-step")


def runs(shared: Path) -> Iterator[tuple[str, Callable[[Path], list[Path]]]]:
    """Names of runs, each with what gives its reports; simulated ones are written to the folder."""
    reports = shared / "reports"
    for path in sorted(path for pattern in SINGLE for path in reports.glob(pattern)):
        yield str(path.relative_to(reports).with_suffix("")), lambda _, path=path: [path]
    for folder in sorted(folder for pattern in OF_SEVERAL for folder in reports.glob(pattern)):
        yield str(folder.relative_to(reports)), lambda _, folder=folder: sorted(folder.glob("*"))

    from nsys2prv.demo import Cluster, write_reports

    for name, fault in FAULTS.items():
        yield name, lambda folder, fault=fault: write_reports(folder, Cluster(**fault))


def record(folder: Path, shared: Path, patterns: list[str]) -> None:
    """Write the results of all runs to a folder."""
    import nsys2prv
    from nsys2prv.errors import Nsys2prvError

    measured = {}
    for name, reports in runs(shared):
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        target = folder / name.replace("/", "_")
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            paths = reports(Path(scratch))
            run = nsys2prv.open_run(paths)
            for variant, options in {"": {}, "-variant": VARIANTS.get(name)}.items():
                if options is None:
                    continue
                try:
                    result = run.efficiency(**options)
                except Nsys2prvError as error:
                    (target / f"efficiency{variant}.error").write_text(str(error))
                    continue
                result.write(
                    json_path=target / f"efficiency{variant}.json",
                    csv_folder=target / f"csv{variant}",
                    talp_path=target / f"talp{variant}.json",
                    page_path=target / f"page{variant}.html",
                )
                (target / f"text{variant}.txt").write_text(result.as_text(verbose=True))
                if not variant:
                    measured[name] = result
            for scenario, changes in SCENARIOS.items():
                try:
                    run.whatif(**changes).to_json(target / f"whatif-{scenario}.json")
                except Nsys2prvError as error:
                    (target / f"whatif-{scenario}.error").write_text(str(error))
        print(name, file=sys.stderr, flush=True)
    for before, after in PAIRS:
        if before in measured and after in measured:
            result = nsys2prv.compare([measured[before], measured[after]])
            name = f"compare-{before}-{after}".replace("/", "_")
            result.write(json_path=folder / f"{name}.json", page_path=folder / f"{name}.html")
            (folder / f"{name}.txt").write_text(result.as_text())
            (folder / f"{name}.md").write_text(result.as_markdown())


_SCRATCH = re.compile(r"(/[^\s\"']*/)?\btmp[a-z0-9_]{8}\b")
_DEFINITIONS = re.compile(
    r'<section id="definitions">.*?</section>| <a href="#definition-[^>]*>[^<]*</a>|"meaning":"(?:[^"\\]|\\.)*",', re.DOTALL
)
"""Folders of simulated reports, which have other names each time."""
_MOST_SHOWN = 5


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Each value of JSON that differs, by its place."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            place = f"{path}.{key}" if path else str(key)
            if key not in before or key not in after:
                yield f"{place}: only {'after' if key in after else 'before'}"
            else:
                yield from differences(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{path}: {len(before)} values before, {len(after)} after"
            return
        for place, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from differences(left, right, f"{path}[{place}]")
    elif not _equal(before, after):
        yield f"{path}: {before!r} -> {after!r}"


def _cell(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=1e-12, abs_tol=1e-12)
    return bool(before == after)


def _results_of(text: str) -> str:
    """What a run gave: without names of temporary folders, and without the definitions of pages, which are documentation."""
    return _DEFINITIONS.sub("", _SCRATCH.sub("REPORTS", text))


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders of `record`; the result is the number of files that differ."""
    files = {path.relative_to(folder) for folder in (before, after) for path in folder.rglob("*") if path.is_file()}
    count = 0
    for file in sorted(files):
        paths = (before / file, after / file)
        texts = [_results_of(path.read_text()) if path.exists() else None for path in paths]
        if texts[0] == texts[1]:
            continue
        if texts[0] is None or texts[1] is None:
            lines = [f"only {'after' if texts[0] is None else 'before'}"]
        elif file.suffix == ".json":
            lines = list(differences(*(json.loads(text) for text in texts)))
        elif file.suffix == ".csv":
            lines = list(differences(*([list(map(_cell, row)) for row in csv.reader(text.splitlines())] for text in texts)))
        else:
            left, right = (text.splitlines() for text in texts)
            lines = [f"line {n}: {a!r} -> {b!r}"[:400] for n, (a, b) in enumerate(zip(left, right, strict=False), 1) if a != b]
            lines += [f"{len(left)} lines before, {len(right)} after"] if len(left) != len(right) else []
        if lines:
            count += 1
            shown = lines if len(lines) <= _MOST_SHOWN else [*lines[:_MOST_SHOWN], f"... {len(lines)} differences"]
            print(f"{file}:", *shown, sep="\n    ")
    print(f"{count} of {len(files)} files differ")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="measure all runs and write their results to a folder")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared")
    recording.add_argument("--only", action="append", help="runs whose name fits this pattern (may be given several times)")
    comparing = commands.add_parser("compare", help="name each value that differs between two such folders")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return int(compare(arguments.before, arguments.after) > 0)
    record(arguments.folder, arguments.shared, arguments.only or ["*"])
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
