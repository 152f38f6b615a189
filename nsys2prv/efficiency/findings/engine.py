"""All rules over a run: what they measure while it is swept, and the tables of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.finding_tables import finding_tables
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, Evidence, FindingRule
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.findings.saved_time import Saved, from_devices, from_graph, is_explained
from nsys2prv.efficiency.graph.gains import MeasuredGraph
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import NO_LAUNCH, SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time


class Findings:
    """Measures for all rules, and judges at the end.

    Parameters
    ----------
    gaps_folder
        Where each gap is written, for replays of the graph of the run; None: it has none.
    """

    def __init__(self, context: SweepContext, gaps_folder: Path | None = None) -> None:
        self._context = context
        causes = {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None}
        self._gaps = GapCauses(context, causes, gaps_folder)
        self._meters = {meter: meter(context) for rule in RULES for meter in rule.meters}
        self._launches, self._graphs = 0, 0

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk; chunks come in the order of time."""
        for meter in self._meters.values():
            meter.update(chunk)
        started = chunk.started[ON_DEVICES.name]
        # A call before the window is on no row of it.
        launches = chunk.launches[chunk.launch_of[chunk.launch_of != NO_LAUNCH]]
        self._launches += int((launches["time"] >= 0).sum())
        self._graphs += int((started["number"] == event_types.GRAPH_EXECUTION).sum())

    def update_gaps(self, gaps: pl.DataFrame) -> None:
        """Add gaps, as `Gaps` passes them to its listener."""
        self._gaps.update(gaps)

    def tables(
        self,
        tables: Mapping[str, pl.DataFrame],
        activity: tuple[Sequence[int], Sequence[int]],
        *,
        kernels_by_device: pl.DataFrame,
        transfers: pl.DataFrame,
        collectives: pl.DataFrame,
        contradictions: Mapping[int, str],
        lost_work: LostWork,
        exposure: NcclExposure,
        graph: MeasuredGraph | None = None,
    ) -> Filled:
        """The tables of findings, those first that cost the run most; parameters as of `Evidence`, and the graph of the run."""
        evidence = Evidence(
            self._context,
            tables,
            *activity,
            self._gaps,
            self._meters,
            kernels_by_device,
            transfers,
            collectives,
            contradictions,
            lost_work,
            exposure,
            has_launches=self._launches > 0,
            has_graphs=self._graphs > 0,
        )
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
