"""NVTX: ranges, marks and payloads on the host, and ranges projected onto the GPU."""
