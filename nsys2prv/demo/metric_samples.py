"""Samples of GPU metrics: the work on the device enters, the mean over each sampling period leaves, as nsys writes it."""

from collections.abc import Sequence

import numpy as np

from nsys2prv.demo.iteration import Kernel
from nsys2prv.demo.schedule import METRICS_FROM, Array

_GPC_HZ, _SYS_HZ = 1_980_000_000, 1_755_000_000
_UNDER_LOAD = 0.06
"""Share of its clock that a GPU gives up while its tensor cores are busy."""
_FIRST_CLOCK = -2_140_552_984
"""A first sample of a clock as in a real report."""


def sampled_metrics(
    *,
    period: int,
    session: tuple[int, int],
    kernels: Sequence[Kernel | None],
    copies: Sequence[bool],
    start: Array,
    end: Array,
    collective_start: Array,
    collective_end: Array,
    slowdown: float,
    random: np.random.Generator,
) -> tuple[Array, tuple[str, ...], Array]:
    """Sample the metrics of one GPU.

    Parameters
    ----------
    period
        Time between samples, ns.
    session
        Start of the session and end of the sampling, true time, ns.
    kernels, copies
        Work of each column of `start` and `end`: a kernel, a copy to the device, or neither.
    start, end
        Work on the default stream, (iterations, n), true time, ns.
    collective_start, collective_end
        NCCL kernels, (iterations, n), true time, ns.
    slowdown
        By which factor this GPU is slower than others.

    Returns
    -------
    Times of samples (true time, ns), names of the metrics, and values (samples, metrics): percent, clocks in Hz.
    """
    times = np.arange(session[0] + METRICS_FROM, session[1], period)

    def mean(level: Array, starts: Array, ends: Array) -> Array:
        return _mean_level(times, period, np.ravel(starts), np.ravel(ends), np.tile(level, len(starts)))

    def computing(attribute: str) -> Array:
        return np.array([getattr(kernel, attribute) if kernel is not None else 0 for kernel in kernels], dtype=np.float64)

    is_kernel = np.array([kernel is not None for kernel in kernels])
    busy = mean(np.full(len(kernels), 100.0), start, end)
    computed = mean(np.where(is_kernel, 97.0, 0.0), start, end)
    reduced = mean(np.ones(collective_start.shape[1]), collective_start, collective_end)
    tensor = mean(computing("tensor"), start, end) / slowdown
    copied = mean(np.where(copies, 1.0, 0.0), start, end)
    clock = _GPC_HZ / slowdown * (1 - _UNDER_LOAD * tensor / 100)
    levels = {
        "GR Active": np.maximum(busy, 100 * reduced),
        "SM Active": np.maximum(computed, 18 * reduced),
        "SM Issue": mean(computing("issue"), start, end) / slowdown + 2 * reduced,
        "Tensor Active": tensor,
        "DRAM Read Throughput": mean(computing("dram_read"), start, end) / slowdown + 6 * reduced,
        "DRAM Write Throughput": mean(computing("dram_write"), start, end) / slowdown + 6 * reduced,
        "NVLink RX Throughput": 41 * reduced,
        "NVLink TX Throughput": 41 * reduced,
        "PCIe RX Throughput": 38 * copied + 1,
        "PCIe TX Throughput": np.ones_like(copied),
    }
    names = ("GPC Clock Frequency", "SYS Clock Frequency", *levels)
    values = np.empty((len(times), len(names)), dtype=np.int64)
    values[:, 0] = clock + random.normal(0, 1.5e6, len(times))
    values[:, 1] = _SYS_HZ / slowdown + random.normal(0, 1e6, len(times))
    for column, name in enumerate(levels, start=2):
        # Whole percents, and none while nothing runs.
        noise = random.normal(0, 0.8, len(times)) * (levels[name] >= 1)
        values[:, column] = np.clip(np.rint(levels[name] + noise), 0, 100)
    values[:1, 0] = _FIRST_CLOCK
    return times, names, values


def _mean_level(times: Array, period: int, start: Array, end: Array, level: Array) -> Array:
    """Mean over the period before each time of a level that holds inside intervals and is 0 outside; intervals in order."""
    if not len(start):
        return np.zeros(len(times))
    total = np.cumsum((end - start) * level)
    edges = np.stack([start, end], axis=1).ravel()
    integral = np.stack([total - (end - start) * level, total], axis=1).ravel()
    mean: Array = (np.interp(times, edges, integral) - np.interp(times - period, edges, integral)) / period
    return mean
