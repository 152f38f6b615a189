"""Clock synchronization: reports with times of different clocks enter, one placement per report on the common axis leaves.

`align` says how, from the sync points of each report to the check of what was placed."""

import enum


class AlignMethod(str, enum.Enum):
    """How clocks of several reports are synchronized.

    `NONE` starts each report at its own first event. `UTC` uses the UTC clock of each report, and `MONOTONIC` also the
    monotonic clock that reports of one host share. `MESSAGES` adds messages of MPI, `MPI` and `NCCL` the collectives of one
    library. `AUTO` uses everything that is available."""

    AUTO = "auto"
    NONE = "none"
    UTC = "utc"
    MONOTONIC = "monotonic"
    MESSAGES = "messages"
    MPI = "mpi"
    NCCL = "nccl"

    def __str__(self) -> str:
        return self.value
