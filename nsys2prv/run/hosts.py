"""Hosts of one name: containers and virtual machines often have the same name, and some reports have none.

Reports of one name are those of one host unless something contradicts that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nsys2prv.exports.columns import pid_of
from nsys2prv.exports.identity import SLICE_OF_GPU, Identity
from nsys2prv.vocabulary.launchers import jobs, node_number, step

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

        A process is in several reports when they were recorded one after the other."""
        common = self.processes.keys() & facts.processes.keys()
        if not common or self.period is None or facts.period is None:
            return bool(common)
        ranks = {frozenset((self.processes[pid], facts.processes[pid])) - {None} for pid in common}
        at_once = self.period[0] < facts.period[1] and facts.period[0] < self.period[1]
        return at_once or any(len(of_pid) > 1 for of_pid in ranks)


_DIFFERENCES = {
    "gpus": "they have different GPUs at the same place",
    "models": "they have different GPUs at the same place",
    "node": "they are different nodes of the job",
    "local_ranks": "several ranks are the same one of their node",
}
"""What reports of one host have in common, by the attribute of `_HostFacts`: why they are not of one where it differs."""


def _contradiction(host: Sequence[_HostFacts], facts: _HostFacts) -> str:
    """Why a report can't be of the host of some reports, "" when it can."""
    boots = [report.boot for report in host if report.boot is not None]
    if boots and facts.boot is not None and abs(boots[0] - facts.boot) > BOOTS_APART_NS:
        return "they booted at different times"
    for name, reason in _DIFFERENCES.items():
        of_report = getattr(facts, name)
        if any(of_report.get(key, value) != value for report in host for key, value in getattr(report, name).items()):
            return reason
    shares_gpu, same_boot, _ = evidence = _evidence(host, facts)
    cpus = next((report.cpus for report in host if report.cpus), 0)
    # A container may have some of the CPUs only.
    if cpus and facts.cpus and cpus != facts.cpus and not same_boot and not shares_gpu:
        return "they have different numbers of CPUs"
    # Containers on one host can number their processes alike.
    if not any(evidence) and any(map(facts.has_other_process_of_same_id, host)):
        return "they have different processes of the same id"
    return ""


def _evidence(host: Sequence[_HostFacts], facts: _HostFacts) -> tuple[bool, bool, bool]:
    """What suggests that a report is of the host of some reports rather than of another possible one, the surest first."""
    return (
        any(report.gpus.items() & facts.gpus.items() for report in host),
        facts.boot is not None and any(report.boot is not None for report in host),
        any(report.node.keys() & facts.node.keys() for report in host),
    )


@dataclass(frozen=True)
class SharedName:
    """Several hosts of one name ("" for none): indices of the reports of each, and how they differ, for the user."""

    name: str
    machines: tuple[tuple[int, ...], ...]
    reasons: tuple[str, ...]


def shared_names(
    identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None], among: Iterable[int]
) -> list[SharedName]:
    """Names that more than one host has, of the reports of some indices, in the order in which hosts are numbered.

    Spans are the first and last time of each report, ns; None for a report without events."""
    by_name: dict[str, list[int]] = {}
    for index in among:
        by_name.setdefault(identities[index].host, []).append(index)
    shared = []
    for name, members in by_name.items():
        facts = {index: _HostFacts.of(identities[index], spans[index]) for index in members}
        machines: list[list[int]] = []
        reasons: dict[str, None] = {}
        for index in members:
            hosts = [[facts[member] for member in machine] for machine in machines]
            contradictions = [_contradiction(host, facts[index]) for host in hosts]
            possible = [number for number, reason in enumerate(contradictions) if not reason]
            if possible:
                evidence = [_evidence(hosts[number], facts[index]) for number in possible]
                machines[possible[evidence.index(max(evidence))]].append(index)
            else:
                machines.append([index])
                reasons |= dict.fromkeys(contradictions)
        if len(machines) > 1:
            shared.append(SharedName(name, tuple(map(tuple, machines)), tuple(reasons)))
    return shared
