"""What `check` calls valid, a second reader calls valid, and the other way round; both find the same rules broken."""

from __future__ import annotations

import random
from pathlib import Path

from faults.fuzz.mutated_traces import made_traces, mutated
from faults.fuzz.trace_mutations import disagreement


def test_check_and_a_second_reader_agree_on_mutated_traces(tmp_path: Path) -> None:
    differing = {}
    for number in range(10):
        chance = random.Random(f"agree:{number}")
        name, files = chance.choice(made_traces())
        kind, changed = mutated(chance, files)
        for suffix in (".prv", ".pcf", ".row", ".json"):
            (tmp_path / f"trace{suffix}").unlink(missing_ok=True)
        for suffix, content in changed.items():
            (tmp_path / f"trace{suffix}").write_bytes(content)
        if problem := disagreement(tmp_path / "trace.prv"):
            differing[number] = f"{name}, {kind}: {problem}"

    assert differing == {}
