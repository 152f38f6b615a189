"""What `check` calls valid, a second reader calls valid, and the other way round; both find the same rules broken."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from faults.fuzz.mutated_traces import made_traces, mutated, traces
from faults.fuzz.trace_mutations import disagreement


@pytest.mark.parametrize("inputs", [25, pytest.param(2_000, marks=pytest.mark.thorough)])
def test_check_and_a_second_reader_agree_on_mutated_traces(inputs: int, tmp_path: Path) -> None:
    # Real traces take turns with made ones where there is time.
    mutable = traces() if inputs > 100 else made_traces()
    differing = {}
    for number in range(inputs):
        chance = random.Random(f"agree:{number}")
        name, files = chance.choice(mutable)
        kind, changed = mutated(chance, files)
        for suffix in (".prv", ".pcf", ".row", ".json"):
            (tmp_path / f"trace{suffix}").unlink(missing_ok=True)
        for suffix, content in changed.items():
            (tmp_path / f"trace{suffix}").write_bytes(content)
        if problem := disagreement(tmp_path / "trace.prv"):
            differing[number] = f"{name}, {kind}: {problem}"

    assert differing == {}
