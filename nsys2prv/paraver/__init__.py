"""Paraver: sorted records, rows and labels come in; .prv, .pcf, .row and the views of a trace leave.

Also strict readers of the same files.
"""
