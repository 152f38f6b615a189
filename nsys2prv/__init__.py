"""nsys2prv turns NVIDIA Nsight Systems reports into one Paraver trace.

The rooms, in the way that data take: `reports` (open an export, say who it is), `sources` (tables of one report to
intervals, samples and launches), `timeline` (rows, time axis, labels, sorted records over all reports), `paraver` (the
files that Paraver reads, and a strict reader of them). `events` is the vocabulary that all of them share.
"""

__version__ = "0.1.0"
