"""Reads damaged copies of one report and prints how each ends. A program of its own: what it looks for may end the process.

    python read_damaged.py REPORT FIRST_SEED COUNT

In each copy one bit of one file is another; which one is up to the seed.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from pathlib import Path

from nsys2prv.errors import ReportError
from nsys2prv.exports import Report, open_report
from nsys2prv.exports.columns import Text

INTEGERS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "shortName")


def damage(path: Path, seed: int) -> None:
    """Turn one bit of a file, or of one file of a folder."""
    chance = random.Random(seed)
    file = chance.choice(sorted(path.iterdir())) if path.is_dir() else path
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def read(report: Report) -> int:
    """Look at all rows of two tables, texts and numbers."""
    kernels = report.scan("CUPTI_ACTIVITY_KIND_KERNEL", optional=INTEGERS)
    frames = [report.strings, report.collect(kernels), *report.batches(kernels, 10)]
    report.collect(report.scan("META_DATA_CAPTURE", optional=(Text("name"), Text("value"))))
    report.tables.extent("CUPTI_ACTIVITY_KIND_KERNEL", "start", "end", {})
    # As Python objects: each text is decoded.
    return sum(len(frame.rows()) for frame in frames)


def main(report: Path, first: int, count: int) -> None:
    endings: Counter[str] = Counter()
    for seed in range(first, first + count):
        copy = report.with_name(f"copy{seed}-{report.name}")
        (shutil.copytree if report.is_dir() else shutil.copy)(report, copy)
        damage(copy, seed)
        # The last line names the seed that ended the process.
        print(f"seed {seed}", flush=True)
        try:
            read(open_report(copy))
            endings["read"] += 1
        except ReportError:
            endings["refused"] += 1
        (shutil.rmtree if copy.is_dir() else Path.unlink)(copy)
    print(dict(endings))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
