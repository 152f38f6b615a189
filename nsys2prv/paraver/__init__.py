"""Paraver: sorted records, rows and labels come in; .prv, .pcf, .row and views leave.

The same files are read strictly here, for checks and for views."""
