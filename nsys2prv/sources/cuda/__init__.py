"""Activity of CUDA: calls, kernels, copies, graphs, memory, synchronization."""
