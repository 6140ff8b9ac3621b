"""Both answers to a case side by side: what the checker says, and what is true."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import gpuflow
from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.checker.snapshot.validation import prepare_cluster
from gpuflow.cluster import cluster_of
from gpuflow.cluster.kinds import SOURCES
from proofs.checker.case import NAMESPACE, Case, Manifest
from proofs.checker.judge import Truth


def checked(case: Case) -> Report:
    """What the checker says to what is shown."""
    listed = sorted({source.kind for source in SOURCES} - set(case.hidden))
    record = {
        "apiVersion": "gpuflow/v1", "kind": "Snapshot", "metadata": {"name": "snapshot"},
        "namespace": NAMESPACE, "listed": listed, "unread": {},
    }  # fmt: skip
    # Said only where there is more than one: otherwise the pipeline's own schedule says it.
    runs: dict[str, Any] = {} if case.runs == 1 else {"runs": case.runs}
    if case.beside:
        return _together(case, (*case.shown, record))
    return gpuflow.check(case.spec, (*case.shown, record), namespace=NAMESPACE, engine=case.engine, **runs)


def _together(case: Case, shown: Sequence[Manifest]) -> Report:
    """What the checker says to pipelines side by side: `gpuflow check a.yaml b.yaml --together`."""
    check_together = importlib.import_module("gpuflow.checker.several_pipelines").check_together

    demands = [gpuflow.demand(spec, engine=case.engine) for spec in case.specs]
    cluster = prepare_cluster(cluster_of(shown), NAMESPACE)
    alone = [check(demand, cluster, NAMESPACE) for demand in demands]
    whole: Report = check_together(demands, alone, cluster, None)
    return whole


def fault(verdict: str, truth: Truth, is_open: bool = False) -> str | None:
    """What is wrong with a verdict: wrong always or never is an error, needless is a loss."""
    word = truth.word
    if word == "too-large":
        return None
    if verdict == "always" and set(truth.worlds) != {"always"}:
        return "wrong always"
    if verdict == "never" and set(truth.worlds) != {"never"}:
        return "wrong never"
    if is_open or word == "open" or verdict == word:
        return None
    return "needless unknown" if verdict == "unknown" else "needless may queue" if verdict == "may-queue" else None
