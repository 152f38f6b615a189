"""What runs of a comparison are called: as the user says, or by what differs between them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
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
    if not labels:
        return
    if len(labels) != len(runs):
        raise UsageError(f"--label: {counted(len(labels), 'label')} for {len(runs):,} runs; give one for each, in order")
    if not all(label.strip() for label in labels):
        raise UsageError("--label: a label is empty; give a name for each run")
    for place, label in enumerate(labels):
        if label in labels[:place]:
            raise UsageError(f"--label {short(label)}: two runs have this label; give each another one")
        if label in runs and runs.index(label) != place:
            raise UsageError(f"--label {short(label)}: this is the letter of another run; give another label")


def names_of(letters: Iterable[str], labels: Iterable[str]) -> dict[str, str]:
    """Letters of runs by what they may be called: their letters and labels. A label that is another run's letter is none."""
    letters = list(letters)
    names = {letter: letter for letter in letters}
    for letter, label in zip(letters, labels, strict=False):
        names.setdefault(label, letter)
    return names


def path_labels(inputs: Sequence[Sequence[str]]) -> list[str]:
    """Labels of runs by what differs in their paths; empty where that is not enough."""
    labels = _differing_parts([_parts(paths) for paths in inputs])
    return labels if all(labels) and len(set(labels)) == len(labels) else []


def labels_of(inputs: Sequence[Sequence[str]], measured: Sequence[EfficiencyResult]) -> list[str]:
    """A label for each run, no two the same: parts of paths that differ, else numbers of GPUs, dates, or numbers.

    Parameters
    ----------
    inputs
        Paths of each run as they were given.
    measured
        The same runs.
    """
    makers: list[Callable[[], list[str]]] = [
        lambda: path_labels(inputs),
        lambda: [_name(paths) for paths in inputs],
        lambda: [_gpus(one) for one in measured],
        lambda: [_began(one) for one in measured],
        lambda: [f"{_gpus(one)}, {_began(one)}" for one in measured],
    ]
    for make in makers:
        labels = make()
        if labels and all(labels) and len(set(labels)) == len(labels):
            return labels
    # What was given twice: the same runs under numbers.
    return [f"{_name(paths)} ({number})" for number, paths in enumerate(inputs, 1)]


def _gpus(one: EfficiencyResult) -> str:
    return counted(one.tables["run"].row(0, named=True)["devices"], "GPU")


def _began(one: EfficiencyResult) -> str:
    return str(one.head["began"] or "")


def _parts(paths: Sequence[str]) -> list[str]:
    """Parts of the path of a run, without wildcards and suffixes; of several, those that all have in common."""
    several = [[part for part in os.path.abspath(path).split(os.sep) if not _WILDCARDS.search(part)] for path in paths]
    common = _common_start(several)
    return [*common[:-1], _SUFFIX.sub("", common[-1])] if common else []


def _common_start(several: Sequence[Sequence[str]]) -> list[str]:
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*several, strict=False))
    return [parts[0] for parts in same]


def _name(paths: Sequence[str]) -> str:
    parts = _parts(paths)
    return _readable(parts[-1]) if parts else "run"


def _readable(text: str) -> str:
    return short(as_utf8(text), LONGEST_LABEL)


def _differing_parts(runs: Sequence[Sequence[str]]) -> list[str]:
    """What is left of paths without what all begin and end with; a single part where that is enough.

    >>> _differing_parts([["x", "before", "reports"], ["x", "after", "reports"]])
    ['before', 'after']
    >>> _differing_parts([["x", "run"], ["x", "run", "new"]])
    ['run', 'run/new']
    """
    first = len(_common_start(runs))
    last = len(_common_start([parts[first:][::-1] for parts in runs]))
    rest = [parts[first : len(parts) - last] for parts in runs]
    if not all(rest):
        # One is a folder of another: its own name comes first.
        first = max(first - 1, 0)
        rest = [parts[first : len(parts) - last] for parts in runs]
    joined = ["/".join(parts) for parts in rest]
    if max(map(len, joined), default=0) > LONGEST_LABEL:
        for at in range(min(map(len, rest))):
            column = [parts[at] for parts in rest]
            if len(set(column)) == len(column):
                return [_readable(part) for part in column]
    return [_readable(text) for text in joined]
