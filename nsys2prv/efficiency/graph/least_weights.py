"""Least weights of edges that are not known one by one: what such edges are seen to take where nothing else delays them.

Edges of one class (a kind of edge, and perhaps the name of a call or operation) have one least weight: a low quantile of what
was seen, so that a few odd time stamps don't count. It does not depend on chunks.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution.merging import Sums

_QUANTILE = 0.1
_BARS_OF_DOUBLING = 16
_KINDS = 16
_SCHEMA = {"code": pl.Int64, "bar": pl.Int64, "count": pl.Int64}


def class_code(kind: int, label: Numbers) -> Numbers:
    """Class of edges of a kind with labels (-1: none), as a weight that `LeastWeights.resolved` replaces: below 0."""
    code: Numbers = -(kind + _KINDS * (label + 1)) - 1
    return code


class LeastWeights:
    """What edges of each class were seen to take."""

    def __init__(self) -> None:
        self._seen = Sums(_SCHEMA, ["code", "bar"])
        self._known: tuple[Numbers, Numbers] | None = None

    def add(self, code: Numbers, length: Numbers) -> None:
        """Edges of classes that nothing else delayed, and their lengths, ns."""
        if len(code):
            bar = np.floor(np.log2(np.maximum(length, 0) + 1.0) * _BARS_OF_DOUBLING).astype(np.int64)
            self._seen.add(pl.DataFrame({"code": code, "bar": bar, "count": np.ones(len(code), dtype=np.int64)}))

    def resolved(self, weight: Numbers) -> Numbers:
        """Weights with the least weight of the class in place of each class; 0 where none was seen."""
        if self._known is None:
            self._known = self._quantiles()
        codes, least = self._known
        is_class = weight < 0
        if not is_class.any():
            return weight
        place = np.searchsorted(codes, weight[is_class])
        inside = np.minimum(place, max(len(codes) - 1, 0))
        known = codes[inside] == weight[is_class] if len(codes) else np.zeros(len(place), dtype=bool)
        resolved: Numbers = weight.copy()
        resolved[is_class] = np.where(known, least[inside] if len(codes) else 0, 0)
        return resolved

    def _quantiles(self) -> tuple[Numbers, Numbers]:
        found = (
            self._seen.rows.sort("code", "bar")
            .with_columns(until=pl.col("count").cum_sum().over("code"), of_all=pl.col("count").sum().over("code"))
            .filter(pl.col("until") >= pl.col("of_all") * _QUANTILE)
            .group_by("code", maintain_order=True)
            .agg(pl.col("bar").first())
        )
        least = np.exp2(found["bar"].to_numpy() / _BARS_OF_DOUBLING) - 1
        return found["code"].to_numpy(), np.ceil(least).astype(np.int64)
