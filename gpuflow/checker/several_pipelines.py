"""Several pipelines at the same time: one report about all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuflow.checker.question import with_deadline
from gpuflow.checker.report import SEPARATOR, Report, worst_verdict
from gpuflow.checker.run import QUOTA, SEVERITIES, check, check_cluster_wide, count_runs
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.core.errors import Finding, Where, list_names
from gpuflow.demands import Demand
from gpuflow.demands.combine import combine_demands, names_of
from gpuflow.engines import NO_ENGINE


def check_together(
    demands: Sequence[Demand], alone: Sequence[Report], cluster: PreparedCluster, runs: int | None
) -> Report:
    """What the cluster says to these pipelines side by side, each with as many runs as it was checked with alone.

    What a namespace limits is added up within that namespace, what the cluster limits over all of them. No pipeline
    gets a better answer together with others than alone.
    """
    homes = [each.namespace.split(SEPARATOR)[0] for each in alone]
    placed = [replace(with_deadline(demand), namespace=home) for demand, home in zip(demands, homes, strict=True)]
    counts = [count_runs(demand, runs) for demand in demands]
    names = names_of(placed)
    everything = list(zip(placed, counts, names, strict=True))
    parts = [
        check(combine_demands([each for each in everything if each[0].namespace == home]), cluster, home, runs=1)
        for home in dict.fromkeys(homes)
    ]
    report = parts[0] if len(parts) == 1 else _report_over_namespaces(combine_demands(everything), parts, cluster)
    engines = dict.fromkeys(each.engine for each in demands if each.engine != NO_ENGINE)
    return replace(
        report,
        verdict=worst_verdict((report.verdict, *(each.verdict for each in alone))),
        engine=SEPARATOR.join(engines) or NO_ENGINE,
    )


def _report_over_namespaces(whole: Demand, parts: Sequence[Report], cluster: PreparedCluster) -> Report:
    """One report from those on each namespace, and from what queues and nodes say to all of it."""
    shared = check_cluster_wide(whole, cluster)
    scopes = [
        replace(scope, name=f"{part.namespace}/{scope.name}")
        for part in parts
        for scope in part.scopes
        if scope.kind == QUOTA
    ]
    said = (*shared.findings, *(finding for part in parts for finding in part.findings))
    findings = {
        (each.code, each.message): each for each in sorted(said, key=lambda each: SEVERITIES.index(each.severity))
    }
    return replace(
        parts[0],
        pipeline=whole.name,
        namespace=SEPARATOR.join(part.namespace for part in parts),
        verdict=worst_verdict((shared.verdict, *(part.verdict for part in parts))),
        scopes=(*scopes, *shared.scopes),
        findings=tuple(
            findings.values() if whole.source is None else whole.source.unsilenced_findings(findings.values())
        ),
        assumed=tuple(dict.fromkeys(kind for part in parts for kind in part.assumed)),
        by_itself=all(part.by_itself for part in parts),
        brought=cluster.cluster.brought_to([part.namespace for part in parts]),
    )


def with_alone_note(report: Report, others: Sequence[Report]) -> Report:
    """The report with a note that the other pipelines of the same command were not counted."""
    names = list_names([each.pipeline for each in others], "pipeline")
    text = f"checked alone: {names} of the same command {'is' if len(others) == 1 else 'are'} not counted"
    note = Finding("GF530", text, Where(report.file), "--together checks them side by side", severity="note")
    return replace(report, findings=(*report.findings, note))
