"""The graph of a run: what must be before what, over all ranks. It is replayed with other durations, and has a critical path.

`run_graph` builds it from the events of a run: `moments` orders these, `cuda_waits` and `host_waits` say what waited for what.
`replay` computes when everything happens if durations change, `changes` says which do, and `path` reads the critical path."""
