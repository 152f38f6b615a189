"""The graph of a run: what must be before what, over all ranks. It is replayed with other durations, and has a critical path.

`build` makes it from the events of a run, `run_graph` holds it, `replay` computes when everything happens if durations change,
`critical_path` and `moment_slack` read it, and `what_if` answers questions with it.
"""
