"""What a trace can contain: event types, values, states and message tags; names of MPI and NCCL; kernel families."""
