"""Efficiencies of the network: what a run would take if transfers took no time, and what is lost beside them.

After the POP metrics (https://pop-coe.eu): transfer efficiency is the length of a replay with an ideal network over the
measured length, and serialization efficiency is the rest of the communication efficiency. There, the replay is one of Dimemas,
of MPI; here it is that of the graph of the run, whose processors are devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsys2prv.efficiency.result_tables import NCCL_POLICY, Column, Table

NETWORK_FACTORS = Table(
    "network_factors",
    "Transfer and serialization",
    "the run",
    (
        NCCL_POLICY,
        Column.ns("ideal_network_ns", "length of the window if transfers of collectives and messages took no time"),
        Column.share("transfer_efficiency", "`ideal_network_ns` / E"),
        Column.share("serialization_efficiency", "max U / `ideal_network_ns`, 1 at most; null without useful time"),
        Column.share(
            "progress_efficiency",
            "max U / E: `transfer_efficiency` x `serialization_efficiency`, and `communication_efficiency` x "
            "`orchestration_efficiency`; null likewise",
        ),
    ),
    when="the critical path",
    by_nccl_policy=True,
)


def network_factors(run: Mapping[str, Any], ideal: int) -> list[dict[str, Any]]:
    """The row of the table.

    Parameters
    ----------
    run
        The row of the table `run`.
    ideal
        Length of the window with an ideal network, ns.
    """
    elapsed, useful = run["elapsed_ns"], run["max_useful_ns"]
    return [
        {
            "nccl": run["nccl"],
            "ideal_network_ns": ideal,
            "transfer_efficiency": ideal / elapsed if elapsed else None,
            "serialization_efficiency": min(useful / ideal, 1.0) if useful and ideal else None,
            "progress_efficiency": useful / elapsed if useful and elapsed else None,
        }
    ]
