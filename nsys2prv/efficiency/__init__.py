"""What a run means: intervals on the common axis come in, from reports or from a trace; efficiency numbers leave, as tables.

The way through it: `recording` (what happened, as intervals; made by `from_reports` or `from_trace`), `sweep` (goes through
it once, in stretches of time), a module per kind of table, `schema` (all tables and their columns), and `efficiency` (all of
it at once). `model` holds the formulas, `intervals` the algebra below them.
"""
