"""Efficiency numbers: events on the common time axis come in; tables leave.

`run_events` holds the events (made by `event_input`); `measured_run` gives them to `meters`
and `findings`, which fill the tables that they declare; `table_registry` lists all of them. `metrics` defines the efficiencies,
`measure` does all of it, `comparison` compares runs, and `outputs` write text, JSON, CSV, TALP and the page."""
