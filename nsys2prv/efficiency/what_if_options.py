"""Options of a what-if: what is changed in the run."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from nsys2prv.run.options import SELECT, ReadOptions, option, texts

CHANGE = "Changes"
"""Group of the options that say what would be different."""
_LARGEST_FACTOR = 1e6


@dataclass(frozen=True)
class Scaling:
    """Kernels, copies or graphs that take `factor` times as long: those whose name or family fits a pattern."""

    pattern: str
    factor: float

    def __str__(self) -> str:
        return f"{self.pattern}={self.factor:g}"


def scalings(values: str | Scaling | Sequence[str | Scaling]) -> tuple[Scaling, ...]:
    """`NAME=FACTOR` or `FAMILY=FACTOR`, several times.

    >>> scalings(["gemm*=0.5"])
    (Scaling(pattern='gemm*', factor=0.5),)
    """
    scaled = []
    for value in [values] if isinstance(values, str | Scaling) else values:
        pattern, _, number = str(value).rpartition("=")
        if not pattern:
            raise ValueError("write FAMILY=FACTOR or NAME=FACTOR, such as gemm=0.5")
        scaled.append(value if isinstance(value, Scaling) else Scaling(pattern, factor(number)))
    return tuple(scaled)


def factor(value: str | float) -> float:
    """A factor of durations: 0 or more.

    >>> factor("0.5")
    0.5
    """
    try:
        number = float(value)
    except ValueError:
        raise ValueError("not a factor; write a number such as 0.5") from None
    if not 0 <= number <= _LARGEST_FACTOR:
        raise ValueError(f"a factor is a number from 0 to {_LARGEST_FACTOR:,.0f}")
    return number


def median_ranks(values: str | Sequence[str]) -> tuple[str, ...]:
    """`RANK=median`, several times.

    >>> median_ranks("3=median")
    ('3=median',)
    """
    ranks = texts(values)
    if not all(re.fullmatch("[0-9]{1,9}=median", rank) for rank in ranks):
        raise ValueError("write RANK=median, such as 3=median")
    return ranks


@dataclass(frozen=True)
class WhatIfOptions(ReadOptions):
    """What would be different."""

    ideal_network: bool = option(False, "Transfers of collectives and messages take no time.", group=CHANGE)
    no_late_ranks: bool = option(
        False,
        "Collectives start when their typical member arrives: ranks that take longer take as long as the median.",
        group=CHANGE,
    )
    no_launch_cost: bool = option(
        False, "Calls that launch take no time, and what they launch can start at once.", group=CHANGE
    )
    data_loading: float | None = option(
        None, "Times in which hosts load data take FACTOR times as long; 0: no time.", "FACTOR", factor, group=CHANGE
    )
    scale: tuple[Scaling, ...] = option(
        (),
        "Kernels, graphs or copies take FACTOR times as long: NAME=FACTOR, or the family of kernels in place of the name, with "
        "the wildcards * and ?. May be repeated.",
        "NAME=FACTOR",
        scalings,
        group=CHANGE,
    )
    rank: tuple[str, ...] = option(
        (),
        "RANK=median: kernels of a rank take as long as those of the same name on the median of the others. May be repeated.",
        "RANK=median",
        median_ranks,
        group=CHANGE,
    )
    per_iteration: str | None = option(
        None, "Iterations are NVTX ranges of this name; without it they are looked for.", "NAME[@DOMAIN]", group=SELECT
    )

    @property
    def changes(self) -> list[str]:
        """The changes as they are given on the command line."""
        flags = [name for name in ("ideal_network", "no_late_ranks", "no_launch_cost") if getattr(self, name)]
        return [
            *(f"--{name.replace('_', '-')}" for name in flags),
            *([] if self.data_loading is None else [f"--data-loading {self.data_loading:g}"]),
            *(f"--scale {shlex.quote(str(scaling))}" for scaling in self.scale),
            *(f"--rank {rank}" for rank in self.rank),
        ]
