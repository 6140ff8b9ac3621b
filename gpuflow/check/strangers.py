"""Objects of a snapshot that may hold a pod back and that nothing here judges."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gpuflow.check.admission.pod import read_text
from gpuflow.check.labels import read_selector
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import BYSTANDERS
from gpuflow.resources import read_map, read_maps, read_texts

ADMISSION: Final = "admissionregistration.k8s.io"
KUEUES_OWN: Final = ("kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration")
"""Kueue's webhooks put pods into its queues, and that is judged."""
NAME_LABEL: Final = "kubernetes.io/metadata.name"
NODE_MAKERS: Final = {
    ("NodePool", "karpenter.sh"),
    ("Provisioner", "karpenter.sh"),
    ("MachineDeployment", "cluster.x-k8s.io"),
    ("MachinePool", "cluster.x-k8s.io"),
    ("MachineSet", "machine.openshift.io"),
    ("MachineAutoscaler", "autoscaling.openshift.io"),
}
"""Objects from which nodes are made that the snapshot does not show."""


def strangers(cluster: Cluster, namespace: str, judged: Collection[str]) -> list[str]:
    """The kinds, each once, of the objects that may refuse or delay a pod of the namespace unseen.

    Webhooks and policies are called by their names: which of them it is decides what to do.
    """
    policies = {item.name for item in cluster.objects if item.group == ADMISSION and item.kind.endswith("Policy")}
    labels = _labels(cluster, namespace)
    found = (
        f"{item.title} {item.name}" if item.group == ADMISSION else item.title
        for item in cluster.objects
        if not (item.is_known and (item.kind in judged or (item.kind, item.group) in BYSTANDERS))
        and not (item.group == ADMISSION and _leaves_pods_alone(item, policies, labels))
    )
    return list(dict.fromkeys(found))


def makers_of_nodes(cluster: Cluster) -> list[str]:
    """The objects that may start nodes of a shape nobody here knows: what fits on no node of today may fit there."""
    return [f"{item.kind} {item.name}" for item in cluster.objects if (item.kind, item.group) in NODE_MAKERS]


def _labels(cluster: Cluster, namespace: str) -> dict[str, str] | None:
    """The labels of the namespace; None when the snapshot does not say."""
    for item in cluster.of("Namespace"):
        if item.name == namespace:
            metadata = read_map(item.body["metadata"], "metadata")
            return {**read_map(metadata.get("labels"), "metadata.labels"), NAME_LABEL: namespace}
    return None


def _leaves_pods_alone(item: Manifest, policies: Collection[str], labels: Mapping[str, str] | None) -> bool:
    """Whether a webhook or admission policy is asked about no pod of the namespace, as far as it can be told."""
    if item.name in KUEUES_OWN:
        return True
    try:
        spec = read_map(item.body.get("spec"), "spec")
        if item.kind.endswith("PolicyBinding"):
            return read_text(spec, "policyName", "spec") in policies  # the policy speaks for itself
        if item.kind.endswith("Policy"):
            match = read_map(spec.get("matchConstraints"), "spec.matchConstraints")
            return not _concerns(match, "resourceRules", labels)
        hooks = read_maps(item.body.get("webhooks"), "webhooks")
        return bool(hooks) and not any(_concerns(hook, "rules", labels) for hook in hooks)
    except ValueError:  # what cannot be understood may do anything
        return False


def _concerns(hook: Mapping[str, Any], field: str, labels: Mapping[str, str] | None) -> bool:
    selector = read_selector(hook.get("namespaceSelector"), "namespaceSelector")
    if selector is not None and labels is not None and not selector.matches(labels):
        return False
    return any(map(_makes_pods, read_maps(hook.get(field), field)))


def _makes_pods(rule: Mapping[str, Any]) -> bool:
    wanted = (("operations", {"*", "CREATE"}), ("apiGroups", {"*", ""}), ("resources", {"*", "*/*", "pods"}))
    named = [(read_texts(rule.get(field), field), words) for field, words in wanted]
    if not all(names for names, _ in named):
        raise ValueError("a rule names operations, groups and resources")
    return all(words.intersection(names) for names, words in named)
