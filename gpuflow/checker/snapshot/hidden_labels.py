"""A snapshot shows few labels of other tenants: what a pipeline asks of the others may not be among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.nodes.affinity import PodAffinityTerm, read_affinity
from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.cluster import Cluster
from gpuflow.cluster.tenants import KEPT_LABELS
from gpuflow.errors import Finding, Where, listed


def hidden_labels(cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Steps whose affinity to pods of other namespaces asks for labels that the snapshot does not show."""
    if cluster.labels is None:
        return
    asking: dict[str, set[str]] = {}
    for one in admissions:
        affinity = read_affinity(one.step.pod["spec"], namespace)
        for term in (*affinity.together, *affinity.apart):
            hidden = {key for key in _keys(term, namespace) if not _is_shown(key, cluster.labels)}
            if hidden:
                asking.setdefault(one.step.name, set()).update(hidden)
    if asking:
        keys = sorted(set().union(*asking.values()))
        yield Finding(
            "GF577",
            f"{listed(sorted(asking))}: it is unknown which pods of other namespaces have the labels "
            f"{', '.join(keys)}; the snapshot does not show them",
            Where(cluster.source),
            "check against the live cluster: --cluster live",
            severity="warning",
        )


def _keys(term: PodAffinityTerm, namespace: str) -> Iterator[str]:
    """The keys it asks other namespaces for."""
    if term.namespace_selector is None and term.namespaces <= {namespace}:
        return
    for selector in (term.selector, term.namespace_selector):
        yield from (each.key for each in (selector.requirements if selector is not None else ()))


def _is_shown(key: str, shown: frozenset[str]) -> bool:
    return key in shown or key.startswith(KEPT_LABELS)
