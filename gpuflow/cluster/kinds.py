"""The kinds of objects: their API groups, which never hold a pod back, which are read live and with which permissions.

A kind is only itself in its own group: Volcano's `Queue` is not Kueue's, and a `Node` of `foo/v1` is no node. What is
not listed here is foreign: it is carried by name, and never checked. `SOURCES` is what is read of a live cluster, and
`rbac` the permissions that this needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import did_you_mean

MOST_WRONG_LETTERS = 2
"""How many letters may be wrong before it is another word."""


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that is the same but for a letter or two; the word itself when it is known."""
    scored = sorted((edit_distance(word.lower(), name.lower()), name) for name in known)
    return scored[0][1] if scored and scored[0][0] <= min(MOST_WRONG_LETTERS, len(word) // 3) else None


def edit_distance(left: str, right: str) -> int:
    """How many letters must be added, dropped or changed to get from one word to the other."""
    if abs(len(left) - len(right)) > MOST_WRONG_LETTERS:
        return MOST_WRONG_LETTERS + 1  # far, and quicker to see
    row = list(range(len(right) + 1))
    for index, letter in enumerate(left, 1):
        corner, row[0] = row[0], index
        for column, other in enumerate(right, 1):
            nearest = min(row[column] + 1, row[column - 1] + 1, corner + (letter != other))
            corner, row[column] = row[column], nearest
    return row[-1]


ALL: Final = "*"
"""Every namespace."""
TIMEOUT: Final = 60
"""Seconds that each answer of a live cluster is waited for."""
KUEUE: Final = "kueue.x-k8s.io"
KUEUE_CONFIG: Final = "config.kueue.x-k8s.io"
RESOURCE: Final = "resource.k8s.io"
"""Dynamic resource allocation."""


@dataclass(frozen=True, slots=True)
class Source:
    """A list of objects the checker can use. Secrets are not among them, and never will be."""

    kind: str
    group: str
    versions: tuple[str, ...]
    """The newest first; the first that the cluster serves is taken."""
    plural: str
    namespaced: bool = False
    """Whether only the objects of the namespaces in question are listed."""
    needed: bool = False
    """Without it no verdict is possible; the others only make it sharper."""
    fields: str = ""
    """A field selector: what it leaves out is of no use to a check."""

    def path(self, version: str, namespace: str) -> str:
        """The address of the list at the API server."""
        root = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        whole = not self.namespaced or namespace == ALL
        return f"{root}/{self.plural}" if whole else f"{root}/namespaces/{namespace}/{self.plural}"


_BETA = ("v1beta2", "v1beta1")
_ALPHA = (*_BETA, "v1alpha1")
_DRA = ("v1", "v1beta2", "v1beta1")
_ADMISSION = "admissionregistration.k8s.io"
MODELED_SOURCES: Final = (
    Source("ResourceQuota", "", ("v1",), "resourcequotas", namespaced=True, needed=True),
    Source("LimitRange", "", ("v1",), "limitranges", namespaced=True, needed=True),
    Source("PersistentVolumeClaim", "", ("v1",), "persistentvolumeclaims", namespaced=True),
    Source("ServiceAccount", "", ("v1",), "serviceaccounts", namespaced=True),
    Source("PodDisruptionBudget", "policy", ("v1",), "poddisruptionbudgets", namespaced=True),
    Source("ResourceClaimTemplate", RESOURCE, _DRA, "resourceclaimtemplates", namespaced=True),
    Source("Namespace", "", ("v1",), "namespaces"),
    Source("Node", "", ("v1",), "nodes"),
    Source("PersistentVolume", "", ("v1",), "persistentvolumes"),
    # Finished pods hold nothing; what still counts them, a quota says itself.
    Source("Pod", "", ("v1",), "pods", fields="status.phase!=Succeeded,status.phase!=Failed"),
    Source("PriorityClass", "scheduling.k8s.io", ("v1",), "priorityclasses"),
    Source("RuntimeClass", "node.k8s.io", ("v1",), "runtimeclasses"),
    # What every new node carries before a pipeline's pods come.
    Source("DaemonSet", "apps", ("v1",), "daemonsets"),
    Source("StorageClass", "storage.k8s.io", ("v1",), "storageclasses"),
    Source("CSIDriver", "storage.k8s.io", ("v1",), "csidrivers"),
    Source("CSINode", "storage.k8s.io", ("v1",), "csinodes"),
    Source("CSIStorageCapacity", "storage.k8s.io", ("v1",), "csistoragecapacities"),
    Source("DeviceClass", RESOURCE, _DRA, "deviceclasses"),
    Source("DeviceTaintRule", RESOURCE, ("v1beta2",), "devicetaintrules"),
    Source("ResourceSlice", RESOURCE, _DRA, "resourceslices"),
    # Of all namespaces: a device that another claim holds is taken.
    Source("ResourceClaim", RESOURCE, _DRA, "resourceclaims"),
    # Of all namespaces: they say in which ClusterQueue the Workloads of others wait.
    Source("LocalQueue", KUEUE, _BETA, "localqueues"),
    Source("AdmissionCheck", KUEUE, _BETA, "admissionchecks"),
    Source("ClusterQueue", KUEUE, _BETA, "clusterqueues"),
    Source("Cohort", KUEUE, _ALPHA, "cohorts"),
    Source("ResourceFlavor", KUEUE, _BETA, "resourceflavors"),
    Source("Topology", KUEUE, _ALPHA, "topologies"),
    Source("Workload", KUEUE, _BETA, "workloads"),
    Source("WorkloadPriorityClass", KUEUE, _BETA, "workloadpriorityclasses"),
)
"""The kinds that a check reads."""
SOURCES: Final = (
    *MODELED_SOURCES,
    # Not modeled, and looked for so that they are not passed over in silence.
    Source("MutatingAdmissionPolicy", _ADMISSION, ("v1", "v1beta1"), "mutatingadmissionpolicies"),
    Source("MutatingAdmissionPolicyBinding", _ADMISSION, ("v1", "v1beta1"), "mutatingadmissionpolicybindings"),
    Source("MutatingWebhookConfiguration", _ADMISSION, ("v1",), "mutatingwebhookconfigurations"),
    Source("ValidatingAdmissionPolicy", _ADMISSION, ("v1",), "validatingadmissionpolicies"),
    Source("ValidatingAdmissionPolicyBinding", _ADMISSION, ("v1",), "validatingadmissionpolicybindings"),
    Source("ValidatingWebhookConfiguration", _ADMISSION, ("v1",), "validatingwebhookconfigurations"),
    Source("HierarchicalResourceQuota", "hnc.x-k8s.io", ("v1alpha2",), "hierarchicalresourcequotas"),
    Source("Queue", "scheduling.volcano.sh", ("v1beta1",), "queues"),
    Source("NodePool", "karpenter.sh", ("v1", "v1beta1"), "nodepools"),
)


VERSIONS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    **{(source.kind, source.group): source.versions for source in MODELED_SOURCES},
    ("DeviceTaintRule", RESOURCE): _DRA,
    ("Configuration", KUEUE_CONFIG): _BETA,
}
"""The versions in which the kinds that a check reads are understood, by kind and API group, the newest first."""
NEWEST: Final = {group: versions[0] for (_, group), versions in VERSIONS.items()}
NATIVE: Final = frozenset(VERSIONS)

HARMLESS_BY_GROUP: Final[dict[str, str]] = {
    "": "Binding ComponentStatus ConfigMap Endpoints Event PodTemplate ReplicationController Secret Service",
    "apps": "ControllerRevision Deployment ReplicaSet StatefulSet",
    "batch": "CronJob Job",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "autoscaling": "HorizontalPodAutoscaler Scale",
    "certificates.k8s.io": "CertificateSigningRequest",
    "coordination.k8s.io": "Lease",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "networking.k8s.io": "Ingress IngressClass IPAddress NetworkPolicy ServiceCIDR",
    "policy": "Eviction",
    "storage.k8s.io": "VolumeAttachment",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    # They say how an AdmissionCheck works, and are nothing without one.
    KUEUE: "MultiKueueCluster MultiKueueConfig ProvisioningRequestConfig",
    # What starts pods of its own. It may grow, which no verdict speaks of; it does not hold others back.
    "argoproj.io": (
        "AppProject Application ApplicationSet ClusterWorkflowTemplate CronWorkflow EventBus EventSource Sensor "
        "Workflow WorkflowTemplate"
    ),
    "jobset.x-k8s.io": "JobSet",
    "kubeflow.org": "JAXJob MPIJob PaddleJob PyTorchJob TFJob XGBoostJob",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet",
    "ray.io": "RayCluster RayJob RayService",
    "sparkoperator.k8s.io": "ScheduledSparkApplication SparkApplication",
    "tekton.dev": "Pipeline PipelineRun Task TaskRun",
    "trainer.kubeflow.org": "ClusterTrainingRuntime TrainJob TrainingRuntime",
    "workload.codeflare.dev": "AppWrapper",
    # What a cluster is kept with: deployment, certificates, secrets, monitoring, networks, storage, drivers of GPUs.
    "bitnami.com": "SealedSecret",
    "cert-manager.io": "Certificate CertificateRequest ClusterIssuer Issuer",
    "external-secrets.io": "ClusterExternalSecret ClusterSecretStore ExternalSecret SecretStore",
    "gateway.networking.k8s.io": "GRPCRoute Gateway GatewayClass HTTPRoute ReferenceGrant",
    "helm.toolkit.fluxcd.io": "HelmRelease",
    "keda.sh": "ScaledJob ScaledObject TriggerAuthentication",
    "kustomize.toolkit.fluxcd.io": "Kustomization",
    "metrics.k8s.io": "NodeMetrics PodMetrics",
    "monitoring.coreos.com": "Alertmanager PodMonitor Probe Prometheus PrometheusRule ServiceMonitor",
    "networking.istio.io": "DestinationRule Gateway ServiceEntry VirtualService",
    "nfd.k8s-sigs.io": "NodeFeature NodeFeatureRule",
    "nvidia.com": "ClusterPolicy NVIDIADriver",
    "security.istio.io": "AuthorizationPolicy PeerAuthentication RequestAuthentication",
    "snapshot.storage.k8s.io": "VolumeSnapshot VolumeSnapshotClass VolumeSnapshotContent",
    "source.toolkit.fluxcd.io": "Bucket GitRepository HelmRepository OCIRepository",
}
"""Kinds that a check need not read, because none of them can keep a pod from being admitted, by API group."""

HARMLESS: Final = frozenset((kind, group) for group, kinds in HARMLESS_BY_GROUP.items() for kind in kinds.split())
KNOWN: Final = NATIVE | HARMLESS
HOME: Final[dict[str, str]] = dict(sorted(HARMLESS) + sorted(NATIVE))
"""The group that is meant when only the kind is given."""

NAMESPACED: Final = (
    "ConfigMap", "CSIStorageCapacity", "DaemonSet", "Ingress", "LimitRange", "LocalQueue", "NetworkPolicy",
    "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "ResourceClaim", "ResourceClaimTemplate", "ResourceQuota",
    "Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "Workload",
)  # fmt: skip
"""Kinds that a check reads or counts, and whose objects live in a namespace."""

CHECKED_GROUPS: Final = (*NEWEST, "batch")
"""Groups in which a kind that is not known, yet spelled like one that is, is a slip of the pen."""

NAMESAKE_KINDS: Final = {("Workload", "scheduling.k8s.io")}
"""Kinds of these groups that share their name with another."""


class KindFault(NamedTuple):
    """Why an apiVersion and kind cannot belong together, and what was probably meant."""

    message: str
    hint: str | None


@lru_cache(maxsize=4096)
def is_known_kind(kind: str, api_version: str) -> bool:
    """Whether the kind, in this group and version, is the one that gpuflow knows by that name."""
    group, _, version = api_version.rpartition("/")
    versions = VERSIONS.get((kind, group))
    return (kind, group) in HARMLESS if versions is None else version in versions


@lru_cache(maxsize=4096)
def kind_title(kind: str, api_version: str) -> str:
    """What to call a kind: its bare name where that says enough, else with the apiVersion it came with."""
    return kind if is_known_kind(kind, api_version) else f"{kind} ({api_version})"


@lru_cache(maxsize=4096)
def kind_fault(kind: str, api_version: str) -> KindFault | None:
    """A kind that its API group does not have, as far as that can be known: misspelled, or in the wrong group."""
    group = api_version.rpartition("/")[0]
    if group not in CHECKED_GROUPS or (kind, group) in KNOWN | NAMESAKE_KINDS:
        return None
    message, home = f"{api_version} has no kind {kind}", HOME.get(kind)
    if home is not None:
        best = "v1" if home == "" else f"{home}/{NEWEST[home]}" if home in NEWEST else None
        return KindFault(message, f"write apiVersion: {best}" if best else f"{kind} is of the group {home}")
    here = [name for name, place in KNOWN if place == group]
    near = nearest_word(kind, here)
    if near is not None or group == "":
        return KindFault(message, f'did you mean "{near}"?' if near else did_you_mean(kind, here))
    return None


KUEUE_NAMESPACE = "kueue-system"
KUEUE_SETTINGS = "kueue-manager-config"
KUEUE_SETTINGS_KEY = "controller_manager_config.yaml"


def rbac(namespaces: Sequence[str], account: str | None = None, home: str = "") -> list[dict[str, Any]]:
    """The least permissions a snapshot needs: list, on these kinds, and Kueue's configuration by its name.

    With an account, which lives in the namespace `home`, also the account and what binds the permissions to it.
    """
    name, of_all = "gpuflow-reader", ALL in namespaces
    whole = _role("ClusterRole", {"name": name}, [each for each in SOURCES if of_all or not each.namespaced])
    whole["rules"].append(
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [KUEUE_SETTINGS], "verbs": ["get"]}
    )
    places = [] if of_all else [{"name": name, "namespace": each} for each in namespaces]
    roles = [*(_role("Role", each, [one for one in SOURCES if one.namespaced]) for each in places), whole]
    if account is None:
        return roles
    metadata = {"name": account, "namespace": home}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *roles,
        *(_binding("RoleBinding", each, "Role", name, metadata) for each in places),
        # Several namespaces may have their reader, and bindings of a cluster share one name space.
        _binding("ClusterRoleBinding", {"name": f"{name}-{home}"}, "ClusterRole", name, metadata),
    ]


def _role(kind: str, metadata: dict[str, str], sources: Iterable[Source]) -> dict[str, Any]:
    groups: dict[str, list[str]] = {}
    for source in sources:
        groups.setdefault(source.group, []).append(source.plural)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [
            {"apiGroups": [group], "resources": sorted(plurals), "verbs": ["list"]} for group, plurals in groups.items()
        ],
    }


def _binding(kind: str, metadata: dict[str, str], role: str, name: str, account: dict[str, str]) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
