"""Communication: MPI, NCCL, NVSHMEM and UCX; collectives and ends of messages."""
