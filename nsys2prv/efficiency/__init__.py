"""Efficiency numbers: events on the common time axis come in, from reports or from a trace; tables leave.

`run_events` holds the events (made by `from_reports` or `from_trace`), `sweep` passes them once, in chunks of time, to `meters`
and `findings`, which fill the tables that they declare; `table_registry` lists all of them. `metrics` defines the efficiencies,
`measure` does all of it, `comparison` compares runs, and `outputs` write text, JSON, CSV, TALP and the page.
"""
