"""The Python API: runs of several reports, their events as frames, efficiency results, traces."""
