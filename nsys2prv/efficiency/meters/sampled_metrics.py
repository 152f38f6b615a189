"""Sampled metrics of GPUs: means over the samples that fall inside the executions of a kernel, and means over time.

A sample belongs to every kernel that runs at its time. Kernels that are shorter than the distance of samples are met by few of
them: the number of samples tells how far a mean can be trusted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import Bins
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.overlap import spread
from nsys2prv.efficiency.run_events import ON_DEVICES, SAMPLES
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types

_KERNELS = (event_types.KERNEL, event_types.NCCL_KERNEL, event_types.GRAPH_EXECUTION)
_TIME_BITS = 46
MOST_KERNELS = 200
"""Kernels that have rows: those that take most time."""


class Sampled:
    """Samples of all metrics, by what ran meanwhile and over time."""

    def __init__(self, ground: SweepContext, bins: Bins) -> None:
        self._ground = ground
        self._edges = bins.edges
        self._in_kernels: list[pl.DataFrame] = []
        self._times: list[pl.DataFrame] = []
        self._in_bins: list[pl.DataFrame] = []
        self._has_samples = SAMPLES.name in ground.recording.collections

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        if not self._has_samples:
            return
        rows = self._ground.recording.rows
        kernels = part.inside[ON_DEVICES.name].filter(pl.col("number").is_in(_KERNELS))
        row = kernels["row"].to_numpy()
        kernels = kernels.with_columns(
            device=pl.Series(rows.device[row], dtype=pl.Int64), task=pl.Series(rows.task[row], dtype=pl.Int64)
        )
        key = ["number", "value", "family", "device", "task"]
        self._times.append(kernels.group_by(key).agg(time=(pl.col("end") - pl.col("start")).sum()))
        samples = part.begun[SAMPLES.name]
        device = rows.device[samples["row"].to_numpy()]
        samples = samples.select("start", "value", metric="number", device=pl.Series(device, dtype=pl.Int64))
        samples = samples.filter(pl.col("device") >= 0)
        if samples.is_empty():
            return
        place = np.searchsorted(self._edges, samples["start"].to_numpy(), side="right") - 1
        of_bins = samples.with_columns(bin=pl.Series(np.minimum(place, len(self._edges) - 2), dtype=pl.Int64))
        self._in_bins.append(
            of_bins.group_by("metric", "device", "bin").agg(
                samples=pl.len().cast(pl.Int64),
                total=pl.col("value").sum(),
                smallest=pl.col("value").min(),
                largest=pl.col("value").max(),
            )
        )
        # All metrics of one time in one row: a kernel then looks once for the samples inside it.
        wide = samples.pivot("metric", index=["device", "start"], values="value", aggregate_function="first").sort(
            "device", "start"
        )
        metrics = [name for name in wide.columns if name not in ("device", "start")]
        keys = _key(wide["device"].to_numpy(), wide["start"].to_numpy() - part.begin)
        first = np.searchsorted(keys, _key(kernels["device"].to_numpy(), kernels["start"].to_numpy() - part.begin))
        behind = np.searchsorted(keys, _key(kernels["device"].to_numpy(), kernels["end"].to_numpy() - part.begin))
        met = behind > first
        if not met.any():
            return
        of_kernels = kernels.filter(pl.Series(met)).select(key)
        for metric in metrics:
            values = wide[metric]
            told = values.is_not_null().to_numpy()
            total = np.concatenate([[0], np.cumsum(np.where(told, values.fill_null(0).to_numpy(), 0))])
            count = np.concatenate([[0], np.cumsum(told)])
            found = of_kernels.with_columns(
                metric=pl.lit(int(metric), pl.Int64),
                total=pl.Series(total[behind[met]] - total[first[met]], dtype=pl.Float64),
                samples=pl.Series(count[behind[met]] - count[first[met]], dtype=pl.Int64),
            )
            self._in_kernels.append(found.group_by("metric", *key).agg(pl.col("total", "samples").sum()))
        if len(self._in_kernels) > 500:
            self._in_kernels = [pl.concat(self._in_kernels).group_by("metric", *key).agg(pl.col("total", "samples").sum())]

    def tables(self, kernels: pl.DataFrame) -> dict[str, Any]:
        """The tables of sampled metrics.

        Parameters
        ----------
        kernels
            The table `kernels`: it tells the families, and which kernels take most time.
        """
        if not self._in_bins:
            return {}
        recording = self._ground.recording
        labels = {number: names.label for number, names in recording.types.items()}
        metric = pl.col("metric").replace_strict(labels, default=None, return_dtype=pl.String)
        devices = pl.Series([device.name for device in recording.rows.devices], dtype=pl.String)
        tasks = pl.Series([task.name for task in recording.rows.tasks], dtype=pl.String)
        over_time = (
            pl.concat(self._in_bins)
            .group_by("metric", "device", "bin")
            .agg(pl.col("samples", "total").sum(), pl.col("smallest").min(), pl.col("largest").max())
            .sort("metric", "device", "bin")
            .select(
                metric,
                "bin",
                "samples",
                device=pl.lit(devices).gather("device"),
                mean=pl.col("total") / pl.col("samples"),
                minimum="smallest",
                maximum="largest",
            )
        )
        if not self._in_kernels:
            return {"sampled_bins": over_time}
        key = ["number", "value", "device", "task"]
        times = pl.concat(self._times).group_by(key).agg(pl.col("time").sum())
        found = pl.concat(self._in_kernels).group_by("metric", *key).agg(pl.col("total", "samples").sum())
        found = found.filter(pl.col("samples") > 0).join(times, on=key, how="left")
        found = found.with_columns(recording.named(found["number"], found["value"]).alias("kernel"))
        named = found.join(kernels.select("kernel", "family", "total_ns"), on="kernel", how="left")
        by_kernel = named.filter(pl.col("kernel").is_in(kernels["kernel"].head(MOST_KERNELS).to_list())).select(
            "metric",
            "task",
            "device",
            "samples",
            "time",
            level=pl.lit("kernel"),
            name="kernel",
            mean=pl.col("total") / pl.col("samples"),
        )
        by_family = (
            named.with_columns(mean=pl.col("total") / pl.col("samples"))
            .group_by("metric", "task", "device", name="family")
            .agg(
                pl.col("samples", "time").sum(),
                level=pl.lit("family"),
                mean=pl.when(pl.col("time").sum() > 0).then((pl.col("mean") * pl.col("time")).sum() / pl.col("time").sum()),
            )
        )
        both = pl.concat([by_family.select(by_kernel.columns), by_kernel])
        both = both.sort("metric", "level", "name", "task", "device")
        table = both.select(
            metric,
            "level",
            "name",
            "samples",
            "mean",
            task=pl.lit(tasks).gather("task"),
            device=pl.lit(devices).gather("device"),
            time_ns="time",
        )
        return {
            "sampled_bins": over_time,
            "sampled_kernels": table,
            "sampled_summary": [
                _summary(names, part) for names, part in table.drop_nulls("mean").group_by(
                    "metric", "level", "name", maintain_order=True)
            ],
        }  # fmt: skip


def _summary(names: tuple[object, ...], part: pl.DataFrame) -> dict[str, Any]:
    means, times = part["mean"].to_numpy(), part["time_ns"].to_numpy()
    return {
        **dict(zip(("metric", "level", "name"), names, strict=True)),
        "tasks": part.height,
        "samples": int(part["samples"].sum()),
        "weighted": float((means * times).sum() / times.sum()) if times.sum() else None,
        **spread(means),
    }


def _key(device: Numbers, time: Numbers) -> Numbers:
    # Times within a stretch: far below 19 hours, as the stretches hold a limited number of events... or nothing at all.
    return device << _TIME_BITS | np.minimum(time, (1 << _TIME_BITS) - 1)
