"""Paraver: sorted records, rows and labels come in; .prv, .pcf and .row leave. Also a strict reader of the same files."""
