"""Objects of a snapshot that may hold a pod back and that the checker does not model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import HARMLESS
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import Selector, read_selector
from gpuflow.resources import read_map, read_maps, read_texts

ADMISSION: Final = "admissionregistration.k8s.io"
WELL_KNOWN: Final = {
    "kueue-mutating-webhook-configuration": "puts pods into queues, which the checker models",
    "kueue-validating-webhook-configuration": "asks nothing more than that",
    "pod-identity-webhook": "EKS: adds a token and the variables that name it",
    "vpc-resource-mutating-webhook": "EKS: adds addresses to pods of Windows and of a SecurityGroupPolicy",
    "vpc-resource-validating-webhook": "EKS: keeps others from writing these addresses",
    "pod-ready.config.common-webhooks.networking.gke.io": "GKE: adds a readiness gate to pods behind a load balancer",
}
"""Webhooks that are asked about every pod, and what they do with a pipeline's: nothing that holds it back."""
PASSES: Final = "gpuflow.dev/lets-pods-pass"
"""An annotation: the owner of the cluster says that this object holds no pod of a pipeline back."""
LATER_LABELS: Final = (
    "workflows.argoproj.io/", "pipelines.kubeflow.org/", "pipeline/", "kueue.x-k8s.io/", "dag_id", "task_id", "run_id",
    "try_number", "map_index", "airflow_version", "airflow_kpo_in_cluster", "already_checked",
    "kubernetes_pod_operator", "gpuflow.dev/run", "gpuflow.dev/limit-",
)  # fmt: skip
"""How the labels begin that engines and Kueue put on a pod when it is made: a selector may find them there."""
NAME_LABEL: Final = "kubernetes.io/metadata.name"
NODE_MAKERS: Final = {
    ("NodePool", "karpenter.sh"),
    ("Provisioner", "karpenter.sh"),
    ("MachineDeployment", "cluster.x-k8s.io"),
    ("MachinePool", "cluster.x-k8s.io"),
    ("MachineSet", "machine.openshift.io"),
    ("MachineAutoscaler", "autoscaling.openshift.io"),
}
"""Objects from which nodes are made that the snapshot does not show. They hold nothing back."""
DAEMONS: Final = ("DaemonSet", "apps")


class Asked(NamedTuple):
    """What selectors of webhooks and policies look at."""

    namespace: Mapping[str, str] | None
    """The labels of the namespace; None when the snapshot does not say."""
    pods: Sequence[Mapping[str, str]]
    """The labels of each pod."""


def unmodeled_kinds(
    cluster: Cluster, namespace: str, modeled: Collection[str], pods: Sequence[Mapping[str, str]]
) -> list[str]:
    """The kinds, each once, of the objects that may refuse or delay a pod of the namespace unseen.

    `pods` are the labels of each of them. Webhooks and policies are called by their names: which of them it is decides
    what to do.
    """
    policies = {item.name for item in cluster.objects if item.group == ADMISSION and item.kind.endswith("Policy")}
    asked = Asked(_labels(cluster, namespace), pods)
    passed = HARMLESS | NODE_MAKERS | ({DAEMONS} if _shows_daemons(cluster) else set())
    found = (
        f"{item.title} {item.name}" if item.group == ADMISSION else item.title
        for item in cluster.objects
        if not (item.is_known and item.kind in modeled)
        and (item.kind, item.group) not in passed
        and not _lets_pass(item)
        and not (item.group == ADMISSION and _leaves_pods_alone(item, policies, asked))
    )
    return list(dict.fromkeys(found))


def _shows_daemons(cluster: Cluster) -> bool:
    """Whether what DaemonSets take of the nodes is seen in their pods, or there are no nodes to take from."""
    return bool(cluster.of("Pod")) or "Pod" in cluster.listed or not cluster.of("Node")


def _lets_pass(item: Manifest) -> bool:
    metadata = item.body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and annotations.get(PASSES) == "true"


def makers_of_nodes(cluster: Cluster) -> list[str]:
    """The objects that may start nodes of an unknown shape: what fits on no node today may fit there."""
    return [f"{item.kind} {item.name}" for item in cluster.objects if (item.kind, item.group) in NODE_MAKERS]


def _labels(cluster: Cluster, namespace: str) -> dict[str, str] | None:
    """The labels of the namespace; None when the snapshot does not say."""
    for item in cluster.of("Namespace"):
        if item.name == namespace:
            metadata = read_map(item.body["metadata"], "metadata")
            return {**read_map(metadata.get("labels"), "metadata.labels"), NAME_LABEL: namespace}
    return None


def _leaves_pods_alone(item: Manifest, policies: Collection[str], asked: Asked) -> bool:
    """Whether a webhook or admission policy is asked about no pod of the namespace, as far as it can be told."""
    if item.name in WELL_KNOWN:
        return True
    try:
        spec = read_map(item.body.get("spec"), "spec")
        if item.kind.endswith("PolicyBinding"):
            return read_text(spec, "policyName", "spec") in policies  # the policy speaks for itself
        if item.kind.endswith("Policy"):
            match = read_map(spec.get("matchConstraints"), "spec.matchConstraints")
            return not _concerns(match, "resourceRules", asked)
        hooks = read_maps(item.body.get("webhooks"), "webhooks")
        return bool(hooks) and not any(_concerns(hook, "rules", asked) for hook in hooks)
    except ValueError:  # what cannot be understood may do anything
        return False


def _concerns(hook: Mapping[str, Any], field: str, asked: Asked) -> bool:
    homes = read_selector(hook.get("namespaceSelector"), "namespaceSelector")
    if homes is not None and asked.namespace is not None and not homes.matches(asked.namespace):
        return False
    pods = read_selector(hook.get("objectSelector"), "objectSelector")
    if pods is not None:
        sure = Selector(tuple(each for each in pods.requirements if not each.key.startswith(LATER_LABELS)))
        if not any(map(sure.matches, asked.pods)):
            return False
    return any(map(_makes_pods, read_maps(hook.get(field), field)))


def _makes_pods(rule: Mapping[str, Any]) -> bool:
    wanted = (("operations", {"*", "CREATE"}), ("apiGroups", {"*", ""}), ("resources", {"*", "*/*", "pods"}))
    named = [(read_texts(rule.get(field), field), words) for field, words in wanted]
    if not all(names for names, _ in named):
        raise ValueError("a rule names operations, groups and resources")
    return all(words.intersection(names) for names, words in named)
