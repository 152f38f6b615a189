"""Sizes of pieces of work: how many rows, parts, windows and reports are handled at once.

They bound memory and change no result. The sizes of sorted runs are in `external_sort`, which alone uses them.
"""

from __future__ import annotations

PIECE_ROWS = 60_000
"""Rows of a table that one thread holds at once."""
WIDE_PIECE_ROWS = 30_000
"""The same where a row takes much memory or becomes several events."""
HELD_ROWS = 30_000
"""Rows few enough to be kept while a table is read a second time."""
READER_PIECE_ROWS, LARGE_READER_PIECE_ROWS = 50_000, 75_000
"""Events that one thread places on the timeline at once; more where memory is ample, as threads hand over the interpreter for
each step of a piece."""

ROWS_OF_PART = 75_000
"""Rows of a table for which one more thread reads it."""
MOST_PARTS = 4
"""Threads that read one table at most."""

REPORTS_AT_ONCE = 32
"""Reports in one piece of work at most: names of their processes and threads are all in memory."""
ROWS_OF_GROUP = 400_000
"""Rows of tables above which a group gets no more reports: launch lines of all of them wait for the last."""
WINDOWS_OF_PART = 4
"""Time windows in one part of a trace at most. The file of a part is deleted when it is joined: small ones take little
memory of the system, and all workers end at about the same time."""
