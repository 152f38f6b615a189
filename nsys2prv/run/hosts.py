"""Hosts of one name: containers and virtual machines often have the same name, and some reports have none.

Reports of one name are those of one host unless something contradicts that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from nsys2prv.exports.columns import pid_of
from nsys2prv.exports.identity import SLICE_OF_GPU, Identity, jobs, node_number, step

K = TypeVar("K")
V = TypeVar("V")

BOOTS_APART_NS = 5_000_000_000
"""UTC less the monotonic clock is the time of boot. On one host it changes only when UTC is set."""
_Run = tuple[object, ...]
"""Identifiers of a run by batch systems and launchers."""


@dataclass(frozen=True)
class _HostFacts:
    """What a report has about its host; None and empty: nothing."""

    boot: int | None  # UTC less the monotonic clock, ns
    gpus: Mapping[str, str]  # uuid by the place on the bus
    models: Mapping[str, str]  # likewise the names of GPUs
    cpus: int
    processes: Mapping[int, int | None]  # ranks of the processes that were traced, by pid
    period: tuple[int, int] | None  # its first and last event in UTC, ns
    node: Mapping[_Run, int]  # number of the node in what was launched
    local_ranks: Mapping[tuple[_Run, int], int]  # rank in the run by what was launched and the rank on the node

    @classmethod
    def of(cls, identity: Identity, span: tuple[int, int] | None) -> _HostFacts:
        run = (*sorted(jobs(identity.environment).items()), step(identity.environment))
        number = node_number(identity.environment)
        # Variables of another launch before may still be set.
        same_rank = [launch for launch in identity.launches if launch.rank == identity.launches[0].rank]
        local = [((run, launch.local_rank), launch.rank) for launch in same_rank if launch.local_rank is not None]
        utc, monotonic = identity.utc_ns, identity.monotonic_ns
        # The name of a slice is not that of its GPU.
        gpus = [gpu for gpu in identity.gpus if gpu.bus and not gpu.uuid.startswith(SLICE_OF_GPU)]
        return cls(
            utc - monotonic if utc is not None and monotonic is not None else None,
            {gpu.bus.lower(): gpu.uuid for gpu in gpus if gpu.uuid},
            {gpu.bus.lower(): gpu.name for gpu in gpus},
            identity.cpus,
            {pid_of(pid): identity.ranks.get(pid, identity.launch_rank) for pid in identity.traced},
            (utc + span[0], utc + span[1]) if utc is not None and span else None,
            {run: number} if number is not None else {},
            dict(local[:1]),
        )

    def has_other_process_of_same_id(self, facts: _HostFacts) -> bool:
        """Whether a process of the other report has the id of one of this report, but is another one.

        A process is in several reports when they were recorded one after the other.
        """
        common = self.processes.keys() & facts.processes.keys()
        if not common or self.period is None or facts.period is None:
            return bool(common)
        ranks = {frozenset((self.processes[pid], facts.processes[pid])) - {None} for pid in common}
        at_once = self.period[0] < facts.period[1] and facts.period[0] < self.period[1]
        return at_once or any(len(of_pid) > 1 for of_pid in ranks)


@dataclass
class _Host:
    """What is known of a host from the reports that were assigned to it."""

    members: list[int] = field(default_factory=list)
    boot: int | None = None
    gpus: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    cpus: int = 0
    reports: list[_HostFacts] = field(default_factory=list)
    node: dict[_Run, int] = field(default_factory=dict)
    local_ranks: dict[tuple[_Run, int], int] = field(default_factory=dict)

    def assign(self, index: int, facts: _HostFacts) -> None:
        self.members.append(index)
        self.boot = facts.boot if self.boot is None else self.boot
        self.gpus |= facts.gpus
        self.models |= facts.models
        self.reports.append(facts)
        self.cpus = self.cpus or facts.cpus
        self.node = dict(facts.node) | self.node
        self.local_ranks = dict(facts.local_ranks) | self.local_ranks

    def contradiction(self, facts: _HostFacts) -> str:
        """Why a report can't be of this host, "" when it can."""
        has_boots = self.boot is not None and facts.boot is not None
        if self.boot is not None and facts.boot is not None and abs(self.boot - facts.boot) > BOOTS_APART_NS:
            return "they booted at different times"
        if _differ(self.gpus, facts.gpus) or _differ(self.models, facts.models):
            return "they have different GPUs at the same place"
        if _differ(self.node, facts.node):
            return "they are different nodes of the job"
        if _differ(self.local_ranks, facts.local_ranks):
            return "several ranks are the same one of their node"
        # A container may have some of the CPUs only.
        if self.cpus and facts.cpus and self.cpus != facts.cpus and not has_boots and not self._shares_gpu(facts):
            return "they have different numbers of CPUs"
        # Containers on one host can number their processes alike.
        if not self.evidence(facts) and any(map(facts.has_other_process_of_same_id, self.reports)):
            return "they have different processes of the same id"
        return ""

    def evidence(self, facts: _HostFacts) -> int:
        """How much suggests that a report is of this host rather than of another possible one."""
        same_boot = self.boot is not None and facts.boot is not None
        same_node = not self.node.keys().isdisjoint(facts.node)
        return 4 * self._shares_gpu(facts) + 2 * same_boot + same_node

    def _shares_gpu(self, facts: _HostFacts) -> bool:
        return any(self.gpus.get(bus) == uuid for bus, uuid in facts.gpus.items())


def _differ(of_host: Mapping[K, V], of_report: Mapping[K, V]) -> bool:
    return any(of_host.get(key, value) != value for key, value in of_report.items())


@dataclass(frozen=True)
class SharedName:
    """Several hosts of one name ("" for none): indices of the reports of each, and how they differ, for the user."""

    name: str
    machines: tuple[tuple[int, ...], ...]
    reasons: tuple[str, ...]


def shared_names(
    identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None], among: Iterable[int]
) -> list[SharedName]:
    """Names that more than one host has.

    Parameters
    ----------
    identities
        Identities of the reports.
    spans
        First and last time of each report, ns; None for a report without events.
    among
        Indices of the reports that are compared, in the order in which hosts are numbered.
    """
    by_name: dict[str, list[int]] = {}
    for index in among:
        by_name.setdefault(identities[index].host, []).append(index)
    shared = []
    for name, members in by_name.items():
        machines: list[_Host] = []
        reasons: dict[str, None] = {}
        for index in members:
            facts = _HostFacts.of(identities[index], spans[index])
            contradictions = [machine.contradiction(facts) for machine in machines]
            possible = [machine for machine, reason in zip(machines, contradictions, strict=True) if not reason]
            if not possible:
                machines.append(_Host())
                possible = machines[-1:]
                reasons |= dict.fromkeys(contradictions)
            max(possible, key=lambda machine, facts=facts: machine.evidence(facts)).assign(index, facts)  # type: ignore[misc]
        if len(machines) > 1:
            shared.append(SharedName(name, tuple(tuple(machine.members) for machine in machines), tuple(reasons)))
    return shared
