"""What the check of the time axis found, in words."""

from __future__ import annotations

from typing import Any

from nsys2prv.clocks.check import BETWEEN_HOSTS, INSIDE_HOST, MESSAGE, Disagreement
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import time


def disagreement_text(found: Disagreement) -> str:
    """A sentence with the hosts and the size."""
    size, first, last = time(found.size), found.hosts[0], found.hosts[-1]
    between = f"from {first} to {last}" if len(found.hosts) > 1 else f"inside {first}"
    texts = {
        INSIDE_HOST: f"as placed, ranks of {first} end {counted(found.count, 'collective')} up to {size} apart: the times of "
        f"their reports do not fit together",
        MESSAGE: f"as placed, {counted(found.count, 'message')} {between} arrive up to {size} before they are sent: the clocks "
        f"do not fit together",
        BETWEEN_HOSTS: f"as placed, ranks of {first} end {counted(found.count, 'collective')} before ranks of {last} have "
        f"begun them, by up to {size} more than the intervals of their clocks allow",
    }
    return texts[found.what]


def disagreement_json(found: Disagreement) -> dict[str, Any]:
    """The same for OUT.json."""
    return {
        "what": found.what,
        "hosts": list(found.hosts),
        "size_ns": round(found.size),
        "count": found.count,
        "text": disagreement_text(found),
    }
