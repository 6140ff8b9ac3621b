"""A pipeline made to fit: the largest cap on its pods with which a snapshot's quotas always admit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuflow.checker.report import LimitLine, Report, amount
from gpuflow.checker.run import QUOTA, check
from gpuflow.checker.snapshot.validation import PreparedCluster, prepare_cluster
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.demands import demand_of

if TYPE_CHECKING:
    from gpuflow.site import Site
    from gpuflow.spec.pipeline import Pipeline

WRONG_SNAPSHOT = ("GF533",)
"""Findings that say the snapshot is about something else, so that nothing can be fitted to it."""


class Misfit(GpuflowError):
    """No cap makes the pipeline fit. A finding about the pipeline, not bad input: exit code 1."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Fit:
    """The pipeline with its cap, and why it has it, in one line."""

    pipeline: Pipeline
    reason: str


def fit(pipeline: Pipeline, site: Site, cluster: Cluster | PreparedCluster, namespace: str, engine: str) -> Fit:
    """The pipeline with the largest `parallel` that every quota of the namespace always admits; never a larger one."""
    cluster = prepare_cluster(cluster, namespace)
    report = check(demand_of(pipeline, site, engine), cluster, namespace)
    wrong_snapshot = [finding for finding in report.findings if finding.code in WRONG_SNAPSHOT]
    if report.verdict == "never" or wrong_snapshot:
        raise Misfit(wrong_snapshot or [finding for finding in report.findings if finding.severity == "error"])
    tight = _tight_lines(report)
    if not tight:
        own = f"parallelism {pipeline.parallel} is the pipeline's own" if pipeline.parallel else "no parallelism is set"
        return Fit(pipeline, f"{own}: its worst moment fits every quota of namespace {namespace}{_blockers(report)}")
    closest = min(tight, key=lambda scope: (scope.safe_parallelism or 0, scope.name, scope.resource))
    cap = closest.safe_parallelism
    if cap is None:
        raise Misfit([_no_cap(pipeline, closest), *_explanations(report)])
    capped = pipeline.model_copy(update={"parallel": cap if pipeline.parallel is None else min(cap, pipeline.parallel)})
    after = check(demand_of(capped, site, engine), cluster, namespace)
    left = _tight_lines(after)
    if left:
        raise Misfit([_no_cap(pipeline, left[0]), *_explanations(report)])
    words = f"with more, {closest.resource} could pass {_name(closest)} ({amount(closest.hard, closest.resource)}"
    words += f", {amount(closest.used, closest.resource)} in use)" if closest.used else ")"
    return Fit(capped, f"parallelism {capped.parallel}: {words}{_blockers(after)}")


def _blockers(report: Report) -> str:
    """What a cap cannot solve: quota that others hold, or something unknown."""
    return "" if report.verdict == "always" else f"; for other reasons check still says {report.verdict}"


def _tight_lines(report: Report) -> list[LimitLine]:
    """The lines that do not always admit the pipeline: quotas, and whatever else a cap would help."""
    scopes = (scope for scope in report.scopes if scope.verdict != "always")
    return [scope for scope in scopes if scope.kind == QUOTA or scope.safe_parallelism is not None]


def _name(scope: LimitLine) -> str:
    return f"quota {scope.name}" if scope.kind == QUOTA else f"{scope.kind} {scope.name}"


def _no_cap(pipeline: Pipeline, scope: LimitLine) -> Finding:
    peak, used = (
        "an unknown number" if each is None else amount(each, scope.resource) for each in (scope.peak, scope.used)
    )
    return Finding(
        "GF312",
        f'no parallelism makes "{pipeline.name}" fit {_name(scope)}: it asks for {peak} of {scope.resource}, '
        f"{used} of {amount(scope.hard, scope.resource)} are in use",
        pipeline.where_step(scope.witness[0].split(".")[0]) if scope.witness else pipeline.where(),
        "ask for less, wait until others have finished, or have the quota raised",
    )


def _explanations(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity != "note"]
