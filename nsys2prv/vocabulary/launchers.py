"""Launchers and batch systems: environment variables that say which rank, run and node a process is of."""

from collections.abc import Mapping
from dataclasses import dataclass

from nsys2prv.vocabulary.limits import whole_number


@dataclass(frozen=True)
class Launcher:
    """Variables that a launcher sets for each process; of several for one thing, the first that is set counts."""

    name: str
    rank: str
    ranks: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


# From the innermost to the outermost: what is started inside another launcher's job inherits that one's variables, and they
# are those of the step or node there (an mpirun in a batch script leaves SLURM_PROCID=0 to all processes of a node).
LAUNCHERS: tuple[Launcher, ...] = (
    Launcher("torchrun", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), needs=("WORLD_SIZE",)),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    Launcher("MVAPICH", "MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_RANK",)),
    Launcher("jsrun", "JSM_NAMESPACE_RANK", ("JSM_NAMESPACE_SIZE",), ("JSM_NAMESPACE_LOCAL_RANK",)),
    Launcher("PALS", "PALS_RANKID", ("PMI_SIZE",), ("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK")),
    Launcher("PMI", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK")),
    Launcher("PMIx", "PMIX_RANK"),
    Launcher("Flux", "FLUX_TASK_RANK", ("FLUX_JOB_SIZE",), ("FLUX_TASK_LOCAL_ID",)),
    Launcher("SLURM", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), ("SLURM_LOCALID",)),
    Launcher("environment", "RANK"),
)

# Kind of job, and its variables, of which the first that is set counts: two values are two runs.
_JOBS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Each part of a heterogeneous job has its own number; one number is shared.
    ("SLURM job", ("SLURM_HET_JOB_ID", "SLURM_PACK_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID")),
    ("PBS job", ("PBS_JOBID",)),
    ("LSF job", ("LSB_JOBID",)),
    ("LSF job array element", ("LSB_JOBINDEX",)),
    ("Cobalt job", ("COBALT_JOBID",)),
    ("Flux job", ("FLUX_JOB_ID",)),
    ("OAR job", ("OAR_JOB_ID",)),
    ("PJM job", ("PJM_JOBID",)),
    ("torchrun run", ("TORCHELASTIC_RUN_ID",)),
)
CHOSEN_BY_USERS = frozenset({"torchrun run"})
"""Kinds of numbers that may be the same in several runs."""
_NODE_NAMES = ("SLURMD_NODENAME", "PMIX_HOSTNAME", "HOSTNAME")


@dataclass(frozen=True)
class Launched:
    """What one launcher (`source`, with its variable) reports: rank in the run and on the node, and number of ranks."""

    source: str
    rank: int
    ranks: int | None = None
    local_rank: int | None = None


def launched(environment: Mapping[str, str]) -> tuple[Launched, ...]:
    """What launchers report to a process, the innermost first.

    >>> launched({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"})
    (Launched(source='SLURM (SLURM_PROCID)', rank=3, ranks=8, local_rank=None),)
    """
    launches: dict[str, Launched] = {}
    for launcher in LAUNCHERS:
        rank = _number(environment, (launcher.rank,))
        if rank is None or any(_number(environment, (name,)) is None for name in launcher.needs):
            continue
        source = f"{launcher.name} ({launcher.rank})"
        ranks, local_rank = _number(environment, launcher.ranks), _number(environment, launcher.local_rank)
        if rank == 0 and launcher.name == "SLURM" and "SLURM_TASK_PID" in environment and "SLURM_STEP_ID" not in environment:
            # A batch script, or a shell, which is no step: tasks are those that the job may start.
            ranks = None
        launches.setdefault(launcher.rank, Launched(source, rank, ranks, local_rank))
    return tuple(launches.values())


def jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """Numbers of the run in batch systems and launchers, by kind.

    >>> jobs({"SLURM_JOB_ID": "4711", "TORCHELASTIC_RUN_ID": "none"})
    {'SLURM job': '4711'}
    """
    reported = {kind: next((environment[name] for name in variables if environment.get(name)), "") for kind, variables in _JOBS}
    return {kind: job for kind, job in reported.items() if job not in ("", "none")}


def step(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Identifies one of the programs that a job starts, one after the other or at the same time."""
    return tuple(environment.get(name, "") for name in ("SLURM_STEP_ID", "PMIX_NAMESPACE"))


def node_name(environment: Mapping[str, str]) -> tuple[str, str]:
    """Name of the node and the variable that has it; "" when none has."""
    return next(((environment[name], name) for name in _NODE_NAMES if environment.get(name)), ("", ""))


def node_number(environment: Mapping[str, str]) -> int | None:
    """Number of the node in the job."""
    return _number(environment, ("SLURM_NODEID",))


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((number for name in names if (number := whole_number(environment.get(name))) is not None), None)
