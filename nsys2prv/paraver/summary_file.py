"""OUT.json beside a trace, as far as readers of the trace use it: its numbers and names have the types that they must have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from nsys2prv.errors import TraceError
from nsys2prv.paraver.trace_files import companion, shown
from nsys2prv.vocabulary.input_files import read_ordinary

MOST_BYTES = 128 << 20
_LARGEST = 2**63 - 1

# What may be read: a key may be missing, as versions differ, but what is there has this form. A tuple is a choice.
_COUNTS = {"": int}
_SOURCE = {"source": str, "title": str, "rows": int, "written": int, "left_out": _COUNTS, "events": _COUNTS, "derived": bool}
_TABLE = {"table": str, "rows": int, "sources": [_SOURCE], "derived": [_SOURCE], "left_out": _COUNTS}
_FORM: Mapping[str, Any] = {
    "nsys2prv": str,
    "options": {"": object},
    "trace": {
        **dict.fromkeys(("bytes", "records", "length_ns", "origin_ns", "nodes", "tasks", "rows"), int),
        "windows_ns": [[int]],
        "types": [int],
        "rows_of_types": [{"types": [int], "rows": [[int]]}],
        "rows_of_messages": [[int]],
    },
    "messages": {"written": int},
    "run": {"size": int},
    "nodes": [{"name": str, "cpus": int}],
    "tasks": [{"name": str, "threads": [str], "report": (str, NoneType)}],
    "event_types": [{"number": int, "label": str}],
    "reports": [
        {
            "path": str,
            "nsys": (str, NoneType),
            "gpus": [{"name": (str, NoneType)}],
            "alignment": {"": object},
            "tables": [_TABLE],
        }
    ],
    "critical_path": {"segments": int, "lines": int, "total_ns": _COUNTS},
    "clocks": [{"": object}],
    "clock_check": [{"text": str}],
}


def read_summary(prv: Path) -> Mapping[str, Any] | None:
    """Content of the OUT.json beside a trace; None where there is none, or it is of another program.

    Raises
    ------
    TraceError
        When it is damaged, or can't be read.
    """
    path = companion(prv, ".json")
    try:
        content = json.loads(read_ordinary(path, MOST_BYTES).decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TraceError(path, f"it can't be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(path, "it is no JSON") from error
    if not isinstance(content, dict) or not {"nsys2prv", "trace"} <= content.keys():
        return None
    if problem := _problem(content, _FORM, ""):
        raise TraceError(path, problem)
    return content


def _problem(found: object, form: Any, place: str) -> str | None:
    """What is not of its form, or None."""
    if isinstance(form, list):
        if not isinstance(found, list):
            return _sentence(place, found, "a list")
        return next(filter(None, (_problem(each, form[0], f"{place}[{at}]") for at, each in enumerate(found))), None)
    if isinstance(form, Mapping):
        if not isinstance(found, dict):
            return _sentence(place, found, "an object")
        # The form of all values where "" is a key.
        of_key = [(key, form.get(key, form.get(""))) for key in found]
        problems = (_problem(found[key], expected, f"{place}.{key}") for key, expected in of_key if expected is not None)
        return next(filter(None, problems), None)
    kinds = form if isinstance(form, tuple) else (form,)
    is_number = isinstance(found, int) and not isinstance(found, bool)
    if int in kinds and is_number:
        return None if -_LARGEST <= found <= _LARGEST else _sentence(place, found, "a number of 64 bits")  # type: ignore[operator]
    if (int in kinds and isinstance(found, bool)) or not isinstance(found, kinds):
        names = {int: "a whole number", str: "a text", bool: "true or false", NoneType: "null"}
        return _sentence(place, found, " or ".join(names.get(kind, "anything") for kind in kinds))
    return None


def _sentence(place: str, found: object, expected: str) -> str:
    return f"{place.lstrip('.')} is {shown(json.dumps(found, ensure_ascii=True))} and not {expected}"
