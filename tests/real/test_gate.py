"""The gate of `compare` on real runs: a program before and after its changes, one that did not change, ranks that are fewer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import CommandLine

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import GateFailed, GateNotDecidable

BASELINE, WORKERS, ON_GPU = (f"unet-training/{name}.sqlite" for name in ("baseline", "8workers", "dali"))
ONE_RUN, ANOTHER_RUN = "nccl-3nodes-9gpus", "nccl-3nodes-9gpus-utc"
ALL_RANKS, RANK_MISSING = "nccl-2nodes-6gpus-utc", "nccl-2nodes-5of6-utc"


@pytest.fixture(scope="module")
def result(real_reports: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives what `efficiency --json-file` writes of some reports; each is measured once."""
    folder = tmp_path_factory.mktemp("results")
    done: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in done:
            done[name] = folder / f"{len(done)}.json"
            measure([real_reports / name], EfficiencyOptions(no_critical_path=True)).to_json(done[name])
        return done[name]

    return of


@pytest.mark.parametrize(
    ("before", "after", "condition", "code"),
    [
        # More workers that load data: idle gaps shrink, kernels are the same.
        (BASELINE, WORKERS, "device_parallel_efficiency < 0.95*A", 0),
        (BASELINE, WORKERS, "iteration_ns > 0.5*A", 0),
        (BASELINE, WORKERS, "communication_efficiency < A", GateFailed.exit_code),
        (WORKERS, BASELINE, "device_parallel_efficiency < 0.95*A", GateFailed.exit_code),
        (WORKERS, BASELINE, "iteration_ns > 1.05*A", GateFailed.exit_code),
        (WORKERS, BASELINE, "useful_ns > 1.05*A", 0),
        # Loading on the GPU: iterations are shorter still, and there is more useful work.
        pytest.param(WORKERS, ON_GPU, "iteration_ns > A", 0, marks=pytest.mark.thorough),
        pytest.param(WORKERS, ON_GPU, "useful_ns > 1.05*A", GateFailed.exit_code, marks=pytest.mark.thorough),
        (BASELINE, BASELINE, "speedup < 1", 0),
        (BASELINE, WORKERS, "mpi_parallel_efficiency < 0.9", GateNotDecidable.exit_code),
    ],
)
def test_the_gate_on_versions_of_a_training(
    result: Callable[[str], Path], command_line: CommandLine, before: str, after: str, condition: str, code: int
) -> None:
    done = command_line.run("compare", result(before), result(after), "--fail-if", condition)

    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("before", "after", "condition", "said"),
    [
        (RANK_MISSING, RANK_MISSING, "elapsed_ns > 3.48e9", "not decidable"),
        # Two runs of one program: their lengths differ by 0.16 %, and are known to 0.03 %.
        pytest.param(ONE_RUN, ANOTHER_RUN, "elapsed_ns > 1.01*A", "passes", marks=pytest.mark.thorough),
        pytest.param(ONE_RUN, ANOTHER_RUN, "elapsed_ns > A", "fails", marks=pytest.mark.thorough),
        pytest.param(ONE_RUN, ANOTHER_RUN, "elapsed_ns > 1.0016*A", "not decidable", marks=pytest.mark.thorough),
        # The clocks of two nodes are known to some ms only.
        pytest.param(ALL_RANKS, RANK_MISSING, "elapsed_ns > 3.4e9", "fails", marks=pytest.mark.thorough),
        pytest.param(ALL_RANKS, RANK_MISSING, "elapsed_ns > 3.48e9", "not decidable", marks=pytest.mark.thorough),
        pytest.param(ALL_RANKS, RANK_MISSING, "elapsed_ns > 3.6e9", "passes", marks=pytest.mark.thorough),
    ],
)
def test_the_gate_on_runs_whose_clocks_are_not_exactly_known(
    result: Callable[[str], Path], command_line: CommandLine, before: str, after: str, condition: str, said: str
) -> None:
    done = command_line.run("compare", result(before), result(after), "--fail-if", condition)

    codes = {"passes": 0, "fails": GateFailed.exit_code, "not decidable": GateNotDecidable.exit_code}
    assert (done.returncode, f"  {said}: B: elapsed_ns" in done.stdout) == (codes[said], True), done.stdout + done.stderr
