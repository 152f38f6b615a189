"""Activity of the host: operating system, scheduling, samples, OpenMP, OpenACC, math libraries."""
