from pathlib import Path


def is_trace(path):
    return str(path).endswith((".prv", ".prv.gz"))


def record_trace(*a, **k):
    raise NotImplementedError
