"""A simulated run for tests: programs of ranks are executed under the rules of CUDA, NCCL and MPI, and reports are written."""
