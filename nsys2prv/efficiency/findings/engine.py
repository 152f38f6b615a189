"""All rules over a run that is measured: the tables of findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.finding_tables import finding_tables
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.host_engine import host_findings
from nsys2prv.efficiency.findings.host_rule import HostEvidence
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, Evidence, FindingRule
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.findings.saved_time import Saved, from_devices, from_graph, is_explained
from nsys2prv.efficiency.graph.path import CriticalPath, MeasuredGraph
from nsys2prv.efficiency.measured_run import NO_LAUNCH, MeasuredRun
from nsys2prv.efficiency.meters.device_clocks import DeviceClocks
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.run_totals import Totals
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.window.mpi_phases import phases_in_window
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time


def findings_of(run: MeasuredRun, tables: Mapping[str, pl.DataFrame]) -> Filled:
    """The tables of findings, those first that cost the run most.

    Parameters
    ----------
    tables
        Of the results.
    """
    if not run.events.rows.devices:
        return host_findings(HostEvidence(run, tables, phases_in_window(run.events), run.measured(LateProcesses)))
    totals, nccl = run.measured(Totals), run.measured(Nccl)
    launches = run.launches[run.launch_of[run.launch_of != NO_LAUNCH]]
    evidence = Evidence(
        run,
        tables,
        totals.first.tolist(),
        totals.last.tolist(),
        run.measured(GapCauses),
        run.measured(Kernels).by_device,
        nccl.transfers,
        nccl.collectives,
        run.measured(DeviceClocks).contradictions,
        run.measured(LostWork),
        run.measured(NcclExposure),
        # A call before the window is on no row of it.
        has_launches=bool((launches["time"] >= 0).any()),
        has_graphs=bool((run.operations["number"] == event_types.GRAPH_EXECUTION).any()),
    )
    path = run.measurements.get(CriticalPath)
    return _tables(evidence, path.graph if isinstance(path, CriticalPath) else None)


def _tables(evidence: Evidence, graph: MeasuredGraph | None) -> Filled:
    saved = _saved(evidence, graph)
    found: list[tuple[FindingRule, Finding]] = []
    checks: list[Mapping[str, str | None]] = []
    for rule in RULES:
        finding, reason = evidence.finding(rule), evidence.missing(rule)
        result = "not found" if reason is None else "not decidable"
        if finding is not None and saved[rule.kind].ns >= _least(evidence):
            found.append((rule, finding))
            result = "found"
        elif finding is not None:
            reason = f"it costs {time(saved[rule.kind].ns)}, less than is worth a look"
        elif reason is None:
            reason = rule.unseen
        checks.append({"kind": rule.kind, "title": rule.title, "result": result, "reason": reason})
    shown = {rule.kind for rule, _ in found}
    found = [(rule, finding if finding.follows in shown else replace(finding, follows=None)) for rule, finding in found]
    # Sorting is stable: of the same cost, the earlier rule comes first.
    found.sort(key=lambda pair: (pair[1].follows is not None, -saved[pair[0].kind].ns))
    return finding_tables(found, saved, checks, evidence)


def _least(evidence: Evidence) -> int:
    """Time that a finding saves at least."""
    return int(max(LEAST_COST.value, LEAST_SHARE.value * evidence.length))


def _saved(evidence: Evidence, graph: MeasuredGraph | None) -> dict[str, Saved]:
    """Of each rule that finds something: the time by which the run would be shorter."""
    found = [(rule, finding) for rule in RULES if (finding := evidence.finding(rule)) is not None]
    saved = {rule.kind: from_devices(finding, evidence) for rule, finding in found}
    if graph is not None and is_explained(evidence, graph):
        found = [(rule, finding) for rule, finding in found if saved[rule.kind].ns >= _least(evidence)]
        of_graph = from_graph(found, evidence, graph, _least(evidence))
        saved |= {rule.kind: one for (rule, _), one in zip(found, of_graph, strict=True)}
    return saved
