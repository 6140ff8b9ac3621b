"""Objects of a snapshot that may hold a pod back and that the checker does not model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuflow.checker.nodes.node_info import GROUP_MAX
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import HARMLESS, NATIVE
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import Selector, read_selector
from gpuflow.kubernetes.resources import read_map, read_maps, read_texts

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
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""How the extended resource of every class of devices begins, whatever else stands for it."""


class SelectorTargets(NamedTuple):
    """What selectors of webhooks and policies look at."""

    namespace: Mapping[str, str] | None
    """The labels of the namespace; None when the snapshot does not say."""
    pods: Sequence[Mapping[str, str]]
    """The labels of each pod."""


def unmodeled_kinds(
    cluster: Cluster, namespace: str, pods: Sequence[Mapping[str, str]], resources: Collection[str] = ()
) -> list[str]:
    """The kinds, each once, of the objects that may refuse or delay a pod of the namespace unseen.

    `pods` are the labels of each of them, `resources` the extended resources that they ask for. Webhooks and policies
    are called by their names: which of them it is decides what to do.
    """
    policies = _Policies(cluster, SelectorTargets(namespace_labels(cluster, namespace), pods))
    passed = HARMLESS | NODE_MAKERS | (NATIVE if _shows_daemons(cluster) else NATIVE - {DAEMONS})
    found = (
        f"{item.title} {item.name}" if item.group == ADMISSION else item.title
        for item in cluster.objects
        if not _is_passed(item, passed)
        and _annotations(item).get(PASSES) != "true"
        and not (item.group == ADMISSION and policies.leave_pods_alone(item))
    )
    stand_ins = (f"{item.kind} {item.name}" for item in cluster.of("DeviceClass") if _gives(item, resources))
    return list(dict.fromkeys((*found, *stand_ins)))


def _is_passed(item: Manifest, passed: Collection[tuple[str, str]]) -> bool:
    name = (item.kind, item.group)
    return name in passed and (item.is_known or name not in NATIVE)


def _gives(item: Manifest, resources: Collection[str]) -> bool:
    """Whether a class of devices stands for an extended resource that the pods ask for."""
    spec = read_map(item.body.get("spec"), "spec")
    return read_text(spec, "extendedResourceName", "spec") in resources or f"{IMPLICIT}{item.name}" in resources


def _shows_daemons(cluster: Cluster) -> bool:
    """Whether what DaemonSets take of the nodes is seen in their pods, or there are no nodes to take from."""
    # What they take of nodes that a node group may add is worked out from the DaemonSets themselves.
    there = [item for item in cluster.of("Node") if GROUP_MAX not in _annotations(item)]
    return bool(cluster.of("Pod")) or "Pod" in cluster.listed or not there


def _annotations(item: Manifest) -> Mapping[str, Any]:
    metadata = item.body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def makers_of_nodes(cluster: Cluster) -> list[str]:
    """The objects that may start nodes of an unknown shape: what fits on no node today may fit there."""
    return [f"{item.kind} {item.name}" for item in cluster.objects if (item.kind, item.group) in NODE_MAKERS]


def namespace_labels(cluster: Cluster, namespace: str) -> dict[str, str] | None:
    """The labels of the namespace; None when the snapshot does not say."""
    for item in cluster.of("Namespace"):
        if item.name == namespace:
            metadata = read_map(item.body["metadata"], "metadata")
            return {**read_map(metadata.get("labels"), "metadata.labels"), NAME_LABEL: namespace}
    return None


class _Policies:
    """The webhooks and admission policies of a cluster, and what is asked of them."""

    def __init__(self, cluster: Cluster, asked: SelectorTargets) -> None:
        self.cluster = cluster
        self.asked = asked
        mine = [item for item in cluster.objects if item.group == ADMISSION]
        self.policies = {(item.kind, item.name) for item in mine if item.kind.endswith("Policy")}
        self.bindings = [item for item in mine if item.kind.endswith("PolicyBinding")]

    def leave_pods_alone(self, item: Manifest) -> bool:
        """Whether a webhook or policy is asked about no pod of the namespace, or refuses none, as far as it is told."""
        if item.name in WELL_KNOWN:
            return True
        try:
            spec = read_map(item.body.get("spec"), "spec")
            if item.kind.endswith("PolicyBinding"):
                policy = item.kind.removesuffix("Binding"), read_text(spec, "policyName", "spec")
                return policy in self.policies or not self._binds(item)  # the policy speaks for itself
            if item.kind.endswith("Policy"):
                match = read_map(spec.get("matchConstraints"), "spec.matchConstraints")
                return not _concerns(match, "resourceRules", self.asked) or not self._is_bound(item)
            hooks = read_maps(item.body.get("webhooks"), "webhooks")
            return bool(hooks) and not any(_concerns(hook, "rules", self.asked) for hook in hooks)
        except ValueError:  # what cannot be understood may do anything
            return False

    def _is_bound(self, policy: Manifest) -> bool:
        """A policy that nothing binds does nothing. Snapshots of older versions do not show what binds."""
        kind = f"{policy.kind}Binding"
        if self.cluster.listed and kind not in self.cluster.listed:
            return True
        return any(
            self._binds(item)
            for item in self.bindings
            if item.kind == kind and read_map(item.body.get("spec"), "spec").get("policyName") == policy.name
        )

    def _binds(self, item: Manifest) -> bool:
        """Whether a binding lets its policy refuse or change these pods."""
        spec = read_map(item.body.get("spec"), "spec")
        actions = read_texts(spec.get("validationActions"), "spec.validationActions")
        if actions and "Deny" not in actions:
            return False
        match = spec.get("matchResources")
        if match is None:
            return True
        matched = read_map(match, "spec.matchResources")
        return _selects(matched, self.asked) and (
            not matched.get("resourceRules") or _concerns(matched, "resourceRules", self.asked)
        )


def _concerns(hook: Mapping[str, Any], field: str, asked: SelectorTargets) -> bool:
    return _selects(hook, asked) and any(map(_makes_pods, read_maps(hook.get(field), field)))


def _selects(hook: Mapping[str, Any], asked: SelectorTargets) -> bool:
    """Whether its selectors find the namespace and one of the pods, or may find them."""
    homes = read_selector(hook.get("namespaceSelector"), "namespaceSelector")
    if homes is not None and asked.namespace is not None and not homes.matches(asked.namespace):
        return False
    pods = read_selector(hook.get("objectSelector"), "objectSelector")
    if pods is not None:
        sure = Selector(tuple(each for each in pods.requirements if not each.key.startswith(LATER_LABELS)))
        if not any(map(sure.matches, asked.pods)):
            return False
    return True


def _makes_pods(rule: Mapping[str, Any]) -> bool:
    wanted = (("operations", {"*", "CREATE"}), ("apiGroups", {"*", ""}), ("resources", {"*", "*/*", "pods"}))
    named = [(read_texts(rule.get(field), field), words) for field, words in wanted]
    if not all(names for names, _ in named):
        raise ValueError("a rule names operations, groups and resources")
    return all(words.intersection(names) for names, words in named)
