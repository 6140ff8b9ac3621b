"""The rule for what a snapshot does not show, and for objects in it that the checker does not model.

A kind of which the snapshot has no object, and that nobody listed, is not known. Where pods of the pipeline need an
object of such a kind (a node, a queue, a class), the verdict is *unknown*. A kind that can only hold pods back (quotas,
limit ranges, webhooks) needs no object: a cluster may well have none. So a folder which shows the namespace, and no
quota in it, is read as a namespace without one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.nodes.node_info import GROUP_MAX
from gpuflow.checker.quota.peak import MadeKind
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import HARMLESS, NATIVE
from gpuflow.cluster.model import once
from gpuflow.demands import Demand
from gpuflow.kubernetes.admission.classes import SYSTEM_CLASSES
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import DEFAULT_QUEUE, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, Selector, read_selector
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
OPERATORS: Final = {
    "jobset.x-k8s.io": ("jobset-mutating-webhook-configuration", "jobset-validating-webhook-configuration"),
    "leaderworkerset.x-k8s.io": ("lws-mutating-webhook-configuration", "lws-validating-webhook-configuration"),
    "trainer.kubeflow.org": (
        "defaulter.trainer.kubeflow.org",
        "validator.trainer.kubeflow.org",
        "trainer-mutating-webhook-configuration",
        "trainer-validating-webhook-configuration",
    ),
    "kubeflow.org": ("validator.training-operator.kubeflow.org", "katib.kubeflow.org"),
    "batch.volcano.sh": ("volcano-admission-service-jobs-mutate", "volcano-admission-service-jobs-validate"),
    "scheduling.volcano.sh": tuple(f"volcano-admission-service-podgroups-{verb}" for verb in ("mutate", "validate")),
    "ray.io": ("kuberay-validating-webhook-configuration",),
}
"""By the group of its own kinds, the webhooks of an operator: there they refuse what breaks its rules, no more."""
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
VOLCANO: Final = "scheduling.volcano.sh"
MAY_USE_VOLCANO: Final = frozenset(
    {
        "batch.volcano.sh", VOLCANO, "kubeflow.org", "trainer.kubeflow.org", "ray.io", "sparkoperator.k8s.io",
        "flink.apache.org", "leaderworkerset.x-k8s.io",
    }
)  # fmt: skip
"""The groups of kinds whose controllers may be told to hand their pods to Volcano, unseen in the document."""
DAEMONS: Final = ("DaemonSet", "apps")
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""How the extended resource of every class of devices begins, whatever else stands for it."""


def unmodeled_kinds(
    cluster: Cluster,
    namespace: str,
    made: Sequence[MadeKind],
    resources: Collection[str] = (),
    schedulers: Collection[str] = (),
) -> list[str]:
    """The kinds, each once, of the objects that may refuse or delay a pod of the namespace unseen, or what makes it.

    `made` is what the API server is asked to create, `resources` the extended resources that the pods ask for,
    `schedulers` those that they name beside the default one. Webhooks and policies are called by their names: which of
    them it is decides what to do. Queues of Volcano hold back only what Volcano may schedule.
    """
    by_volcano = bool(schedulers) or any(each.group in MAY_USE_VOLCANO for each in made)
    policies = _Policies(cluster, namespace_labels(cluster, namespace), made)
    found = (
        f"{item.title} {item.name}" if item.group == ADMISSION else item.title
        for item in _unmodeled_objects(cluster)
        if (not item.is_new or item.in_namespace(namespace))
        and not (item.group == ADMISSION and policies.leave_pods_alone(item))
        and (by_volcano or item.group != VOLCANO)
    )
    stand_ins = (f"{item.kind} {item.name}" for item in cluster.of("DeviceClass") if _gives(item, resources))
    return list(dict.fromkeys((*found, *stand_ins)))


@once
def _unmodeled_objects(cluster: Cluster) -> list[Manifest]:
    passed = HARMLESS | NODE_MAKERS | (NATIVE if _shows_daemons(cluster) else NATIVE - {DAEMONS})
    return [
        item
        for item in cluster.objects
        if ((name := (item.kind, item.group)) not in passed or (name in NATIVE and not item.is_known))
        and _annotations(item).get(PASSES) != "true"
    ]


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


@once
def makers_of_nodes(cluster: Cluster) -> list[str]:
    """The objects that may start nodes of an unknown shape: what fits on no node today may fit there."""
    return [f"{item.kind} {item.name}" for item in cluster.objects if (item.kind, item.group) in NODE_MAKERS]


def namespace_labels(cluster: Cluster, namespace: str) -> dict[str, str] | None:
    """The labels of the namespace; None when the snapshot does not say: files may bring a part of them."""
    for item in cluster.of("Namespace") if shows_namespace(cluster, namespace) else ():
        if item.name == namespace:
            metadata = read_map(item.body["metadata"], "metadata")
            return {**read_map(metadata.get("labels"), "metadata.labels"), NAME_LABEL: namespace}
    return None


class _Policies:
    """The webhooks and admission policies of a cluster, asked about pods and what makes them by the labels of each and
    of the namespace (`None` when the snapshot does not say).

    Only creating counts. The versions of a rule do not: matchPolicy, when nothing is said, converts between them.
    """

    def __init__(self, cluster: Cluster, namespace: Mapping[str, str] | None, made: Sequence[MadeKind]) -> None:
        self.cluster, self.namespace, self.made = cluster, namespace, made
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
                return not self._concerns(match, "resourceRules") or not self._is_bound(item)
            hooks = read_maps(item.body.get("webhooks"), "webhooks")
            own = [group for group, names in OPERATORS.items() if item.name in names]
            return bool(hooks) and not any(self._concerns(hook, "rules", own) for hook in hooks)
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
        return self._concerns(matched, "resourceRules" if matched.get("resourceRules") else None)

    def _concerns(self, hook: Mapping[str, Any], rules: str | None, passed: Collection[str] = ()) -> bool:
        """Whether its selectors find the namespace and something that is made, or may find them, and a rule means it.
        `passed`: not what is of these groups."""
        homes = read_selector(hook.get("namespaceSelector"), "namespaceSelector")
        if homes is not None and self.namespace is not None and not homes.matches(self.namespace):
            return False
        made = [each for each in self.made if each.group not in passed]
        objects = read_selector(hook.get("objectSelector"), "objectSelector")
        if objects is not None:
            sure = Selector(tuple(each for each in objects.requirements if not each.key.startswith(LATER_LABELS)))
            made = [each for each in made if each.labels is None or sure.matches(each.labels)]
            if not made:
                return False
        if rules is None:
            return True
        kinds = {(each.group, each.resource) for each in made}
        return any(_means(rule, *kind) for rule in read_maps(hook.get(rules), rules) for kind in kinds)


def _means(rule: Mapping[str, Any], group: str, resource: str) -> bool:
    """Whether a rule is about such objects when they are created, or when their controllers write to them: one that
    cannot end a Job's pods never ends the Job. All that a pipeline makes is in a namespace.

    Mirrors k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules.Matcher, Kubernetes v1.36.3.
    """
    resources = {"*", "*/*", resource, f"{resource}/*"}
    wanted = (("operations", {"*", "CREATE", "UPDATE"}), ("apiGroups", {"*", group}), ("resources", resources))
    named = [(read_texts(rule.get(field), field), words) for field, words in wanted]
    if not all(names for names, _ in named):
        raise ValueError("a rule names operations, groups and resources")
    return rule.get("scope") != "Cluster" and all(words.intersection(names) for names, words in named)


DEFAULT_ACCOUNT: Final = "default"
"""The service account that every namespace has."""
QUEUES: Final = ("LocalQueue", "ClusterQueue", "ResourceFlavor")
"""What every named queue leads to."""
LIMITS: Final = ("ResourceQuota", "LimitRange")
WEBHOOK: Final = "kueue-mutating-webhook-configuration"
VOLUMES: Final = (
    "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver", "CSINode", "CSIStorageCapacity",
)  # fmt: skip
DEVICES: Final = ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
OPTIONAL: Final = frozenset(
    {
        *VOLUMES, *DEVICES, "PriorityClass", "RuntimeClass", "ServiceAccount", "WorkloadPriorityClass", "DaemonSet",
        "PodDisruptionBudget", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding",
    }
)  # fmt: skip
"""Kinds that decide nothing for pods which do not need them. A policy whose bindings are closed counts as bound."""
RECORD: Final = "apiVersion: gpuflow/v1, kind: Snapshot"


def needed_kinds(cluster: Cluster, namespace: str, demand: Demand) -> dict[str, str]:
    """The kinds of which the pods of a pipeline need some object, and what for."""
    pods: list[Mapping[str, Any]] = [each.pod for step in demand.steps for each in step.pod_sets]
    specs = [pod["spec"] for pod in pods]
    found = {"Node": "where the pods can run"} if pods else {}
    named: dict[str, set[str]] = {
        "ServiceAccount": _field_values(specs, "serviceAccountName") - {DEFAULT_ACCOUNT},
        "PriorityClass": _field_values(specs, "priorityClassName") - {each.name for each in SYSTEM_CLASSES},
        "RuntimeClass": _field_values(specs, "runtimeClassName"),
        "WorkloadPriorityClass": {name for pod in pods if (name := _labels(pod).get(QUEUE_PRIORITY_LABEL))},
        "PersistentVolumeClaim": _mounted_claims(specs, demand),
        "StorageClass": {claim.storage_class or f"the default, for {claim.name}" for claim in demand.claims},
        **(_device_kinds(specs) if leaves_nodes_out(cluster) else {}),
    }
    for kind, names in named.items():
        names = names - _names_in_files(cluster, namespace, kind)
        found |= {kind: _join_sorted(names)} if names else {}
    if pods and not (
        shows_namespace(cluster, namespace)
        or any(item.namespace == namespace and not item.is_new for item in cluster.objects)
    ):
        found |= dict.fromkeys(LIMITS, f"what limits {namespace}")
    queues = named_queues(cluster, namespace, pods)
    found |= dict.fromkeys(QUEUES, f"queue {_join_sorted(queues)}") if queues else {}
    elsewhere = any(map(cluster.of, QUEUES)) and not all(_labels(pod).get(QUEUE_LABEL) for pod in pods)
    if elsewhere and "LocalQueue" not in found:
        found["LocalQueue"] = f"whether a queue called {DEFAULT_QUEUE} takes the pods that name none"
    if queues and namespace_decides(cluster, namespace, queues):
        found["Namespace"] = f"whether queue {_join_sorted(queues)} is for {namespace}"
    return found


def _names_in_files(cluster: Cluster, namespace: str, kind: str) -> set[str]:
    """The objects that files bring, of the kinds of which a name alone matters, or what stands in the object.

    A claim of a file may have a volume already, and classes decide together.
    """
    kinds = ("ServiceAccount", "ResourceClaim", "ResourceClaimTemplate")
    return {item.name for item in cluster.of(kind, namespace) if item.is_new} if kind in kinds else set()


def leaves_nodes_out(cluster: Cluster) -> bool:
    """Whether the author of the folder vouches for nodes that it does not show."""
    return "Node" in cluster.assumed and not cluster.knows("Node")


def _device_kinds(specs: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The kinds that decide about devices of claims, where no node is there to ask about them."""
    claims = [each for spec in specs for each in read_maps(spec.get("resourceClaims"), "spec.resourceClaims")]
    found = {
        "ResourceClaim": _field_values(claims, "resourceClaimName"),
        "ResourceClaimTemplate": _field_values(claims, "resourceClaimTemplateName"),
    }
    return {**found, **dict.fromkeys(("DeviceClass", "ResourceSlice"), {"the devices of claims"} if claims else set())}


def assumed_kinds(cluster: Cluster, needed: Collection[str]) -> tuple[str, ...]:
    """The kinds that the pods need and for which the author of the folder vouches."""
    return tuple(kind for kind in needed if kind in cluster.assumed and not cluster.knows(kind))


def named_queues(cluster: Cluster, namespace: str, pods: Sequence[Mapping[str, Any]]) -> set[str]:
    """The LocalQueues that pods go to: those they name, and the default one where it exists."""
    labels = [_labels(pod).get(QUEUE_LABEL) for pod in pods]
    found = {name for name in labels if name}
    if not all(labels) and has_default_queue(cluster, namespace):
        found.add(DEFAULT_QUEUE)
    return found


def has_default_queue(cluster: Cluster, namespace: str) -> bool:
    return any(item.name == DEFAULT_QUEUE for item in cluster.of("LocalQueue", namespace))


def cluster_queues(cluster: Cluster, namespace: str, queues: Collection[str]) -> list[Manifest]:
    """The ClusterQueues that some LocalQueues of a namespace lead to."""
    targets = {
        read_map(item.body.get("spec"), "spec").get("clusterQueue")
        for item in cluster.of("LocalQueue", namespace)
        if item.name in queues
    }
    return [item for item in cluster.of("ClusterQueue") if item.name in targets]


def runs_kueue(cluster: Cluster) -> bool:
    """Whether Kueue is there though no queue is: its webhook or its configuration says so, and somebody looked."""
    hooks = (item.name for item in cluster.objects if item.kind == "MutatingWebhookConfiguration")
    return "LocalQueue" in cluster.listed and (bool(cluster.of("Configuration")) or WEBHOOK in hooks)


def namespace_decides(cluster: Cluster, namespace: str, queues: Collection[str]) -> bool:
    """Whether some ClusterQueue asks for labels of the namespace beside its name, which every namespace has."""
    managed = any(_asks(item.body, "managedJobsNamespaceSelector") for item in cluster.of("Configuration"))
    return managed or any(asks_namespace(item.body) for item in cluster_queues(cluster, namespace, queues))


def asks_namespace(cluster_queue: Mapping[str, Any]) -> bool:
    return _asks(read_map(cluster_queue.get("spec"), "spec"), "namespaceSelector")


def _asks(holder: Mapping[str, Any], field: str) -> bool:
    selector = read_selector(holder.get(field), field)
    return selector is not None and any(each.key != NAME_LABEL for each in selector.requirements)


def shows_namespace(cluster: Cluster, namespace: str) -> bool:
    """Whether the labels of the namespace are known: its own object counts, not those of others."""
    shown = (item.name == namespace and not item.is_new for item in cluster.of("Namespace"))
    return "Namespace" in cluster.listed or any(shown)


def is_open(cluster: Cluster, namespace: str, kind: str) -> bool:
    if kind in cluster.unread or kind in cluster.assumed:
        return False  # said elsewhere
    return not (shows_namespace(cluster, namespace) if kind == "Namespace" else cluster.knows(kind))


def _field_values(specs: Sequence[Mapping[str, Any]], field: str) -> set[str]:
    return {name for spec in specs if (name := spec.get(field))}


def _mounted_claims(specs: Sequence[Mapping[str, Any]], demand: Demand) -> set[str]:
    """The claims that steps mount and that the run does not make itself."""
    own = {claim.volume for claim in demand.claims}
    return {
        str(claim["claimName"])
        for spec in specs
        for volume in read_maps(spec.get("volumes"), "spec.volumes")
        if volume["name"] not in own and (claim := volume.get("persistentVolumeClaim")) and claim.get("claimName")
    }


def _labels(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = pod["metadata"].get("labels", {})
    return labels


def _join_sorted(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
