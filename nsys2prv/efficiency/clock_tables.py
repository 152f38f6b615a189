"""How well clocks fit each other: the tables `alignment` and `alignment_bins`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def clock_tables(clocks: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Both tables from what OUT.json tells of each clock (`timeline.axis.HostClock.as_json`)."""
    return {
        "alignment": [_placed(clock) for clock in clocks],
        "alignment_bins": [row for clock in clocks for row in _over_time(clock)],
    }


def _placed(clock: Mapping[str, Any]) -> dict[str, Any]:
    errors = clock.get("error_ns", {})
    return {
        "host": clock["host"],
        "method": clock["method"],
        "anchors": clock.get("anchors"),
        "offset_ns": clock.get("offset_ns"),
        "drift_ppm": clock.get("drift_ppm"),
        "median_error_ns": errors.get("median"),
        "p95_error_ns": errors.get("percentile_95"),
        "largest_error_ns": errors.get("largest"),
    }


def _over_time(clock: Mapping[str, Any]) -> list[dict[str, Any]]:
    errors = clock.get("error_ns", {}).get("over_time", ())
    return [{"host": clock["host"], "bin": number, "error_ns": error} for number, error in enumerate(errors)]
