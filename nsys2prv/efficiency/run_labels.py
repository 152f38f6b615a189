"""What runs of a comparison are called: as the user says, or by what differs between them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import takewhile

from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.errors import UsageError, counted
from nsys2prv.vocabulary.printable import as_utf8
from nsys2prv.vocabulary.wording import short

LONGEST_LABEL = 40
"""Characters of a label that is made of a path."""
_SUFFIX = re.compile(r"\.(?:sqlite|nsys-rep|json|html|prv|prv\.gz)$|[_.](?:pqtdir|arwdir)$")
_WILDCARDS = re.compile(r"[*?\[]")


def check_labels(labels: Sequence[str], runs: Sequence[str]) -> None:
    """Check labels that the user gave to runs with these letters.

    Raises
    ------
    UsageError
        When there are not as many as runs, one is empty, two are the same, or one is the letter of another run.
    """
    if labels and len(labels) != len(runs):
        raise UsageError(f"--label: {counted(len(labels), 'label')} for {len(runs):,} runs; give one for each, in order")
    for place, label in enumerate(labels):
        if not label.strip():
            raise UsageError("--label: a label is empty; give a name for each run")
        if label in labels[:place]:
            raise UsageError(f"--label {short(label)}: two runs have this label; give each another one")
        if label in runs and runs.index(label) != place:
            raise UsageError(f"--label {short(label)}: this is the letter of another run; give another label")


def labels_of(inputs: Sequence[Sequence[str]], results: Sequence[EfficiencyResult]) -> list[str]:
    """A label for each run, no two the same: parts of paths that differ, else numbers of GPUs, dates, or numbers.

    Parameters
    ----------
    inputs
        Paths of each run as they were given.
    results
        Of the same runs.
    """
    names = [_readable((_parts(paths) or ["run"])[-1]) for paths in inputs]
    gpus = [counted(result.tables["run"]["devices"][0], "GPU") for result in results]
    began = [str(result.head["began"] or "") for result in results]
    both = [f"{number}, {date}" for number, date in zip(gpus, began, strict=True)]
    # What was given twice: the same runs under numbers.
    numbered = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return next(filter(_tell_apart, (path_labels(inputs), names, gpus, began, both)), numbered)


def path_labels(inputs: Sequence[Sequence[str]]) -> list[str]:
    """What remains of the paths of runs without what all begin and end with; a single part where that is enough; empty where
    it does not tell them apart.

    >>> path_labels([["x/before/reports"], ["x/after/reports"]]), path_labels([["x/run"], ["x/run/new"]])
    (['before', 'after'], ['run', 'run/new'])
    """
    runs = [_parts(paths) for paths in inputs]
    first = len(_common_start(runs))
    last = len(_common_start([parts[first:][::-1] for parts in runs]))
    if any(len(parts) <= first + last for parts in runs):
        # A folder of another: its own name comes first.
        first = max(first - 1, 0)
    differing = [parts[first : len(parts) - last] for parts in runs]
    joined = ["/".join(parts) for parts in differing]
    columns = zip(*differing, strict=False) if max(map(len, joined)) > LONGEST_LABEL else ()
    labels = list(map(_readable, next((column for column in columns if len(set(column)) == len(column)), joined)))
    return labels if _tell_apart(labels) else []


def _tell_apart(labels: Sequence[str]) -> bool:
    return bool(labels) and all(labels) and len(set(labels)) == len(labels)


def _parts(paths: Sequence[str]) -> list[str]:
    """Parts of the path of a run, without wildcards and suffixes; of several, those that all have in common."""
    several = [[part for part in os.path.abspath(path).split(os.sep) if not _WILDCARDS.search(part)] for path in paths]
    common = _common_start(several)
    return [*common[:-1], _SUFFIX.sub("", common[-1])] if common else []


def _common_start(several: Sequence[Sequence[str]]) -> list[str]:
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*several, strict=False))]


def _readable(text: str) -> str:
    return short(as_utf8(text), LONGEST_LABEL)
